"""Kubernetes' protobuf of the objects of `kubectl autoscale` and of a few of `kubectl create`.

Upstream: the generated.proto of k8s.io/api, and k8s.io/apimachinery/pkg/runtime/serializer/protobuf for the envelope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from playground.apiserver.objects import Object

_MAGIC: Final = b"k8s\x00"

_Fields: TypeAlias = Mapping[int, tuple[str, Any]]
"""{number: (name, type)}; a type is str, int, bytes, `dict` for a map of strings, fields, or a list of fields."""

_TYPE: Final[_Fields] = {1: ("apiVersion", str), 2: ("kind", str)}
_ENVELOPE: Final[_Fields] = {1: ("type", _TYPE), 2: ("raw", bytes)}
_ENTRY: Final[_Fields] = {1: ("key", str), 2: ("value", str)}
_METADATA: Final[_Fields] = {1: ("name", str), 3: ("namespace", str), 11: ("labels", dict), 12: ("annotations", dict)}
_REFERENCE: Final[_Fields] = {1: ("kind", str), 2: ("name", str), 3: ("apiVersion", str)}
_SPEC: Final[_Fields] = {1: ("scaleTargetRef", _REFERENCE), 2: ("minReplicas", int), 3: ("maxReplicas", int)}
_QUANTITY: Final[_Fields] = {1: ("string", str)}
_TARGET: Final[_Fields] = {
    1: ("type", str),
    2: ("value", _QUANTITY),
    3: ("averageValue", _QUANTITY),
    4: ("averageUtilization", int),
}
_METRIC: Final[_Fields] = {1: ("type", str), 4: ("resource", {1: ("name", str), 2: ("target", _TARGET)})}
_MESSAGES: Final[dict[tuple[str, str], _Fields]] = {
    ("v1", "ConfigMap"): {1: ("metadata", _METADATA), 2: ("data", dict)},
    ("v1", "Namespace"): {1: ("metadata", _METADATA)},
    ("v1", "ServiceAccount"): {1: ("metadata", _METADATA)},
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {
        1: ("metadata", _METADATA),
        2: ("spec", {**_SPEC, 4: ("targetCPUUtilizationPercentage", int)}),
    },
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        1: ("metadata", _METADATA),
        2: ("spec", {**_SPEC, 4: ("metrics", [_METRIC])}),
    },
}


def decode(content: bytes) -> Object | None:
    """Return the object without its status; None if its kind, or something in its spec, is not known here."""
    try:
        envelope = _message(content.removeprefix(_MAGIC), _ENVELOPE)
        kind = envelope["type"]
        return {**kind, **_message(envelope["raw"], _MESSAGES[kind["apiVersion"], kind["kind"]], complete=False)}
    except (LookupError, ValueError):
        return None


def _message(content: bytes, fields: _Fields, *, complete: bool = True) -> Object:
    """Return the values. If `fields` has to be complete, raise LookupError for others that are not empty."""
    found: Object = {}
    for number, value in _values(content):
        if complete and value and number not in fields:
            raise LookupError(number)
        name, kind = fields.get(number, ("", None))
        if kind is dict:
            entry = _message(value, _ENTRY)
            found.setdefault(name, {})[entry["key"]] = entry.get("value", "")
        elif isinstance(kind, list):
            found.setdefault(name, []).append(_message(value, kind[0]))
        elif kind is _QUANTITY:
            found[name] = _message(value, kind)["string"]
        elif isinstance(kind, Mapping):
            found[name] = _message(value, kind, complete=kind is not _METADATA)
        elif kind is str and value:  # Go writes empty strings for absent ones
            found[name] = value.decode()
        elif kind in (int, bytes):
            found[name] = value
    return found


def _values(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        value, at = _varint(content, at)
        match key & 7:
            case 0:
                yield key >> 3, value
            case 2:
                yield key >> 3, content[at : at + value]
                at += value
            case _:
                raise ValueError("a type of field that these objects do not have")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number and the index after it."""
    value = shift = 0
    while True:
        byte = content[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at
