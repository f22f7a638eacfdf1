"""custom.metrics.k8s.io: the values of a metric for one object, or for all that a selector matches.

Statuses and messages are prometheus-adapter's, which reach users in the conditions of their HPAs, except where that one
says 500 to a client's own mistake or to an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from adapter.catalog.catalog import Catalog
from adapter.catalog.groups import CUSTOM_GROUP
from adapter.catalog.inventory import CustomSource
from adapter.catalog.values import MetricValue, ObjectReference
from adapter.metrics.objects import ObjectNames
from adapter.metrics.requests import ALL_OBJECTS, CustomMetricRequest
from adapter.planning.kept_plans import KeptPlans
from adapter.planning.merged import MergedQueries, SendAlone
from adapter.planning.planner import Plan, custom_plan
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import Sample, Vector
from adapter.rules import AnyRule, Policy, QueryRule
from adapter.rules.query import QueryError, SelectorNotSupported
from kube import status
from kube.client import KubeError
from kube.deadlines import Deadline, DeadlineExceeded, within
from kube.mapping import GroupResource, NoMatchError, ResourceInfo, ResourceLookup
from kube.status import StatusError, bad_request, internal_error, not_found, service_unavailable

_T = TypeVar("_T")

# Queries for more objects are not kept.
_FEW_NAMES = 50


class CustomMetrics:
    """Answers requests for custom metrics."""

    def __init__(
        self,
        catalog: Catalog,
        queries: RuleQueries,
        objects: ObjectNames,
        mapper: ResourceLookup,
        *,
        merged: MergedQueries | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`merged` answers several requests at once; `clock` is the time in seconds since the epoch."""
        self._merged = merged
        self._clock = clock
        self._plans = KeptPlans()
        self._catalog = catalog
        self._queries = queries
        self._objects = objects
        self._mapper = mapper

    async def values(self, request: CustomMetricRequest) -> list[MetricValue]:
        """Return the metric's values, in the order of the objects' names.

        A named object need not exist: series without an object are returned, too. Of the objects that a selector
        matches, those without a value are left out.

        Raises:
            StatusError: 404 without such a metric, a value of it, an object that the selector matches, or a query that
                the rule can make; 503 before the first relist; 400 for a selector that Prometheus cannot have; 503 and
                504 when Prometheus or the API server is unavailable or slow; 500 when the objects cannot be listed or
                the rule's query is wrong.
        """
        info, source = await _before(request.deadline, self._source(request))
        if request.name != ALL_OBJECTS:
            names = [request.name]
        else:
            names = await _before(request.deadline, self._objects.names(info, request.namespace, request.selector))
            if not names:
                raise _not_found(request)
        values = await self._values(request, info, source, names)
        if not values and request.name != ALL_OBJECTS:
            raise _not_found(request, request.name)
        return values

    async def _source(self, request: CustomMetricRequest) -> tuple[ResourceInfo, CustomSource]:
        """What the resource is in this cluster, and where its metric comes from."""
        try:
            info = await self._mapper.resource_for(request.resource, request.group)
        except NoMatchError as error:
            raise _not_found(request) from error
        except (KubeError, StatusError) as error:
            raise service_unavailable("the API server, which knows the resources, cannot be asked") from error
        source = self._catalog.find_custom(info.group_resource, request.metric)
        if source is None:
            self._catalog.require_loaded()
        if source is None or not _is_asked_in_place(request, info, source):
            raise _not_found(request)
        return info, source

    async def _values(
        self,
        request: CustomMetricRequest,
        info: ResourceInfo,
        source: CustomSource,
        names: list[str],
    ) -> list[MetricValue]:
        samples = await self._samples(request, source, names)
        api_version, kind, namespace, metric = info.api_version, info.kind, request.namespace, request.metric
        selector = None if request.metric_selector.empty else request.metric_selector
        rule, milli_of = source.rule, self._queries.milli
        values: list[MetricValue] = []
        for name in names:
            sample = samples.get(name) or self._in_place_of_nothing(request, rule, name)
            milli = milli_of(rule, sample) if sample is not None else None
            if sample is None or milli is None:
                continue
            described = ObjectReference(api_version=api_version, kind=kind, namespace=namespace, name=name)
            values.append(
                MetricValue(
                    described_object=described,
                    metric=metric,
                    selector=selector,
                    timestamp=sample.timestamp,
                    window_seconds=None,
                    milli=milli,
                )
            )
        now = self._clock()
        self._queries.handed_out(CUSTOM_GROUP, [now - value.timestamp for value in values])
        return values

    async def _samples(
        self, request: CustomMetricRequest, source: CustomSource, names: list[str]
    ) -> Mapping[str, Sample]:
        """The objects' samples by name."""
        alone = SendAlone()
        if self._merged is not None:
            found = await self._merged.samples(
                source, namespace=request.namespace, names=names, metric_selector=request.metric_selector
            )
            if not isinstance(found, SendAlone):
                return found
            alone = found
        try:
            plan = self._plan(request, source, names)
        except SelectorNotSupported as error:
            raise bad_request(str(error)) from error
        except QueryError as error:
            self._queries.say_once(source.rule, str(error))
            raise _not_found(request) from error
        result = await self._queries.carry_out(source.rule, plan, deadline=request.deadline)
        if not isinstance(result, Vector):
            self._queries.say_once(source.rule, "the query must make a vector, with a value for each object")
            raise internal_error("unable to fetch metrics")
        alone.took(result.seconds)
        return self._by_name(source, request.namespace, result)

    def _plan(self, request: CustomMetricRequest, source: CustomSource, names: list[str]) -> Plan:
        """The queries for some objects; those for few objects are kept. Raises as custom_plan."""
        namespace, selector = request.namespace, request.metric_selector
        all_objects = request.name == ALL_OBJECTS and request.selector.empty

        def make() -> Plan:
            return custom_plan(
                source, names=names, all_objects=all_objects, namespace=namespace, metric_selector=selector
            )

        if len(names) > _FEW_NAMES:
            return make()
        return self._plans.get(source, ("all" if all_objects else "", namespace, str(selector), *names), make)

    def _in_place_of_nothing(self, request: CustomMetricRequest, rule: AnyRule, name: str) -> Sample | None:
        """What the rule says of an object without a value."""
        match rule.values.empty:
            case Policy.ZERO:
                return Sample({}, self._clock(), 0.0)
            case Policy.ERROR:
                raise service_unavailable(
                    f"the metric {request.metric} has no value for {_resource(request)} {name},"
                    f" which {rule} makes an error"
                )
        return None

    def _by_name(self, source: CustomSource, namespace: str, vector: Vector) -> Mapping[str, Sample]:
        """Each object's sample; the first in the order of labels where the query makes several."""
        samples: dict[str, Sample] = {}
        for sample in vector.samples:
            name = source.object_of(sample.labels, namespace=namespace)
            if name is None:
                continue
            if samples.setdefault(name, sample) is not sample:
                self._queries.say_once(
                    source.rule,
                    f"the query makes several values for one object, and the first is taken; {_advice(source)}",
                )
        return samples


def _advice(source: CustomSource) -> str:
    """What makes one value of several."""
    if isinstance(source.rule, QueryRule):
        return f"aggregate it with by ({source.resource_label})"
    matchers = "" if "Label" in source.rule.query.source else "write {<<.LabelMatchers>>} after its series, and "
    return f"{matchers}aggregate it with by (<<.GroupBy>>)"


def _is_asked_in_place(request: CustomMetricRequest, info: ResourceInfo, source: CustomSource) -> bool:
    """Tell whether a metric is asked for where discovery has it: under a namespace, or at the root.

    Metrics of cluster-scoped resources other than nodes and volumes are namespaced in discovery, as they are in
    prometheus-adapter's; an HPA can only ask for them there. They are found at the root, too, where they belong.
    """
    if request.namespace:
        return source.info.namespaced and bool(source.namespace_label)
    return not source.info.namespaced or not info.namespaced


def _resource(request: CustomMetricRequest) -> GroupResource:
    """The resource as the client writes it."""
    return GroupResource(request.group, request.resource)


def _not_found(request: CustomMetricRequest, name: str = "") -> StatusError:
    message = f"the server could not find the metric {request.metric} for {_resource(request)}"
    return not_found(f"{message} {name}" if name else message)


async def _before(deadline: Deadline, work: Coroutine[Any, Any, _T]) -> _T:
    try:
        return await within(deadline, work)
    except DeadlineExceeded as error:
        raise status.timeout("Timeout: request did not complete within the allotted timeout") from error
