"""metrics.k8s.io: the CPU and memory that pods and nodes use, from the queries of resourceRules.

Each list of objects is a pair of queries in each namespace, one for CPU and one for memory; where they are coalesced,
one pair for all namespaces. A pod or node for which one of the two has no sample is left out, as prometheus-adapter
leaves it out: an HPA then knows that it is missing. A container with a sample of only one has 0 of the other. Negative
values and NaN are 0.

If Prometheus fails, the whole response is an error. (prometheus-adapter omits the pods whose query failed, as if they
did not exist.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from adapter.catalog.inventory import CustomMetricInfo, CustomSource
from adapter.content.values import RESOURCE_GROUP, ObjectUsage, Usage
from adapter.gotemplate import Template
from adapter.metrics.objects import PODS, ObjectFinder, ObjectMetadata
from adapter.planning.metric_queries import ObjectsQuery, QueryError
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vectors import ObjectSamples, as_sequence
from adapter.prometheus import Sample
from adapter.rules import ResourceRule, ResourceRules, Rule
from adapter.rules.naming import ResourceNaming
from kube.aio.tasks import all_of
from kube.api import status
from kube.api.mapping import GroupResource, ResourceInfo
from kube.values.selectors import EVERYTHING, LabelSelector

_NODES = ResourceInfo(group="", version="v1", kind="Node", plural="nodes", singular="node", namespaced=False)
_NAMESPACES = ResourceInfo(
    group="", version="v1", kind="Namespace", plural="namespaces", singular="namespace", namespaced=False
)
# Namespaces queried concurrently, with two queries each; more could overflow the queue of a namespace.
_NAMESPACES_AT_ONCE = 8


class ResourceMetrics:
    """Returns the usage of pods and nodes."""

    def __init__(
        self,
        rules: ResourceRules | None,
        queries: RuleQueries,
        objects: ObjectFinder,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` returns the seconds since the epoch."""
        self._clock = clock
        self._queries = queries
        self._objects = objects
        self._window = rules.window if rules is not None else 0.0
        sources = resource_sources(rules) if rules is not None else []
        self._sources = {"pods": (PODS, sources[::2]), "nodes": (_NODES, sources[1::2])}  # CPU and memory of each

    async def usages(
        self, resource: str, *, namespace: str = "", selector: LabelSelector, name: str = "", deadline: float
    ) -> list[ObjectUsage]:
        """Return the usage of pods or nodes, in the order of namespaces and names; those without values are left out.

        Args:
            resource: "pods" or "nodes".
            namespace: the pods' namespace; "" for all, and for nodes.
            selector: selects objects.
            name: selects a single object, unless it is "".
            deadline: when the response is due.

        Raises:
            StatusError: 404 when there is no object of the `name`, 503 and 504 when Prometheus or the API server is
                unavailable or slow, 500 when a query is invalid or no label maps to the resource.
        """
        info, sources = self._sources[resource]
        found = await self._objects.objects(info, namespace=namespace, selector=selector, name=name)
        if name and not found:
            raise status.not_found(f'{resource} "{name}" not found', details={"name": name, "kind": resource})
        by_namespace: dict[str, list[str]] = {}
        for one in found:
            by_namespace.setdefault(one.namespace, []).append(one.name)
        everything = selector.empty and not name
        free = asyncio.Semaphore(_NAMESPACES_AT_ONCE)

        async def both(space: str, names: list[str]) -> Sequence[ObjectSamples]:
            queries = [ObjectsQuery(source, space, names, everything, EVERYTHING) for source in sources]
            async with free:
                return await all_of(self._samples(query, deadline) for query in queries)

        results = await all_of(both(space, names) for space, names in by_namespace.items())
        measured = dict(zip(by_namespace, results, strict=True))
        made = (self._usage(sources, one, *measured[one.namespace]) for one in found)
        usages = [usage for usage in made if usage is not None]
        now = self._clock()
        self._queries.observe_freshness(RESOURCE_GROUP, [now - usage.timestamp for usage in usages])
        return usages

    def _usage(
        self, sources: Sequence[CustomSource], of: ObjectMetadata, cpu: ObjectSamples, memory: ObjectSamples
    ) -> ObjectUsage | None:
        of_cpu, of_memory = as_sequence(cpu.get(of.name)), as_sequence(memory.get(of.name))
        if not of.namespace:  # a node has one value of each
            of_cpu, of_memory = of_cpu[:1], of_memory[:1]
        if not of_cpu or not of_memory:
            return None
        cores, bytes_ = (
            self._by_container(source, samples) for source, samples in zip(sources, (of_cpu, of_memory), strict=True)
        )
        if not of.namespace and not (cores and bytes_):
            return None
        return ObjectUsage(
            namespace=of.namespace,
            name=of.name,
            labels=of.labels,
            timestamp=min(sample.timestamp for sample in (*of_cpu, *of_memory)),
            window_seconds=self._window,
            containers=tuple(
                Usage(cpu_milli=cores.get(name, 0), memory_milli=bytes_.get(name, 0), container=name)
                for name in sorted(cores.keys() | bytes_.keys())
            ),
        )

    def _by_container(self, source: CustomSource, samples: Iterable[Sample]) -> dict[str, int]:
        """Return each container's value, a node's as that of ""; of several, the first in the order of labels."""
        values: dict[str, int] = {}
        for sample in samples:
            milli = self._queries.milli(source.rule, sample.value)
            if milli is not None:
                name = sample.labels.get(source.group_by[0], "") if source.group_by else ""
                values.setdefault(name, max(milli, 0))
        return values

    async def _samples(self, query: ObjectsQuery, deadline: float) -> ObjectSamples:
        source, rule = query.source, query.source.rule
        problem = "the query must make a vector, with a value for each object"
        if not source.resource_label or (query.namespace and not source.namespace_label):
            missing = "namespaces" if source.resource_label else str(source.info.resource)
            problem = f"no label maps to {missing}; add one to resources.overrides"
        else:
            try:
                samples = await self._queries.objects(query, deadline)
            except QueryError as error:
                samples, problem = None, str(error)
            if samples is not None:
                return samples
        raise self._queries.failure(rule, problem)


def resource_sources(rules: ResourceRules) -> list[CustomSource]:
    """Return the queries as sources, like those of other rules: CPU of containers, of nodes, memory of both."""
    sources = []
    for key, rule in (("resourceRules.cpu", rules.cpu), ("resourceRules.memory", rules.memory)):
        sources.append(_source(f"{key}.containerQuery", rule.container_query, rule, PODS, (rule.container_label,)))
        sources.append(_source(f"{key}.nodeQuery", rule.node_query, rule, _NODES, ()))
    return sources


def missing_resource_labels(rule: ResourceRule) -> list[str]:
    """Return the resources that no label maps to, though the queries need one for each."""
    return [info.plural for info in (PODS, _NODES, _NAMESPACES) if not _resource_label(rule.resources, info)]


def _resource_label(naming: ResourceNaming, info: ResourceInfo) -> str:
    """Return the label for a resource of the core group: an override, else from the template; "" if none."""
    for label, named in naming.overrides:
        if named in (GroupResource("", info.plural), GroupResource("", info.singular)):
            return label
    return naming.template.label_for(group="", singular=info.singular) if naming.template is not None else ""


def _source(
    key: str, query: Template, written: ResourceRule, info: ResourceInfo, group_by: tuple[str, ...]
) -> CustomSource:
    """Return a resource rule as a source like those of other rules; its query names its series."""
    naming = written.resources
    rule = Rule(key=key, series_query=query.source, query=query, resources=naming, destination=written.destination)
    return CustomSource(
        CustomMetricInfo(info.group_resource, key, info.namespaced),
        rule,
        "",
        _resource_label(naming, info),
        _resource_label(naming, _NAMESPACES) if info.namespaced else "",
        group_by,
    )
