"""The documents of metrics.k8s.io/v1beta1 as Kubernetes spells them.

CPU is a decimal quantity (`250m`), memory a binary one (`1536Ki`), and the window a duration of Go's (`5m0s`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import msgspec

from adapter.metrics.usage import NodeUsage, PodUsage, Usage
from kube.durations import format_duration
from kube.quantity import Format, Quantity

_API_VERSION = "metrics.k8s.io/v1beta1"


class ObjectMeta(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """metav1.ObjectMeta; a document is made for each response and is as old as its values."""

    name: str
    creation_timestamp: datetime.datetime
    namespace: str = ""
    labels: dict[str, str] = {}


class ListMeta(msgspec.Struct, frozen=True):
    """metav1.ListMeta; nothing in it means anything for metrics."""


class Container(msgspec.Struct, frozen=True):
    """A ContainerMetrics."""

    name: str
    usage: dict[str, str]


class PodMetrics(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A PodMetrics; without kind and apiVersion where it stands in a list."""

    metadata: ObjectMeta
    timestamp: datetime.datetime
    window: str
    containers: tuple[Container, ...]
    kind: str = ""
    api_version: str = ""


class NodeMetrics(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A NodeMetrics; without kind and apiVersion where it stands in a list."""

    metadata: ObjectMeta
    timestamp: datetime.datetime
    window: str
    usage: dict[str, str]
    kind: str = ""
    api_version: str = ""


class MetricsList(msgspec.Struct, frozen=True, rename="camel"):
    """A PodMetricsList or NodeMetricsList."""

    kind: str
    api_version: str
    metadata: ListMeta
    items: tuple[PodMetrics | NodeMetrics, ...]


ResourceDocument = PodMetrics | NodeMetrics | MetricsList


def document_of(usage: PodUsage | NodeUsage) -> PodMetrics | NodeMetrics:
    """Return the document of one pod or node."""
    item = _item(usage)
    return msgspec.structs.replace(item, kind=type(item).__name__, api_version=_API_VERSION)


def list_of(kind: str, usages: Iterable[PodUsage | NodeUsage]) -> MetricsList:
    """Return the list of pods or nodes; `kind` is PodMetricsList or NodeMetricsList."""
    return MetricsList(kind, _API_VERSION, ListMeta(), tuple(map(_item, usages)))


def _item(usage: PodUsage | NodeUsage) -> PodMetrics | NodeMetrics:
    moment = _moment(usage.timestamp)
    metadata = ObjectMeta(usage.name, moment, usage.namespace, dict(usage.labels))
    window = format_duration(usage.window_seconds)
    if isinstance(usage, NodeUsage):
        return NodeMetrics(metadata, moment, window, usage_texts(usage.usage))
    containers = tuple(Container(container.name, usage_texts(container.usage)) for container in usage.containers)
    return PodMetrics(metadata, moment, window, containers)


def usage_texts(usage: Usage) -> dict[str, str]:
    """What is used, as quantities by the name of the resource."""
    return {
        "cpu": str(Quantity.from_milli(usage.cpu_milli)),
        "memory": str(Quantity.from_milli(usage.memory_milli, Format.BINARY_SI)),
    }


def _moment(seconds: float) -> datetime.datetime:
    """metav1.Time has no parts of a second."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
