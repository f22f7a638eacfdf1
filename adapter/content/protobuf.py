"""Metrics and errors in Kubernetes' protobuf, which its own controllers prefer to JSON.

The messages are few and small, so they are written by hand: k8s.io/metrics' generated.proto for custom_metrics
v1beta1 and v1beta2, external_metrics v1beta1 and metrics v1beta1, metav1's for the rest, within runtime.Unknown and
its four magic bytes. As Go's code does it, a string that is empty is written all the same, and a pointer that is nil
is not.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from adapter.content.documents import (
    ExternalItem,
    Identifier,
    Item,
    LegacyItem,
    ListDocument,
    Reference,
    SelectorObject,
)
from adapter.content.resource_documents import (
    Container,
    NodeMetrics,
    NodeMetricsList,
    ObjectMeta,
    PodMetrics,
    PodMetricsList,
    ResourceDocument,
)
from adapter.content.wire import integer, message, string
from kube.durations import parse_duration
from kube.status import StatusError

_MAGIC = b"k8s\x00"
# What is kept written: references to this many objects, some 500 bytes each, names of metrics, and times.
_REFERENCES = 16_384
_IDENTIFIERS = 1_024
_TIMES = 256
# What stands before the text of a quantity, by its length.
_SHORT_VALUE = 100
_VALUE_HEADS = tuple(message(5, message(1, b"x" * size))[:4] for size in range(_SHORT_VALUE))
# Only those with names up to this length, a name and a namespace of Kubernetes: clients choose what they ask for.
_SHORT_NAMES = 320


def encode_list(document: ListDocument) -> bytes:
    """A MetricValueList or ExternalMetricValueList."""
    raw = _LIST_META_FIELD + _items(document.items)
    return _unknown(document.api_version, document.kind, raw)


def encode_resource(document: ResourceDocument) -> bytes:
    """A document of metrics.k8s.io."""
    if isinstance(document, PodMetricsList | NodeMetricsList):
        raw = message(1, _LIST_META) + b"".join(message(2, _usage(item)) for item in document.items)
    else:
        raw = _usage(document)
    return _unknown(document.api_version, document.kind, raw)


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
    return _unknown("v1", "Status", raw)


def _unknown(api_version: str, kind: str, raw: bytes) -> bytes:
    type_meta = string(1, api_version) + string(2, kind)
    return _MAGIC + message(1, type_meta) + message(2, raw) + string(3, "") + string(4, "")


def _items(items: Iterable[Item | LegacyItem | ExternalItem]) -> bytes:
    """The items of a list, each a field 2. Those of one list have the same metric and few times, which are kept."""
    written = []
    metric, identifier, moment, time = None, b"", None, b""
    for item in items:
        if not isinstance(item, Item):
            written.append(message(2, _other_item(item)))
            continue
        if item.metric is not metric:
            metric, identifier = item.metric, _identifier(item.metric)
        if item.timestamp is not moment:
            moment, time = item.timestamp, _time(item.timestamp)
        described = item.described_object
        is_short = len(described.name) + len(described.namespace) <= _SHORT_NAMES
        reference = (_short_reference if is_short else _reference)(described)
        window = _optional(4, item.window_seconds)
        written.append(message(2, reference + identifier + time + window + _value(item.value)))
    return b"".join(written)


def _other_item(item: LegacyItem | ExternalItem) -> bytes:
    if isinstance(item, LegacyItem):
        return (
            _reference(item.described_object)
            + string(2, item.metric_name)
            + _time(item.timestamp)
            + _optional(4, item.window)
            + _value(item.value)
            + _selector(6, item.selector)
        )
    return (
        string(1, item.metric_name)
        + _map(2, item.metric_labels or {})
        + _time(item.timestamp)
        + _optional(4, item.window)
        + _value(item.value)
    )


def _usage(item: PodMetrics | NodeMetrics) -> bytes:
    nanoseconds = round(parse_duration(item.window) * 10**9)
    head = message(1, _object_meta(item.metadata)) + message(2, _seconds(item.timestamp))
    head += message(3, integer(1, nanoseconds))
    if isinstance(item, NodeMetrics):
        return head + _quantities(4, item.usage)
    return head + b"".join(message(4, _container(container)) for container in item.containers)


def _container(container: Container) -> bytes:
    return string(1, container.name) + _quantities(2, container.usage)


def _quantities(field: int, quantities: Mapping[str, str]) -> bytes:
    return b"".join(
        message(field, string(1, name) + message(2, string(1, quantity))) for name, quantity in quantities.items()
    )


def _object_meta(metadata: ObjectMeta) -> bytes:
    return (
        string(1, metadata.name)
        + string(2, "")  # generateName
        + string(3, metadata.namespace)
        + string(4, "")  # selfLink
        + string(5, "")  # uid
        + string(6, "")  # resourceVersion
        + integer(7, 0)  # generation
        + message(8, _seconds(metadata.creation_timestamp))
        + _map(11, metadata.labels)
    )


def _reference(reference: Reference) -> bytes:
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


# An object's metrics are asked for every few seconds.
_short_reference = lru_cache(maxsize=_REFERENCES)(_reference)


@lru_cache(maxsize=_IDENTIFIERS)
def _kept_identifier(name: str) -> bytes:
    return message(2, string(1, name))


def _identifier(metric: Identifier) -> bytes:
    if metric.selector is None and len(metric.name) <= _SHORT_NAMES:
        return _kept_identifier(metric.name)
    return message(2, string(1, metric.name) + _selector(2, metric.selector))


def _selector(field: int, selector: SelectorObject | None) -> bytes:
    if selector is None:
        return b""
    expressions = (
        string(1, expression.key)
        + string(2, expression.operator)
        + b"".join(string(3, value) for value in expression.values)
        for expression in selector.match_expressions
    )
    return message(field, _map(1, selector.match_labels) + b"".join(message(2, text) for text in expressions))


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
def _time(moment: datetime.datetime) -> bytes:
    return message(3, _seconds(moment))


def _seconds(moment: datetime.datetime) -> bytes:
    return integer(1, int(moment.timestamp())) + integer(2, 0)


def _map(field: int, entries: Mapping[str, str]) -> bytes:
    return b"".join(message(field, string(1, key) + string(2, entries[key])) for key in sorted(entries))


def _value(text: str) -> bytes:
    """A quantity, as field 5: a message with a string."""
    data = text.encode()
    size = len(data)
    return _VALUE_HEADS[size] + data if size < _SHORT_VALUE else message(5, string(1, text))


def _optional(field: int, number: int | None) -> bytes:
    return b"" if number is None else integer(field, number)


_LIST_META = string(1, "") + string(2, "") + string(3, "")
_LIST_META_FIELD = message(1, _LIST_META)
