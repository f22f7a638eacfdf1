"""The values of metrics before they are encoded: typed, in integer milli-units.

A sample of Prometheus is a double; a Quantity in these APIs is made of milli-units. `milli` is the double times 1000,
truncated, as in prometheus-adapter: 0.9999 is 999m. HPAs compare with exactly that number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kube.values.selectors import LabelSelector

_INT64_LIMIT = 2.0**63


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a value describes. `namespace` is "" for a cluster-scoped one."""

    api_version: str
    kind: str
    namespace: str
    name: str


class MetricValue(msgspec.Struct, kw_only=True):
    """One item of a MetricValueList.

    Attributes:
        selector: the metric label selector of the request; None when it was empty.
        timestamp: when the value was sampled, in seconds since the epoch.
        window_seconds: the time over which it was measured, or None if unknown.
        encoded: the item as protobuf of v1beta2, from its first encoding on. Requests share a value until its vector is
            refreshed. The other attributes do not change.
    """

    described_object: ObjectReference
    metric: str
    selector: LabelSelector | None
    timestamp: float
    window_seconds: int | None
    milli: int
    encoded: bytes = b""


class ExternalMetricValue(msgspec.Struct, kw_only=True):
    """One item of an ExternalMetricValueList.

    `labels` is None for a scalar. The other attributes are those of MetricValue.
    """

    metric: str
    labels: Mapping[str, str] | None
    timestamp: float
    window_seconds: int | None
    milli: int
    encoded: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU in milli-cores, memory in milli-bytes; never negative."""

    cpu_milli: int
    memory_milli: int


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """The usage of a container; the name is "" if the series have none."""

    name: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectUsage:
    """The usage of a pod, or of a node.

    Attributes:
        namespace: of a pod; "" for a node.
        name, labels: of the object.
        timestamp: of the oldest sample, in seconds since the epoch.
        window_seconds: the window of the rates.
        containers: of a pod, sorted by name; a node has one without a name.
    """

    namespace: str = ""
    name: str
    labels: Mapping[str, str]
    timestamp: float
    window_seconds: float
    containers: tuple[ContainerUsage, ...]

    @property
    def usage(self) -> Usage:
        """The usage of all containers together."""
        return Usage(
            cpu_milli=sum(one.usage.cpu_milli for one in self.containers),
            memory_milli=sum(one.usage.memory_milli for one in self.containers),
        )


def to_milli(value: float) -> int | None:
    """Convert a sample's value to milli-units, truncated towards zero; NaN is 0.

    None for infinities, and for numbers that do not fit into 64 bits.
    """
    scaled = value * 1000.0
    if -_INT64_LIMIT < scaled < _INT64_LIMIT:
        return int(scaled)
    return 0 if math.isnan(value) else None
