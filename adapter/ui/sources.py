"""What the pages read, at each request, from the adapter that runs in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adapter.diagnosis.checker import RuleChecker
from adapter.forecasts.registry import Forecasts
from adapter.prometheus import PrometheusOptions
from adapter.rule_objects.controller import RuleObjects
from adapter.serving.rule_sets import RuleSet
from adapter.telemetry import RuleTelemetry


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
        rule_objects: the objects with rules.
        forecasts: the forecasts of metrics.
        rule_checker: checks rules of objects, and those that are tried.
        relist_interval, freshness: see adapter.serving.rule_sets.Shared.
        clock: returns seconds since the epoch.
    """

    active: Callable[[], RuleSet]
    rules_file: Callable[[], RulesFileState]
    telemetry: RuleTelemetry
    default_server: PrometheusOptions
    rule_objects: RuleObjects
    forecasts: Forecasts
    rule_checker: RuleChecker
    relist_interval: float
    freshness: float
    clock: Callable[[], float] = time.time
