"""custom.metrics.k8s.io: the values of a metric for one object, or for all that a selector matches.

Statuses and messages are prometheus-adapter's, which reach users in the conditions of their HPAs, except where that one
says 500 to a client's own mistake or to an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.groups import CUSTOM_GROUP
from adapter.catalog.inventory import CustomSource
from adapter.catalog.values import MetricValue, ObjectReference
from adapter.metrics.objects import ObjectNames
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
from kube.selectors import LabelSelector
from kube.status import StatusError, bad_request, internal_error, not_found, service_unavailable

_T = TypeVar("_T")

# Queries for more objects are not kept.
_FEW_NAMES = 50


class _Request(msgspec.Struct, frozen=True):
    """What both forms of a request have in common; `asked` is the resource as the client spells it."""

    asked: GroupResource
    namespace: str
    metric: str
    metric_selector: LabelSelector

    def not_found(self, name: str = "") -> StatusError:
        message = f"the server could not find the metric {self.metric} for {self.asked}"
        return not_found(f"{message} {name}" if name else message)


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

    async def named(
        self,
        *,
        resource: str,
        group: str,
        namespace: str,
        name: str,
        metric: str,
        metric_selector: LabelSelector,
        timeout: float | None,
    ) -> list[MetricValue]:
        """The value of one object, which need not exist: series without an object are answered, too.

        Args:
            resource: plural or singular; for a metric of a namespace itself, "namespaces".
            group: its API group; "" also finds resources that only another group has.
            namespace: the object's; "" at the root, where namespaces are, too.
            name: the object's name.
            metric: the metric's name.
            metric_selector: which of the metric's series count.
            timeout: the seconds that the request may take, or None.

        Raises:
            StatusError: 404 without such a metric, a value of it or a query that its rule can make, 503 while nobody
                can tell because no list of them has come yet, 400 for a selector that Prometheus cannot have, 503 and
                504 when Prometheus or the API server is away or slow, 500 when the rule's query is wrong.
        """
        request = _Request(GroupResource(group, resource), namespace, metric, metric_selector)
        deadline = _deadline(timeout)
        info, source = await _before(deadline, self._source(request))
        values = await self._values(request, info, source, [name], deadline)
        if not values:
            raise request.not_found(name)
        return values

    async def selected(
        self,
        *,
        resource: str,
        group: str,
        namespace: str,
        selector: LabelSelector,
        metric: str,
        metric_selector: LabelSelector,
        timeout: float | None,
    ) -> list[MetricValue]:
        """The values of all objects that a selector matches, in the order of their names.

        Objects without a value are left out. The arguments are those of `named`, and `selector` is for the objects.

        Raises:
            StatusError: as for `named`; 404 also when no object matches, 500 when they cannot be listed.
        """
        request = _Request(GroupResource(group, resource), namespace, metric, metric_selector)
        deadline = _deadline(timeout)
        info, source = await _before(deadline, self._source(request))
        names = await _before(deadline, self._objects.names(info, namespace, selector))
        if not names:
            raise request.not_found()
        return await self._values(request, info, source, names, deadline, all_objects=selector.empty)

    async def _source(self, request: _Request) -> tuple[ResourceInfo, CustomSource]:
        """What the resource is in this cluster, and where its metric comes from."""
        try:
            info = await self._mapper.resource_for(request.asked.resource, request.asked.group)
        except NoMatchError as error:
            raise request.not_found() from error
        except (KubeError, StatusError) as error:
            raise service_unavailable("the API server, which knows the resources, cannot be asked") from error
        source = self._catalog.find_custom(info.group_resource, request.metric)
        if source is None:
            self._catalog.require_loaded()
        if source is None or not _is_asked_in_place(request, info, source):
            raise request.not_found()
        return info, source

    async def _values(
        self,
        request: _Request,
        info: ResourceInfo,
        source: CustomSource,
        names: list[str],
        deadline: float | None,
        *,
        all_objects: bool = False,
    ) -> list[MetricValue]:
        samples = await self._samples(request, source, names, deadline, all_objects=all_objects)
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
        self,
        request: _Request,
        source: CustomSource,
        names: list[str],
        deadline: float | None,
        *,
        all_objects: bool,
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
            plan = self._plan(request, source, names, all_objects=all_objects)
        except SelectorNotSupported as error:
            raise bad_request(str(error)) from error
        except QueryError as error:
            self._queries.say_once(source.rule, str(error))
            raise request.not_found() from error
        result = await self._queries.carry_out(source.rule, plan, timeout=_left(deadline))
        if not isinstance(result, Vector):
            self._queries.say_once(source.rule, "the query must make a vector, with a value for each object")
            raise internal_error("unable to fetch metrics")
        alone.took(result.seconds)
        return self._by_name(source, request.namespace, result)

    def _plan(self, request: _Request, source: CustomSource, names: list[str], *, all_objects: bool) -> Plan:
        """The queries for some objects; those for few objects are kept. Raises as custom_plan."""
        namespace, selector = request.namespace, request.metric_selector

        def make() -> Plan:
            return custom_plan(
                source, names=names, all_objects=all_objects, namespace=namespace, metric_selector=selector
            )

        if len(names) > _FEW_NAMES:
            return make()
        return self._plans.get(source, ("all" if all_objects else "", namespace, str(selector), *names), make)

    def _in_place_of_nothing(self, request: _Request, rule: AnyRule, name: str) -> Sample | None:
        """What the rule says of an object without a value."""
        match rule.values.empty:
            case Policy.ZERO:
                return Sample({}, self._clock(), 0.0)
            case Policy.ERROR:
                raise service_unavailable(
                    f"the metric {request.metric} has no value for {request.asked} {name}, which {rule} makes an error"
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


def _is_asked_in_place(request: _Request, info: ResourceInfo, source: CustomSource) -> bool:
    """Tell whether a metric is asked for where discovery has it: under a namespace, or at the root.

    Metrics of cluster-scoped resources other than nodes and volumes are namespaced in discovery, as they are in
    prometheus-adapter's; an HPA can only ask for them there. They are found at the root, too, where they belong.
    """
    if request.namespace:
        return source.info.namespaced and bool(source.namespace_label)
    return not source.info.namespaced or not info.namespaced


def _deadline(timeout: float | None) -> float | None:
    """When the time is up, on the clock that does not go back."""
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


async def _before(deadline: float | None, work: Coroutine[Any, Any, _T]) -> _T:
    try:
        return await within(Deadline.after(_left(deadline)), work)
    except DeadlineExceeded as error:
        raise status.timeout("Timeout: request did not complete within the allotted timeout") from error
