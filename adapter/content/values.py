"""The values of metrics, typed and in integer milli-units, and their documents as Kubernetes names and orders fields.

A sample of Prometheus is a double; a Quantity in these APIs is made of milli-units. `milli` is the double times 1000,
truncated, as in prometheus-adapter: 0.9999 is 999m. HPAs compare with exactly that number.

The two versions of custom.metrics.k8s.io have different items, and the window has another name in each API. CPU is a
decimal quantity (`250m`), memory a binary one (`1536Ki`); the window of metrics.k8s.io is one of Go's durations.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube.values.durations import format_duration
from kube.values.quantity import Format, Quantity, milli_text
from kube.values.selectors import LabelSelector, Operator

JsonObject = dict[str, Any]

# The API groups that are served, and their versions, the preferred one first.
CUSTOM_GROUP = "custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta1", "v1beta2")
EXTERNAL_GROUP = "external.metrics.k8s.io"
EXTERNAL_VERSIONS = ("v1beta1",)
RESOURCE_GROUP = "metrics.k8s.io"
RESOURCE_VERSIONS = ("v1beta1",)

INCLUDED = ("Metadata", "Object", "None")
"""Values of `includeObject`: how much of the object a table's row includes. The first is the default."""

_INT64_LIMIT = 2.0**63
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


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The object that a value describes, as documents have it. `namespace` is "" for a cluster-scoped one."""

    kind: str
    namespace: str = ""
    name: str
    api_version: str


class MetricValue(msgspec.Struct, kw_only=True):
    """One item of a MetricValueList."""

    described_object: ObjectReference
    metric: str
    selector: LabelSelector | None
    """The metric label selector of the request; None when it was empty."""
    timestamp: float
    """When the value was sampled, in seconds since the epoch."""
    window_seconds: int | None
    """The time over which it was measured, or None if unknown."""
    milli: int
    encoded: bytes = b""
    """The item as protobuf of v1beta2, from its first encoding on. Requests share a value until its vector is
    refreshed. The other attributes do not change."""


class ExternalMetricValue(msgspec.Struct, kw_only=True):
    """One item of an ExternalMetricValueList.

    `labels` is None for a scalar. The other attributes are those of MetricValue.
    """

    metric: str
    labels: Mapping[str, str] | None
    timestamp: float
    window_seconds: int | None
    milli: int
    encoded: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU in milli-cores, memory in milli-bytes; never negative."""

    cpu_milli: int
    memory_milli: int
    container: str = ""
    """The name of the container; "" for all of a pod, a node, and if the series have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectUsage:
    """The usage of a pod, or of a node."""

    namespace: str = ""
    """The namespace of a pod; "" for a node."""
    name: str
    """The name of the object."""
    labels: Mapping[str, str]
    """The labels of the object."""
    timestamp: float
    """The timestamp of the oldest sample, in seconds since the epoch."""
    window_seconds: float
    """The window of the rates."""
    containers: tuple[Usage, ...]
    """The containers of a pod, sorted by name; a node has one without a name."""

    @property
    def usage(self) -> Usage:
        """The usage of all containers together."""
        return Usage(
            cpu_milli=sum(one.cpu_milli for one in self.containers),
            memory_milli=sum(one.memory_milli for one in self.containers),
        )


def to_milli(value: float) -> int | None:
    """Convert a sample's value to milli-units, truncated towards zero; NaN is 0.

    None for infinities, and for numbers that do not fit into 64 bits.
    """
    scaled = value * 1000.0
    if -_INT64_LIMIT < scaled < _INT64_LIMIT:
        return int(scaled)
    return 0 if math.isnan(value) else None


# Structs where lists may be long: msgspec encodes them twice as fast as dicts.
class _Item(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    described_object: ObjectReference
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
        value.described_object,
        {"name": value.metric, "selector": selector_object(value.selector)},
        _whole_second(int(value.timestamp)),
        milli_text(value.milli),
        value.window_seconds,
    )


def _legacy_item(value: MetricValue) -> JsonObject:
    item: JsonObject = {
        "describedObject": value.described_object,
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
        item["containers"] = [{"name": one.container, "usage": usage_texts(one)} for one in usage.containers]
    else:
        item["usage"] = usage_texts(usage.usage)
    return item


def _window(usage: ObjectUsage) -> str:
    return format_duration(usage.window_seconds)


@functools.lru_cache(maxsize=64)
def _whole_second(seconds: int) -> datetime.datetime:
    """Return a metav1.Time, which has no fractions. The samples of one response share few, hence the cache."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
