"""A HorizontalPodAutoscaler, its API, its spec and its status, as typed data.

The spec is the schema of autoscaling/v2: `autoscaler.objects.hpa` decodes JSON into these structs and encodes them
again, and the core computes with them. Defaults are those of the API, so a decoded spec is complete. As in Kubernetes,
`_written` fields are encoded even if they have their default; other fields are omitted then.

Conventions of the whole package: metric values and requests are integers in thousandths ("milli": 1000 = 1 unit, 1 core
or 1 byte), because Kubernetes computes with `Quantity.MilliValue()`. Times and durations are integers in milliseconds,
times since the Unix epoch, except where the API's field name says seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct

from autoscaler.core.config import AnnotationOverrides
from autoscaler.core.quantities import CanonicalQuantity
from kube.values.selectors import LabelSelector

KIND: Final = "HorizontalPodAutoscaler"
_RESOURCE: Final = "horizontalpodautoscalers"

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HPAApi:
    """An API that serves HorizontalPodAutoscalers.

    An `autoscaling/v2` HPA does not name its controller, so Kubernetes' controller takes every one of them. Only our
    controller takes HPAs of `milliscale.io/v1`. Two HPAs with the same name, one of each API, are independent.
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
        """Return the path of a namespace's HPAs, of one HPA, or of its subresource. Names are quoted."""
        parts = [f"/apis/{self.api_version}/namespaces", namespace and quote(namespace, safe=""), _RESOURCE]
        return "/".join([*parts, *filter(None, (quote(name, safe=""), subresource))])


KUBERNETES: Final = HPAApi(name="kubernetes", group="autoscaling", version="v2", built_in=True)
MILLISCALE: Final = HPAApi(name="milliscale", group="milliscale.io", version="v1", built_in=False)
HPA_APIS: Final = (KUBERNETES, MILLISCALE)


# --- the spec ------------------------------------------------------------------------------------------------------


class _Type(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


def _written(default: Any) -> Any:
    return msgspec.field(default_factory=lambda: default)


class CrossVersionObjectReference(_Type, frozen=True):
    """A reference to an object in the HPA's namespace: the scale target, or an Object metric's described object."""

    kind: str = _written("")
    name: str = _written("")
    api_version: str = ""


class LabelSelectorRequirement(_Type, frozen=True):
    """One of `matchExpressions`."""

    key: str = _written("")
    operator: str = _written("")
    values: list[str] = []


class LabelSelectorSpec(_Type, frozen=True):
    """A metav1.LabelSelector. API servers do not validate the selector of a metric."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class MetricIdentifier(_Type, frozen=True, dict=True):
    """A metric's name and optional selector."""

    name: str = _written("")
    selector: LabelSelectorSpec | None = None

    @cached_property
    def label_selector(self) -> LabelSelector:
        """The selector, parsed once: the 64 KiB that a spec may have take 10 ms. Raises SelectorError."""
        return LabelSelector.from_object(None if self.selector is None else msgspec.to_builtins(self.selector))


class MetricTarget(_Type, frozen=True):
    """A metric's target. Validation permits a `type` that contradicts the field that is set."""

    type: str = _written("")
    value: CanonicalQuantity | None = None
    average_value: CanonicalQuantity | None = None
    """Per pod."""
    average_utilization: Int32 | None = None
    """Percent of the pods' requests."""


class ResourceMetric(_Type, frozen=True):
    """A resource of all containers of the pods."""

    name: str = _written("")
    target: MetricTarget = _written(MetricTarget())

    @property
    def container(self) -> str | None:
        """The container, of a ContainerResource metric."""
        return None


class ContainerResourceMetric(ResourceMetric, frozen=True):
    """A resource of one container of each pod."""

    container: str = _written("")


class PodsMetric(_Type, frozen=True):
    """One custom metric of each pod, averaged."""

    metric: MetricIdentifier = _written(MetricIdentifier())
    target: MetricTarget = _written(MetricTarget())


class ObjectMetric(_Type, frozen=True):
    """One custom metric of one object."""

    metric: MetricIdentifier = _written(MetricIdentifier())
    described_object: CrossVersionObjectReference = _written(CrossVersionObjectReference())
    target: MetricTarget = _written(MetricTarget())


class ExternalMetric(_Type, frozen=True):
    """The sum of all series that the selector selects."""

    metric: MetricIdentifier = _written(MetricIdentifier())
    target: MetricTarget = _written(MetricTarget())


class InvalidMetric(_Type, frozen=True):
    """A metric of an unknown type. It fails without affecting the other metrics."""

    type: str
    target: MetricTarget = MetricTarget()


MetricSource: TypeAlias = ObjectMetric | ExternalMetric | PodsMetric | ResourceMetric | InvalidMetric

SOURCES: Final = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "container_resource",
}
"""{a metric's type: the field of MetricSpec}, in Kubernetes' order."""


class MetricSpec(_Type, frozen=True):
    """One of `spec.metrics`, or of `status.currentMetrics`, where the target is the current value."""

    type: str = _written("")
    object: ObjectMetric | None = None
    external: ExternalMetric | None = None
    pods: PodsMetric | None = None
    resource: ResourceMetric | None = None
    container_resource: ContainerResourceMetric | None = None

    @property
    def source(self) -> MetricSource:
        """The metric that `type` names."""
        field = SOURCES.get(self.type)
        source: MetricSource | None = None if field is None else getattr(self, field)
        return InvalidMetric(self.type) if source is None else source

    @property
    def sources(self) -> dict[str, MetricSource]:
        """All sources that are set, by type, in Kubernetes' order."""
        sources = {type_: getattr(self, field) for type_, field in SOURCES.items()}
        return {type_: source for type_, source in sources.items() if source is not None}

    @property
    def target(self) -> MetricTarget:
        """The target that the source has."""
        return self.source.target

    @classmethod
    def of(cls, source: MetricSource) -> MetricSpec:
        """Return the entry with this source."""
        if isinstance(source, InvalidMetric):
            return cls(source.type)
        type_ = type(source).__name__.removesuffix("Metric")
        field: dict[str, Any] = {SOURCES[type_]: source}
        return cls(type_, **field)

    def with_target(self, target: MetricTarget) -> MetricSpec:
        """Return the metric with another target."""
        return MetricSpec.of(msgspec.structs.replace(self.source, target=target))


class ScalingPolicy(_Type, frozen=True):
    """The permitted change within a period: `value` pods (type Pods) or percent (type Percent)."""

    type: str = _written("")
    value: Int32 = _written(0)
    period_seconds: Int32 = _written(0)


class ScalingRules(_Type, frozen=True):
    """`behavior.scaleUp` or `behavior.scaleDown`."""

    policies: tuple[ScalingPolicy, ...] = ()
    select_policy: str = _written("Max")
    stabilization_window_seconds: Int32 | None = None
    """None (scaleDown only): `Config.downscale_stabilization_ms`."""
    tolerance: CanonicalQuantity | None = None
    """None: `Config.tolerance`."""


class ScaleUpRules(ScalingRules, frozen=True):
    """The defaults of `scaleUp`. Upstream: v2.GenerateHPAScaleUpRules."""

    policies: tuple[ScalingPolicy, ...] = _written(
        (ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15)),
    )
    stabilization_window_seconds: Int32 | None = _written(0)


class ScaleDownRules(ScalingRules, frozen=True):
    """The defaults of `scaleDown`. Upstream: v2.GenerateHPAScaleDownRules."""

    policies: tuple[ScalingPolicy, ...] = _written((ScalingPolicy("Percent", 100, 15),))


class Behavior(_Type, frozen=True):
    """`spec.behavior`."""

    scale_up: ScaleUpRules = _written(ScaleUpRules())
    scale_down: ScaleDownRules = _written(ScaleDownRules())


DEFAULT_METRICS: Final = (
    MetricSpec("Resource", resource=ResourceMetric("cpu", MetricTarget("Utilization", average_utilization=80))),
)
"""The metrics of an HPA without any. Upstream: v2.SetDefaults_HorizontalPodAutoscaler."""


class Spec(_Type, frozen=True, kw_only=True):
    """`spec` of an autoscaling/v2 HPA."""

    scale_target_ref: CrossVersionObjectReference = _written(CrossVersionObjectReference())
    min_replicas: Int32 = _written(1)
    max_replicas: Int32 = _written(0)
    metrics: tuple[MetricSpec, ...] = _written(DEFAULT_METRICS)
    behavior: Behavior | None = None


# --- the status ----------------------------------------------------------------------------------------------------


class Condition(Struct, frozen=True, kw_only=True):
    """One condition of the HPA's status."""

    type: str
    status: str
    """ "True", "False" or "Unknown"."""
    reason: str
    message: str
    last_transition_ms: int


class Status(Struct, frozen=True, kw_only=True):
    """`status` of an autoscaling/v2 HPA."""

    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_ms: int | None = None
    current_metrics: tuple[MetricSpec, ...] = ()
    """The target of each is its current value; one without a source could not be read."""
    conditions: tuple[Condition, ...] = ()
    observed_generation: int | None = None
    """The generation of the spec that was reconciled; None if the API does not count generations."""


# --- the object ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class HPAKey:
    """Identifies an HPA. One of each API may have the same namespace and name, so the API's group is part of it."""

    namespace: str
    name: str
    group: str = KUBERNETES.group

    @property
    def qualified_name(self) -> str:
        """The name for messages, without the namespace; with the API group, unless that is `autoscaling`."""
        return self.name if self.group == KUBERNETES.group else f"{self.name} ({self.group})"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.qualified_name}"


class HPA(Struct, frozen=True, kw_only=True):
    """One HorizontalPodAutoscaler as last read from the API server."""

    namespace: str
    name: str
    spec: Spec = Spec()
    problem: str = ""
    """Why the spec cannot be decoded, with the field's path; the HPA is not reconciled then."""
    status: Status = Status()
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """0 if the API does not count generations; `autoscaling/v2` does from Kubernetes 1.37 on."""
    api_version: str = KUBERNETES.api_version
    overrides: AnnotationOverrides = AnnotationOverrides()
    metadata: bytes = b"{}"
    """JSON as served, without managedFields, for updates of the status; the API server keeps absent managedFields."""
    foreign_write: tuple[str, str] = ("", "")
    """Time and field manager of another controller's last status write, as served; empty: never, or overwritten."""

    @property
    def key(self) -> HPAKey:
        """The HPA's key."""
        return HPAKey(self.namespace, self.name, self.api_version.rpartition("/")[0])

    @property
    def api(self) -> HPAApi:
        """The API that serves it."""
        return next(api for api in HPA_APIS if api.group == self.key.group)

    @property
    def target(self) -> str:
        """The scale target as in Kubernetes' messages: KIND/NAMESPACE/NAME."""
        ref = self.spec.scale_target_ref
        return f"{ref.kind}/{self.namespace}/{ref.name}"

    @property
    def reconcile_trigger(self) -> tuple[object, ...]:
        """A change of this value triggers a reconciliation at once."""
        return self.uid, self.spec, self.problem, self.overrides
