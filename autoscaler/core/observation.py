"""The input of a decision: an HPA, and the data read for its target, its pods and its metrics.

Errors are part of it, as values with their text: Kubernetes has a condition or a rule for each. Units are those of
`autoscaler.core.model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct, field

from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from kube.values.selectors import LabelSelector


class Scale(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The scale subresource of the target."""

    spec_replicas: int
    status_replicas: int
    selector: str = ""
    """`status.selector`, text as served; may be empty or malformed."""
    target_uid: str = ""
    """The uid of the target, which its scale repeats."""


class ReadError(Struct, frozen=True):
    """The scale of the target, or the pods, could not be read."""

    message: str
    """The API server's."""
    unknown_kind: bool = False
    """The kind of the scale target could not be mapped to a resource."""


# --- pods ----------------------------------------------------------------------------------------------------------


class ReadyCondition(Struct, frozen=True, kw_only=True):
    """A pod's Ready condition."""

    status: str
    last_transition_ms: int


class Container(Struct, frozen=True, kw_only=True):
    """One container's requests: {resource: milli-value}; an absent resource has no request, 0 is a request."""

    name: str
    requests: Mapping[str, int]
    init: bool = False
    restartable: bool = False
    """An init container with restartPolicy Always (a sidecar)."""


class Owner(Struct, frozen=True):
    """The controller in an object's ownerReferences."""

    kind: str
    uid: str


class Owned(Struct, frozen=True):
    """An object that may have a controller."""

    uid: str
    owner: Owner | None


class Pod(Struct, frozen=True, kw_only=True):
    """The fields of a pod that scaling depends on."""

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


# --- metrics -------------------------------------------------------------------------------------------------------


@dataclass(eq=True, unsafe_hash=True)
class MetricError(Exception):
    """A metric could not be fetched, or no replica count could be computed from it.

    It is raised or passed as a value. `message` is Kubernetes' text; `compute_replicas_for_metric` adds `reason` and
    `error`.
    """

    message: str
    """The message of the event, and the end of the ScalingActive condition's message."""
    reason: str = ""
    """The reason of the condition and of the event. Set by `compute_replicas_for_metric`."""
    error: str = ""
    """The text in the reconciliation's error. Set by `compute_replicas_for_metric`."""

    def __str__(self) -> str:
        return self.message


class PodSample(Struct, frozen=True, kw_only=True):
    """One pod's value of one metric, averaged over `window_ms` before `timestamp_ms`; 0: not given."""

    value: int
    timestamp_ms: int
    window_ms: int


class PodUsage(Struct, frozen=True, kw_only=True):
    """One pod's item of metrics.k8s.io's PodMetricsList."""

    timestamp_ms: int
    window_ms: int
    containers: tuple[tuple[str, Mapping[str, int]], ...]
    """(name, {resource: milli-value}) of each container."""
    earlier: tuple[PodUsage, ...] = ()
    """The same pod's items before this one, the last one first; their own are empty."""


class ResourceResponse(Struct, frozen=True):
    """metrics.k8s.io's response for a pod selector, for all Resource and ContainerResource metrics of the HPA."""

    pods: Mapping[str, PodUsage]
    """{pod name: usage}"""


class PodsResponse(Struct, frozen=True):
    """custom.metrics.k8s.io's response for a Pods metric: {pod name: sample}."""

    pods: Mapping[str, PodSample]


class ValuesResponse(Struct, frozen=True, kw_only=True):
    """The values of an External metric's series, or the one value of an Object metric."""

    values: tuple[int, ...]
    timestamp_ms: int = 0
    """Of the newest value; 0: not given."""
    window_ms: int = 0
    """The longest window of the values; 0: not given."""


MetricResponse: TypeAlias = ResourceResponse | PodsResponse | ValuesResponse | MetricError


class Observation(Struct, frozen=True, kw_only=True):
    """Everything that one decision is based on.

    It is read in steps, since later parts are often not needed: `autoscaler.core.preconditions.next_read` says what to
    read next. None means "not read".
    """

    hpa: HPA
    scale: Scale | ReadError | None = None
    pods: tuple[Pod, ...] | ReadError | None = None
    """The pods in the HPA's namespace that match the scale's selector, in listing order; with the pod selection
    `owner`, only those that belong to the target."""
    foreign_pods: tuple[str, ...] = ()
    """With the pod selection `owner`, the names of matching pods that do not belong to the target."""
    responses: tuple[MetricResponse | None, ...] | None = None
    """One for each `spec.metrics` entry; None for an entry that is invalid and was not fetched."""
    other_selectors: Mapping[str, LabelSelector] = field(default_factory=dict)
    """Other HPAs of this namespace: {NAMESPACE/NAME: its scale's selector}. May leave out those that match no pod."""
    stale: tuple[str, ...] = ()
    """The resources, such as "pods", whose watch may be out of date."""
    config: Config = field(default_factory=Config)
