"""HorizontalPodAutoscalers from Kubernetes JSON into the model, and their specs back.

JSON is decoded as Go does: unknown fields are ignored, null is the same as absent, and absent fields get the defaults
of Kubernetes 1.36. An encoded spec has exactly the fields that Kubernetes would write, with canonical quantities.

Checks of the API server's admission are not repeated. An HPA that cannot be decoded is kept with its `problem`, which
its conditions report; other HPAs are not affected.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.core.config import parse_annotations
from autoscaler.core.model import (
    DEFAULT_METRICS,
    HPA,
    KIND,
    KUBERNETES,
    SOURCES,
    Condition,
    HPAApi,
    Int32,
    MetricSpec,
    Spec,
    Status,
)
from autoscaler.core.quantities import CanonicalQuantity, canonical_quantity
from autoscaler.objects.decoding import intern, object_name, time_ms
from kube.api.objects import ParseError, TooLargeError
from kube.values.quantity import QuantityError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

FIELD_MANAGER: Final = "milliscale-autoscaler"
"""The field manager of this controller: its User-Agent."""

_MAX_DEPTH: Final = 16  # HPAs are nested less deeply
# Kubernetes has no such limits. Who may write one HPA could otherwise take seconds of each reconciliation from all
# others: an object of 1.5 MiB has room for 15,000 metrics, or for 30,000 policies.
_MAX_METRICS: Final = 100
_MAX_POLICIES: Final = 100
_MAX_SPEC_BYTES: Final = 64 * 1024
# All metadata is kept, since each write of a status has it. Twice as long: kubectl repeats the spec in an annotation.
_MAX_METADATA_BYTES: Final = 128 * 1024
_SHOWN: Final = 40
"""Characters of a text in an error."""
_TYPE: Final = re.compile(r"`(\w+)(?: \| null)?`")
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a mapping",
    "str": "text",
}


class ObjectMeta(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of `metadata` that are checked or used."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class DecodedHPA(msgspec.Struct):
    """An HPA without its status."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Spec = msgspec.field(default_factory=Spec)


def track_hpa(raw: Mapping[str, Any], *, api: HPAApi = KUBERNETES, scale_to_zero: bool = True) -> HPA | None:
    """Parse a served HPA, maybe one with a `problem`; log it and return None if even its metadata is invalid.

    Args:
        raw: the object, which may be anything.
        api: the API that it was read from.
        scale_to_zero: whether the feature HPAScaleToZero is on. The API server checks that for autoscaling/v2 only.

    Raises:
        TooLargeError: its metadata is too large.
    """
    try:
        if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
            raise ParseError("the object has no metadata")
        raw = {**raw, "apiVersion": api.api_version}  # items of a list may lack it
        try:
            decoded, problem = decode_hpa(raw), ""
            _check_size(raw.get("spec"))
            _check(decoded.spec)
            if decoded.spec.min_replicas == 0 and not scale_to_zero and not api.built_in:
                raise ParseError("spec.minReplicas: 0 needs the feature HPAScaleToZero, which is off")
        except ParseError as error:
            decoded, problem = decode_hpa({"metadata": raw["metadata"]}), str(error)
        hpa = _hpa(raw, decoded, problem)
    except ParseError as error:
        _log.warning("this HPA is left alone: %s", error)
        return None
    if (size := len(hpa.metadata)) > _MAX_METADATA_BYTES:
        what = f"its metadata has {size} bytes as JSON, and at most {_MAX_METADATA_BYTES} are supported"
        raise TooLargeError(f"{object_name(KIND, raw)}: {what}")
    return hpa


def parse_hpa(raw: Mapping[str, Any]) -> HPA:
    """Parse an HPA of either API; defaults are filled in.

    Raises:
        ParseError: a field has the wrong type or an impossible value.
    """
    try:
        decoded = decode_hpa(raw)
        _check(decoded.spec)
        return _hpa(raw, decoded)
    except ParseError as error:
        raise ParseError(f"{object_name(KIND, raw)}: {error}") from None


def default_hpa(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new object whose `spec` has the defaults, canonical quantities and known fields only.

    All other fields are unchanged. Empty policies, which are an error, are kept. Upstream:
    v2.SetDefaults_HorizontalPodAutoscaler.

    Raises:
        ParseError: a field has the wrong type, or a text is not a quantity.
    """
    return {**obj, "spec": msgspec.json.decode(msgspec.json.encode(decode_hpa(obj).spec, enc_hook=str))}


def decode_hpa(obj: Mapping[str, Any]) -> DecodedHPA:
    """Decode an object, with the defaults of the API.

    Raises:
        ParseError: a field has the wrong type, or a text is not a quantity; the message begins with the field.
    """
    decoded = _decode(obj, DecodedHPA)
    if not decoded.spec.metrics:
        decoded.spec = msgspec.structs.replace(decoded.spec, metrics=DEFAULT_METRICS)
    return decoded


def _decode(raw: object, form: type[_T]) -> _T:
    try:
        try:
            return msgspec.convert(raw, form, dec_hook=_decode_quantity)
        except msgspec.ValidationError:
            # API servers do not serve nulls, so this is rare.
            return msgspec.convert(_without_nulls(raw), form, dec_hook=_decode_quantity)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ParseError(f"{path.strip('.`') or KIND}: {_in_words(problem)}") from None


def _in_words(problem: str) -> str:
    """Return an error of msgspec with the words of YAML: "expected a whole number, got text"."""
    return _TYPE.sub(lambda found: _WORDS.get(found[1], found[0]), problem.replace("Expected", "expected"))


def _decode_quantity(type_: type, value: object) -> CanonicalQuantity:
    """Read a quantity from a JSON string or number; surrounding blanks are allowed."""
    if type_ is not CanonicalQuantity or isinstance(value, bool | Mapping | list):
        raise ValueError(f"Expected a quantity, got `{value!r}`")
    try:
        return canonical_quantity(str(value).strip(" "))
    except QuantityError:
        raise ValueError(f"{str(value)[:_SHOWN]!r} is not a quantity such as 100, 0.5, 500m or 2Gi") from None


def _without_nulls(value: Any, depth: int = _MAX_DEPTH) -> Any:
    if depth == 0:
        return value
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner, depth - 1) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [{} if inner is None else _without_nulls(inner, depth - 1) for inner in value]
    return value


def _check_size(spec: object) -> None:
    """Refuse a spec with, for instance, a selector of a megabyte, which is in each message and each request."""
    size = len(msgspec.json.encode(spec))
    if size > _MAX_SPEC_BYTES:
        raise ParseError(f"spec: it has {size} bytes as JSON, and at most {_MAX_SPEC_BYTES} are supported")


def _check(spec: Spec) -> None:
    """Check the invariants of the core, which only an API without validation can violate."""
    if not spec.scale_target_ref.kind or not spec.scale_target_ref.name:
        raise ParseError("spec.scaleTargetRef: kind and name must be set")
    if spec.max_replicas < 1:
        raise ParseError("spec.maxReplicas: must be at least 1")
    if len(spec.metrics) > _MAX_METRICS:
        raise ParseError(f"spec.metrics: there are {len(spec.metrics)}, and at most {_MAX_METRICS} are supported")
    for index, metric in enumerate(spec.metrics):
        if metric.type in SOURCES and metric.type not in metric.sources:
            raise ParseError(
                f"spec.metrics[{index}]: type is {metric.type}, but the field of that metric type is not set"
            )
    if spec.behavior is None:
        return
    for name, rules in (("scaleUp", spec.behavior.scale_up), ("scaleDown", spec.behavior.scale_down)):
        if rules.select_policy not in ("Max", "Min", "Disabled"):
            raise ParseError(f"spec.behavior.{name}.selectPolicy: {rules.select_policy!r} is not Max, Min or Disabled")
        if len(rules.policies) > _MAX_POLICIES:
            many = f"there are {len(rules.policies)}, and at most {_MAX_POLICIES} are supported"
            raise ParseError(f"spec.behavior.{name}.policies: {many}")
        for policy in rules.policies:
            if policy.type not in ("Pods", "Percent"):
                raise ParseError(f"spec.behavior.{name}.policies: type {policy.type!r} is not Pods or Percent")


def _hpa(raw: Mapping[str, Any], decoded: DecodedHPA, problem: str = "") -> HPA:
    metadata, served = decoded.metadata, raw.get("metadata") or {}
    return HPA(
        namespace=intern(metadata.namespace),
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
        api_version=intern(str(raw.get("apiVersion") or KUBERNETES.api_version)),
        overrides=parse_annotations(metadata.annotations),
        spec=decoded.spec,
        problem=problem,
        status=_status(raw.get("status")),
        metadata=msgspec.json.encode({name: value for name, value in served.items() if name != "managedFields"}),
        foreign_write=_foreign_write(served.get("managedFields")),
    )


def _foreign_write(managed_fields: object) -> tuple[str, str]:
    """Return time and manager of the latest entry for the status, except for FIELD_MANAGER's.

    The manager of Kubernetes' own controller is `kube-controller-manager`, or the binary that it is part of: `k3s`,
    `kubelite`, `microshift`.
    """
    entries = [each for each in _list(managed_fields) if isinstance(each, dict) and each.get("subresource") == "status"]
    writes = [(str(each.get("time", "")), str(each.get("manager", ""))) for each in entries]
    time, manager = max((write for write in writes if write[1] != FIELD_MANAGER), default=("", ""))
    return intern(time), intern(manager)


# --- status: the next reconciliation overwrites it, so invalid parts are ignored -------------------------------------


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
        current_replicas=_readable(status.get("currentReplicas"), Int32) or 0,
        desired_replicas=_readable(status.get("desiredReplicas"), Int32) or 0,
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


def _current_metric(raw: object) -> MetricSpec:
    """Decode a metric of the status: like one of the spec, with `current` instead of `target`."""
    fields = raw if isinstance(raw, dict) else {}
    as_spec = {
        name: {**value, "target": value.get("current")} if isinstance(value, dict) else value
        for name, value in fields.items()
    }
    try:
        metric = _decode(as_spec, MetricSpec)
    except ParseError:
        return MetricSpec()
    return metric if metric.type in metric.sources else MetricSpec()


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
