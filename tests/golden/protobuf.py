"""Kubernetes' protobuf, decoded: the lists of the metrics APIs and Status.

Field numbers are those of generated.proto in k8s.io/metrics and k8s.io/apimachinery. A field that is not listed here
and has a value is an error, so that no difference between responses is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# One line per message: NUMBER NAME TYPE. Types: str, int, quantity, map (of texts), or a message. `[]` is a list,
# `?` an optional number, which differs from 0.
_MESSAGES: Final = """
LabelSelector: 1 matchLabels map, 2 matchExpressions LabelSelectorRequirement[]
LabelSelectorRequirement: 1 key str, 2 operator str, 3 values str[]
custom.metrics.k8s.io/v1beta1 MetricValueList: 1 metadata ListMeta, 2 items MetricValueV1[]
MetricValueV1: 1 describedObject ObjectReference, 2 metricName str, 3 timestamp Time, 4 window int?, 5 value quantity, \
6 selector LabelSelector
custom.metrics.k8s.io/v1beta2 MetricValueList: 1 metadata ListMeta, 2 items MetricValue[]
MetricValue: 1 describedObject ObjectReference, 2 metric MetricIdentifier, 3 timestamp Time, 4 windowSeconds int?, \
5 value quantity
MetricIdentifier: 1 name str, 2 selector LabelSelector
ObjectReference: 1 kind str, 2 namespace str, 3 name str, 4 uid str, 5 apiVersion str, 6 resourceVersion str, \
7 fieldPath str
external.metrics.k8s.io/v1beta1 ExternalMetricValueList: 1 metadata ListMeta, 2 items ExternalMetricValue[]
ExternalMetricValue: 1 metricName str, 2 metricLabels map, 3 timestamp Time, 4 window int?, 5 value quantity
Time: 1 seconds int, 2 nanos int
ListMeta: 1 selfLink str, 2 resourceVersion str, 3 continue str, 4 remainingItemCount int?
v1 Status: 1 metadata ListMeta, 2 status str, 3 message str, 4 reason str, 5 details StatusDetails, 6 code int
StatusDetails: 1 name str, 2 group str, 3 kind str, 4 causes StatusCause[], 5 retryAfterSeconds int, 6 uid str
StatusCause: 1 reason str, 2 message str, 3 field str
"""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    repeated: bool
    optional: bool


def _parse_field(text: str) -> tuple[int, _Field]:
    number, name, type_ = text.split()
    bare = type_.removesuffix("[]").removesuffix("?")
    return int(number), _Field(name, bare, repeated=type_.endswith("[]"), optional=type_.endswith("?"))


_FIELDS: Final = {
    name: dict(_parse_field(field) for field in fields.split(","))
    for name, _, fields in (line.partition(":") for line in _MESSAGES.splitlines() if line)
}


def decode_protobuf(content: bytes) -> dict[str, Any]:
    """Return the object in a body of this media type.

    Raises:
        ValueError: it is malformed, or has a field that is not listed here.
    """
    if not content.startswith(_MAGIC):
        raise ValueError("it does not begin with k8s and a zero byte")
    try:
        envelope = dict(_wire_fields(content[len(_MAGIC) :]))
        what = {number: value.decode() for number, value in _wire_fields(envelope[1])}
        api_version, kind = what[1], what[2]
        return {"apiVersion": api_version, "kind": kind, **_decode(envelope[2], f"{api_version} {kind}")}
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        raise ValueError(f"it cannot be decoded: {error!r}") from error


def _decode(content: bytes, message: str) -> dict[str, Any]:
    fields = _FIELDS.get(message)
    if fields is None:
        raise ValueError(f"{message} is not known in protobuf")
    result: dict[str, Any] = {}
    for number, raw in _wire_fields(content):
        field = fields.get(number)
        if field is None:
            if raw:
                raise ValueError(f"field {number} of {message} is not known")
            continue
        value = _value(raw, field.type)
        if field.repeated:
            result.setdefault(field.name, []).append(value)
        elif field.type == "map":
            result.setdefault(field.name, {}).update(value)
        elif value or field.optional:  # Go writes fields that are not optional even if they are empty
            result[field.name] = value
    return result


def _value(raw: Any, type_: str) -> Any:
    match type_:
        case "str":
            return raw.decode()
        case "int":
            return raw - (1 << 64) if raw >> 63 else raw
        case "quantity":
            return dict(_wire_fields(raw)).get(1, b"").decode()
        case "map":
            entry = dict(_wire_fields(raw))
            return {entry.get(1, b"").decode(): entry.get(2, b"").decode()}
    return _decode(raw, type_)


def _wire_fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of an encoded message, in order: numbers as integers, everything else as bytes."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(content, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(content, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + length > len(content):
            raise ValueError("it ends too early")
        yield number, content[position : position + length]
        position += length


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number is too long")
