"""Metrics and errors in Kubernetes' protobuf, which its own controllers prefer to JSON.

The messages are few and small, so they are encoded by hand, within runtime.Unknown and its four magic bytes. As in Go's
generated code, empty strings are written and nil pointers are omitted.

Upstream: generated.proto of custom_metrics v1beta1 and v1beta2, external_metrics v1beta1, metrics v1beta1, meta v1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from adapter.content.values import (
    CustomMetricList,
    Document,
    ExternalMetricList,
    ExternalMetricValue,
    MetricValue,
    ObjectReference,
    ObjectUsage,
    UsageDocument,
    selector_object,
    usage_texts,
)
from kube.api.status import StatusError
from kube.values.quantity import milli_text
from kube.values.selectors import LabelSelector

_MAGIC = b"k8s\x00"
_VARINT, _BYTES = 0, 2
# Most fields have a number below 16 and a content below 128 bytes, so that both take a byte.
_LARGE, _LONG = 16, 128
_HEADS = tuple(tuple(bytes((field << 3 | _BYTES, size)) for size in range(_LONG)) for field in range(_LARGE))
# Encoded references to this many objects are cached (some 500 bytes each), and as many repeated other fields.
_REFERENCES = 16_384
_QUANTITIES = 16_384
_TIMES = 256
_KINDS = 64
# Only references with names up to this length, a name and a namespace of Kubernetes: clients choose the names.
_SHORT_NAMES = 320


def encode(document: Document) -> bytes:
    """Encode a document; each item of a list of metric values is encoded once and cached with its value."""
    match document:
        case ExternalMetricList():
            items = [value.encoded or _external_item(value) for value in document.values]
        case CustomMetricList(version="v1beta1"):
            items = [_legacy_item(value) for value in document.values]
        case CustomMetricList():
            items = [value.encoded or _custom_item(value) for value in document.values]
        case UsageDocument(is_list=False):
            return _unknown(document.type_meta, [_usage(document.usages[0])])
        case UsageDocument():
            items = [message(2, _usage(usage)) for usage in document.usages]
    return _unknown(document.type_meta, [_LIST_META_FIELD, *items])


def encode_error(error: StatusError) -> bytes:
    """The metav1.Status of an error."""
    raw = (
        message(1, _LIST_META)
        + string(2, "Failure")
        + string(3, error.message)
        + string(4, error.reason)
        + (message(5, _details(error)) if error.details is not None or error.retry_after is not None else b"")
        + integer(6, error.code)
    )
    return _unknown(("v1", "Status"), [raw])


def _unknown(type_meta: tuple[str, str], fields: Sequence[bytes]) -> bytes:
    return _type_meta(*type_meta) + message(2, b"".join(fields)) + _NO_ENCODING


@lru_cache(maxsize=_KINDS)
def _type_meta(api_version: str, kind: str) -> bytes:
    return _MAGIC + message(1, string(1, api_version) + string(2, kind))


def _custom_item(value: MetricValue) -> bytes:
    metric = message(2, string(1, value.metric) + _selector(2, value.selector))
    value.encoded = message(2, _described_object(value) + metric + _sample(value))
    return value.encoded


def _legacy_item(value: MetricValue) -> bytes:
    """Encode an item of v1beta1."""
    metric, selector = string(2, value.metric), _selector(6, value.selector)
    return message(2, _described_object(value) + metric + _sample(value) + selector)


def _external_item(value: ExternalMetricValue) -> bytes:
    value.encoded = message(2, string(1, value.metric) + _map(2, value.labels or {}) + _sample(value))
    return value.encoded


def _described_object(value: MetricValue) -> bytes:
    described = value.described_object
    is_short = len(described.name) + len(described.namespace) <= _SHORT_NAMES
    return _short_reference(described) if is_short else _reference(described)


def _sample(value: MetricValue | ExternalMetricValue) -> bytes:
    return _time(int(value.timestamp)) + _optional(4, value.window_seconds) + _quantity(value.milli)


def _usage(item: ObjectUsage) -> bytes:
    seconds = _seconds(int(item.timestamp))
    head = message(1, _object_meta(item)) + message(2, seconds)
    head += message(3, integer(1, round(item.window_seconds * 10**9)))
    if not item.namespace:
        return head + _quantities(4, usage_texts(item.usage))
    return head + b"".join(
        message(4, string(1, one.container) + _quantities(2, usage_texts(one))) for one in item.containers
    )


def _quantities(field: int, quantities: Mapping[str, str]) -> bytes:
    return b"".join(
        message(field, string(1, name) + message(2, string(1, quantity))) for name, quantity in quantities.items()
    )


def _object_meta(item: ObjectUsage) -> bytes:
    return (
        string(1, item.name)
        + string(2, "")  # generateName
        + string(3, item.namespace)
        + string(4, "")  # selfLink
        + string(5, "")  # uid
        + string(6, "")  # resourceVersion
        + integer(7, 0)  # generation
        + message(8, _seconds(int(item.timestamp)))
        + _map(11, item.labels)
    )


def _reference(reference: ObjectReference) -> bytes:
    return message(
        1,
        string(1, reference.kind)
        + string(2, reference.namespace)
        + string(3, reference.name)
        + string(4, "")  # uid
        + string(5, reference.api_version)
        + string(6, "")  # resourceVersion
        + string(7, ""),  # fieldPath
    )


_short_reference = lru_cache(maxsize=_REFERENCES)(_reference)


def _selector(field: int, label_selector: LabelSelector | None) -> bytes:
    selector = selector_object(label_selector)
    if selector is None:
        return b""
    expressions = (
        string(1, expression["key"])
        + string(2, expression["operator"])
        + b"".join(string(3, value) for value in expression.get("values", ()))
        for expression in selector.get("matchExpressions", ())
    )
    labels = _map(1, selector.get("matchLabels", {}))
    return message(field, labels + b"".join(message(2, text) for text in expressions))


def _details(error: StatusError) -> bytes:
    details: Mapping[str, Any] = error.details or {}
    causes = (
        string(1, cause.get("reason", "")) + string(2, cause.get("message", "")) + string(3, cause.get("field", ""))
        for cause in details.get("causes", ())
    )
    return (
        string(1, details.get("name", ""))
        + string(2, details.get("group", ""))
        + string(3, details.get("kind", ""))
        + b"".join(message(4, cause) for cause in causes)
        + integer(5, error.retry_after or 0)
        + string(6, details.get("uid", ""))
    )


@lru_cache(maxsize=_TIMES)
def _time(seconds: int) -> bytes:
    return message(3, _seconds(seconds))


def _seconds(seconds: int) -> bytes:
    return integer(1, seconds) + integer(2, 0)


def _map(field: int, entries: Mapping[str, str]) -> bytes:
    return b"".join(message(field, string(1, key) + string(2, entries[key])) for key in sorted(entries))


@lru_cache(maxsize=_QUANTITIES)
def _quantity(milli: int) -> bytes:
    return message(5, string(1, milli_text(milli)))


def _optional(field: int, number: int | None) -> bytes:
    return b"" if number is None else integer(field, number)


def message(field: int, content: bytes) -> bytes:
    """Encode a field that holds a message, or bytes."""
    size = len(content)
    if field < _LARGE:
        if size < _LONG:
            return _HEADS[field][size] + content
        if size < _LONG * _LONG:
            return bytes((field << 3 | _BYTES, size & 0x7F | 0x80, size >> 7)) + content
    return _varint(field << 3 | _BYTES) + _varint(size) + content


def string(field: int, text: str) -> bytes:
    """Encode a field that holds a string."""
    return message(field, text.encode())


def integer(field: int, number: int) -> bytes:
    """Encode a field that holds an integer (int32, int64) or a bool."""
    return _varint(field << 3 | _VARINT) + _varint(number)


def _varint(number: int) -> bytes:
    """Encode seven bits a byte, lowest first; a negative number in 64-bit two's complement."""
    number &= (1 << 64) - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_LIST_META = string(1, "") + string(2, "") + string(3, "")
_LIST_META_FIELD = message(1, _LIST_META)
_NO_ENCODING = string(3, "") + string(4, "")
