"""The autoscaler's command line. Flags have kube-controller-manager's names, units and defaults.

Flags are validated before anything starts: an invalid flag ends with one line on stderr and exit status 2, any other
error with one line and exit status 1.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from autoscaler.commands.flags import availability_options, config_options, decision_log_options, finite, ui_options
from autoscaler.core.config import PREFIX, Mode
from autoscaler.core.model import HPA_APIS, HPAApi
from autoscaler.loop.controller import Controller
from autoscaler.loop.options import Availability, Options
from autoscaler.loop.telemetry import Telemetry
from autoscaler.objects.hpa import FIELD_MANAGER
from autoscaler.records.audit import AuditLog, AuditLogError
from autoscaler.settings import DEFAULTS as SETTINGS
from autoscaler.ui.sources import WhatIf
from kube.api.client import KubeClient, KubeConfigError
from kube.process.config_page import given_flags
from kube.process.flags import (
    CONTEXT_SETTINGS,
    POSITIVE_DURATION,
    GoCommand,
    LazyGroup,
    Parsed,
    bool_option,
    flag_section,
    verbosity_option,
)
from kube.process.runtime import run as run_process
from kube.process.runtime import setup_logging, stopped_by_signals
from kube.process.settings import setting_option
from kube.security.tls import TLSError
from kube.security.trust import TrustError
from kube.serving.listener import ListenError
from kube.version import VERSION

_DEFAULTS = Options()


def _hpa_apis(text: str) -> tuple[HPAApi, ...]:
    """Parse `kubernetes,milliscale`; at least one API must be named."""
    known = {api.name: api for api in HPA_APIS}
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown API {name!r}; known: {', '.join(known)}")
    return tuple(api for api in HPA_APIS if api.name in names)


_LAZY = {
    "explain": "autoscaler.commands.explain:explain",
    "migrate": "autoscaler.commands.migrate:migrate",
    "shadow-report": "autoscaler.commands.shadow_report:shadow_report",
    "replay": "replay.commands:replay",
    "tune": "replay.tune.command:tune",
    "advise": "replay.advise.command:advise",
}


@click.group(cls=LazyGroup, lazy=_LAZY, context_settings=CONTEXT_SETTINGS)
@click.version_option(VERSION)
def main() -> None:
    """Milliscale's HorizontalPodAutoscaler controller."""


@main.command(cls=GoCommand)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    show_default="the pod's service account",
    help="Path to a kubeconfig file.",
)
@click.option(
    "--hpa-apis",
    type=Parsed("apis", _hpa_apis),
    show_default="kubernetes, and milliscale if it is served",
    help="Comma-separated APIs whose HPAs are reconciled. kubernetes: autoscaling/v2, which no other controller may "
    "reconcile then; milliscale: milliscale.io/v1, which kube-controller-manager does not know.",
)
@click.option(
    "--mode",
    type=click.Choice([each.value for each in Mode]),
    default=_DEFAULTS.mode.value,
    help="act: apply decisions; dry-run: only record them, as events, metrics and /debug/decisions; shadow: compare "
    f"them with kube-controller-manager's, and write nothing. The annotation {PREFIX}mode can restrict it per HPA. "
    "Without act, the process takes no Lease and saves no history.",
)
@bool_option(
    "--allow-foreign-controller",
    default=_DEFAULTS.allow_foreign_controller,
    help="Act on HPAs whose status another controller writes, too. By default they are only observed until it has left "
    "their status out of date for ten minutes.",
)
@click.option(
    "--horizontal-pod-autoscaler-sync-period",
    "sync_period",
    type=POSITIVE_DURATION,
    default="15s",
    help="Time from the end of an HPA's reconciliation to the start of its next one.",
)
@bool_option(
    "--eager",
    default=_DEFAULTS.eager,
    help="Evaluate HPAs every second, and scale up as soon as a sync would. Scaling down stays as it is. "
    f"The annotation {PREFIX}eager overrides it per HPA.",
)
@config_options
@click.option(
    "--concurrent-horizontal-pod-autoscaler-syncs",
    "workers",
    type=click.IntRange(min=1),
    default=_DEFAULTS.workers,
    show_default="5, and one more per 100 HPAs",
    help="Number of HPAs that are reconciled concurrently. A namespace of which none is being "
    "reconciled does not wait.",
)
@click.option(
    "--kube-api-qps",
    "qps",
    type=Parsed("float", finite),
    default=_DEFAULTS.qps,
    show_default="20, 3 more per HPA and sync period, and 1 more per eager HPA",
    help="QPS limit for requests to the API server about scales, statuses and events together, and for each metrics "
    "API; scales are written first. 0 or less: no limit.",
)
@click.option(
    "--kube-api-burst",
    "burst",
    type=click.IntRange(min=1),
    default=_DEFAULTS.burst,
    show_default="1.5 times --kube-api-qps",
    help="Number of requests that may be sent at once.",
)
@click.option(
    "--watch-bookmark-interval",
    "bookmark_seconds",
    type=POSITIVE_DURATION,
    default="1m0s",
    hidden=True,  # For tests; kube-apiserver's interval is fixed.
)
@click.option(
    "--bind-address",
    default=_DEFAULTS.bind_address,
    help="IP address on which to serve /healthz, /livez, /readyz, /metrics and /debug, over HTTP.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=_DEFAULTS.metrics_port,
    help="Port on --bind-address; 0: a free one.",
)
@setting_option(SETTINGS)
@availability_options
@decision_log_options
@verbosity_option
@flag_section("Web page flags")
@ui_options
def run(
    *,
    hpa_apis: tuple[HPAApi, ...] | None,
    mode: str,
    availability: Availability,
    verbosity: int,
    **others: Any,
) -> None:
    """Reconcile the HorizontalPodAutoscalers of a cluster until SIGTERM or Ctrl-C."""
    setup_logging(verbosity)
    # The other parameters have the names of the fields.
    options = Options(
        hpa_apis=_DEFAULTS.hpa_apis if hpa_apis is None else hpa_apis,
        optional_hpa_apis=_DEFAULTS.optional_hpa_apis if hpa_apis is None else (),
        mode=Mode(mode),
        # Only processes in mode act have Leases and a saved history.
        availability=availability if mode == Mode.ACT else Availability(shard=availability.shard),
        flags=given_flags(click.get_current_context()),
        **others,
    )
    try:
        run_process(run_controller(options, what_if=None if options.ui_address is None else _what_if()))
    except (KubeConfigError, AuditLogError, ListenError, TLSError, TrustError) as error:
        raise click.ClickException(str(error)) from error


async def run_controller(options: Options, *, what_if: WhatIf | None = None) -> None:
    """Connect to the API server, open the audit file and run a controller until SIGTERM or SIGINT.

    Raises:
        KubeConfigError: there is no usable configuration.
        AuditLogError: the audit file cannot be opened.
        ListenError, TLSError, TrustError: as Controller.run.
    """
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.enter_context(stopped_by_signals(stop))
        client = await KubeClient.connect(
            options.kubeconfig,
            user_agent=FIELD_MANAGER,
            settings=options.settings.api_server,
            bookmark_seconds=options.bookmark_seconds,
        )
        await stack.enter_async_context(client)
        on_record, telemetry = None, Telemetry()
        if options.decision_log.audit is not None:
            audit = AuditLog(
                options.decision_log.audit, options.settings.audit, on_dropped=telemetry.audit_records_lost.inc
            )
            on_record = (await stack.enter_async_context(audit)).write
        await Controller(client, options, on_record=on_record, telemetry=telemetry, what_if=what_if).run(stop)


def _what_if() -> WhatIf:
    """Return the function of the package `replay`, which is imported only if it is needed."""
    from replay.what_if import what_if

    return what_if
