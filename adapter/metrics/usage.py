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
