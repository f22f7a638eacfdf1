"""A HorizontalPodAutoscaler, its API, its spec and its status, as plain typed data.

JSON from a cluster becomes these types once, in `autoscaler.objects`. They have no behaviour beyond small derived
properties, so that the live loop, tests and replays build them alike. Conventions of the whole package:

* Metric values, targets and requests are integers in thousandths ("milli": 1000 = 1 unit, 1 core or 1 byte), because
  Kubernetes computes with `Quantity.MilliValue()`.
* Times and durations are integers in milliseconds, times since the Unix epoch. Window edges are exact comparisons.
* Names are those of the autoscaling/v2 API; absent optional fields are `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from autoscaler.core.annotations import AnnotationOverrides

KIND: Final = "HorizontalPodAutoscaler"
_RESOURCE: Final = "horizontalpodautoscalers"


@dataclass(frozen=True, slots=True, kw_only=True)
class HPAApi:
    """An API that serves HorizontalPodAutoscalers.

    An `autoscaling/v2` HPA does not name its controller, so Kubernetes' controller takes every one of them. Only our
    controller takes HPAs of `milliscale.io/v1`. HPAs with the same name, one of each API, share nothing.
    """

    name: str
    """The name on the command line."""
    group: str
    version: str
    built_in: bool
    """Every API server serves it; the other one needs a CustomResourceDefinition."""

    @property
    def api_version(self) -> str:
        """GROUP/VERSION."""
        return f"{self.group}/{self.version}"

    @property
    def collection(self) -> str:
        """The path of the HPAs of all namespaces."""
        return f"/apis/{self.api_version}/{_RESOURCE}"

    def path(self, namespace: str, name: str = "", *, subresource: str = "") -> str:
        """Return the path of a namespace's HPAs, of one, or of a subresource of it; names may hold any characters."""
        parts = [f"/apis/{self.api_version}/namespaces", namespace and quote(namespace, safe=""), _RESOURCE]
        return "/".join([*parts, *filter(None, (quote(name, safe=""), subresource))])


KUBERNETES: Final = HPAApi(name="kubernetes", group="autoscaling", version="v2", built_in=True)
MILLISCALE: Final = HPAApi(name="milliscale", group="milliscale.io", version="v1", built_in=False)
HPA_APIS: Final = (KUBERNETES, MILLISCALE)


# --- the spec ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrossVersionObjectReference:
    """A reference to an object in the HPA's namespace: the scale target, or an Object metric's described object."""

    kind: str
    name: str
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class MetricIdentifier:
    """A metric's name and optional selector."""

    name: str
    selector: Mapping[str, Any] | None = None
    """A metav1.LabelSelector as JSON, without empty fields. No API server validates it, and the HPA's status and texts
    repeat it as the user wrote it."""


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


# --- the status ----------------------------------------------------------------------------------------------------


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


# --- the object ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class HPAKey:
    """Identifies an HPA. One of each API may have the same namespace and name, so the API's group is part of it."""

    namespace: str
    name: str
    group: str = KUBERNETES.group

    @property
    def qualified_name(self) -> str:
        """The name without the namespace, for texts: with the group, unless that is Kubernetes' own."""
        return self.name if self.group == KUBERNETES.group else f"{self.name} ({self.group})"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.qualified_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _HPABase:
    namespace: str
    name: str
    status: Status = field(default_factory=Status)
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """0 where the API does not count generations: `autoscaling/v2` does from Kubernetes 1.37 on."""
    api_version: str = KUBERNETES.api_version
    overrides: AnnotationOverrides = field(default_factory=AnnotationOverrides)

    @property
    def key(self) -> HPAKey:
        """The HPA's key."""
        return HPAKey(self.namespace, self.name, self.api_version.rpartition("/")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class HPA(_HPABase):
    """One HorizontalPodAutoscaler as last read from the API server."""

    spec: Spec

    @property
    def target(self) -> str:
        """The scale target as Kubernetes' texts name it: KIND/NAMESPACE/NAME."""
        ref = self.spec.scale_target_ref
        return f"{ref.kind}/{self.namespace}/{ref.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidHPA(_HPABase):
    """An HPA whose spec cannot be decoded."""

    problem: str
    """The reason, with the field's path."""
