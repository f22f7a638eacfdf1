"""What a metric's query is, and what comes of it: asked through the classes that answer requests, and listened to."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.catalog.values import ExternalMetricValue, MetricValue, to_milli
from adapter.diagnosis.report import Example, Value
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import ObjectNames
from adapter.metrics.requests import ALL_OBJECTS, CustomMetricRequest, ExternalMetricRequest
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vector_cache import InstantQueries
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Sample, Scalar, Vector
from adapter.rules import QueryRule, Rule
from adapter.rules.query import QueryError, custom_query
from kube.deadlines import NO_DEADLINE, Deadline
from kube.fields import quote
from kube.mapping import GroupResource, ResourceLookup
from kube.quantity import Quantity
from kube.selectors import LabelSelector
from kube.status import StatusError

_EVERYTHING = LabelSelector()
_ANY = ".+"
_NODES = GroupResource("", "nodes")
# What Kubernetes takes for the name of a node; an address with a port is none.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NOT_FOUND = 404
_SERIES_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which objects are asked for: a `name`, or those of a `selector`, or whichever there is.

    Attributes:
        namespace: theirs; "" for that of whichever there is.
        name: the only one, or "".
        selector: which of them, or None.
        metric_selector: which of the metric's series count.
    """

    namespace: str = ""
    name: str = ""
    selector: LabelSelector | None = None
    metric_selector: LabelSelector = _EVERYTHING


@dataclass(slots=True)
class _Listener:
    """Passes queries on and remembers them, what Prometheus said against the last one, and the labels it answered."""

    prometheus: InstantQueries
    queries: list[str] = field(default_factory=list)
    error: str = ""
    labels: frozenset[str] | None = None

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector | Scalar:
        self.queries.append(query)
        try:
            result = await self.prometheus.instant(query, deadline=deadline, destination=destination)
        except PrometheusError as error:
            self.error = str(error)
            raise
        samples = result.samples if isinstance(result, Vector) else ()
        self.labels = frozenset().union(*(sample.labels for sample in samples)) if samples else None
        return result


class Probe:
    """Asks for metrics of the catalog's.

    Args:
        catalog: which metrics there are.
        prometheus: where their values are.
        objects: the objects that selectors match.
        lookup: which resources there are.
        forwarder: asks another adapter for external metrics that no rule makes; None where there is none.
        seconds: how long one metric may take.
    """

    def __init__(
        self,
        catalog: Catalog,
        prometheus: InstantQueries,
        objects: ObjectNames,
        lookup: ResourceLookup,
        *,
        forwarder: Forwarder | None = None,
        seconds: float = 15.0,
    ) -> None:
        self._catalog = catalog
        self._prometheus = prometheus
        self._objects = objects
        self._lookup = lookup
        self._forwarder = forwarder
        self._seconds = seconds

    async def custom(self, source: CustomSource, wanted: Wanted) -> Example:
        """A custom metric of some objects. Where none are named, of one that has a series."""
        listener = _Listener(self._prometheus)
        metrics = CustomMetrics(self._catalog, _queries(listener), self._objects, self._lookup)
        namespace, name = wanted.namespace, wanted.name
        if not source.info.namespaced:
            namespace = ""
        if wanted.selector is None and not (name and (namespace or not source.info.namespaced)):
            found = await self._object(source, namespace, name, listener)
            if found is None:
                where = f" in namespace {namespace}" if namespace else ""
                which = f" for {name}" if name else ""
                problem = listener.error or f"no series has a value now{which}{where}"
                return Example(queries=tuple(listener.queries), problem=problem)
            namespace, name = found
            if source.info.resource == _NODES and not _is_node(name):
                return _no_node(source, listener, name)
            listener.queries.clear()
        resource, metric = source.info.resource, source.info.metric
        selector = wanted.selector
        if selector is not None and source.info.namespaced and not namespace:
            return Example(problem="a selector selects in one namespace: say which")
        asked = metrics.values(
            CustomMetricRequest(
                resource=resource.resource,
                group=resource.group,
                namespace=namespace,
                name=name if selector is None else ALL_OBJECTS,
                metric=metric,
                selector=selector or _EVERYTHING,
                metric_selector=wanted.metric_selector,
                deadline=self._deadline(),
            )
        )
        where = f"{namespace}/{name or '*'}" if namespace else name or "*"
        return await _example(where, asked, listener)

    async def external(self, source: ExternalSource, wanted: Wanted) -> Example:
        """An external metric in a namespace; where none is given, in one that has a series."""
        listener = _Listener(self._prometheus)
        metrics = ExternalMetrics(self._catalog, _queries(listener))
        namespace = wanted.namespace
        if not namespace and source.namespace_label:
            query = self._any_series(source, [f'{source.namespace_label}!=""'])
            sample = await self._first(query, [source.namespace_label], source.rule.destination, listener)
            namespace = sample.labels[source.namespace_label] if sample is not None else ""
            if sample is None:
                problem = listener.error or "no series has a value now"
                return Example(queries=tuple(listener.queries), problem=problem)
            listener.queries.clear()
        namespace = namespace or "default"
        asked = metrics.values(self._external_request(namespace, source.metric, wanted))
        return await _example(namespace, asked, listener)

    async def forwarded(self, metric: str, wanted: Wanted) -> Example | None:
        """What the adapter of forwardExternal says of an external metric in a namespace; None without such an adapter.

        Where no namespace is given it is asked in "default": nobody knows which namespaces the other adapter has.
        """
        if self._forwarder is None or not self._forwarder.active:
            return None
        namespace = wanted.namespace or "default"
        try:
            found = await self._forwarder.values(self._external_request(namespace, metric, wanted))
        except StatusError as error:
            # Clients are not told the cause, which may have an address in it; those who write the rules need it.
            why = _cause(error)
            return Example(of=namespace, problem=f"{error.message} ({why})" if why else error.message)
        values = _values(found)
        return Example(of=namespace, values=values, problem="" if values else "there is no value now")

    async def usage(self, source: CustomSource) -> Example:
        """What a query of resourceRules says of one object: a pod's containers together, or a node."""
        listener = _Listener(self._prometheus)
        namespace_label = source.namespace_label
        try:
            every = _usage_query(source, names=[], namespace=_ANY if namespace_label else "")
            found = await self._samples(every, source.rule.destination, listener)
            named = [sample for sample in found if sample.labels.get(source.resource_label)]
            if not named:
                problem = "the query finds nothing with the label of the object now"
                return Example(queries=(every,), problem=problem)
            if source.info.resource == _NODES and not any(map(_is_node, _names(source, named))):
                return _no_node(source, listener, _names(source, named)[0])
            one = next(sample for sample in named if not _is_addressed(source, sample))
            name, namespace = one.labels[source.resource_label], one.labels.get(namespace_label, "")
            query = _usage_query(source, names=[name], namespace=namespace)
            found = await self._samples(query, source.rule.destination, listener)
        except (PrometheusError, QueryError) as error:
            return Example(queries=tuple(listener.queries), problem=str(error))
        by_container: dict[str, int] = {}
        for sample in found:
            milli = to_milli(sample.value)
            if milli is not None and source.object_of(sample.labels, namespace=namespace) == name:
                container = ",".join(sample.labels.get(label, "") for label in source.group_by)
                by_container.setdefault(container, max(milli, 0))
        of = f"{namespace}/{name}" if namespace else name
        if not by_container:
            return Example(of=of, queries=(query,), problem="the query finds nothing for the object now")
        value = Value(of=of, value=str(Quantity.from_milli(sum(by_container.values()))))
        return Example(of=of, queries=(query,), values=(value,))

    async def instant(self, query: str, destination: Destination) -> Vector | Scalar:
        """What a query gives now. Raises PrometheusError."""
        return await self._prometheus.instant(query, deadline=self._deadline(), destination=destination)

    async def series_called(self, names: Iterable[str]) -> list[str]:
        """Which of some names Prometheus has series of, whatever the rules are; none when it cannot say."""
        matchers = [name for name in names if _SERIES_NAME.fullmatch(name)]
        if not matchers:
            return []
        query = f'count by (__name__) ({{__name__=~"{"|".join(matchers)}"}})'
        try:
            result = await self._prometheus.instant(query, deadline=self._deadline())
        except PrometheusError:
            return []
        samples = result.samples if isinstance(result, Vector) else ()
        return [sample.labels["__name__"] for sample in samples if "__name__" in sample.labels]

    def _external_request(self, namespace: str, metric: str, wanted: Wanted) -> ExternalMetricRequest:
        return ExternalMetricRequest(
            namespace=namespace, metric=metric, selector=wanted.metric_selector, deadline=self._deadline()
        )

    def _deadline(self) -> Deadline:
        return Deadline.after(self._seconds)

    async def _object(
        self, source: CustomSource, namespace: str, name: str, listener: _Listener
    ) -> tuple[str, str] | None:
        """An object that has a series now: its namespace and name."""
        label = source.resource_label
        choices = [f"{label}={quote(name)}"] if name else [f'{label}!=""']
        if source.info.resource == _NODES and not name:
            choices.insert(0, f'{label}=~"{_NODE_NAME.pattern}"')
        matchers, labels = [], [label]
        if source.info.namespaced and source.namespace_label:
            matchers.append(
                f"{source.namespace_label}={quote(namespace)}" if namespace else f'{source.namespace_label}!=""'
            )
            labels.append(source.namespace_label)
        sample = None
        for choice in choices:
            if sample is None and not listener.error:
                query = self._any_series(source, [choice, *matchers])
                sample = await self._first(query, labels, source.rule.destination, listener)
        if sample is None:
            return None
        found = namespace
        if source.info.namespaced:
            found = sample.labels.get(source.namespace_label, "") or namespace or "default"
        return found, sample.labels[source.resource_label]

    def _any_series(self, source: CustomSource | ExternalSource, matchers: Iterable[str]) -> str:
        if isinstance(source.rule, QueryRule):
            return source.rule.query
        return f"topk(1,{source.series}{{{','.join(matchers)}}})"

    async def _first(
        self, query: str, labels: list[str], destination: Destination, listener: _Listener
    ) -> Sample | None:
        try:
            samples = await self._samples(query, destination, listener)
        except PrometheusError:
            return None
        return next((sample for sample in samples if all(sample.labels.get(label) for label in labels)), None)

    async def _samples(self, query: str, destination: Destination, listener: _Listener) -> Sequence[Sample]:
        result = await listener.instant(query, deadline=self._deadline(), destination=destination)
        return result.samples if isinstance(result, Vector) else ()


def _usage_query(source: CustomSource, *, names: Sequence[str], namespace: str) -> str:
    """The query of resourceRules for some objects; for all, told apart by their namespaces, where none is named."""
    rule = source.rule
    assert isinstance(rule, Rule), "resourceRules have no short form"
    by_namespace = (source.namespace_label,) if not names and namespace else ()
    return custom_query(
        rule.query,
        series="",
        resource_label=source.resource_label,
        names=names,
        pattern=None if names else _ANY,
        namespace_label=source.namespace_label,
        namespace=namespace,
        namespace_pattern=not names,
        metric_selector=_EVERYTHING,
        group_by=(*source.group_by, *by_namespace),
    )


def _names(source: CustomSource, samples: Iterable[Sample]) -> list[str]:
    return [sample.labels[source.resource_label] for sample in samples]


def _is_node(name: str) -> bool:
    return _NODE_NAME.fullmatch(name) is not None


def _is_addressed(source: CustomSource, sample: Sample) -> bool:
    """Whether a sample is about a node by something that is no node's name."""
    return source.info.resource == _NODES and not _is_node(sample.labels[source.resource_label])


def _no_node(source: CustomSource, listener: _Listener, name: str) -> Example:
    problem = (
        f"`{source.resource_label}` is {name}, and no node can be called so; use the label with the nodes' names, often"
        " `node`"
    )
    return Example(of=name, queries=tuple(listener.queries), problem=problem, impossible=True)


def _queries(listener: _Listener) -> RuleQueries:
    return RuleQueries(listener, telemetry=RuleTelemetry(CollectorRegistry()))


async def _example(
    of: str, asked: Awaitable[list[MetricValue] | list[ExternalMetricValue]], listener: _Listener
) -> Example:
    try:
        found = await asked
    except StatusError as error:
        return Example(of=of, queries=tuple(listener.queries), problem=_problem(error, listener))
    values = _values(found)
    problem = "" if values else "the query finds nothing now"
    return Example(of=of, queries=tuple(listener.queries), values=values, problem=problem)


def _values(found: Iterable[MetricValue | ExternalMetricValue]) -> tuple[Value, ...]:
    return tuple(Value(of=_of(value), value=str(Quantity.from_milli(value.milli))) for value in found)


def _cause(error: StatusError) -> str:
    cause = error.__cause__
    # What aiohttp says of a failed connection has objects of Python in it.
    return (isinstance(cause, OSError) and cause.strerror) or str(cause or "")


def _problem(error: StatusError, listener: _Listener) -> str:
    """Why there is no value. What Prometheus said is told here, since this is for those who write the rules."""
    if listener.error:
        return f"{error.message} ({listener.error})"
    if error.code != _NOT_FOUND:
        return error.message
    if not listener.queries:
        return "no object matches the selector"
    if listener.labels is None:
        return "the query finds nothing now"
    labels = ", ".join(f"`{label}`" for label in sorted(listener.labels)) or "no labels"
    return f"the query's result has no value for the object: it has {labels}"


def _of(value: MetricValue | ExternalMetricValue) -> str:
    if isinstance(value, ExternalMetricValue):
        return ",".join(f"{label}={content}" for label, content in sorted((value.labels or {}).items()))
    described = value.described_object
    return f"{described.namespace}/{described.name}" if described.namespace else described.name
