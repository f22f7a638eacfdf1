"""The autoscaler's command line. Flags have kube-controller-manager's names, units and defaults.

Everything is validated before anything starts: a wrong flag is one line on stderr and exit status 2, whatever goes
wrong later is one line and exit status 1.
"""

from __future__ import annotations

import math
from pathlib import Path

import click

from autoscaler.apis import HPA_APIS, HPAApi
from autoscaler.availability import availability_options
from autoscaler.controller import run as run_controller
from autoscaler.model import Config
from autoscaler.options import Availability, Options
from kube.client import KubeConfigError
from kube.durations import DURATION, POSITIVE_DURATION
from kube.flags import BOOL, CONTEXT_SETTINGS, verbosity_option
from kube.logs import setup_logging
from kube.process import run as run_process

__all__ = ["main"]

_GATES = ("HPAScaleToZero",)
_DEFAULTS = Options()


class _FeatureGates(click.ParamType[dict[str, bool]]):
    """`Name=true,Other=false`, as {name: on}."""

    name = "gates"

    def convert(
        self, value: str | dict[str, bool], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, bool]:
        """Parse the text of the flag; every fault names the part that is wrong."""
        if isinstance(value, dict):
            return value
        gates = {}
        for part in filter(None, (part.strip() for part in value.split(","))):
            name, _, switch = part.partition("=")
            if name not in _GATES:
                self.fail(f"unknown feature gate {name!r}; known: {', '.join(_GATES)}", param, ctx)
            gates[name] = BOOL.convert(switch, param, ctx)
        return gates


class _HPAApis(click.ParamType[tuple[HPAApi, ...]]):
    """`kubernetes,milliscale`, as the APIs of these names."""

    name = "apis"

    def convert(
        self, value: str | tuple[HPAApi, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[HPAApi, ...]:
        """Parse the text of the flag; at least one API must be named."""
        if isinstance(value, tuple):
            return value
        known = {api.name: api for api in HPA_APIS}
        names = [part.strip() for part in value.split(",")]
        for name in names:
            if name not in known:
                self.fail(f"unknown API {name!r}; known: {', '.join(known)}", param, ctx)
        return tuple(api for api in HPA_APIS if api.name in names)


class _Finite(click.ParamType[float]):
    """A number that is neither infinite nor "nan"; none below zero unless it is allowed."""

    name = "float"

    def __init__(self, *, negative_allowed: bool = False) -> None:
        self._negative_allowed = negative_allowed

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the text of the flag."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number < 0 and not self._negative_allowed:
            self.fail(f"{value} must not be negative", param, ctx)
        return number


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


@click.group(context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="milliscale")
def main() -> None:
    """The HorizontalPodAutoscaler loop of milliscale."""


@main.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig file; without it the service account of the pod this runs in.",
)
@click.option(
    "--hpa-apis",
    "hpa_apis",
    type=_HPAApis(),
    help="Comma-separated: whose HPAs to reconcile. kubernetes: autoscaling/v2, which nobody else may reconcile; "
    "milliscale: milliscale.io/v1, which is safe beside Kubernetes' own controller.  "
    "[default: kubernetes, and milliscale where it is served]",
)
@click.option(
    "--horizontal-pod-autoscaler-sync-period",
    "sync_period",
    type=POSITIVE_DURATION,
    default="15s",
    show_default=True,
    help="Time from the end of an HPA's reconciliation to the start of its next.",
)
@click.option(
    "--horizontal-pod-autoscaler-downscale-stabilization",
    "downscale_stabilization",
    type=DURATION,
    default="5m0s",
    show_default=True,
    help="Time for which a higher recommendation holds a scale-down back, where the HPA sets no window of its own.",
)
@click.option(
    "--horizontal-pod-autoscaler-tolerance",
    "tolerance",
    type=_Finite(),
    default=_DEFAULTS.config.tolerance,
    show_default=True,
    help="How far the ratio of a metric to its target may be from 1 without effect.",
)
@click.option(
    "--horizontal-pod-autoscaler-cpu-initialization-period",
    "cpu_initialization_period",
    type=DURATION,
    default="5m0s",
    show_default=True,
    help="Time after a pod's start in which its CPU samples may be skipped.",
)
@click.option(
    "--horizontal-pod-autoscaler-initial-readiness-delay",
    "initial_readiness_delay",
    type=DURATION,
    default="30s",
    show_default=True,
    help="Time after a pod's start in which changes of readiness count as its first becoming ready.",
)
@click.option(
    "--concurrent-horizontal-pod-autoscaler-syncs",
    "workers",
    type=click.IntRange(min=1),
    default=_DEFAULTS.workers,
    show_default=True,
    help="How many HPAs are reconciled at the same time.",
)
@click.option(
    "--kube-api-qps",
    "qps",
    type=_Finite(negative_allowed=True),
    default=_DEFAULTS.qps,
    show_default=True,
    help="Requests a second to the API server, for scales, for objects and for each metrics API; 0 or less: no limit.",
)
@click.option(
    "--kube-api-burst",
    "burst",
    type=click.IntRange(min=1),
    default=_DEFAULTS.burst,
    show_default=True,
    help="How many requests may exceed --kube-api-qps at once.",
)
@click.option(
    "--feature-gates",
    "feature_gates",
    type=_FeatureGates(),
    default="",
    help=f"Comma-separated Name=true|false. Known: {', '.join(_GATES)} (default: true, as in Kubernetes 1.37).",
)
@click.option(
    "--bind-address",
    default=_DEFAULTS.bind_address,
    show_default=True,
    help="Address on which /healthz, /livez, /readyz and /metrics are served, over plain HTTP.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=_DEFAULTS.metrics_port,
    show_default=True,
    help="Port of --bind-address; 0 lets the system choose one.",
)
@availability_options
@verbosity_option
def run(
    *,
    kubeconfig: Path | None,
    hpa_apis: tuple[HPAApi, ...] | None,
    sync_period: float,
    downscale_stabilization: float,
    tolerance: float,
    cpu_initialization_period: float,
    initial_readiness_delay: float,
    workers: int,
    qps: float,
    burst: int,
    feature_gates: dict[str, bool],
    bind_address: str,
    metrics_port: int,
    availability: Availability,
    verbosity: int,
) -> None:
    """Reconcile the HorizontalPodAutoscalers of a cluster until SIGTERM or Ctrl-C."""
    setup_logging(verbosity)
    options = Options(
        kubeconfig=kubeconfig,
        hpa_apis=_DEFAULTS.hpa_apis if hpa_apis is None else hpa_apis,
        welcome_hpa_apis=_DEFAULTS.welcome_hpa_apis if hpa_apis is None else (),
        sync_period=sync_period,
        workers=workers,
        qps=qps,
        burst=burst,
        bind_address=bind_address,
        metrics_port=metrics_port,
        availability=availability,
        config=Config(
            tolerance=tolerance,
            downscale_stabilization_ms=_milliseconds(downscale_stabilization),
            cpu_initialization_period_ms=_milliseconds(cpu_initialization_period),
            initial_readiness_delay_ms=_milliseconds(initial_readiness_delay),
            scale_to_zero=feature_gates.get("HPAScaleToZero", _DEFAULTS.config.scale_to_zero),
        ),
    )
    try:
        run_process(run_controller(options))
    except KubeConfigError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        flags = f"--bind-address={bind_address} --metrics-port={metrics_port}"
        raise click.ClickException(f"{flags}: cannot serve there: {error.strerror}") from error
