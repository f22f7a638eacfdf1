"""Write the statuses of MetricRules, and events about other objects with rules, if they are read."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry

from adapter.catalog.rule_telemetry import condition_counts
from adapter.commands.flags import ServeOptions
from adapter.commands.rule_sets import Shared
from adapter.diagnosis.checker import RuleChecker
from adapter.rule_objects.status_check import checked_verdict
from adapter.rule_objects.status_writer import LEASE, StatusWriter
from kube.api.client import KubeClient
from kube.controller.election import ElectionSettings


def status_writer(
    options: ServeOptions, client: KubeClient, shared: Shared, *, registry: CollectorRegistry
) -> StatusWriter | None:
    """Return the writer, registered with the metrics; None if no objects with rules are read.

    Args:
        options: which objects are read, and the adapter's namespace.
        client: writes the statuses and the Lease.
        shared: the adapter's connections and objects.
        registry: the metrics registry.
    """
    if not shared.rule_objects.enabled:
        return None

    checker = RuleChecker(shared.prometheus, shared.mapper, shared.objects, max_age=options.catalog.max_age)
    writer = StatusWriter(
        client,
        shared.rule_objects,
        partial(checked_verdict, checker=checker, forecasts=shared.forecasts),
        election=ElectionSettings(namespace=options.rule_objects.tenancy.own_namespace, name=LEASE),
        statuses=options.rule_objects.metric_rules,
        settings=options.settings.rule_objects,
    )
    shared.rule_objects.on_change(writer.changed)
    registry.register(condition_counts(writer.counts))
    return writer
