"""Example values: queried through the classes that serve requests, with the queries recorded."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, ExternalSource, Source
from adapter.content.values import ExternalMetricValue, MetricValue, to_milli
from adapter.diagnosis.query_notes import existing_series, sample_age, several_values, what_exists
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import ObjectNames
from adapter.metrics.requests import ALL_OBJECTS, CustomMetricRequest, ExternalMetricRequest
from adapter.planning.metric_queries import QueryError, custom_query
from adapter.planning.rule_queries import RuleQueries, by_name
from adapter.planning.vectors import InstantQueries, as_sequence
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Sample, Vector, sent_query
from adapter.prometheus.errors import server_text
from adapter.prometheus.results import HISTOGRAMS
from adapter.promql import is_plain_name, label_text
from adapter.rules import QueryRule, Rule, ScheduleRule
from adapter.schedules.schedule import next_change
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import GroupResource, ResourceLookup
from kube.api.status import StatusError
from kube.values.fields import quote
from kube.values.quantity import Quantity, milli_text
from kube.values.selectors import EVERYTHING, LabelSelector
from kube.web.explanation import Example, Value

_NODES = GroupResource("", "nodes")
# Kubernetes' pattern for node names; an address with a port does not match.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# The function, and strings, in which it is no function.
_RATE = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)|\brate(?=\s*\()""")
_NOT_FOUND = 404
_EXISTING_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The objects to query: one by name, those of a label selector, or any object that has a series.

    `namespace` is "" for any; `metric_selector` selects the metric's series.
    """

    namespace: str = ""
    name: str = ""
    selector: LabelSelector | None = None
    metric_selector: LabelSelector = EVERYTHING


@dataclass(slots=True)
class _Recorder:
    """Passes queries on, and records them with the last error and the labels of the last result.

    `rewrite` changes each before it is sent.
    """

    prometheus: InstantQueries
    rewrite: Callable[[str], str] = str
    queries: list[str] = field(default_factory=list)
    error: str = ""
    labels: frozenset[str] | None = None
    result: Vector | None = None
    notes: tuple[str, ...] = ()

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        query = self.rewrite(query)
        self.queries.append(sent_query(query, destination.tenant))
        try:
            result = await self.prometheus.instant(query, deadline=deadline, destination=destination)
        except PrometheusError as error:
            self.error = str(error)
            raise
        self.result, samples = result, _samples(result)
        self.labels = frozenset().union(*(sample.labels for sample in samples)) if samples else None
        self.notes = result.notices.notes
        return result

    def rule_queries(self) -> RuleQueries:
        return RuleQueries(self, telemetry=RuleTelemetry(), logs=False)

    @property
    def found_nothing(self) -> bool:
        """Whether the last query had an empty result."""
        return bool(self.queries) and self.labels is None and not self.error

    def why(self) -> str:
        """Return what Prometheus says of its last result, such as that it leaves out histograms."""
        text = "; ".join(self.notes)
        return f" (Prometheus: {server_text(text)}; there are {HISTOGRAMS})" if "histogram" in text else ""

    def no_series(self, detail: str = "") -> Example:
        problem = self.error or f"no series has a value now{detail}{self.why()}"
        return Example(queries=tuple(self.queries), problem=problem)


def _with_irate(query: str) -> str:
    """Return a query with the last two samples of a range in the place of all."""
    return _RATE.sub(lambda found: found[1] or "irate", query)


class Probe:
    """Queries metrics of the catalog, each within `seconds`. Problems are in the results, and not logged.

    `forwarder` is for forwardExternal. `existing` is queried for the times of a metric's samples, if `ages` is true, or
    if there are none, for the series that exist; None: `prometheus`.
    `external_url` is that of the pages of --prometheus-url's server, for its users; None: they have none.
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
        existing: InstantQueries | None = None,
        ages: bool = True,
        external_url: str | None = None,
    ) -> None:
        self._catalog = catalog
        self._prometheus = prometheus
        self._objects = objects
        self._lookup = lookup
        self._forwarder = forwarder
        self._seconds = seconds
        self._existing = existing or prometheus
        self._ages = ages
        self._external_url = external_url

    async def example(self, source: Source, selection: Selection) -> Example:
        """Query a metric. Without a name in `selection`, use an object or namespace that has a series.

        A rule of one namespace is queried in that one, if `selection` has none.
        """
        if source.rule.namespace and not selection.namespace:
            selection = replace(selection, namespace=source.rule.namespace)
        recorder = _Recorder(self._prometheus)
        if isinstance(source, CustomSource):
            example = await self._custom(source, selection, recorder)
        else:
            example = await self._external(source, selection, recorder)
        if self._ages and example.values and example.queries:
            deadline = _after(_EXISTING_SECONDS)
            age = await sample_age(self._existing, example.queries[-1], source.rule.destination, deadline=deadline)
            return example if age is None else msgspec.structs.replace(example, samples=str(age), long_range=age.advice)
        if example.values or not recorder.found_nothing:
            return example
        existing = await what_exists(
            self._existing, recorder.queries[-1], source.rule.destination, deadline=_after(_EXISTING_SECONDS)
        )
        return msgspec.structs.replace(example, existing=existing)

    async def over_last_scrapes(self, source: Source, selection: Selection, example: Example) -> Example:
        """Add to the values of an example what they would be over the last two scrapes, if its query has a rate."""
        if not example.values or not example.queries or _with_irate(example.queries[-1]) == example.queries[-1]:
            return example
        recorder = _Recorder(self._existing, rewrite=_with_irate)
        if isinstance(source, ExternalSource):
            latest = await self._external(source, replace(selection, namespace=example.of), recorder)
        else:
            if selection.selector is None:
                namespace, _, name = example.of.rpartition("/")
                selection = replace(selection, namespace=namespace, name=name)
            latest = await self._custom(source, selection, recorder)
        by_object = {each.of: each.value for each in latest.values}
        values = [msgspec.structs.replace(each, latest=by_object.get(each.of, "")) for each in example.values]
        return msgspec.structs.replace(example, values=tuple(values))

    async def _custom(self, source: CustomSource, selection: Selection, recorder: _Recorder) -> Example:
        namespaced, selector, name = source.info.namespaced, selection.selector, selection.name
        namespace = selection.namespace if namespaced else ""
        if selector is not None and namespaced and not namespace:
            return Example(problem="a selector selects in one namespace: say which")
        if selector is None and (not name or (namespaced and not namespace)):
            found = await self._any_object(source, namespace, name, recorder)
            if found is None:
                return recorder.no_series(f" for {name}" * bool(name) + f" in namespace {namespace}" * bool(namespace))
            namespace, name = found
            if _is_address(source, name):
                return _not_a_node(source, recorder, name)
            recorder.queries.clear()
        metrics = CustomMetrics(self._catalog, recorder.rule_queries(), self._objects, self._lookup)
        resource = source.info.resource
        request = CustomMetricRequest(
            resource=resource.resource,
            group=resource.group,
            namespace=namespace,
            name=name if selector is None else ALL_OBJECTS,
            metric=source.info.metric,
            selector=selector or EVERYTHING,
            metric_selector=selection.metric_selector,
            deadline=self._deadline(),
        )
        of = f"{namespace}/{name or '*'}" if namespace else name or "*"
        example = await _example(of, metrics.values(request), recorder)
        return msgspec.structs.replace(example, several=several_values(source, namespace, recorder.result))

    async def _external(self, source: ExternalSource, selection: Selection, recorder: _Recorder) -> Example:
        namespace = selection.namespace
        if isinstance(source.rule, ScheduleRule):
            now = time.time()
            value = Value(of="", value=milli_text(await asyncio.to_thread(source.rule.schedule.milli_at, now)))
            return Example(values=(value,), note=await asyncio.to_thread(next_change, source.rule.schedule, now))
        if not namespace and source.namespace_label:
            sample = await self._any_sample(
                source, [f'{label_text(source.namespace_label)}!=""'], {source.namespace_label: ""}, recorder
            )
            if sample is None:
                return recorder.no_series()
            namespace = sample.labels[source.namespace_label]
            recorder.queries.clear()
        namespace = namespace or "default"
        metrics = ExternalMetrics(self._catalog, recorder.rule_queries())
        values = metrics.values(self._external_request(namespace, source.metric, selection))
        return await _example(namespace, values, recorder)

    async def forwarded(self, metric: str, selection: Selection) -> Example | None:
        """Request an external metric from its adapter of forwardExternal; None without such an adapter.

        Without a namespace the request is for "default": the other adapter does not list its namespaces.
        """
        adapter = self._forwarder.adapter_for(metric) if self._forwarder is not None else None
        if adapter is None:
            return None
        namespace = selection.namespace or "default"
        try:
            found = await adapter.values(self._external_request(namespace, metric, selection))
        except StatusError as error:
            # Authors of rules need the cause; clients do not get it, because it may contain an address.
            why = _cause(error)
            return Example(of=namespace, problem=f"{error.message} ({why})" if why else error.message)
        values = _values(found)
        return Example(of=namespace, values=values, problem="" if values else "there is no value now")

    async def usage(self, source: CustomSource) -> Example:
        """Query resourceRules for one object: a pod, as the sum of its containers, or a node."""
        recorder, rule = _Recorder(self._prometheus), source.rule
        assert isinstance(rule, Rule), "resourceRules have no short form"
        label, namespace_label = source.resource_label, source.namespace_label
        try:
            namespaced = bool(namespace_label)
            anywhere = None if namespaced else ""
            query = custom_query(rule.query, source, names=None, namespace=anywhere, by_namespace=namespaced)
            labelled = [sample for sample in await self._query(query, source, recorder) if sample.labels.get(label)]
            if not labelled:
                problem = "the query finds nothing with the label of the object now"
                return Example(queries=(query,), problem=problem)
            named = [sample for sample in labelled if not _is_address(source, sample.labels[label])]
            if not named:
                return _not_a_node(source, recorder, labelled[0].labels[label])
            name, namespace = named[0].labels[label], named[0].labels.get(namespace_label, "")
            query = custom_query(rule.query, source, names=[name], namespace=namespace)
            found = await recorder.instant(query, deadline=self._deadline(), destination=rule.destination)
        except (PrometheusError, QueryError) as error:
            return Example(queries=tuple(recorder.queries), problem=str(error))
        by_container: dict[str, int] = {}
        for sample in as_sequence((by_name(source, namespace, found) or {}).get(name)):
            milli = to_milli(sample.value)
            if milli is not None:
                container = ",".join(sample.labels.get(one, "") for one in source.group_by)
                by_container.setdefault(container, max(milli, 0))
        of = f"{namespace}/{name}" if namespace else name
        if not by_container:
            return Example(of=of, queries=(query,), problem="the query finds nothing for the object now")
        value = Value(of=of, value=str(Quantity.from_milli(sum(by_container.values()))))
        return Example(of=of, queries=(query,), values=(value,))

    def graphs(self, source: Source, queries: Iterable[str]) -> tuple[str, ...]:
        """Return the URL of each query's graph in Prometheus; none if its pages have no address."""
        if self._external_url is None or source.rule.destination.server is not None:
            return ()
        shown = {"g0.tab": "0", "g0.range_input": "1h"}
        return tuple(f"{self._external_url}/graph?{urlencode({'g0.expr': query, **shown})}" for query in queries)

    async def instant(self, query: str, destination: Destination) -> Vector:
        """Send a query. Raises PrometheusError."""
        return await self._prometheus.instant(query, deadline=self._deadline(), destination=destination)

    async def existing_series(self, names: Iterable[str]) -> list[str]:
        """Return the names of which Prometheus has series; an empty result if Prometheus fails."""
        try:
            return await existing_series(self._prometheus, names, DEFAULT_DESTINATION, deadline=self._deadline())
        except PrometheusError:
            return []

    def _external_request(self, namespace: str, metric: str, selection: Selection) -> ExternalMetricRequest:
        return ExternalMetricRequest(
            namespace=namespace,
            metric=metric,
            selector=selection.metric_selector,
            deadline=self._deadline(),
        )

    def _deadline(self) -> float:
        return _after(self._seconds)

    async def _any_object(
        self, source: CustomSource, namespace: str, name: str, recorder: _Recorder
    ) -> tuple[str, str] | None:
        """Return the namespace and name of an object that has a series now; a node by its name if there is one."""
        label, namespace_label = source.resource_label, source.namespace_label
        text, namespace_text = label_text(label), label_text(namespace_label)
        choices = [f"{text}={quote(name)}"] if name else [f'{text}!=""']
        if source.info.resource == _NODES and not name:
            choices.insert(0, f'{text}=~"{_NODE_NAME.pattern}"')
        matchers, labels = [], {label: name}
        if source.info.namespaced and namespace_label:
            matchers.append(f"{namespace_text}={quote(namespace)}" if namespace else f'{namespace_text}!=""')
            labels[namespace_label] = namespace
        for choice in choices:
            sample = await self._any_sample(source, [choice, *matchers], labels, recorder)
            if sample is not None:
                found = sample.labels.get(namespace_label, "") or namespace or "default"
                return found if source.info.namespaced else namespace, sample.labels[label]
            if recorder.error:
                break
        return None

    async def _any_sample(
        self, source: Source, matchers: list[str], labels: Mapping[str, str], recorder: _Recorder
    ) -> Sample | None:
        """Return a sample that has all of some labels, with these values; "" stands for any value."""
        if isinstance(source.rule, QueryRule):
            query = source.rule.query
        else:
            name, text = source.series, ",".join(matchers)
            if not is_plain_name(name):
                name, text = "", ",".join((f"__name__={quote(name)}", *matchers))
            query = f"topk(1,{name}{{{text}}})"
        try:
            samples = await self._query(query, source, recorder)
            if recorder.why() and not isinstance(source.rule, QueryRule):  # topk leaves out native histograms
                query = f"topk(1,histogram_count({name}{{{text}}}))"
                samples = await self._query(query, source, recorder)
        except PrometheusError:
            return None
        return next((one for one in samples if all(_has(one, *label) for label in labels.items())), None)

    async def _query(self, query: str, source: Source, recorder: _Recorder) -> Sequence[Sample]:
        result = await recorder.instant(query, deadline=self._deadline(), destination=source.rule.destination)
        return _samples(result)


def _after(seconds: float) -> float:
    """Return the deadline some seconds from now."""
    return asyncio.get_running_loop().time() + seconds


def _samples(result: Vector) -> Sequence[Sample]:
    return () if result.is_scalar else result.samples


def _has(sample: Sample, label: str, value: str) -> bool:
    """Return whether a sample has a label, with any value if `value` is ""."""
    found = sample.labels.get(label, "")
    return bool(found) and value in ("", found)


def _is_address(source: CustomSource, name: str) -> bool:
    """Return whether a node's label value, such as an address with a port, cannot be a node's name."""
    return source.info.resource == _NODES and _NODE_NAME.fullmatch(name) is None


def _not_a_node(source: CustomSource, recorder: _Recorder, name: str) -> Example:
    problem = (
        f"`{source.resource_label}` is {name}, which cannot be the name of a node; use the label with the nodes' names,"
        " often `node`"
    )
    return Example(of=name, queries=tuple(recorder.queries), problem=problem, impossible=True)


async def _example(
    of: str, request: Awaitable[list[MetricValue] | list[ExternalMetricValue]], recorder: _Recorder
) -> Example:
    try:
        found = await request
    except StatusError as error:
        return Example(of=of, queries=tuple(recorder.queries), problem=_problem(error, recorder))
    values = _values(found)
    problem = "" if values else f"the query finds nothing now{recorder.why()}"
    return Example(of=of, queries=tuple(recorder.queries), values=values, problem=problem)


def _values(found: Iterable[MetricValue | ExternalMetricValue]) -> tuple[Value, ...]:
    return tuple(Value(of=_of(value), value=str(Quantity.from_milli(value.milli))) for value in found)


def _of(value: MetricValue | ExternalMetricValue) -> str:
    if isinstance(value, ExternalMetricValue):
        return ",".join(f"{label}={content}" for label, content in sorted((value.labels or {}).items()))
    described = value.described_object
    return f"{described.namespace}/{described.name}" if described.namespace else described.name


def _cause(error: StatusError) -> str:
    cause = error.__cause__
    # aiohttp's text for a failed connection contains the repr of Python objects.
    return (isinstance(cause, OSError) and cause.strerror) or str(cause or "")


def _problem(error: StatusError, recorder: _Recorder) -> str:
    """Return why there is no value, with Prometheus' error, which is not sent to clients."""
    if recorder.error:
        return f"{error.message} ({recorder.error})"
    if error.code != _NOT_FOUND:
        return error.message
    if not recorder.queries:
        return "no object matches the selector"
    if recorder.labels is None:
        return f"the query finds nothing now{recorder.why()}"
    labels = ", ".join(f"`{label}`" for label in sorted(recorder.labels)) or "no labels"
    return f"the query's result has no value for the object: it has {labels}"
