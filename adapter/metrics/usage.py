"""The CPU and memory of pods and nodes, in milli-units, before they are encoded for metrics.k8s.io."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU in milli-cores, memory in milli-bytes; never negative."""

    cpu_milli: int
    memory_milli: int


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """The usage of a container; the name is "" where the series have none."""

    name: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """The usage of a pod.

    Attributes:
        namespace: the pod's namespace.
        name: the pod's name.
        labels: the pod's labels.
        timestamp: of the oldest sample, in seconds since the epoch.
        window_seconds: of the rates.
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
    """The usage of a node; see PodUsage."""

    name: str
    labels: Mapping[str, str]
    timestamp: float
    window_seconds: float
    usage: Usage
