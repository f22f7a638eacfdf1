"""The flags that `replay` and `tune` share: where the load comes from, and the model of the workload."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from adapter.commands.flags import PrometheusAccess, prometheus_flags
from adapter.forecasts.options import ForecastOptions
from adapter.rules.goregex import GoRegex, GoRegexError
from autoscaler.commands.debug_client import SERVER_URL
from autoscaler.commands.flags import config_options
from autoscaler.core.config import Config
from kube.process.flags import DURATION, POSITIVE_DURATION, Parsed, flag_section, kubeconfig_options, option_group
from kube.values.durations import DurationError, parse_duration
from kube.values.quantity import Quantity, QuantityError
from replay.forecast import parse_forecast

_F = TypeVar("_F", bound=Callable[..., Any])

_DAYS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dw])")
_DAY_HOURS: Final = {"d": 24, "w": 7 * 24}
_CLUSTER_NAME: Final = re.compile(r"(?:([a-z0-9][-a-z0-9]*)/)?([a-z0-9][-a-z0-9.]*)")
_FILE: Final = click.Path(path_type=Path)
"""A file that is missing is an error of the user like one of another form: one sentence, exit status 1."""
_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, or a duration before another time; both in milliseconds."""

    time_ms: int | None = None
    ago_ms: int = 0

    def resolve(self, end_ms: int) -> int:
        """Return the time; one that is ago counts from `end_ms`."""
        return end_ms - self.ago_ms if self.time_ms is None else self.time_ms


def _moment(text: str) -> Moment:
    """Parse `24h`, `2w`, RFC 3339, Unix seconds, or `now`."""
    text = text.strip()
    if text == "now":
        return Moment()
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(seconds) and 0 <= seconds < 1e11:
            return Moment(round(seconds * 1000))
        raise ValueError(f"{text} is not a time in Unix seconds")
    try:
        ago = parse_duration(_DAYS.sub(lambda found: f"{float(found[1]) * _DAY_HOURS[found[2]]:f}h", text))
    except DurationError:
        return Moment(_absolute_ms(text))
    if ago < 0:
        raise ValueError(f"{text} must not be negative: it is how long ago")
    return Moment(ago_ms=round(ago * 1000))


def _absolute_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text.upper())  # RFC 3339 allows t and z
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 24h, 2w, 2026-01-31T12:00:00Z, Unix seconds, or now") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write {time.isoformat()}Z for UTC")
    return round(time.timestamp() * 1000)


def _quantity_of(text: str) -> tuple[str, Quantity]:
    """Parse `NAME=QUANTITY`; the name may have an equals sign, as selectors have, or be absent."""
    name, _, number = text.rpartition("=")
    try:
        quantity = Quantity.parse(number)
    except QuantityError:
        raise ValueError(f"{number!r} is not a quantity such as 500m or 2Gi") from None
    if quantity.sign <= 0:
        raise ValueError(f"{number} must be greater than 0")
    return name, quantity


def _pod_cost(text: str) -> float:
    """Parse `0.04/h` or `0.04`."""
    try:
        cost = float(text.removesuffix("/h"))
    except ValueError:
        cost = math.nan
    if not 0 <= cost < math.inf:
        raise ValueError(f"{text!r} is not the cost of a pod for an hour, such as 0.04/h")
    return cost


def _request(text: str) -> tuple[str, Quantity]:
    if not text.rpartition("=")[0]:
        raise ValueError(f"{text!r} must be [CONTAINER/]RESOURCE=QUANTITY, such as cpu=500m")
    return _quantity_of(text)


def _pattern(text: str) -> str:
    """Check a regular expression of Prometheus."""
    try:
        GoRegex(text)
    except GoRegexError as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class HPAReference:
    """A file with HPAs, or the namespace and name of one in the cluster; a namespace "" is that of the context."""

    path: Path | None = None
    cluster: tuple[str, str] | None = None


def _hpa(text: str) -> HPAReference:
    """Return a file if the path exists, else decide by the form of the text."""
    path = Path(text)
    found = _CLUSTER_NAME.fullmatch(text)
    if found is None or path.exists() or path.suffix in _FILE_SUFFIXES:
        return HPAReference(path=path)
    return HPAReference(cluster=(found[1] or "", found[2]))


MOMENT: Final = Parsed("time", _moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFlags:
    """Where the load comes from; without `csv` and `server` from Prometheus. See the flags."""

    csv: Path | None
    server: str | None
    config_file: Path | None
    start: Moment | None
    end: Moment
    pods: str | None
    forecasts: tuple[tuple[str, ForecastOptions], ...]
    """(metric, or "" for the first one; what HPAs see of it instead)."""
    cache_dir: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """Assumptions about the workload and the controller, in seconds; see the flags."""

    step: float
    offset: float
    pod_startup: float | None
    initial_replicas: int | None
    request: tuple[tuple[str, Quantity], ...]
    """(resource or CONTAINER/RESOURCE, what a pod requests)."""
    capacity: tuple[tuple[str, Quantity], ...]
    """(metric, or "" for the first one; the load that one pod can serve)."""
    pod_cost: float | None
    """Per hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFlags:
    """The values of all flags of `input_flags`."""

    source: LoadFlags
    model: ModelFlags
    prometheus: PrometheusAccess
    config: Config
    kubeconfig: Path | None
    context: str | None


config_file_option = click.option(
    "--config",
    "config_file",
    type=_FILE,
    show_default="series have the names of the metrics",
    help="The adapter's rules file, whose queries are sent to Prometheus.",
)
end_option = click.option("--to", "end", type=MOMENT, default="now", help="End of the load: a time, or how long ago.")
cache_dir_option = click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    show_default="$XDG_CACHE_HOME/milliscale/replay",
    help="Directory of responses of Prometheus, from which an interrupted replay continues.",
)
pod_startup_option = click.option(
    "--pod-startup",
    type=DURATION,
    show_default="as recorded",
    help="Time that a new pod takes to become ready. Needed where it is not recorded.",
)

_load_flags = option_group(
    "source",
    LoadFlags,
    click.option("--csv", type=_FILE, help="Recorded load as CSV, gzipped or not: timestamp, and a column per metric."),
    click.option(
        "--server",
        type=SERVER_URL,
        help="URL of a running autoscaler, such as http://127.0.0.1:8080 behind kubectl port-forward: its kept "
        "decisions on the HPA are the load.",
    ),
    config_file_option,
    click.option(
        "--from",
        "start",
        type=MOMENT,
        show_default="24h; all of a CSV file, all kept decisions",
        help="Start of the load: a time, or how long before --to, such as 24h or 2w.",
    ),
    end_option,
    click.option(
        "--pods",
        type=Parsed("regex", _pattern),
        show_default="by the kind and name of the scale target",
        help="Regular expression of the names that the target's pods have had.",
    ),
    click.option(
        "--forecast",
        "forecasts",
        type=Parsed("[metric=]horizon[,option=value...]", parse_forecast),
        multiple=True,
        help="HPAs see the highest value expected within the horizon, if that is more than the present one: what the "
        "adapter serves for a rule with this forecast, such as 5m or packets_per_second=5m,history=2w,"
        "timezone=Europe/Berlin. What the source has before --from is its history.",
        show_default=False,
    ),
    cache_dir_option,
)


_model_flags = option_group(
    "model",
    ModelFlags,
    click.option("--step", type=POSITIVE_DURATION, default="15s", help="Sync period of the controller."),
    click.option("--offset", type=DURATION, default="0s", help="Time of the first reconciliation after --from."),
    pod_startup_option,
    click.option(
        "--initial-replicas",
        type=click.IntRange(min=0),
        show_default="as recorded, or what the load needs",
        help="Replicas at the start.",
    ),
    click.option(
        "--request",
        type=Parsed("[container/]resource=quantity", _request),
        multiple=True,
        help="What a pod or container requests, such as cpu=500m or app/cpu=500m.  [default: as in the workload beside "
        "the HPA, in the cluster, or in kube-state-metrics]",
        show_default=False,
    ),
    click.option(
        "--capacity",
        type=Parsed("[metric=]quantity", _quantity_of),
        multiple=True,
        help="What one ready pod can serve, such as 100 or packets_per_second=100; load above that is overload. "
        "Without it, overload is unknown.",
        show_default=False,
    ),
    click.option(
        "--pod-cost",
        type=Parsed("number/h", _pod_cost),
        help="Cost of a pod for an hour, such as 0.04/h, in any currency.",
    ),
)


def input_flags(command: _F) -> _F:
    """Add the flags of load, model and controller, in the sections of a GoCommand; passed on as `inputs`."""
    groups = (
        ("Load flags", _load_flags),
        ("Prometheus flags", prometheus_flags),
        ("Workload flags", _model_flags),
        ("Controller flags", config_options),
        ("Kubernetes client flags", kubeconfig_options),
    )
    command = option_group("inputs", InputFlags)(command)
    for title, flags in reversed(groups):  # --help lists the option that is applied last first
        command = flag_section(title)(flags(command))
    return command


hpa_option = click.option(
    "--hpa",
    "hpas",
    type=Parsed("file|[namespace/]name", _hpa),
    multiple=True,
    required=True,
    help="HPA: a file, or [NAMESPACE/]NAME of the cluster. Can be repeated; all need the same scale target.",
)
