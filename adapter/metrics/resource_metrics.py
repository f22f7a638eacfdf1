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

from adapter.catalog.groups import RESOURCE_GROUP
from adapter.catalog.inventory import CustomMetricInfo, CustomSource
from adapter.deadlines import Deadline
from adapter.gotemplate import Template
from adapter.metrics.objects import ObjectMetadata, ObjectSource
from adapter.metrics.usage import ContainerUsage, NodeUsage, PodUsage, Usage
from adapter.planning.metric_queries import ObjectsQuery
from adapter.planning.rendering import QueryError
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vector_index import ObjectSamples, as_sequence
from adapter.prometheus import Sample
from adapter.rules import ResourceRule, ResourceRules, Rule
from adapter.rules.naming import ResourceNaming
from kube.aio.tasks import all_of
from kube.api import status
from kube.api.mapping import GroupResource, ResourceInfo
from kube.values.selectors import EVERYTHING, LabelSelector

_PODS = ResourceInfo(group="", version="v1", kind="Pod", plural="pods", singular="pod", namespaced=True)
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
        objects: ObjectSource,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` returns the seconds since the epoch."""
        self._clock = clock
        self._queries = queries
        self._objects = objects
        self._window = rules.window if rules is not None else 0.0
        # CPU and memory of each.
        sources = resource_sources(rules) if rules is not None else []
        self._pods, self._nodes = sources[::2], sources[1::2]

    async def pods(
        self, *, namespace: str, selector: LabelSelector, name: str = "", deadline: Deadline
    ) -> list[PodUsage]:
        """Return the usage of pods, in the order of namespaces and names; those without values are left out.

        Args:
            namespace: the pods' namespace, or "" for all.
            selector: selects pods.
            name: selects a single pod, unless it is "".
            deadline: when the response is due.

        Raises:
            StatusError: 404 when there is no pod of the `name`, 503 and 504 when Prometheus or the API server is
                unavailable or slow, 500 when a query is invalid or no label maps to pods.
        """
        found = await self._listed(_PODS, namespace, selector, name)
        by_namespace: dict[str, list[str]] = {}
        for pod in found:
            by_namespace.setdefault(pod.namespace, []).append(pod.name)
        everything = selector.empty and not name
        free = asyncio.Semaphore(_NAMESPACES_AT_ONCE)

        async def both(space: str, names: list[str]) -> tuple[ObjectSamples, ObjectSamples]:
            async with free:
                return await self._both(self._pods, space, names, deadline, all_objects=everything)

        results = await all_of(both(space, names) for space, names in by_namespace.items())
        measured = dict(zip(by_namespace, results, strict=True))
        usages = [usage for pod in found if (usage := self._pod(pod, *measured[pod.namespace])) is not None]
        self._observe_freshness(usages)
        return usages

    async def nodes(self, *, selector: LabelSelector, name: str = "", deadline: Deadline) -> list[NodeUsage]:
        """Return the usage of nodes, in the order of their names; see `pods`."""
        found = await self._listed(_NODES, "", selector, name)
        if not found:
            return []
        cpu, memory = await self._both(
            self._nodes, "", [node.name for node in found], deadline, all_objects=selector.empty and not name
        )
        usages = [usage for node in found if (usage := self._node(node, cpu, memory)) is not None]
        self._observe_freshness(usages)
        return usages

    async def _listed(
        self, info: ResourceInfo, namespace: str, selector: LabelSelector, name: str
    ) -> list[ObjectMetadata]:
        found = await self._objects.objects(info, namespace=namespace, selector=selector, name=name)
        if name and not found:
            raise status.not_found(f'{info.plural} "{name}" not found', details={"name": name, "kind": info.plural})
        return found

    def _observe_freshness(self, usages: Sequence[PodUsage] | Sequence[NodeUsage]) -> None:
        now = self._clock()
        self._queries.observe_freshness(RESOURCE_GROUP, [now - usage.timestamp for usage in usages])

    def _pod(self, pod: ObjectMetadata, cpu: ObjectSamples, memory: ObjectSamples) -> PodUsage | None:
        of_cpu, of_memory = as_sequence(cpu.get(pod.name)), as_sequence(memory.get(pod.name))
        if not of_cpu or not of_memory:
            return None
        cores, bytes_ = (
            self._by_container(source, samples) for source, samples in zip(self._pods, (of_cpu, of_memory), strict=True)
        )
        return PodUsage(
            namespace=pod.namespace,
            name=pod.name,
            labels=pod.labels,
            timestamp=min(sample.timestamp for sample in (*of_cpu, *of_memory)),
            window_seconds=self._window,
            containers=tuple(
                ContainerUsage(name, Usage(cpu_milli=cores.get(name, 0), memory_milli=bytes_.get(name, 0)))
                for name in sorted(cores.keys() | bytes_.keys())
            ),
        )

    def _node(self, node: ObjectMetadata, cpu: ObjectSamples, memory: ObjectSamples) -> NodeUsage | None:
        of_cpu, of_memory = as_sequence(cpu.get(node.name)), as_sequence(memory.get(node.name))
        if not of_cpu or not of_memory:
            return None
        cores, bytes_ = (
            self._milli(source, samples[0]) for source, samples in zip(self._nodes, (of_cpu, of_memory), strict=True)
        )
        if cores is None or bytes_ is None:
            return None
        return NodeUsage(
            name=node.name,
            labels=node.labels,
            timestamp=min(of_cpu[0].timestamp, of_memory[0].timestamp),
            window_seconds=self._window,
            usage=Usage(cpu_milli=cores, memory_milli=bytes_),
        )

    def _by_container(self, source: CustomSource, samples: Iterable[Sample]) -> dict[str, int]:
        """Return each container's value; of several values, the first in the order of labels."""
        values: dict[str, int] = {}
        for sample in samples:
            milli = self._milli(source, sample)
            if milli is not None:
                values.setdefault(sample.labels.get(source.group_by[0], ""), milli)
        return values

    def _milli(self, source: CustomSource, sample: Sample) -> int | None:
        milli = self._queries.milli(source.rule, sample.value)
        return None if milli is None else max(milli, 0)

    async def _both(
        self,
        sources: Sequence[CustomSource],
        namespace: str,
        names: list[str],
        deadline: Deadline,
        *,
        all_objects: bool,
    ) -> tuple[ObjectSamples, ObjectSamples]:
        """Return the samples of CPU and those of memory."""
        queries = [ObjectsQuery(source, namespace, names, all_objects, EVERYTHING) for source in sources]
        cpu, memory = await all_of(self._samples(query, deadline) for query in queries)
        return cpu, memory

    async def _samples(self, query: ObjectsQuery, deadline: Deadline) -> ObjectSamples:
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
        sources.append(_source(f"{key}.containerQuery", rule.container_query, rule, _PODS, (rule.container_label,)))
        sources.append(_source(f"{key}.nodeQuery", rule.node_query, rule, _NODES, ()))
    return sources


def missing_resource_labels(rule: ResourceRule) -> list[str]:
    """Return the resources that no label maps to, though the queries need one for each."""
    return [info.plural for info in (_PODS, _NODES, _NAMESPACES) if not _resource_label(rule.resources, info)]


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
