"""Run a controller as a process."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from autoscaler.loop.controller import Controller
from autoscaler.loop.options import Options
from autoscaler.loop.telemetry import Telemetry
from autoscaler.objects.hpa import FIELD_MANAGER
from autoscaler.records.audit import audit_log
from autoscaler.ui.sources import WhatIf
from kube.api.client import KubeClient
from kube.process.runtime import stopped_by_signals


async def run(options: Options, *, what_if: WhatIf | None = None) -> None:
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
            audit = audit_log(
                options.decision_log.audit, options.settings.audit, on_dropped=telemetry.audit_records_lost.inc
            )
            on_record = (await stack.enter_async_context(audit)).write
        await Controller(client, options, on_record=on_record, telemetry=telemetry, what_if=what_if).run(stop)
