"""Metrics and errors in Kubernetes' protobuf, which its own controllers prefer to JSON.

The messages are few and small, so they are written by hand: k8s.io/metrics' generated.proto for custom_metrics
v1beta1 and v1beta2, external_metrics v1beta1 and metrics v1beta1, metav1's for the rest, within runtime.Unknown and
its four magic bytes. As Go's code does it, a string that is empty is written all the same, and a pointer that is nil
is not.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from adapter.documents import ExternalItem, Item, LegacyItem, ListDocument, Reference, SelectorObject
from adapter.resource_documents import (
    Container,
    NodeMetrics,
    NodeMetricsList,
    ObjectMeta,
    PodMetrics,
    PodMetricsList,
    ResourceDocument,
)
from kube.durations import parse_duration
from kube.status import StatusError

__all__ = ["encode_error", "encode_list", "encode_resource"]

_MAGIC = b"k8s\x00"
_VARINT, _BYTES = 0, 2


def encode_list(document: ListDocument) -> bytes:
    """A MetricValueList or ExternalMetricValueList."""
    raw = _message(1, _LIST_META) + b"".join(_message(2, _item(item)) for item in document.items)
    return _unknown(document.api_version, document.kind, raw)


def encode_resource(document: ResourceDocument) -> bytes:
    """A document of metrics.k8s.io."""
    if isinstance(document, PodMetricsList | NodeMetricsList):
        raw = _message(1, _LIST_META) + b"".join(_message(2, _usage(item)) for item in document.items)
    else:
        raw = _usage(document)
    return _unknown(document.api_version, document.kind, raw)


def encode_error(error: StatusError) -> bytes:
    """The metav1.Status of an error."""
    raw = (
        _message(1, _LIST_META)
        + _string(2, "Failure")
        + _string(3, error.message)
        + _string(4, error.reason)
        + (_message(5, _details(error)) if error.details is not None or error.retry_after is not None else b"")
        + _integer(6, error.code)
    )
    return _unknown("v1", "Status", raw)


def _unknown(api_version: str, kind: str, raw: bytes) -> bytes:
    type_meta = _string(1, api_version) + _string(2, kind)
    return _MAGIC + _message(1, type_meta) + _message(2, raw) + _string(3, "") + _string(4, "")


def _item(item: Item | LegacyItem | ExternalItem) -> bytes:
    match item:
        case Item():
            return (
                _message(1, _reference(item.described_object))
                + _message(2, _string(1, item.metric.name) + _selector(2, item.metric.selector))
                + _message(3, _time(item.timestamp))
                + _optional(4, item.window_seconds)
                + _message(5, _string(1, item.value))
            )
        case LegacyItem():
            return (
                _message(1, _reference(item.described_object))
                + _string(2, item.metric_name)
                + _message(3, _time(item.timestamp))
                + _optional(4, item.window)
                + _message(5, _string(1, item.value))
                + _selector(6, item.selector)
            )
        case ExternalItem():
            return (
                _string(1, item.metric_name)
                + _map(2, item.metric_labels or {})
                + _message(3, _time(item.timestamp))
                + _optional(4, item.window)
                + _message(5, _string(1, item.value))
            )


def _usage(item: PodMetrics | NodeMetrics) -> bytes:
    nanoseconds = round(parse_duration(item.window) * 10**9)
    head = _message(1, _object_meta(item.metadata)) + _message(2, _time(item.timestamp))
    head += _message(3, _integer(1, nanoseconds))
    if isinstance(item, NodeMetrics):
        return head + _quantities(4, item.usage)
    return head + b"".join(_message(4, _container(container)) for container in item.containers)


def _container(container: Container) -> bytes:
    return _string(1, container.name) + _quantities(2, container.usage)


def _quantities(field: int, quantities: Mapping[str, str]) -> bytes:
    return b"".join(
        _message(field, _string(1, name) + _message(2, _string(1, quantity))) for name, quantity in quantities.items()
    )


def _object_meta(metadata: ObjectMeta) -> bytes:
    return (
        _string(1, metadata.name)
        + _string(2, "")  # generateName
        + _string(3, metadata.namespace)
        + _string(4, "")  # selfLink
        + _string(5, "")  # uid
        + _string(6, "")  # resourceVersion
        + _integer(7, 0)  # generation
        + _message(8, _time(metadata.creation_timestamp))
        + _map(11, metadata.labels)
    )


def _reference(reference: Reference) -> bytes:
    return (
        _string(1, reference.kind)
        + _string(2, reference.namespace)
        + _string(3, reference.name)
        + _string(4, "")  # uid
        + _string(5, reference.api_version)
        + _string(6, "")  # resourceVersion
        + _string(7, "")  # fieldPath
    )


def _selector(field: int, selector: SelectorObject | None) -> bytes:
    if selector is None:
        return b""
    expressions = (
        _string(1, expression.key)
        + _string(2, expression.operator)
        + b"".join(_string(3, value) for value in expression.values)
        for expression in selector.match_expressions
    )
    return _message(field, _map(1, selector.match_labels) + b"".join(_message(2, text) for text in expressions))


def _details(error: StatusError) -> bytes:
    details: Mapping[str, Any] = error.details or {}
    causes = (
        _string(1, cause.get("reason", "")) + _string(2, cause.get("message", "")) + _string(3, cause.get("field", ""))
        for cause in details.get("causes", ())
    )
    return (
        _string(1, details.get("name", ""))
        + _string(2, details.get("group", ""))
        + _string(3, details.get("kind", ""))
        + b"".join(_message(4, cause) for cause in causes)
        + _integer(5, error.retry_after or 0)
        + _string(6, details.get("uid", ""))
    )


def _time(moment: datetime.datetime) -> bytes:
    return _integer(1, int(moment.timestamp())) + _integer(2, 0)


def _map(field: int, entries: Mapping[str, str]) -> bytes:
    return b"".join(_message(field, _string(1, key) + _string(2, entries[key])) for key in sorted(entries))


def _optional(field: int, number: int | None) -> bytes:
    return b"" if number is None else _integer(field, number)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _string(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _integer(field: int, number: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(number)


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number as the 64-bit one that it is in two's complement."""
    number &= (1 << 64) - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_LIST_META = _string(1, "") + _string(2, "") + _string(3, "")
