"""The command `replay`, and the input that `tune` shares. Optional dependencies are imported when they are used."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource
from msgspec.structs import replace

from adapter.prometheus import PrometheusConfigError
from adapter.rules import RulesError, RulesFile
from adapter.rules.manifests import load_manifest_rules
from autoscaler.commands.debug_client import fetch_decisions
from autoscaler.core.model import HPA
from kube.api.client import KubeClient
from kube.process.flags import GoCommand
from kube.process.runtime import run
from kube.values.printable import printable
from replay.cluster import NoClusterError, connected, read_cluster_hpa
from replay.controller_flags import FIELDS, fit, running_config, unknown
from replay.csv_source import read_csv
from replay.flags import HPAReference, InputFlags, LoadFlags, Moment, hpa_option, input_flags
from replay.forecast import WARM_UP_DAYS, forecast_keys, with_forecasts
from replay.hpa_files import HPAFile, check_requests, check_together, read_hpa_file
from replay.load import Load, ReplayError
from replay.output.comparison import Comparison, compare, notes, time_text
from replay.output.documents import CSVDocument, Document, JSONDocument
from replay.output.names import named
from replay.output.table import print_table
from replay.reality import with_startup
from replay.recorded import recorded_load
from replay.simulation import Settings, capacity_of
from replay.tune.evaluation import DAY_MS

_DEFAULT_FROM: Final = Moment(ago_ms=24 * 3_600_000)
_SHORT_STEP_MS: Final = 5000
"""A short scrape interval: no more is to be seen in the values."""
_MINUTE_MS: Final = 60_000
"""A multiple of usual sync periods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The HPAs, and the load that they are replayed on."""

    files: Sequence[HPAFile]
    load: Load
    settings: Settings


@click.command(cls=GoCommand)
@hpa_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    help="Output format; json and csv have every reconciliation.",
)
@click.option("--summary-only", is_flag=True, help="With -o json: leave the reconciliations out.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write a page with load, replicas and decisions to this file.",
)
@click.option(
    "--eager",
    is_flag=True,
    help="Also replay the first HPA in eager mode: evaluated every second, and scaled up at once.",
)
@input_flags
def replay(
    *,
    hpas: tuple[HPAReference, ...],
    eager: bool,
    inputs: InputFlags,
    output: str,
    summary_only: bool,
    html: Path | None,
) -> None:
    """Show what HPAs would have done on recorded load.

    Several HPAs are compared on the same load, and with the real replicas, if these are recorded. Exits
    with 0, with 1 for an error in the HPAs or the load, with 2 for invalid flags.

    \b
    Examples:
      # Yesterday's load of the HPA in a file, with the adapter's rules
      python -m autoscaler replay --hpa hpa.yaml --prometheus-url http://localhost:9090 --config rules.yaml
    \b
      # The cluster's HPA and a proposal, over two weeks, as a page
      python -m autoscaler replay --hpa shop/web --hpa new.yaml --from 2w --html replay.html \\
        --prometheus-url http://localhost:9090 --config rules.yaml
    \b
      # Load from a file
      python -m autoscaler replay --hpa hpa.yaml --pod-startup 30s --csv load.csv
    \b
      # The decisions that a running autoscaler keeps
      python -m autoscaler replay --hpa new.yaml --server http://127.0.0.1:8080
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    if summary_only and output != "json":
        raise click.UsageError("--summary-only needs -o json: only that has reconciliations and summaries")
    with errors_of_users():
        found = read_inputs(hpas, inputs, eager=eager)
        document = _document(output, found.files, has_steps=not summary_only)
        comparison = compare(
            named([file.hpa for file in found.files]),
            found.load,
            found.settings,
            document=document,
            sentences=html is not None,
        )
        if document is None:
            print_table(comparison, sys.stdout)
        else:
            for note in notes(comparison):
                click.echo(f"note: {printable(note)}", err=True)
        if html is not None:
            write_html(comparison, html)


def read_inputs(
    hpas: Sequence[HPAReference], flags: InputFlags, *, eager: bool = False, warm_up: bool = False
) -> Inputs:
    """Read the HPAs and the load that the flags name.

    Args:
        hpas: the HPAs.
        flags: the flags.
        eager: add the first HPA with that annotation.
        warm_up: where there are forecasts, and no beginning is given, a file's first days are history only.

    Raises:
        click.UsageError: flags contradict each other.
        ReplayError: something cannot be read, or is not valid.
    """
    model = flags.model
    _check_sources(flags.source)
    files = [file for reference in hpas for file in _read_hpas(reference, flags)]
    if eager:
        first = files[0].hpa
        overrides = dataclasses.replace(first.overrides, eager=True)
        files.append(dataclasses.replace(files[0], hpa=replace(first, overrides=overrides)))
    check_together(files)
    requests = {**_requests(files), **{name: quantity.milli_value() for name, quantity in model.request}}
    capacity = {name: quantity.as_float() for name, quantity in model.capacity}
    settings = Settings(
        config=flags.config,
        step_ms=round(model.step * 1000),
        offset_ms=round(model.offset * 1000),
        initial_replicas=model.initial_replicas,
        pod_cost=model.pod_cost,
        capacity=capacity_of([file.hpa for file in files], capacity),
    )
    wanted = forecast_keys([file.hpa for file in files], flags.source.forecasts)
    given = {name for name in (*FIELDS, "step") if _is_given(name)}
    note = ""

    def completed(load: Load) -> tuple[Load, Settings]:
        load = dataclasses.replace(load, requests={**load.requests, **requests})
        check_requests(files, load.requests)
        every = [file.hpa for file in files]
        load = with_startup(load, model.pod_startup, every, has_capacity=bool(settings.capacity))
        return load, dataclasses.replace(settings, pod_startup_ms=load.startup.milliseconds if load.startup else 0)

    if flags.source.server is not None:
        uid = files[0].hpa.uid if hpas[0].cluster else ""  # a file may be of another cluster
        load, settings = completed(_load_of_server(flags.source, flags.source.server, files[0].hpa, uid))
        config, note = running_config(flags.source.server, flags.config, given - {"step"})
        settings = dataclasses.replace(settings, config=config)
    elif flags.source.csv is not None:
        load, settings = completed(_csv_load(flags.source, flags.source.csv, files, warm_up=warm_up))
        settings, note = fit(files[0].hpa, load, settings, given)
    else:
        uses_cluster = flags.kubeconfig is not None or flags.context is not None or any(one.cluster for one in hpas)
        connect = functools.partial(connected, flags.kubeconfig, flags.context) if uses_cluster else None
        read = functools.partial(_prometheus_load, flags, files, requests, connect)
        end_ms = flags.source.end.resolve(now_ms())
        start_ms = (flags.source.start or _DEFAULT_FROM).resolve(end_ms)
        load, settings = completed(read(settings, start_ms, end_ms))
        start_ms = load.start_ms // _MINUTE_MS * _MINUTE_MS  # not after the beginning with any sync period
        fitted = settings
        first_day = load
        if load.replicas is None:
            _, note = fit(files[0].hpa, load, settings, given)
        elif unknown(files[0].hpa, given):
            day_end_ms = min(end_ms, start_ms + DAY_MS + _MINUTE_MS)
            with contextlib.suppress(ReplayError):  # a metric may begin later, or be older than what Prometheus has
                first_day = read(dataclasses.replace(settings, step_ms=_SHORT_STEP_MS), start_ms, day_end_ms)
            first_day = dataclasses.replace(first_day, requests=load.requests, startup=load.startup)
            fitted, note = fit(files[0].hpa, first_day, settings, given)
        if fitted.step_ms != settings.step_ms:
            notes = load.notes
            load, _ = completed(read(fitted, start_ms, end_ms))
            load = dataclasses.replace(load, notes=notes)  # this one began later, and does not say why
        if first_day.end_ms == end_ms:  # all of the time, and no two scale events are between two values
            load = dataclasses.replace(load, replicas=first_day.replicas, ready_replicas=first_day.ready_replicas)
        settings = fitted
    load = dataclasses.replace(load, notes=[*load.notes, *filter(None, [note])])
    load = with_forecasts(load, {**load.forecast_options, **wanted})
    return Inputs(files=files, load=load, settings=settings)


def _read_hpas(reference: HPAReference, flags: InputFlags) -> list[HPAFile]:
    scale_to_zero = flags.config.scale_to_zero
    if reference.path is not None:
        return read_hpa_file(reference.path, scale_to_zero=scale_to_zero)
    assert reference.cluster is not None
    namespace, name = reference.cluster
    context, kubeconfig = flags.context, flags.kubeconfig
    try:
        return [read_cluster_hpa(namespace, name, kubeconfig=kubeconfig, context=context, scale_to_zero=scale_to_zero)]
    except NoClusterError as error:
        text = f"{namespace}/{name}" if namespace else name
        raise ReplayError(f"HPA {text} cannot be read from the cluster: {error} (there is no file {text})") from error


@contextlib.contextmanager
def errors_of_users() -> Iterator[None]:
    """Print errors in one sentence, with exit status 1, and no logs: the errors say the same."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        yield
        sys.stdout.flush()
    except (ReplayError, RulesError, PrometheusConfigError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise  # The reader has enough; click ends quietly.
    except OSError as error:
        _discard_stdout()
        problem = f"{error.filename or 'standard output'} cannot be used: {error.strerror or error}"
        raise click.ClickException(problem) from error
    finally:
        root.setLevel(level)


@contextlib.contextmanager
def prometheus_library() -> Iterator[None]:
    """Raise ReplayError if the imports in the context fail because prometheus-api-client is not installed."""
    try:
        yield
    except ImportError as error:
        raise ReplayError("--prometheus-url needs prometheus-api-client: pip install 'milliscale[replay]'") from error


def _discard_stdout() -> None:
    """Send what is left in the buffer nowhere, so that the interpreter does not fail to write it when it exits."""
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def write_html(comparison: Comparison, path: Path) -> None:
    """Write the page.

    Raises:
        ReplayError: the file cannot be written.
    """
    from replay.output.page import comparison_page

    write_page(comparison_page(comparison), path)


def write_page(text: str, path: Path) -> None:
    """Write a page; raise ReplayError if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReplayError(f"{path} cannot be written: {error.strerror or error}") from error
    click.echo(f"wrote {path}", err=True)


def _document(output: str, files: Sequence[HPAFile], *, has_steps: bool) -> Document | None:
    match output:
        case "json":
            return JSONDocument(sys.stdout, has_steps=has_steps)
        case "csv":
            return CSVDocument(sys.stdout, [file.hpa for file in files])
    return None


def _check_sources(source: LoadFlags) -> None:
    if [source.csv is not None, source.server is not None, _is_given("prometheus_url")].count(True) != 1:
        raise click.UsageError("give the load: one of --prometheus-url, --csv and --server")
    if source.server is not None and source.forecasts:
        raise click.UsageError("--forecast needs days of history: give --csv or --prometheus-url in place of --server")
    if source.csv is not None and source.config_file is not None:
        raise click.UsageError("--config has no effect with --csv; leave one out")
    for name in ("config_file", "step", "offset"):
        if source.server is not None and _is_given(name):
            raise click.UsageError(f"--{name.removesuffix('_file')} has no effect with --server; leave one out")


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def _requests(files: Sequence[HPAFile]) -> dict[str, int]:
    """Return the requests in the files; of several workloads the first."""
    found: dict[str, int] = {}
    for file in reversed(files):
        found.update(file.requests or {})
    return found


def _csv_load(source: LoadFlags, path: Path, files: Sequence[HPAFile], *, warm_up: bool) -> Load:
    metrics = [spec.source for file in files for spec in file.hpa.spec.metrics]
    end = None if source.end == Moment() else source.end.resolve(now_ms())
    load = read_csv(path, metrics, start=None if source.start is None else source.start.resolve, to_ms=end)
    if source.start is None and source.forecasts and warm_up:
        return dataclasses.replace(load, start_ms=min(load.start_ms + WARM_UP_DAYS * DAY_MS, load.end_ms - DAY_MS))
    return load


def _load_of_server(source: LoadFlags, server: str, hpa: HPA, uid: str) -> Load:
    """Return the load of an autoscaler's kept decisions on an HPA."""
    page = run(fetch_decisions(server, namespace=hpa.namespace, name=hpa.name))
    end_ms = source.end.resolve(now_ms())
    return recorded_load(
        hpa.key,
        hpa.target,
        page.decisions,
        uid=uid,
        from_ms=None if source.start is None else source.start.resolve(end_ms),
        to_ms=None if source.end == Moment() else end_ms,  # the server's clock may be ahead
    )


def _prometheus_load(
    flags: InputFlags,
    files: Sequence[HPAFile],
    requests: Mapping[str, int],
    connect: Callable[[], contextlib.AbstractAsyncContextManager[KubeClient]] | None,
    assumed: Settings,
    start_ms: int,
    end_ms: int,
) -> Load:
    with prometheus_library():
        from replay.prometheus.source import PrometheusSettings, read_prometheus
    source = flags.source
    hpas = [file.hpa for file in files]
    settings = PrometheusSettings(
        options=run(flags.prometheus.authorized()),
        rules=read_rules(source.config_file),
        start_ms=start_ms,
        end_ms=end_ms,
        step_ms=_query_step_ms(assumed.step_ms, files),
        offset_ms=assumed.offset_ms,
        pods=source.pods,
        forecasts=forecast_keys(hpas, source.forecasts),
        requests=requests,
        cache=source.cache_dir,
        connect=connect,
        show_progress=sys.stderr.isatty(),
    )
    return _from_first_value(read_prometheus(hpas, settings), assumed.offset_ms)


def _from_first_value(load: Load, offset_ms: int) -> Load:
    """Return the load without the time before any metric has a value: the workload may be younger than the range."""
    parts = (each.segments(load.start_ms, load.end_ms) for each in load.series.values())
    firsts = (next((start_ms for start_ms, _, value in each if value == value), load.end_ms) for each in parts)
    start_ms = min(firsts, default=load.start_ms) - offset_ms
    if start_ms <= load.start_ms:
        return load
    note = f"No metric has a value before {time_text(start_ms)}, so the replay begins then."
    return dataclasses.replace(load, start_ms=start_ms, notes=[*load.notes, note])


def _query_step_ms(step_ms: int, files: Sequence[HPAFile]) -> int:
    """Return the time between two values: a part of the sync period if an HPA is evaluated between its syncs."""
    parts = -(-step_ms // _SHORT_STEP_MS)
    return step_ms // parts if any(file.hpa.overrides.eager for file in files) and step_ms % parts == 0 else step_ms


def read_rules(config: Path | None) -> RulesFile | None:
    """Return the rules of a file; None without one. Raises ReplayError, RulesError."""
    if config is None:
        return None
    first, *others = load_manifest_rules(config)
    if others:
        places = " and ".join(found.where for found in (first, *others))
        raise ReplayError(f"{config} has several rules files: {places}; put one into a file of its own")
    return first.rules


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return round(time.time() * 1000)
