"""The autoscaler's command line. Flags have kube-controller-manager's names, units and defaults.

Everything is validated before anything starts: a wrong flag is one line on stderr and exit status 2, whatever goes
wrong later is one line and exit status 1.
"""

from __future__ import annotations

from pathlib import Path

import click

from autoscaler.commands.availability import availability_options
from autoscaler.commands.config_flags import config_options
from autoscaler.commands.explain import explain
from autoscaler.commands.journal import journal_options
from autoscaler.commands.migrate import migrate
from autoscaler.commands.shadow_command import shadow_report
from autoscaler.core.annotations import PREFIX
from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPA_APIS, HPAApi
from autoscaler.loop.controller import run as run_controller
from autoscaler.loop.options import Availability, Journal, Options
from autoscaler.records.audit import AuditLogError
from kube.client import KubeConfigError
from kube.durations import POSITIVE_DURATION
from kube.flags import ANY_FINITE, CONTEXT_SETTINGS, bool_option, verbosity_option
from kube.process import installed_version, setup_logging
from kube.process import run as run_process

_DEFAULTS = Options()


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


@click.group(context_settings=CONTEXT_SETTINGS)
@click.version_option(installed_version() or "unknown")
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
    "--mode",
    type=click.Choice([each.value for each in Mode]),
    default=_DEFAULTS.mode.value,
    show_default=True,
    help="What becomes of decisions. act: they are carried out. dry-run: only events, metrics and decisions tell of "
    "them. shadow: they are compared with those of Kubernetes' own controller, and nothing is written. The annotation "
    f"{PREFIX}mode restricts it for a single HPA. Without act this process takes no Lease and saves no memory.",
)
@bool_option(
    "--allow-foreign-controller",
    default=_DEFAULTS.allow_foreign_controller,
    show_default=True,
    help="Go on acting on HPAs whose status kube-controller-manager writes, too. Without it they are left to that one "
    "until it has not written them for ten minutes.",
)
@click.option(
    "--horizontal-pod-autoscaler-sync-period",
    "sync_period",
    type=POSITIVE_DURATION,
    default="15s",
    show_default=True,
    help="Time from the end of an HPA's reconciliation to the start of its next.",
)
@config_options
@click.option(
    "--concurrent-horizontal-pod-autoscaler-syncs",
    "workers",
    type=click.IntRange(min=1),
    default=_DEFAULTS.workers,
    help="How many HPAs are reconciled at the same time.  [default: 5, and one more for every 100 HPAs]",
)
@click.option(
    "--kube-api-qps",
    "qps",
    type=ANY_FINITE,
    default=_DEFAULTS.qps,
    show_default=True,
    help="Requests a second to the API server, for scales, statuses and events together, those that write a "
    "scale first, and for each metrics API; 0 or less: no limit.",
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
    "--watch-bookmark-interval",
    "bookmark_seconds",
    type=POSITIVE_DURATION,
    default="1m0s",
    # Of API servers; only a test needs another.
    hidden=True,
)
@click.option(
    "--bind-address",
    default=_DEFAULTS.bind_address,
    show_default=True,
    help="Address on which /healthz, /livez, /readyz, /metrics and /debug are served, over plain HTTP.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=_DEFAULTS.metrics_port,
    show_default=True,
    help="Port of --bind-address; 0 lets the system choose one.",
)
@availability_options
@journal_options
@verbosity_option
def run(
    *,
    kubeconfig: Path | None,
    hpa_apis: tuple[HPAApi, ...] | None,
    mode: str,
    allow_foreign_controller: bool,
    sync_period: float,
    workers: int | None,
    qps: float,
    burst: int,
    bookmark_seconds: float,
    bind_address: str,
    metrics_port: int,
    availability: Availability,
    journal: Journal,
    config: Config,
    verbosity: int,
) -> None:
    """Reconcile the HorizontalPodAutoscalers of a cluster until SIGTERM or Ctrl-C."""
    setup_logging(verbosity)
    options = Options(
        kubeconfig=kubeconfig,
        hpa_apis=_DEFAULTS.hpa_apis if hpa_apis is None else hpa_apis,
        welcome_hpa_apis=_DEFAULTS.welcome_hpa_apis if hpa_apis is None else (),
        mode=Mode(mode),
        allow_foreign_controller=allow_foreign_controller,
        sync_period=sync_period,
        workers=workers,
        qps=qps,
        burst=burst,
        bookmark_seconds=bookmark_seconds,
        bind_address=bind_address,
        metrics_port=metrics_port,
        # What it takes to act is left to the processes that do.
        availability=availability if mode == Mode.ACT else Availability(shard=availability.shard),
        journal=journal,
        config=config,
    )
    try:
        run_process(run_controller(options))
    except (KubeConfigError, AuditLogError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        flags = f"--bind-address={bind_address} --metrics-port={metrics_port}"
        raise click.ClickException(f"{flags}: cannot serve there: {error.strerror}") from error


main.add_command(explain)
main.add_command(migrate)
main.add_command(shadow_report)
