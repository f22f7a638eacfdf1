"""An autoscaling/v2 HorizontalPodAutoscaler as Go decodes it, and as the API server writes it back.

A field that is not there is UNSET and remains so, since defaults and validation depend on it. The encoded spec has
exactly the fields that Kubernetes would write: no unknown ones, no empty optional ones, required ones even if empty,
and quantities in canonical form.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from autoscaler.objects.fields import ParseError
from kube.quantity import Quantity

_MAX_DEPTH = 16  # an HPA's fields nest less deeply

_T = TypeVar("_T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class CanonicalQuantity(str):
    """A quantity's text, as `str(Quantity)` gives it."""

    __slots__ = ()

    @property
    def quantity(self) -> Quantity:
        """The quantity."""
        return Quantity.parse(self)


class _Type(msgspec.Struct, rename="camel", kw_only=True):
    pass


class CrossVersionObjectReference(_Type):
    """A scaleTargetRef or describedObject."""

    kind: str = ""
    name: str = ""
    api_version: str | UnsetType = msgspec.field(default=UNSET, name="apiVersion")

    def __post_init__(self) -> None:
        self.api_version = self.api_version or UNSET


class LabelSelectorRequirement(_Type):
    """A matchExpressions item."""

    key: str = ""
    operator: str = ""
    values: list[str] | UnsetType = UNSET

    def __post_init__(self) -> None:
        self.values = self.values or UNSET


class LabelSelector(_Type):
    """A metav1.LabelSelector; nothing in it is checked at create."""

    match_labels: dict[str, str] | UnsetType = UNSET
    match_expressions: list[LabelSelectorRequirement] | UnsetType = UNSET

    def __post_init__(self) -> None:
        self.match_labels = self.match_labels or UNSET
        self.match_expressions = self.match_expressions or UNSET


class MetricIdentifier(_Type):
    """A metric's name and selector."""

    name: str = ""
    selector: LabelSelector | UnsetType = UNSET


class MetricTarget(_Type):
    """The target of a metric."""

    type: str = ""
    value: CanonicalQuantity | UnsetType = UNSET
    average_value: CanonicalQuantity | UnsetType = UNSET
    average_utilization: Int32 | UnsetType = UNSET


class ObjectMetricSource(_Type):
    """`object` of a metric."""

    described_object: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)
    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)


class PodsMetricSource(_Type):
    """`pods` of a metric."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class ExternalMetricSource(_Type):
    """`external` of a metric."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class ResourceMetricSource(_Type):
    """`resource` of a metric."""

    name: str = ""
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)


class ContainerResourceMetricSource(_Type):
    """`containerResource` of a metric."""

    name: str = ""
    target: MetricTarget = msgspec.field(default_factory=MetricTarget)
    container: str = ""


class MetricSpec(_Type):
    """One of `spec.metrics`."""

    type: str = ""
    object: ObjectMetricSource | UnsetType = UNSET
    pods: PodsMetricSource | UnsetType = UNSET
    resource: ResourceMetricSource | UnsetType = UNSET
    container_resource: ContainerResourceMetricSource | UnsetType = UNSET
    external: ExternalMetricSource | UnsetType = UNSET


class ScalingPolicy(_Type):
    """One of the policies of a direction."""

    type: str = ""
    value: Int32 = 0
    period_seconds: Int32 = 0


class ScalingRules(_Type):
    """`scaleUp` or `scaleDown`. An empty list of policies is not UNSET: it is written as nothing and is an error."""

    stabilization_window_seconds: Int32 | UnsetType = UNSET
    select_policy: str | UnsetType = UNSET
    policies: list[ScalingPolicy] | UnsetType = UNSET
    tolerance: CanonicalQuantity | UnsetType = UNSET


class Behavior(_Type):
    """`spec.behavior`."""

    scale_up: ScalingRules | UnsetType = UNSET
    scale_down: ScalingRules | UnsetType = UNSET


class Spec(_Type):
    """`spec`."""

    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: Int32 | UnsetType = UNSET
    max_replicas: Int32 = 0
    metrics: list[MetricSpec] | UnsetType = UNSET
    behavior: Behavior | UnsetType = UNSET


class ObjectMeta(_Type):
    """The fields of `metadata` that are checked or used."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class HorizontalPodAutoscaler(_Type):
    """The object without its status."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Spec = msgspec.field(default_factory=Spec)


def decode_hpa(obj: Mapping[str, Any]) -> HorizontalPodAutoscaler:
    """Decode an object as Go does: unknown fields are ignored, null is the same as absent.

    Raises:
        ParseError: a field has the wrong type, or a text is no quantity; the message begins with the field.
    """
    return _decode(obj, HorizontalPodAutoscaler)


def decode_metric(metric: object) -> MetricSpec:
    """Decode one metric.

    Raises:
        ParseError: a field has the wrong type, or a text is no quantity.
    """
    return _decode(metric, MetricSpec)


def _decode(raw: object, form: type[_T]) -> _T:
    try:
        try:
            return msgspec.convert(raw, form, dec_hook=_decode_quantity)
        except msgspec.ValidationError:
            # No field may be null here. API servers do not serve nulls, so this is rare.
            return msgspec.convert(_without_nulls(raw), form, dec_hook=_decode_quantity)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ParseError(f"{path.strip('.`') or 'HorizontalPodAutoscaler'}: {problem}") from None


def encode_spec(spec: Spec) -> dict[str, Any]:
    """Return the JSON object of a spec."""
    encoded: dict[str, Any] = msgspec.to_builtins(spec, enc_hook=str)
    for rules in encoded.get("behavior", {}).values():
        if not rules.get("policies"):
            rules.pop("policies", None)
    return encoded


def _decode_quantity(type_: type, value: object) -> CanonicalQuantity:
    """Read a quantity from a JSON string or number; blanks around the text are allowed."""
    if type_ is not CanonicalQuantity or isinstance(value, bool | Mapping | list):
        raise ValueError(f"Expected a quantity, got `{value!r}`")
    return _canonical_quantity(str(value).strip(" "))


@lru_cache(4096)
def _canonical_quantity(text: str) -> CanonicalQuantity:
    return CanonicalQuantity(Quantity.parse(text))


def _without_nulls(value: Any, depth: int = _MAX_DEPTH) -> Any:
    if depth == 0:
        return value
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner, depth - 1) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [{} if inner is None else _without_nulls(inner, depth - 1) for inner in value]
    return value
