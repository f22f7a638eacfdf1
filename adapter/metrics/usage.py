"""What metrics.k8s.io answers with, before it is encoded: the CPU and memory of pods and nodes, in thousandths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU in thousandths of a core, memory in thousandths of a byte; never negative."""

    cpu_milli: int
    memory_milli: int


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What one container of a pod uses; the name is "" where the series do not say."""

    name: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """What a pod uses.

    Attributes:
        namespace: the pod's namespace.
        name: the pod's name.
        labels: the pod's labels.
        timestamp: the earliest time that one of the values is of, in seconds since the epoch.
        window_seconds: the time that rates span.
        containers: sorted by name.
    """

    namespace: str
    name: str
    labels: Mapping[str, str]
    timestamp: float
    window_seconds: float
    containers: tuple[ContainerUsage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """What a node uses; see PodUsage."""

    name: str
    labels: Mapping[str, str]
    timestamp: float
    window_seconds: float
    usage: Usage
