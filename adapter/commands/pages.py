"""Serve the web pages of the adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from adapter.commands.flags import ServeOptions
from adapter.commands.reload import RulesReloader
from adapter.diagnosis.checker import RuleChecker
from adapter.serving.rule_sets import RuleSets, Shared
from adapter.ui.reports import RulesFileState, Sources
from kube.serving.delegated import DelegatedAuth


@asynccontextmanager
async def pages_served(
    options: ServeOptions,
    shared: Shared,
    rule_sets: RuleSets,
    rules_file: RulesReloader,
    checker: RuleChecker,
    *,
    auth: DelegatedAuth,
    registry: CollectorRegistry,
) -> AsyncIterator[None]:
    """Serve the pages until the end of the context, if they have an address.

    Args:
        options: the address, and the options that the pages show.
        shared: the adapter's connections.
        rule_sets: the active rules.
        rules_file: the state of the rules file.
        checker: checks rules of objects, and those that are tried.
        auth: for an address that is not a loopback one.
        registry: the metrics registry.

    Raises:
        ListenError: the address is taken, or is not one of this host.
    """
    if options.ui_address is None:
        yield
        return
    # Imported only here: templates take memory.
    from adapter.ui.pages import AdapterPages
    from kube.web.event_stream import EventStreams
    from kube.web.server import PageServer

    sources = Sources(
        active=lambda: rule_sets.current,
        rules_file=lambda: _state(options.config, rule_sets, rules_file),
        telemetry=shared.telemetry.rules,
        default_server=options.prometheus.options,
        rule_objects=shared.rule_objects,
        forecasts=shared.forecasts,
        rule_checker=checker,
        relist_interval=shared.relist_interval,
        freshness=shared.freshness,
    )
    used_auth = None if options.ui_address.is_loopback else auth
    server = PageServer(
        AdapterPages(sources, None if used_auth is None else used_auth.authorizer),
        options.ui_address,
        auth=used_auth,
        registry=registry,
        metrics_prefix="milliscale_adapter_ui",
        streams=EventStreams(options.settings.pages),
    )
    await server.start(server.bind())
    try:
        yield
    finally:
        await server.stop()


def _state(path: Path, rule_sets: RuleSets, rules_file: RulesReloader) -> RulesFileState:
    return RulesFileState(
        path=str(path), applied_at=rule_sets.applied_at, problem=rules_file.problem, gone=rule_sets.gone
    )
