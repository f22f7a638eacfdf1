"""external.metrics.k8s.io: the values of a metric that is about no object of the cluster.

As in adapter.metrics.custom, statuses and messages are prometheus-adapter's where a client can rely on them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from adapter.catalog.catalog import Catalog
from adapter.catalog.groups import EXTERNAL_GROUP
from adapter.catalog.inventory import ExternalSource
from adapter.catalog.values import ExternalMetricValue
from adapter.metrics.forward import Forwarder
from adapter.metrics.requests import ExternalMetricRequest
from adapter.planning.kept_plans import KeptPlans
from adapter.planning.merged import MergedQueries, SendAlone
from adapter.planning.planner import external_plan
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import Sample, Scalar, Vector
from adapter.rules import AnyRule, Policy, Rule
from adapter.rules.query import QueryError, SelectorNotSupported
from kube.status import StatusError, bad_request, internal_error, not_found, service_unavailable

# After so many values of a long list others may go on.
_PART = 500


class ExternalMetrics:
    """Answers requests for external metrics."""

    def __init__(
        self,
        catalog: Catalog,
        queries: RuleQueries,
        *,
        forwarder: Forwarder | None = None,
        merged: MergedQueries | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is asked yet.

        Args:
            catalog: which metrics there are.
            queries: evaluates the rules' queries.
            forwarder: asks another adapter for what no rule makes.
            merged: answers several requests at once.
            clock: the time in seconds since the epoch.
        """
        self._merged = merged
        self._catalog = catalog
        self._queries = queries
        self._forwarder = forwarder
        self._clock = clock
        self._plans = KeptPlans()

    async def values(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        """Return the metric's series, each with its labels, in the order of the labels; none is no error.

        Raises:
            StatusError: 404 without such a metric, 400 for a selector that Prometheus cannot have, 503 and 504 when
                Prometheus is unavailable or slow (503 also before the first relist), 500 when the rule's query is
                wrong.
        """
        source = self._catalog.find_external(request.metric)
        if source is None:
            forwarder = self._forwarder if self._forwarder is not None and self._forwarder.active else None
            # Before the first list, what is not known to be the other adapter's may be a rule's.
            if forwarder is None or request.metric not in forwarder.names:
                self._catalog.require_loaded()
            if forwarder is not None:
                values = await forwarder.values(request)
                self._handed_out([value.timestamp for value in values])
                return values
            # prometheus-adapter names a resource in one namespace and none elsewhere.
            resource = "namespaces" if request.namespace == "default" else ""
            raise not_found(f"the server could not find the metric {request.metric} for {resource}")
        return await self._values(source, request)

    async def _values(self, source: ExternalSource, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        rule = source.rule
        if isinstance(rule, Rule) and rule.resources.namespaced and not source.namespace_label:
            self._queries.say_once(
                rule, "no label means namespaces: add one to resources.overrides, or set resources.namespaced to false"
            )
            raise internal_error("unable to fetch metrics")
        result = await self._result(source, request)
        samples: tuple[Sample | Scalar, ...] = (result,) if isinstance(result, Scalar) else result.samples
        if not samples:
            samples = self._in_place_of_nothing(rule, source.metric)
        values: list[ExternalMetricValue] = []
        for start in range(0, len(samples), _PART):
            if start:
                await asyncio.sleep(0)
            part = samples[start : start + _PART]
            self._handed_out([sample.timestamp for sample in part])
            values += [
                ExternalMetricValue(
                    metric=source.metric,
                    labels=_labels(sample),
                    timestamp=sample.timestamp,
                    window_seconds=None,
                    milli=milli,
                )
                for sample in part
                if (milli := self._queries.milli(rule, sample)) is not None
            ]
        return values

    async def _result(self, source: ExternalSource, request: ExternalMetricRequest) -> Vector | Scalar:
        """The samples, of an answer for all namespaces where there is one, or else of a query for these alone."""
        namespace, selector = request.namespace, request.selector
        alone = SendAlone()
        if self._merged is not None:
            found = await self._merged.external(source, namespace=namespace, metric_selector=selector)
            if not isinstance(found, SendAlone):
                return found
            alone = found
        try:
            plan = self._plans.get(
                source,
                (namespace, str(selector)),
                lambda: external_plan(source, namespace=namespace, metric_selector=selector),
            )
        except SelectorNotSupported as error:
            raise bad_request(str(error)) from error
        except QueryError as error:
            self._queries.say_once(source.rule, str(error))
            raise internal_error("unable to fetch metrics") from error
        result = await self._queries.carry_out(source.rule, plan, deadline=request.deadline)
        if result is None:
            raise StatusError(500, "", "encountered an unexpected query result type")
        alone.took(result.seconds)
        return result

    def _handed_out(self, times: Iterable[float]) -> None:
        now = self._clock()
        self._queries.handed_out(EXTERNAL_GROUP, [now - sampled_at for sampled_at in times])

    def _in_place_of_nothing(self, rule: AnyRule, metric: str) -> tuple[Scalar, ...]:
        """What the rule says of a result without values."""
        match rule.values.empty:
            case Policy.ZERO:
                return (Scalar(self._clock(), 0.0),)
            case Policy.ERROR:
                raise service_unavailable(f"the metric {metric} has no value, which {rule} makes an error")
        return ()


def _labels(sample: Sample | Scalar) -> dict[str, str] | None:
    """A sample's labels without the series' name, which is the rule's affair; a scalar has none at all."""
    if isinstance(sample, Scalar):
        return None
    return {label: value for label, value in sample.labels.items() if label != "__name__"}
