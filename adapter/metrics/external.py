"""external.metrics.k8s.io: the values of a metric that describes no object of the cluster.

As in adapter.metrics.custom, statuses and messages that clients can rely on are prometheus-adapter's.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import ExternalSource
from adapter.content.values import EXTERNAL_GROUP, ExternalMetricValue
from adapter.metrics.forecasts import ForecastValues
from adapter.metrics.forward import Forwarder
from adapter.metrics.requests import ExternalMetricRequest
from adapter.planning.metric_queries import ExternalQuery, QueryError
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vectors import IndexedVector, matching
from adapter.prometheus import Sample, Vector, scalar
from adapter.rules import AnyRule, Policy, Rule, ScheduleRule
from adapter.rules.schedule_spec import Activation
from kube.aio.tasks import Pace, SingleFlight
from kube.api.status import StatusError, not_found, service_unavailable


@dataclass(frozen=True, slots=True)
class ExternalMetrics:
    """Returns external metrics: from `catalog`, or from other adapters (`forwarder`).

    `clock` returns the seconds since the epoch; without `forecasts`, all values are the plain ones.
    """

    catalog: Catalog
    queries: RuleQueries
    forwarder: Forwarder | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = field(default=time.time, kw_only=True)
    forecasts: ForecastValues | None = field(default=None, kw_only=True)
    _days: SingleFlight[int, int] = field(default_factory=SingleFlight, init=False)

    async def values(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        """Return the metric's series, each with its labels, in the order of the labels; an empty list is no error.

        Raises:
            StatusError: 404 without such a metric, 400 for a selector that PromQL cannot express, 503 and 504 when
                Prometheus is unavailable or slow (503 also before the first relist), 500 when the rule's query is
                invalid.
        """
        source = self.catalog.find_external(request.metric, namespace=request.namespace, selector=request.selector)
        values = await (self._forwarded(request) if source is None else self._values(source, request))
        now = self.clock()
        self.queries.observe_freshness(EXTERNAL_GROUP, [now - value.timestamp for value in values])
        return values

    async def _forwarded(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        adapter = self.forwarder.adapter_for(request.metric) if self.forwarder is not None else None
        # Before the first relist, the metric may be one of the rules.
        if adapter is None or request.metric not in adapter.names:
            self.catalog.require_known()
        if adapter is not None:
            return await adapter.values(request)
        # prometheus-adapter names a resource only for the namespace "default".
        resource = "namespaces" if request.namespace == "default" else ""
        raise not_found(f"the server could not find the metric {request.metric} for {resource}")

    async def _values(self, source: ExternalSource, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        rule = source.rule
        if isinstance(rule, ScheduleRule):
            return await self._scheduled(rule, request)
        if isinstance(rule, Rule) and rule.resources.namespaced and not source.namespace_label:
            raise self.queries.failure(
                rule,
                "no label maps to namespaces: add one to resources.overrides, or set resources.namespaced to false",
            )
        query = ExternalQuery(source, request.namespace, request.selector)
        try:
            values = await self._queried(query, request.deadline)
            if rule.activation is not None:
                values = await self._activated(query, rule.activation, values, request.deadline)
            if source.is_forecast and values and self.forecasts is not None:
                values = self.forecasts.apply(query, values, of=str(request.selector))
        except QueryError as error:
            raise self.queries.failure(rule, str(error)) from error
        return values

    async def _queried(self, query: ExternalQuery, deadline: float) -> list[ExternalMetricValue]:
        async def alone(result: Vector | None) -> list[ExternalMetricValue]:
            if result is None:
                raise StatusError(500, "", "encountered an unexpected query result type")
            return await self._converted(query.source, result)

        coalesced = functools.partial(self._coalesced_values, query)
        return await self.queries.evaluate(query, deadline, coalesced=coalesced, alone=alone)

    async def _activated(
        self, query: ExternalQuery, activation: Activation, values: list[ExternalMetricValue], deadline: float
    ) -> list[ExternalMetricValue]:
        """Return 0 for each value below the threshold that was below it long enough.

        One that was not is at least 1m, so that an HPA keeps a replica. An error of the second query is an error of the
        request: an HPA does not scale down on it.
        """
        threshold = activation.threshold
        if all(value.milli >= threshold for value in values):
            return values
        recent: set[frozenset[tuple[str, str]]] = set()
        if activation.for_ is not None:
            found = await self.queries.recently_active(query, activation, deadline)
            recent = {frozenset(_labels(sample).items()) for sample in found.samples}
        activated = []
        for value in values:
            if value.milli < threshold:
                # Without labels, it is the only value: of a scalar, or of an empty result that counts as zero.
                labels = value.labels
                awake = bool(recent) if labels is None else frozenset(labels.items()) in recent
                value = replace(value, milli=max(value.milli, 1) if awake else 0, encoded=b"")
            activated.append(value)
        return activated

    async def _scheduled(self, rule: ScheduleRule, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        """Return the value of a schedule, which has no labels."""
        if not request.selector.matches({}):
            return []
        now = self.clock()
        schedule = rule.schedule
        if not schedule.is_known(now):
            await self._days.do(id(schedule), lambda: asyncio.to_thread(schedule.milli_at, now))
        milli = schedule.milli_at(now)
        return [ExternalMetricValue(metric=rule.metric, labels=None, timestamp=now, window_seconds=None, milli=milli)]

    async def _coalesced_values(self, query: ExternalQuery, vector: IndexedVector) -> list[ExternalMetricValue]:
        """Return the values from a coalesced result: the same for every request until the result is refreshed."""
        prepared = vector.index.prepared((query.source,), (query.namespace,))
        selector = str(query.selector)
        values: list[ExternalMetricValue] | None = prepared.get(selector)
        if values is None:
            result = await matching(vector, query.labels, query.selector)
            values = await self._converted(query.source, result)
            if result.samples:
                vector.index.prepare(prepared, selector, values, count=len(values))
        return values

    async def _converted(self, source: ExternalSource, result: Vector) -> list[ExternalMetricValue]:
        if not result.samples:
            result = self._default(source.rule, source.metric)
        values: list[ExternalMetricValue] = []
        pace = Pace()
        for sample in result.samples:
            await pace.pause()
            milli = self.queries.milli(source.rule, sample.value)
            if milli is not None:
                values.append(
                    ExternalMetricValue(
                        metric=source.metric,
                        labels=None if result.is_scalar else _labels(sample),
                        timestamp=sample.timestamp,
                        window_seconds=None,
                        milli=milli,
                    )
                )
        return values

    def _default(self, rule: AnyRule, metric: str) -> Vector:
        """Return what the rule's `empty` policy sets for a result without values."""
        match rule.empty:
            case Policy.ZERO:
                return scalar(self.clock(), 0.0)
            case Policy.ERROR:
                raise service_unavailable(f"the metric {metric} has no value, which {rule} makes an error")
        return Vector(())


def _labels(sample: Sample) -> dict[str, str]:
    """Return a sample's labels without the series' name."""
    return {label: value for label, value in sample.labels.items() if label != "__name__"}
