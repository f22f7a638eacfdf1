"""The query of a request: a metric of some objects, or an external metric.

Both kinds have a plan for the request alone, and a coalesced query whose result has the values of many requests.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.coalescible import coalesced_custom_query, coalesced_external_query
from adapter.planning.plans import Plan, custom_plan, external_plan
from adapter.planning.vector_index import ObjectLabels
from adapter.rules import Rule
from kube.selectors import LabelSelector


class ObjectsQuery(msgspec.Struct, frozen=True):
    """A metric of some objects.

    Attributes:
        source: where the metric comes from.
        namespace: the objects' namespace; "" for cluster-scoped objects.
        names: the objects' names, at least one.
        all_objects: these are all objects of the namespace.
        selector: selects the metric's series.
    """

    source: CustomSource
    namespace: str
    names: list[str]
    all_objects: bool
    selector: LabelSelector

    @property
    def group(self) -> Hashable:
        """Queries of one group have the same coalesced query."""
        source = self.source
        namespace_label = source.namespace_label if self.namespace else ""
        return (
            *(source.rule.key, source.series, source.resource_label, namespace_label),
            *(source.group_by, not self.namespace, str(self.selector)),
        )

    @property
    def requester(self) -> str:
        """Two different requesters in a group are reason to coalesce.

        A client can write any number of selectors, each with a coalesced query of its own. So one namespace alone does
        not make the adapter query the objects of all others with its selectors.
        """
        if not self.selector.empty:
            return self.namespace
        return f"{self.namespace}/{self.names[0]}/{self.names[-1]}/{len(self.names)}"

    @property
    def index(self) -> ObjectLabels:
        """The labels that index the coalesced result."""
        return (self.source.namespace_label if self.namespace else "", self.source.resource_label)

    def coalesced(self) -> str:
        """Return the query for the objects of all namespaces; "" where there is none."""
        return coalesced_custom_query(self.source, bool(self.namespace), self.selector)

    def plan(self) -> Plan:
        """Plan the request alone; raises as custom_plan."""
        return custom_plan(
            self.source,
            names=self.names,
            all_objects=self.all_objects,
            namespace=self.namespace,
            metric_selector=self.selector,
        )

    @property
    def plan_key(self) -> tuple[str, ...]:
        """Queries of one source with the same key have the same plan."""
        return ("all" if self.all_objects else "", self.namespace, str(self.selector), *self.names)


class ExternalQuery(msgspec.Struct, frozen=True):
    """An external metric in a namespace; `selector` selects its series."""

    source: ExternalSource
    namespace: str
    selector: LabelSelector

    @property
    def group(self) -> Hashable:
        """Queries of one group have the same coalesced query, and are selected from its result alike."""
        source = self.source
        return (source.rule.key, source.series, source.namespace_label, str(self.selector))

    @property
    def requester(self) -> str:
        """A group is coalesced once it has two different requesters."""
        return f"{self.namespace if self.labels else ''}?{self.selector}"

    index = None
    """Indexes of the coalesced result are built when selectors need them."""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """The labels that a sample of the coalesced result must have, with their values."""
        rule = self.source.rule
        namespaced = isinstance(rule, Rule) and rule.resources.namespaced
        return ((self.source.namespace_label, self.namespace),) if namespaced else ()

    def coalesced(self) -> str:
        """Return the query for all namespaces; "" where there is none from whose result `selector` could select."""
        return coalesced_external_query(self.source, self.selector)

    def plan(self) -> Plan:
        """Plan the request alone; raises as external_plan."""
        return external_plan(self.source, namespace=self.namespace, metric_selector=self.selector)

    @property
    def plan_key(self) -> tuple[str, ...]:
        """Queries of one source with the same key have the same plan."""
        return (self.namespace, str(self.selector))


MetricQuery = ObjectsQuery | ExternalQuery
