"""HorizontalPodAutoscalers from Kubernetes JSON into the model.

Nothing is validated again that an API server checks at admission. An HPA that cannot be decoded is kept as an
`InvalidHPA`, so that its conditions tell what is wrong; other HPAs are not affected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.core.annotations import AnnotationOverrides, parse_annotations
from autoscaler.core.model import (
    HPA,
    KIND,
    KUBERNETES,
    Behavior,
    Condition,
    CrossVersionObjectReference,
    CurrentMetric,
    ExternalMetric,
    HPAApi,
    InvalidHPA,
    InvalidMetric,
    MetricIdentifier,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    Spec,
    Status,
)
from autoscaler.objects import apitypes
from autoscaler.objects.defaults import set_defaults
from autoscaler.objects.fields import ParseError, intern, milli_value, object_name, time_ms

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

FOREIGN_MANAGER: Final = "kube-controller-manager"
"""The field manager of Kubernetes' own controller."""


@dataclass(frozen=True, slots=True)
class TrackedHPA:
    """An HPA with the metadata that a status update must repeat."""

    hpa: HPA
    metadata: bytes
    """JSON as served, without managedFields, which the API server keeps where they are absent."""
    api: HPAApi = KUBERNETES
    metrics: Sequence[Mapping[str, Any]] = ()
    """`spec.metrics`, for the status field `targets` (`autoscaler.objects.targets`) of our own API."""
    foreign_write_time: str = ""
    """When Kubernetes' own controller last wrote the status, as served; empty: never, or all of it was overwritten."""

    @property
    def reconcile_trigger(self) -> tuple[str, Spec, AnnotationOverrides]:
        """A change of this value triggers a reconciliation at once."""
        return self.hpa.uid, self.hpa.spec, self.hpa.overrides


@dataclass(frozen=True, slots=True)
class RefusedHPA:
    """An HPA that cannot be decoded, with the metadata that a status update must repeat."""

    hpa: InvalidHPA
    metadata: bytes
    api: HPAApi

    @property
    def reconcile_trigger(self) -> tuple[str, str, AnnotationOverrides]:
        """A change of this value triggers a reconciliation at once."""
        return self.hpa.uid, self.hpa.problem, self.hpa.overrides


def track_hpa(
    raw: Mapping[str, Any], *, api: HPAApi = KUBERNETES, scale_to_zero: bool = True
) -> TrackedHPA | RefusedHPA | None:
    """Parse an HPA's JSON; None, with a line in the log, if not even its metadata can be parsed.

    Args:
        raw: the object, which may be anything.
        api: the API that it was read from.
        scale_to_zero: whether the feature HPAScaleToZero is on. The API server checks it for its own API only.
    """
    try:
        if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
            raise ParseError("the object has no metadata")
        served = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
        metadata = msgspec.json.encode(served)
        raw = {**raw, "apiVersion": api.api_version}  # the items of a list may come without
        try:
            decoded = _decode(raw)
            hpa = _hpa(raw, decoded)
            if hpa.spec.min_replicas == 0 and not scale_to_zero and not api.built_in:
                raise ParseError("spec.minReplicas: 0 needs the feature HPAScaleToZero, which is off")
        except ParseError as error:
            header = apitypes.decode_hpa({"metadata": raw["metadata"]})
            return RefusedHPA(InvalidHPA(**_header(raw, header.metadata), problem=str(error)), metadata, api)
        metrics = () if api.built_in else apitypes.encode_spec(decoded.spec)["metrics"]
        return TrackedHPA(hpa, metadata, api, metrics, _foreign_write_time(raw["metadata"].get("managedFields")))
    except ParseError as error:
        _log.warning("this HPA is left alone: %s", error)
        return None


def parse_hpa(raw: Mapping[str, Any]) -> HPA:
    """Parse an HPA of either API; defaults are filled in.

    Raises:
        ParseError: a field has the wrong type or an impossible value.
    """
    try:
        return _hpa(raw, _decode(raw))
    except ParseError as error:
        raise ParseError(f"{object_name(KIND, raw)}: {error}") from None


def _foreign_write_time(managed_fields: object) -> str:
    """Return the time of FOREIGN_MANAGER's entry for the status."""
    for entry in _list(managed_fields):
        if isinstance(entry, dict) and (entry.get("manager"), entry.get("subresource")) == (FOREIGN_MANAGER, "status"):
            return intern(str(entry.get("time", "")))
    return ""


# --- metadata and spec ---------------------------------------------------------------------------------------------


def _decode(raw: Mapping[str, Any]) -> apitypes.HorizontalPodAutoscaler:
    decoded = apitypes.decode_hpa(raw)
    set_defaults(decoded.spec)
    return decoded


def _header(raw: Mapping[str, Any], metadata: apitypes.ObjectMeta) -> dict[str, Any]:
    """Return the fields that HPA and InvalidHPA share."""
    return {
        "namespace": intern(metadata.namespace),
        "name": metadata.name,
        "uid": metadata.uid,
        "resource_version": metadata.resource_version,
        "generation": metadata.generation,
        "api_version": intern(str(raw.get("apiVersion") or KUBERNETES.api_version)),
        "status": _status(raw.get("status")),
        "overrides": parse_annotations(metadata.annotations),
    }


def _hpa(raw: Mapping[str, Any], decoded: apitypes.HorizontalPodAutoscaler) -> HPA:
    spec = decoded.spec
    target = spec.scale_target_ref
    if not target.kind or not target.name:
        raise ParseError("spec.scaleTargetRef: kind and name must be set")
    if spec.max_replicas < 1:
        raise ParseError("spec.maxReplicas: must be at least 1")
    behavior, metrics = spec.behavior or None, spec.metrics or ()
    return HPA(
        **_header(raw, decoded.metadata),
        spec=Spec(
            scale_target_ref=_reference(target),
            min_replicas=_or_none(spec.min_replicas) or 0,
            max_replicas=spec.max_replicas,
            metrics=tuple(_metric_spec(each, f"spec.metrics[{index}]") for index, each in enumerate(metrics)),
            behavior=behavior
            and Behavior(
                scale_up=_rules(behavior.scale_up, "spec.behavior.scaleUp"),
                scale_down=_rules(behavior.scale_down, "spec.behavior.scaleDown"),
            ),
        ),
    )


def _metric_spec(metric: apitypes.MetricSpec, field: str) -> MetricSpec:
    source, target = _source(metric, field)
    return MetricSpec(
        source,
        MetricTarget(
            type=target.type,
            value=_milli(target.value),
            average_value=_milli(target.average_value),
            average_utilization=_or_none(target.average_utilization),
        ),
    )


def _source(metric: apitypes.MetricSpec, field: str) -> tuple[MetricSource, apitypes.MetricTarget]:
    """Return the metric that `type` names, and its target.

    Raises:
        ParseError: the field of that type is not set.
    """
    match metric.type:
        case "Resource" if metric.resource:
            return ResourceMetric(metric.resource.name), metric.resource.target
        case "ContainerResource" if container := metric.container_resource:
            return ResourceMetric(container.name, container.container), container.target
        case "Pods" if metric.pods:
            return PodsMetric(_identifier(metric.pods.metric)), metric.pods.target
        case "Object" if metric.object:
            described = _reference(metric.object.described_object)
            return ObjectMetric(_identifier(metric.object.metric), described), metric.object.target
        case "External" if metric.external:
            return ExternalMetric(_identifier(metric.external.metric)), metric.external.target
        case "Resource" | "ContainerResource" | "Pods" | "Object" | "External":
            raise ParseError(f"{field}: type is {metric.type}, but the field of that metric type is not set")
        case _:
            return InvalidMetric(metric.type), apitypes.MetricTarget()


def _identifier(metric: apitypes.MetricIdentifier) -> MetricIdentifier:
    return MetricIdentifier(metric.name, msgspec.to_builtins(metric.selector) if metric.selector else None)


def _reference(reference: apitypes.CrossVersionObjectReference) -> CrossVersionObjectReference:
    return CrossVersionObjectReference(intern(reference.kind), reference.name, intern(reference.api_version or ""))


def _rules(rules: apitypes.ScalingRules | msgspec.UnsetType, field: str) -> ScalingRules:
    assert rules, "set_defaults fills in both directions"
    select_policy = rules.select_policy or "Max"
    if select_policy not in ("Max", "Min", "Disabled"):
        raise ParseError(f"{field}.selectPolicy: {select_policy!r} is not Max, Min or Disabled")
    for policy in rules.policies or ():
        if policy.type not in ("Pods", "Percent"):
            raise ParseError(f"{field}.policies: type {policy.type!r} is not Pods or Percent")
    window = _or_none(rules.stabilization_window_seconds)
    return ScalingRules(
        policies=tuple(
            ScalingPolicy(type=each.type, value=each.value, period_ms=each.period_seconds * 1000)
            for each in rules.policies or ()
        ),
        select_policy=select_policy,
        stabilization_window_ms=None if window is None else window * 1000,
        tolerance=rules.tolerance.quantity.as_float() if rules.tolerance else None,
    )


def _or_none(value: _T | msgspec.UnsetType) -> _T | None:
    return None if isinstance(value, msgspec.UnsetType) else value


def _milli(quantity: apitypes.CanonicalQuantity | msgspec.UnsetType) -> int | None:
    return milli_value(quantity) if quantity else None


# --- status: anybody may write it, and the next reconciliation writes it anew, so what cannot be read is left out -----


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    last_transition_time: Any = None
    reason: str = ""
    message: str = ""


def _status(raw: object) -> Status:
    status = raw if isinstance(raw, dict) else {}
    conditions = (_readable(each, _Condition) for each in _list(status.get("conditions")))
    return Status(
        current_replicas=_readable(status.get("currentReplicas"), apitypes.Int32) or 0,
        desired_replicas=_readable(status.get("desiredReplicas"), apitypes.Int32) or 0,
        last_scale_ms=_readable_time_ms(status.get("lastScaleTime")),
        current_metrics=tuple(_current_metric(each) for each in _list(status.get("currentMetrics"))),
        conditions=tuple(
            Condition(
                type=intern(each.type),
                status=intern(each.status),
                reason=intern(each.reason),
                message=intern(each.message),
                last_transition_ms=_readable_time_ms(each.last_transition_time) or 0,
            )
            for each in conditions
            if each is not None
        ),
        observed_generation=_readable(status.get("observedGeneration"), int),
    )


def _current_metric(raw: object) -> CurrentMetric:
    """Read a metric like one of the spec, with `current` for `target`."""
    fields = raw if isinstance(raw, dict) else {}
    as_spec = {
        name: {**value, "target": value.get("current")} if isinstance(value, dict) else value
        for name, value in fields.items()
    }
    try:
        spec = _metric_spec(apitypes.decode_metric(as_spec), "")
    except ParseError:
        return CurrentMetric()
    return CurrentMetric(
        source=None if isinstance(spec.source, InvalidMetric) else spec.source,
        value=spec.target.value,
        average_value=spec.target.average_value,
        average_utilization=spec.target.average_utilization,
    )


def _list(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _readable(raw: object, form: Any) -> Any:
    try:
        return msgspec.convert(raw, form)
    except msgspec.ValidationError:
        return None


def _readable_time_ms(raw: object) -> int | None:
    try:
        return time_ms(raw, "") if isinstance(raw, str) else None
    except ParseError:
        return None
