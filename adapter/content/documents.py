"""The lists that the metrics APIs answer with, as Kubernetes spells them: structs whose fields stand in its order.

custom.metrics.k8s.io has two versions of an item; external.metrics.k8s.io has one. Their windows have different names
in JSON, which is how Kubernetes has them. How the structs become bytes is not decided here.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable

import msgspec

from adapter.catalog.values import ExternalMetricValue, MetricValue
from kube.quantity import milli_text
from kube.selectors import LabelSelector, Operator

# metav1.LabelSelector has no "not equal"; it says the same with a list of one.
_EXPRESSION_OPERATORS = {
    Operator.NOT_EQUALS: "NotIn",
    Operator.NOT_IN: "NotIn",
    Operator.IN: "In",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
    Operator.GREATER_THAN: "Gt",
    Operator.LESS_THAN: "Lt",
}


class ListMeta(msgspec.Struct, frozen=True):
    """metav1.ListMeta; nothing in it means anything for metrics."""


_LIST_META = ListMeta()


class Reference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The object that an item is about."""

    kind: str
    namespace: str = ""
    name: str = ""
    api_version: str = ""


class Expression(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of a selector's matchExpressions."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorObject(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class Identifier(msgspec.Struct, frozen=True):
    """A metric's name, and which of its series are meant."""

    name: str
    selector: SelectorObject | None


_NO_METRIC = Identifier("", None)


class Item(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A MetricValue of custom.metrics.k8s.io/v1beta2."""

    described_object: Reference
    metric: Identifier
    timestamp: datetime.datetime
    value: str
    window_seconds: int | None = None


class LegacyItem(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A MetricValue of custom.metrics.k8s.io/v1beta1."""

    described_object: Reference
    metric_name: str
    timestamp: datetime.datetime
    value: str
    selector: SelectorObject | None
    window: int | None = None


class ExternalItem(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An ExternalMetricValue of external.metrics.k8s.io/v1beta1."""

    metric_name: str
    metric_labels: dict[str, str] | None
    timestamp: datetime.datetime
    value: str
    window: int | None = None


class ListDocument(msgspec.Struct, frozen=True, rename="camel"):
    """A MetricValueList or ExternalMetricValueList."""

    kind: str
    api_version: str
    metadata: ListMeta
    items: tuple[Item, ...] | tuple[LegacyItem, ...] | tuple[ExternalItem, ...]


def custom_list(version: str, values: Iterable[MetricValue]) -> ListDocument:
    """The MetricValueList of custom.metrics.k8s.io/`version` (v1beta1 or v1beta2)."""
    api_version = f"custom.metrics.k8s.io/{version}"
    if version == "v1beta1":
        legacy = tuple(_legacy_item(value) for value in values)
        return ListDocument("MetricValueList", api_version, _LIST_META, legacy)
    # The values of a list are of one metric.
    metric, selector, identifier = "", None, _NO_METRIC
    items = []
    for value in values:
        if value.metric != metric or value.selector is not selector:
            metric, selector = value.metric, value.selector
            identifier = Identifier(metric, _selector_object(selector))
        described = value.described_object
        items.append(
            Item(
                Reference(described.kind, described.namespace, described.name, described.api_version),
                identifier,
                _whole_second(int(value.timestamp)),
                milli_text(value.milli),
                value.window_seconds,
            )
        )
    return ListDocument("MetricValueList", api_version, _LIST_META, tuple(items))


def external_list(values: Iterable[ExternalMetricValue]) -> ListDocument:
    """The ExternalMetricValueList of external.metrics.k8s.io/v1beta1."""
    items = tuple(
        ExternalItem(
            metric_name=value.metric,
            metric_labels=None if value.labels is None else dict(value.labels),
            timestamp=_whole_second(int(value.timestamp)),
            value=milli_text(value.milli),
            window=value.window_seconds,
        )
        for value in values
    )
    return ListDocument("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1", _LIST_META, items)


def _legacy_item(value: MetricValue) -> LegacyItem:
    return LegacyItem(
        described_object=_reference(value),
        metric_name=value.metric,
        timestamp=_whole_second(int(value.timestamp)),
        value=milli_text(value.milli),
        selector=_selector_object(value.selector),
        window=value.window_seconds,
    )


def _reference(value: MetricValue) -> Reference:
    described = value.described_object
    return Reference(described.kind, described.namespace, described.name, described.api_version)


@functools.lru_cache(maxsize=64)
def _whole_second(seconds: int) -> datetime.datetime:
    """metav1.Time has no parts of a second. The samples of one answer share few moments, hence the cache."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _selector_object(selector: LabelSelector | None) -> SelectorObject | None:
    """A parsed selector as metav1.LabelSelector: equality as matchLabels, everything else as an expression."""
    if selector is None or selector.empty:
        return None
    labels: dict[str, str] = {}
    expressions: list[Expression] = []
    for requirement in selector.requirements:
        if requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS):
            labels[requirement.key] = requirement.values[0]
        else:
            operator = _EXPRESSION_OPERATORS[requirement.operator]
            expressions.append(Expression(requirement.key, operator, requirement.values))
    return SelectorObject(labels, tuple(expressions))
