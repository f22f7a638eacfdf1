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


class PodMetricsList(msgspec.Struct, frozen=True, rename="camel"):
    """A PodMetricsList."""

    kind: str
    api_version: str
    metadata: ListMeta
    items: tuple[PodMetrics, ...]


class NodeMetricsList(msgspec.Struct, frozen=True, rename="camel"):
    """A NodeMetricsList."""

    kind: str
    api_version: str
    metadata: ListMeta
    items: tuple[NodeMetrics, ...]


ResourceDocument = PodMetrics | NodeMetrics | PodMetricsList | NodeMetricsList


def pod_document(pod: PodUsage) -> PodMetrics:
    """The document of one pod."""
    return msgspec.structs.replace(_pod(pod), kind="PodMetrics", api_version=_API_VERSION)


def node_document(node: NodeUsage) -> NodeMetrics:
    """The document of one node."""
    return msgspec.structs.replace(_node(node), kind="NodeMetrics", api_version=_API_VERSION)


def pod_list(pods: Iterable[PodUsage]) -> PodMetricsList:
    """The list of pods."""
    return PodMetricsList("PodMetricsList", _API_VERSION, ListMeta(), tuple(_pod(pod) for pod in pods))


def node_list(nodes: Iterable[NodeUsage]) -> NodeMetricsList:
    """The list of nodes."""
    return NodeMetricsList("NodeMetricsList", _API_VERSION, ListMeta(), tuple(_node(node) for node in nodes))


def _pod(pod: PodUsage) -> PodMetrics:
    moment = _moment(pod.timestamp)
    return PodMetrics(
        metadata=ObjectMeta(pod.name, moment, pod.namespace, dict(pod.labels)),
        timestamp=moment,
        window=format_duration(pod.window_seconds),
        containers=tuple(Container(container.name, usage_texts(container.usage)) for container in pod.containers),
    )


def _node(node: NodeUsage) -> NodeMetrics:
    moment = _moment(node.timestamp)
    return NodeMetrics(
        metadata=ObjectMeta(node.name, moment, labels=dict(node.labels)),
        timestamp=moment,
        window=format_duration(node.window_seconds),
        usage=usage_texts(node.usage),
    )


def usage_texts(usage: Usage) -> dict[str, str]:
    """What is used, as quantities by the name of the resource."""
    return {
        "cpu": str(Quantity.from_milli(usage.cpu_milli)),
        "memory": str(Quantity.from_milli(usage.memory_milli, Format.BINARY_SI)),
    }


def _moment(seconds: float) -> datetime.datetime:
    """metav1.Time has no parts of a second."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
