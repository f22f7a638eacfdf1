"""What the autoscaler knows about one HorizontalPodAutoscaler, as plain typed data.

Everything that the loop reads from a cluster is turned into these types once, at the edge (`autoscaler.objects.parse`),
and everything that it decides is expressed in them. They hold no behaviour beyond small derived properties, so that the
live loop, tests and replays build them alike.

Conventions of the whole package:

* Metric values, targets and requests are integers in thousandths ("milli": 1000 = 1 unit, 1 core or 1 byte), because
  Kubernetes computes with `Quantity.MilliValue()`.
* Times and durations are integers in milliseconds, times since the Unix epoch. Window edges are exact comparisons.
* Names are those of the autoscaling/v2 API; absent optional fields are `None`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from autoscaler.core.apis import KUBERNETES
from autoscaler.core.knobs import Fallback, Knobs, Pause, PodSelection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube.selectors import LabelSelector

__all__ = [
    "HPA",
    "AnswerError",
    "Behavior",
    "Condition",
    "Config",
    "Container",
    "ContainerUsage",
    "CrossVersionObjectReference",
    "CurrentMetric",
    "ExternalAnswer",
    "ExternalMetric",
    "HPAKey",
    "History",
    "InvalidHPA",
    "InvalidMetric",
    "MetricAnswer",
    "MetricIdentifier",
    "MetricSelector",
    "MetricSource",
    "MetricSpec",
    "MetricTarget",
    "ObjectAnswer",
    "ObjectMetric",
    "Observation",
    "Owned",
    "Owner",
    "Pod",
    "PodListError",
    "PodSample",
    "PodUsage",
    "PodsAnswer",
    "PodsMetric",
    "ReadyCondition",
    "Recommendation",
    "ResourceAnswer",
    "ResourceMetric",
    "Scale",
    "ScaleError",
    "ScaleEvent",
    "ScalingPolicy",
    "ScalingRules",
    "SelectorRequirement",
    "Spec",
    "Status",
    "TargetError",
]


# --- the controller's own settings ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What decisions on an HPA depend on beside its spec; the defaults are kube-controller-manager's.

    The flags say it for every HPA, and an HPA's own annotations for itself (`Knobs.applied_to`).
    """

    tolerance: float = 0.1
    """How far a ratio may be from 1 without effect, where the HPA sets no tolerance of its own."""
    downscale_stabilization_ms: int = 300_000
    cpu_initialization_period_ms: int = 300_000
    initial_readiness_delay_ms: int = 30_000
    scale_to_zero: bool = True
    """The HPAScaleToZero feature: on by default from Kubernetes 1.37 on, off in 1.36."""
    paused: Pause = Pause.NONE
    fallback: Fallback | None = None
    pod_selection: PodSelection = PodSelection.SELECTOR


# --- the HPA's spec ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrossVersionObjectReference:
    """A reference to an object in the HPA's namespace: the scale target, or an Object metric's described object."""

    kind: str
    name: str
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class SelectorRequirement:
    """One `matchExpressions` entry as the user wrote it; nothing about it has been validated."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSelector:
    """A `metric.selector` as the user wrote it.

    The API server does not validate it, and the HPA's status and texts repeat it, so it is kept unparsed.
    """

    match_labels: tuple[tuple[str, str], ...] = ()
    """(key, value) pairs, sorted by key."""
    match_expressions: tuple[SelectorRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricIdentifier:
    """A metric's name and optional selector."""

    name: str
    selector: MetricSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTarget:
    """A metric's target. Validation lets `type` contradict the field that is set, so all are kept."""

    type: str
    value: int | None = None
    """Milli-value."""
    average_value: int | None = None
    """Milli-value per pod."""
    average_utilization: int | None = None
    """Percent of the pods' requests."""


@dataclass(frozen=True, slots=True)
class ResourceMetric:
    """A Resource metric, or with `container` a ContainerResource metric."""

    name: str
    container: str | None = None


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """A Pods metric: one custom metric of each pod, averaged."""

    metric: MetricIdentifier


@dataclass(frozen=True, slots=True)
class ObjectMetric:
    """An Object metric: one custom metric of one object."""

    metric: MetricIdentifier
    described_object: CrossVersionObjectReference


@dataclass(frozen=True, slots=True)
class ExternalMetric:
    """An External metric: the sum of all series that the selector selects."""

    metric: MetricIdentifier


@dataclass(frozen=True, slots=True)
class InvalidMetric:
    """A metric of a type that this release does not know; it fails alone at every step."""

    type: str


MetricSource: TypeAlias = ResourceMetric | PodsMetric | ObjectMetric | ExternalMetric | InvalidMetric


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One entry of `spec.metrics`: what to measure, and what it should be."""

    source: MetricSource
    target: MetricTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """How much may change within a period: `value` pods (type Pods) or percent (type Percent)."""

    type: str
    value: int
    period_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """`behavior.scaleUp` or `behavior.scaleDown`, after API defaulting."""

    policies: tuple[ScalingPolicy, ...]
    select_policy: str = "Max"
    stabilization_window_ms: int | None = None
    """None (scaleDown only): `Config.downscale_stabilization_ms`."""
    tolerance: float | None = None
    """None: `Config.tolerance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """`spec.behavior` after API defaulting, which fills in both directions."""

    scale_up: ScalingRules
    scale_down: ScalingRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """`spec` of an autoscaling/v2 HPA."""

    scale_target_ref: CrossVersionObjectReference
    min_replicas: int
    max_replicas: int
    metrics: tuple[MetricSpec, ...]
    behavior: Behavior | None = None


# --- the HPA's status ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMetric:
    """One entry of `status.currentMetrics`: which metric (None: it could not be read) and its current value.

    Each of the values is None where there is nothing sensible to show.
    """

    source: MetricSource | None = None
    value: int | None = None
    average_value: int | None = None
    average_utilization: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of the HPA's status."""

    type: str
    status: str
    """ "True", "False" or "Unknown"."""
    reason: str
    message: str
    last_transition_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`status` of an autoscaling/v2 HPA."""

    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_ms: int | None = None
    current_metrics: tuple[CurrentMetric, ...] = ()
    conditions: tuple[Condition, ...] = ()
    observed_generation: int | None = None
    """The generation of the spec that this status is about; None where the API does not count generations."""


@dataclass(frozen=True, slots=True, order=True)
class HPAKey:
    """Which HPA. One of each API may have the same namespace and name, so the API's group belongs to the key."""

    namespace: str
    name: str
    group: str = KUBERNETES.group

    @property
    def qualified_name(self) -> str:
        """The name without the namespace, as texts show it: with the group, unless that is Kubernetes' own."""
        return self.name if self.group == KUBERNETES.group else f"{self.name} ({self.group})"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.qualified_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HPA:
    """One HorizontalPodAutoscaler as last read from the API server."""

    namespace: str
    name: str
    spec: Spec
    status: Status = field(default_factory=Status)
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """0 where the API does not count generations: `autoscaling/v2` does from Kubernetes 1.37 on."""
    api_version: str = KUBERNETES.api_version
    knobs: Knobs = field(default_factory=Knobs)
    """From its annotations."""

    @property
    def key(self) -> HPAKey:
        """Which HPA this is."""
        return HPAKey(self.namespace, self.name, self.api_version.rpartition("/")[0])

    @property
    def target(self) -> str:
        """The scale target as the HPA's texts name it: KIND/NAMESPACE/NAME."""
        ref = self.spec.scale_target_ref
        return f"{ref.kind}/{self.namespace}/{ref.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidHPA:
    """An HPA whose spec is not valid: what can be said of it all the same."""

    namespace: str
    name: str
    problem: str
    """What is wrong, with the fields' paths."""
    api_version: str
    status: Status = field(default_factory=Status)
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    knobs: Knobs = field(default_factory=Knobs)
    """From its annotations."""

    @property
    def key(self) -> HPAKey:
        """Which HPA this is."""
        return HPAKey(self.namespace, self.name, self.api_version.rpartition("/")[0])


# --- what was observed ---------------------------------------------------------------------------------------------


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
class ResourceAnswer:
    """metrics.k8s.io's answer for a pod selector: answers every Resource and ContainerResource metric of the HPA."""

    pods: tuple[PodUsage, ...]


@dataclass(frozen=True, slots=True)
class PodsAnswer:
    """custom.metrics.k8s.io's answer for a Pods metric: {pod name: sample}."""

    pods: Mapping[str, PodSample]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAnswer:
    """custom.metrics.k8s.io's answer for an Object metric."""

    value: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAnswer:
    """external.metrics.k8s.io's answer: the items' values in the order of the answer."""

    values: tuple[int, ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AnswerError:
    """The metrics API did not answer (`message`: the API server's or the transport's, without our own prefix)."""

    message: str


MetricAnswer: TypeAlias = ResourceAnswer | PodsAnswer | ObjectAnswer | ExternalAnswer | AnswerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that one decision is based on.

    It is gathered in steps, since the later parts are often not needed: `autoscaler.core.decide.missing` says what to
    read next. None means "not read".
    """

    hpa: HPA
    scale: Scale | ScaleError | TargetError | None = None
    pods: tuple[Pod, ...] | PodListError | None = None
    """The pods in the HPA's namespace that match the scale's selector, in listing order; with the pod selection
    `owner`, those of them that belong to the target."""
    foreign_pods: tuple[str, ...] = ()
    """The names of those that match but do not belong to the target, where that is looked at."""
    answers: tuple[MetricAnswer | None, ...] | None = None
    """One per `spec.metrics` entry, in order; an entry is None where no answer is wanted."""
    other_selectors: Mapping[str, LabelSelector] = field(default_factory=dict)
    """Other HPAs of this namespace: {NAMESPACE/NAME: its scale's selector}. May leave out those that match no pod."""
    config: Config = field(default_factory=Config)


# --- what is remembered between steps ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A replica count that was proposed at a time."""

    replicas: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A change that was made: `change` pods (positive, whatever the direction) at a time."""

    change: int
    time_ms: int
    outdated: bool = False
    """It was found older than the longest policy period: its slot may be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The controller's memory of one HPA.

    Order matters: slots are used again in place, as in Kubernetes, and nothing is pruned.
    """

    recommendations: tuple[Recommendation, ...] = ()
    scale_up_events: tuple[ScaleEvent, ...] = ()
    scale_down_events: tuple[ScaleEvent, ...] = ()
    metric_failures: int = 0
    """Steps in a row in which the metrics mattered and one of them failed."""
    complete: bool = True
    """False: another process may have acted since; the next step catches up (`autoscaler.core.following`)."""
