"""The lists of metric values, as Kubernetes names and orders their fields.

custom.metrics.k8s.io has two versions of an item; external.metrics.k8s.io has one. Their windows have different names
in JSON, as in Kubernetes.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence

import msgspec

from adapter.catalog.groups import CUSTOM_GROUP, EXTERNAL_GROUP
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


class CustomMetricList(msgspec.Struct, frozen=True):
    """A MetricValueList of custom.metrics.k8s.io/`version` (v1beta1 or v1beta2), which is still to be encoded."""

    version: str
    values: Sequence[MetricValue]

    def document(self) -> ListDocument:
        """Return the list as it is written in JSON and YAML."""
        convert = _legacy_item if self.version == "v1beta1" else _item
        items = tuple([convert(value) for value in self.values])
        return ListDocument("MetricValueList", f"{CUSTOM_GROUP}/{self.version}", ListMeta(), items)  # type: ignore[arg-type]


class ExternalMetricList(msgspec.Struct, frozen=True):
    """An ExternalMetricValueList, which is still to be encoded."""

    values: Sequence[ExternalMetricValue]

    def document(self) -> ListDocument:
        """Return the list as it is written in JSON and YAML."""
        items = tuple([_external_item(value) for value in self.values])
        return ListDocument("ExternalMetricValueList", f"{EXTERNAL_GROUP}/v1beta1", ListMeta(), items)


def _item(value: MetricValue) -> Item:
    return Item(
        described_object=_reference(value),
        metric=Identifier(value.metric, selector_object(value.selector)),
        timestamp=_whole_second(int(value.timestamp)),
        value=milli_text(value.milli),
        window_seconds=value.window_seconds,
    )


def _legacy_item(value: MetricValue) -> LegacyItem:
    return LegacyItem(
        described_object=_reference(value),
        metric_name=value.metric,
        timestamp=_whole_second(int(value.timestamp)),
        value=milli_text(value.milli),
        selector=selector_object(value.selector),
        window=value.window_seconds,
    )


def _external_item(value: ExternalMetricValue) -> ExternalItem:
    return ExternalItem(
        metric_name=value.metric,
        metric_labels=None if value.labels is None else dict(value.labels),
        timestamp=_whole_second(int(value.timestamp)),
        value=milli_text(value.milli),
        window=value.window_seconds,
    )


def _reference(value: MetricValue) -> Reference:
    described = value.described_object
    return Reference(described.kind, described.namespace, described.name, described.api_version)


@functools.lru_cache(maxsize=64)
def _whole_second(seconds: int) -> datetime.datetime:
    """Return a metav1.Time, which has no fractions. The samples of one response share few, hence the cache."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def selector_object(selector: LabelSelector | None) -> SelectorObject | None:
    """Return a metav1.LabelSelector: equality as matchLabels, everything else as an expression."""
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
