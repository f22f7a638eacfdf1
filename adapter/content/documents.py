"""The documents of metric values, of CPU and memory, and tables of these, as Kubernetes names and orders their fields.

The two versions of custom.metrics.k8s.io have different items, and the window has another name in each API. CPU is a
decimal quantity (`250m`), memory a binary one (`1536Ki`); the window of metrics.k8s.io is one of Go's durations.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from adapter.catalog.groups import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.catalog.values import ExternalMetricValue, MetricValue, ObjectUsage, Usage
from kube.values.durations import format_duration
from kube.values.quantity import Format, Quantity, milli_text
from kube.values.selectors import LabelSelector, Operator

JsonObject = dict[str, Any]

INCLUDED = ("Metadata", "Object", "None")
"""Values of `includeObject`: how much of the object a table's row includes. The first is the default."""

# metav1.LabelSelector has no "not equal"; NotIn with one value is the same.
_EXPRESSION_OPERATORS = {
    Operator.NOT_EQUALS: "NotIn",
    Operator.NOT_IN: "NotIn",
    Operator.IN: "In",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
    Operator.GREATER_THAN: "Gt",
    Operator.LESS_THAN: "Lt",
}
# metrics-server's.
_COLUMNS = (
    {"name": "Name", "type": "string", "format": "name", "description": "Name of the resource", "priority": 0},
    {"name": "cpu", "type": "string", "format": "quantity", "description": "", "priority": 0},
    {"name": "memory", "type": "string", "format": "quantity", "description": "", "priority": 0},
    {"name": "Window", "type": "string", "format": "duration", "description": "", "priority": 0},
)


# Structs where lists may be long: msgspec encodes them twice as fast as dicts.
class _Reference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    kind: str
    namespace: str = ""
    name: str = ""
    api_version: str = ""


class _Item(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    described_object: _Reference
    metric: JsonObject
    timestamp: datetime.datetime
    value: str
    window_seconds: int | None = None


class CustomMetricList(msgspec.Struct, frozen=True):
    """A MetricValueList of custom.metrics.k8s.io/`version` (v1beta1 or v1beta2)."""

    version: str
    values: Sequence[MetricValue]

    @property
    def type_meta(self) -> tuple[str, str]:
        """The apiVersion and kind."""
        return f"{CUSTOM_GROUP}/{self.version}", "MetricValueList"

    def document(self) -> JsonObject:
        """Return the list as it is written in JSON and YAML."""
        item: Callable[[MetricValue], Any] = _legacy_item if self.version == "v1beta1" else _item
        return _list(self.type_meta, [item(value) for value in self.values])


class ExternalMetricList(msgspec.Struct, frozen=True):
    """An ExternalMetricValueList of external.metrics.k8s.io/v1beta1."""

    values: Sequence[ExternalMetricValue]
    type_meta = (f"{EXTERNAL_GROUP}/v1beta1", "ExternalMetricValueList")

    def document(self) -> JsonObject:
        """Return the list as it is written in JSON and YAML."""
        return _list(self.type_meta, [_external_item(value) for value in self.values])


class UsageDocument(msgspec.Struct, frozen=True):
    """A PodMetrics or NodeMetrics of metrics.k8s.io/v1beta1, or a list of them, by `kind`."""

    kind: str
    usages: Sequence[ObjectUsage]

    @property
    def is_list(self) -> bool:
        """True for PodMetricsList and NodeMetricsList."""
        return self.kind.endswith("List")

    @property
    def type_meta(self) -> tuple[str, str]:
        """The apiVersion and kind."""
        return f"{RESOURCE_GROUP}/v1beta1", self.kind

    def document(self) -> JsonObject:
        """Return the object or list as it is written in JSON and YAML."""
        if self.is_list:
            return _list(self.type_meta, [_usage_item(usage) for usage in self.usages])
        return _object(self.usages[0])


Document = CustomMetricList | ExternalMetricList | UsageDocument
"""A document, not yet encoded, that also has a protobuf form."""


def usage_table(usages: Sequence[ObjectUsage], api_version: str, *, include: str) -> JsonObject:
    """Return a Table with a row for each pod or node, for a pod with the sum of its containers.

    Args:
        usages: the pods or nodes.
        api_version: meta.k8s.io/v1 or v1beta1.
        include: one of INCLUDED.
    """

    def row(usage: ObjectUsage) -> JsonObject:
        found: JsonObject | None = None
        if include == "Object":
            found = _object(usage)
        elif include != "None":
            metadata = _usage_item(usage)["metadata"]
            found = {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata}
        texts = usage_texts(usage.usage)
        return {"cells": [usage.name, texts["cpu"], texts["memory"], _window(usage)], "object": found}

    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": {},
        "columnDefinitions": _COLUMNS,
        "rows": [row(usage) for usage in usages],
    }


def usage_texts(usage: Usage) -> dict[str, str]:
    """Return quantities by the name of the resource."""
    return {
        "cpu": str(Quantity.from_milli(usage.cpu_milli)),
        "memory": str(Quantity.from_milli(usage.memory_milli, Format.BINARY_SI)),
    }


def selector_object(selector: LabelSelector | None) -> JsonObject | None:
    """Return a metav1.LabelSelector: equality as matchLabels, everything else as an expression."""
    if selector is None or selector.empty:
        return None
    labels: dict[str, str] = {}
    expressions: list[JsonObject] = []
    for requirement in selector.requirements:
        if requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS):
            labels[requirement.key] = requirement.values[0]
        else:
            expression = {"key": requirement.key, "operator": _EXPRESSION_OPERATORS[requirement.operator]}
            expressions.append(_with(expression, values=requirement.values))
    return _with({}, matchLabels=labels, matchExpressions=expressions)


def _list(type_meta: tuple[str, str], items: Sequence[Any]) -> JsonObject:
    return {"kind": type_meta[1], "apiVersion": type_meta[0], "metadata": {}, "items": items}


def _with(document: JsonObject, **optional: Any) -> JsonObject:
    """Add the fields that are not empty, in this order."""
    document.update({name: value for name, value in optional.items() if value})
    return document


def _item(value: MetricValue) -> _Item:
    return _Item(
        _reference(value),
        {"name": value.metric, "selector": selector_object(value.selector)},
        _whole_second(int(value.timestamp)),
        milli_text(value.milli),
        value.window_seconds,
    )


def _legacy_item(value: MetricValue) -> JsonObject:
    item: JsonObject = {
        "describedObject": _reference(value),
        "metricName": value.metric,
        "timestamp": _whole_second(int(value.timestamp)),
        "value": milli_text(value.milli),
        "selector": selector_object(value.selector),
    }
    if value.window_seconds is not None:
        item["window"] = value.window_seconds
    return item


def _external_item(value: ExternalMetricValue) -> JsonObject:
    item: JsonObject = {
        "metricName": value.metric,
        "metricLabels": None if value.labels is None else dict(value.labels),
        "timestamp": _whole_second(int(value.timestamp)),
        "value": milli_text(value.milli),
    }
    if value.window_seconds is not None:
        item["window"] = value.window_seconds
    return item


def _reference(value: MetricValue) -> _Reference:
    described = value.described_object
    return _Reference(described.kind, described.namespace, described.name, described.api_version)


def _object(usage: ObjectUsage) -> JsonObject:
    kind = "PodMetrics" if usage.namespace else "NodeMetrics"
    return {**_usage_item(usage), "kind": kind, "apiVersion": f"{RESOURCE_GROUP}/v1beta1"}


def _usage_item(usage: ObjectUsage) -> JsonObject:
    """Return a list item: without kind and apiVersion, and with the timestamp of the values as creationTimestamp."""
    moment = _whole_second(int(usage.timestamp))
    metadata = {"name": usage.name, "creationTimestamp": moment}
    item = {
        "metadata": _with(metadata, namespace=usage.namespace, labels=dict(usage.labels)),
        "timestamp": moment,
        "window": _window(usage),
    }
    if usage.namespace:
        item["containers"] = [{"name": one.name, "usage": usage_texts(one.usage)} for one in usage.containers]
    else:
        item["usage"] = usage_texts(usage.usage)
    return item


def _window(usage: ObjectUsage) -> str:
    return format_duration(usage.window_seconds)


@functools.lru_cache(maxsize=64)
def _whole_second(seconds: int) -> datetime.datetime:
    """Return a metav1.Time, which has no fractions. The samples of one response share few, hence the cache."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
