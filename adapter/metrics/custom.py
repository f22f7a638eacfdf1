"""custom.metrics.k8s.io: the values of a metric for one object, or for all objects that a selector matches.

Statuses and messages are prometheus-adapter's, because users see them in the conditions of their HPAs. Client errors
and outages are the exception: prometheus-adapter returns 500 for them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource
from adapter.content.values import CUSTOM_GROUP, MetricValue, ObjectReference
from adapter.metrics.forecasts import ForecastValues
from adapter.metrics.objects import PODS, ObjectNames
from adapter.metrics.requests import ALL_OBJECTS, CustomMetricRequest
from adapter.planning.metric_queries import ObjectsQuery, QueryError
from adapter.planning.rule_queries import RuleQueries, by_name
from adapter.planning.vectors import IndexedVector
from adapter.prometheus import Sample, Vector
from adapter.rules import AnyRule, Policy, QueryRule, Rule
from adapter.rules.naming import NAMESPACES
from kube.api.client import KubeError
from kube.api.mapping import GroupResource, NoMatchError, ResourceInfo, ResourceLookup
from kube.api.status import StatusError, not_found, service_unavailable


@dataclass(frozen=True, slots=True)
class CustomMetrics:
    """Returns custom metrics.

    `clock` returns the seconds since the epoch; without `forecasts`, all values are the plain ones.
    """

    catalog: Catalog
    queries: RuleQueries
    objects: ObjectNames
    mapper: ResourceLookup
    clock: Callable[[], float] = field(default=time.time, kw_only=True)
    forecasts: ForecastValues | None = field(default=None, kw_only=True)

    async def values(self, request: CustomMetricRequest) -> list[MetricValue]:
        """Return the metric's values, in the order of the objects' names.

        A named object need not exist: series without an object are returned, too. Of the objects that a selector
        matches, those without a value are left out.

        Raises:
            StatusError: 404 without such a metric, a value of it, an object that the selector matches, or a query that
                the rule can make; 503 before the first relist; 400 for a selector that Prometheus cannot have; 503 and
                504 when Prometheus or the API server is unavailable or slow; 500 when the objects cannot be listed or
                the rule's query is invalid.
        """
        info, source, names = await self._find(request)
        all_objects = request.name == ALL_OBJECTS and request.selector.empty
        query = ObjectsQuery(source, request.namespace, names, all_objects, request.metric_selector)
        try:
            values = await self.queries.evaluate(
                query,
                request.deadline,
                coalesced=functools.partial(self._coalesced_values, request, info, query),
                alone=functools.partial(self._values, request, info, query),
            )
        except QueryError as error:
            self.queries.warn_once(source.rule, str(error))
            raise _not_found(request) from error
        if not values and request.name != ALL_OBJECTS:
            raise _not_found(request, request.name)
        if source.is_forecast and values and self.forecasts is not None:
            values = self._with_forecast(request, query, values)
        now = self.clock()
        self.queries.observe_freshness(CUSTOM_GROUP, [now - value.timestamp for value in values])
        return values

    def _with_forecast(
        self, request: CustomMetricRequest, query: ObjectsQuery, values: list[MetricValue]
    ) -> list[MetricValue]:
        """Return the forecast of an object's value, or of all selected pods'; HPAs request no other lists."""
        assert self.forecasts is not None, "the caller has them"
        of, of_pods = request.name, request.name == ALL_OBJECTS
        if of_pods:
            if query.source.info.resource != PODS.group_resource:
                return values
            of = str(request.selector)
        if not request.metric_selector.empty:
            of = f"{of}; {request.metric_selector}"
        return self.forecasts.apply(query, values, of=of, of_pods=of_pods)

    async def _find(self, request: CustomMetricRequest) -> tuple[ResourceInfo, CustomSource, list[str]]:
        """Return the resource, the source of the metric, and the names of the objects."""
        try:
            info = await self.mapper.resource_for(request.resource, request.group)
        except NoMatchError as error:
            raise _not_found(request) from error
        except (KubeError, StatusError) as error:
            raise service_unavailable("the API server, which knows the resources, does not respond") from error
        source = self.catalog.find_custom(
            info.group_resource,
            request.metric,
            # A rule of a namespace can be about the namespace itself, whose requests have no other namespace.
            namespace=request.name if info.group_resource == NAMESPACES else request.namespace,
            name="" if request.name == ALL_OBJECTS else request.name,
            selector=request.metric_selector,
        )
        if source is None:
            self.catalog.require_known()
        if source is None or not _is_served_at(request.namespace, info, source):
            raise _not_found(request)
        names = [request.name]
        if request.name == ALL_OBJECTS:
            names = await self.objects.names(info, request.namespace, request.selector)
        if not names:
            raise _not_found(request)
        return info, source, names

    async def _coalesced_values(
        self, request: CustomMetricRequest, info: ResourceInfo, query: ObjectsQuery, vector: IndexedVector
    ) -> list[MetricValue] | None:
        """Return the values from a coalesced result; None if an object has several values there, or none are indexed.

        The values are cached with the result, since they are the same for every request.
        """
        samples = vector.index.objects(query.index, query.namespace)
        if samples is None:
            return None
        prepared = vector.index.prepared((query.source, info), (query.namespace, str(query.selector)))
        try:
            return [prepared[name] for name in query.names]
        except KeyError:  # some objects are new, or have no value
            pass
        values: list[MetricValue] = []
        for name in query.names:
            value = prepared.get(name)
            if value is None:
                sample = samples.get(name)
                if isinstance(sample, list):
                    return None
                value = self._value(request, info, query.source.rule, name, sample)
                if value is None:
                    continue
                if sample is not None:
                    vector.index.prepare(prepared, name, value)
            values.append(value)
        return values

    async def _values(
        self, request: CustomMetricRequest, info: ResourceInfo, query: ObjectsQuery, result: Vector | None
    ) -> list[MetricValue]:
        """Return the objects' values; of several values of one object, the first in the order of labels."""
        rule, samples = query.source.rule, by_name(query.source, query.namespace, result)
        if samples is None:
            raise self.queries.failure(rule, "the query must make a vector, with a value for each object")
        if any(isinstance(sample, list) for sample in samples.values()):
            self.queries.warn_once(
                rule,
                "the query makes several values for one object, and the first is taken;"
                f" {_how_to_aggregate(query.source)}",
            )
        values = []
        for name in query.names:
            sample = samples.get(name)
            first = sample[0] if isinstance(sample, list) else sample
            value = self._value(request, info, rule, name, first)
            if value is not None:
                values.append(value)
        return values

    def _value(
        self, request: CustomMetricRequest, info: ResourceInfo, rule: AnyRule, name: str, sample: Sample | None
    ) -> MetricValue | None:
        if sample is None:
            sample = self._default(request, rule, name)
        milli = self.queries.milli(rule, sample.value) if sample is not None else None
        if sample is None or milli is None:
            return None
        return MetricValue(
            described_object=ObjectReference(
                api_version=info.api_version, kind=info.kind, namespace=request.namespace, name=name
            ),
            metric=request.metric,
            selector=None if request.metric_selector.empty else request.metric_selector,
            timestamp=sample.timestamp,
            window_seconds=None,
            milli=milli,
        )

    def _default(self, request: CustomMetricRequest, rule: AnyRule, name: str) -> Sample | None:
        """Return the rule's value for an object without one."""
        match rule.empty:
            case Policy.ZERO:
                return Sample({}, self.clock(), 0.0)
            case Policy.ERROR:
                raise service_unavailable(
                    f"the metric {request.metric} has no value for {_resource(request)} {name},"
                    f" which {rule} makes an error"
                )
        return None


def _how_to_aggregate(source: CustomSource) -> str:
    """Return a hint on how to aggregate several values into one."""
    if isinstance(source.rule, QueryRule):
        return f"aggregate it with by ({source.resource_label})"
    assert isinstance(source.rule, Rule), "a schedule makes no custom metric"
    matchers = "" if "Label" in source.rule.query.source else "write {<<.LabelMatchers>>} after its series, and "
    return f"{matchers}aggregate it with by (<<.GroupBy>>)"


def _is_served_at(namespace: str, info: ResourceInfo, source: CustomSource) -> bool:
    """Return True if discovery lists the metric with the request's scope, namespaced or cluster-scoped.

    Metrics of cluster-scoped resources other than nodes and volumes are namespaced in discovery, as they are in
    prometheus-adapter's; an HPA can only get them there. They are found without a namespace, too.
    """
    if namespace:
        return source.info.namespaced and bool(source.namespace_label or source.rule.namespace)
    return not source.info.namespaced or not info.namespaced


def _resource(request: CustomMetricRequest) -> GroupResource:
    """The resource as the client writes it."""
    return GroupResource(request.group, request.resource)


def _not_found(request: CustomMetricRequest, name: str = "") -> StatusError:
    message = f"the server could not find the metric {request.metric} for {_resource(request)}"
    return not_found(f"{message} {name}" if name else message)
