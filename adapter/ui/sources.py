"""What the pages read, at each request, from the adapter that runs in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.catalog.catalog import Catalog
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.diagnosis.checker import RuleChecker
from adapter.diagnosis.probe import Probe
from adapter.forecasts.registry import Forecasts
from adapter.metrics.forward import Forwarder
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.vector_cache import VectorCache
from adapter.prometheus import PrometheusOptions
from adapter.rule_objects.controller import RuleObjects
from adapter.rules import RulesFile
from kube.api.mapping import ResourceLookup


class ActiveRules(Protocol):
    """One version of the rules, and what belongs to it."""

    @property
    def rules(self) -> RulesFile:
        """The rules file."""

    @property
    def catalog(self) -> Catalog:
        """The series and metrics of the rules."""

    @property
    def cache(self) -> VectorCache:
        """The cached results of queries."""

    @property
    def forwarder(self) -> Forwarder:
        """The other adapters that requests are forwarded to, if any."""

    @property
    def coalescer(self) -> MetricsQueryCoalescer | None:
        """Coalesces requests; None if nothing is cached."""

    @property
    def probe(self) -> Probe:
        """Queries example values for reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesFileState:
    """The rules file.

    Attributes:
        path: the file.
        applied_at: when its rules became active, in seconds since the epoch.
        problem: why the current file cannot be used, so that the last good rules stay active; None: it is in use.
        gone: the metrics that the last reload removed, by API group.
    """

    path: str
    applied_at: float
    problem: str | None
    gone: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The adapter's state.

    Attributes:
        active: returns the active rules.
        rules_file: returns the state of the rules file.
        telemetry: the metrics of rules.
        default_server: the Prometheus of --prometheus-url.
        lookup: the cluster's resources.
        rule_objects: the objects with rules.
        forecasts: the forecasts of metrics.
        rule_checker: checks rules of objects, and those that are tried.
        relist_interval, freshness: see CatalogOptions.
        clock: returns seconds since the epoch.
    """

    active: Callable[[], ActiveRules]
    rules_file: Callable[[], RulesFileState]
    telemetry: RuleTelemetry
    default_server: PrometheusOptions
    lookup: ResourceLookup
    rule_objects: RuleObjects
    forecasts: Forecasts
    rule_checker: RuleChecker
    relist_interval: float
    freshness: float
    clock: Callable[[], float] = time.time
