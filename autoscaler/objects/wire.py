"""The shapes of the Kubernetes JSON that the autoscaler reads: only the fields that it uses.

Field names are those of the APIs (autoscaling/v2, autoscaling/v1 Scale, v1 Pod) in snake case. Go takes `null` for
"not set", so whatever the API server may leave out may be None too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Quantity = str | int | float
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Wire(msgspec.Struct, rename="camel", kw_only=True):
    pass


class OwnerReference(_Wire):
    """metav1.OwnerReference."""

    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(_Wire):
    """ObjectMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None


class Reference(_Wire):
    """CrossVersionObjectReference."""

    kind: str
    name: str
    api_version: str = ""


class SelectorRequirement(_Wire):
    """metav1.LabelSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(_Wire):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class MetricIdentifier(_Wire):
    """MetricIdentifier."""

    name: str
    selector: LabelSelector | None = None


class MetricTarget(_Wire):
    """MetricTarget of the spec, MetricValueStatus of the status."""

    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: Int32 | None = None


class MetricFields(_Wire):
    """The union of the five metric sources' fields, in spec (`target`) and status (`current`)."""

    name: str = ""
    container: str = ""
    metric: MetricIdentifier | None = None
    described_object: Reference | None = None
    target: MetricTarget | None = None
    current: MetricTarget | None = None


class Metric(_Wire):
    """MetricSpec and MetricStatus: `type` says which of the fields counts."""

    type: str = ""
    resource: MetricFields | None = None
    container_resource: MetricFields | None = None
    pods: MetricFields | None = None
    object: MetricFields | None = None
    external: MetricFields | None = None


class ScalingPolicy(_Wire):
    """HPAScalingPolicy."""

    type: Literal["Pods", "Percent"]
    value: Int32
    period_seconds: Int32


class ScalingRules(_Wire):
    """HPAScalingRules."""

    stabilization_window_seconds: Int32 | None = None
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    policies: list[ScalingPolicy] | None = None
    tolerance: Quantity | None = None


class Behavior(_Wire):
    """HorizontalPodAutoscalerBehavior."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class Spec(_Wire):
    """HorizontalPodAutoscalerSpec."""

    scale_target_ref: Reference
    max_replicas: Int32
    min_replicas: Int32 | None = None
    metrics: list[Metric] | None = None
    behavior: Behavior | None = None


class Condition(_Wire):
    """A condition of an HPA or a pod."""

    type: str
    status: str
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class HPAWithoutSpec(_Wire, kw_only=True):
    """HorizontalPodAutoscaler, whatever its spec may be."""

    metadata: Metadata
    status: Any = None
    """Read piece by piece: whatever is odd in it must not keep the HPA from being looked after."""
    api_version: str = "autoscaling/v2"


class HPA(HPAWithoutSpec, kw_only=True):
    """HorizontalPodAutoscaler."""

    spec: Spec


class ScaleSpec(_Wire):
    """ScaleSpec: replicas are left out when 0."""

    replicas: Int32 = 0


class ScaleStatus(_Wire):
    """ScaleStatus."""

    replicas: Int32 = 0
    selector: str = ""


class Scale(_Wire):
    """autoscaling/v1 Scale."""

    metadata: Metadata | None = None
    spec: ScaleSpec | None = None
    status: ScaleStatus | None = None


class WorkloadSpec(_Wire):
    """What a Deployment's and a StatefulSet's spec have in common."""

    replicas: Int32
    selector: LabelSelector


class Workload(_Wire):
    """A Deployment or a StatefulSet."""

    metadata: Metadata
    spec: WorkloadSpec
    status: ScaleStatus | None = None


class Owned(_Wire):
    """An object of whatever kind, as far as it is owned."""

    metadata: Metadata


class Resources(_Wire):
    """ResourceRequirements."""

    requests: dict[str, Quantity] | None = None


class Container(_Wire):
    """Container, of any kind."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpec(_Wire):
    """PodSpec."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: dict[str, Quantity] | None = None


class PodStatus(_Wire):
    """PodStatus."""

    phase: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None


class Pod(_Wire):
    """Pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus | None = None
