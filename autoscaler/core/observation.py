"""What a decision is based on: an HPA, and what was read of its target, its pods and its metrics.

An error is part of it, as a value with its text, since Kubernetes has a condition or a rule for each. The conventions
are those of `autoscaler.core.model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from kube.selectors import LabelSelector


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale subresource of the target."""

    spec_replicas: int
    status_replicas: int
    selector: str
    """`status.selector`, text as served; may be empty or malformed."""
    target_uid: str = ""
    """The target's, which its scale repeats."""


@dataclass(frozen=True, slots=True)
class TargetError:
    """The scale target's kind could not be mapped to a resource (`message`: why)."""

    message: str


@dataclass(frozen=True, slots=True)
class ScaleError:
    """The scale subresource could not be read (`message`: the API server's)."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCondition:
    """A pod's Ready condition."""

    status: str
    last_transition_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container's requests: {resource: milli-value}; an absent resource has no request, 0 is a request."""

    name: str
    requests: Mapping[str, int]
    init: bool = False
    restartable: bool = False
    """An init container with restartPolicy Always (a sidecar)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of an object, by its ownerReferences."""

    kind: str
    uid: str


@dataclass(frozen=True, slots=True)
class Owned:
    """An object that may have a controller."""

    uid: str
    owner: Owner | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What scaling needs to know about one pod."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    phase: str
    deleted: bool = False
    """A deletionTimestamp is set."""
    start_ms: int | None = None
    ready: ReadyCondition | None = None
    containers: tuple[Container, ...] = ()
    """Containers first, then init containers, each in the pod's order."""
    requests: Mapping[str, int] | None = None
    """Pod-level requests (`spec.resources.requests`), if set."""
    overhead: Mapping[str, int] | None = None
    """`spec.overhead`, if set."""
    owner: Owner | None = None
    """Its controller, if it has one."""


@dataclass(frozen=True, slots=True)
class PodListError:
    """The pods could not be listed (`message`: why)."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSample:
    """One pod's value of one metric, averaged over `window_ms` before `timestamp_ms`."""

    value: int
    timestamp_ms: int
    window_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUsage:
    """One container's usage: {resource: milli-value}."""

    name: str
    usage: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """One item of metrics.k8s.io's PodMetricsList."""

    name: str
    timestamp_ms: int
    window_ms: int
    containers: tuple[ContainerUsage, ...]


@dataclass(frozen=True, slots=True)
class ResourceResponse:
    """metrics.k8s.io's answer for a pod selector: answers every Resource and ContainerResource metric of the HPA."""

    pods: tuple[PodUsage, ...]


@dataclass(frozen=True, slots=True)
class PodsResponse:
    """custom.metrics.k8s.io's answer for a Pods metric: {pod name: sample}."""

    pods: Mapping[str, PodSample]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectResponse:
    """custom.metrics.k8s.io's answer for an Object metric."""

    value: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalResponse:
    """external.metrics.k8s.io's answer: the items' values in the order of the answer."""

    values: tuple[int, ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class MetricError:
    """The metrics API did not answer (`message`: the API server's or the transport's, without our own prefix)."""

    message: str


MetricResponse: TypeAlias = ResourceResponse | PodsResponse | ObjectResponse | ExternalResponse | MetricError


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that one decision is based on.

    It is gathered in steps, since the later parts are often not needed: `autoscaler.core.preconditions` says what to
    read next. None means "not read".
    """

    hpa: HPA
    scale: Scale | ScaleError | TargetError | None = None
    pods: tuple[Pod, ...] | PodListError | None = None
    """The pods in the HPA's namespace that match the scale's selector, in listing order; with the pod selection
    `owner`, those of them that belong to the target."""
    foreign_pods: tuple[str, ...] = ()
    """The names of those that match but do not belong to the target, where that is looked at."""
    responses: tuple[MetricResponse | None, ...] | None = None
    """One per `spec.metrics` entry, in order; an entry is None where no answer is wanted."""
    other_selectors: Mapping[str, LabelSelector] = field(default_factory=dict)
    """Other HPAs of this namespace: {NAMESPACE/NAME: its scale's selector}. May leave out those that match no pod."""
    stale: tuple[str, ...] = ()
    """The resources, such as "pods", whose watch does not tell for sure any more what there is."""
    config: Config = field(default_factory=Config)
