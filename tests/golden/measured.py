"""Lists of metrics of objects, computed from the application's series where no recorded response can be compared.

Only gauges can be computed, and only as the environment's rules ask for them: as a sum, or as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kube.values.quantity import Quantity
from kube.values.selectors import LabelSelector, Operator
from tests.golden.application import GAUGES, Gauge
from tests.golden.cases import Case

SUMMED: Final = frozenset({"conn_open", "edge_value", "ns:conn:sum"})
"""Gauges of which a rule makes a sum for each object."""

UNAGGREGATED: Final = frozenset({"conn_raw"})
"""Gauges of which a rule makes nothing else."""

METRICS: Final = frozenset(
    {gauge.name for gauge in GAUGES} - {"global_backlog"} | {"http_packets_per_second", "backlog"}
)
"""The names of all metrics of the environment."""

_EXPRESSIONS: Final = {
    Operator.IN: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",  # an object has no other way to say it
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
}


@dataclass(frozen=True, slots=True)
class MetricRequest:
    """What a request for a metric of objects names; `namespace` is "" at the root, all is "" in any other request."""

    namespace: str = ""
    resource: str = ""
    name: str = ""
    metric: str = ""

    @classmethod
    def by(cls, case: Case) -> MetricRequest:
        """From a case's path."""
        match case.segments[3:]:
            case ("namespaces", namespace, "metrics", metric):
                return cls("", "namespaces", namespace, metric)
            case ("namespaces", namespace, resource, name, metric):
                return cls(namespace, resource, name, metric)
            case ("namespaces", _, metric) if case.is_external:
                return cls(metric=metric)
            case (resource, name, metric):
                return cls("", resource, name, metric)
        return cls()

    @property
    def label(self) -> str:
        """The label that means the resource."""
        return self.resource.partition(".")[0].removesuffix("s")

    @property
    def not_found(self) -> str:
        """The message where the object has no value; without an object's name that where there is no such metric."""
        name = "" if self.name == "*" else f" {self.name}"
        return f"the server could not find the metric {self.metric} for {self.resource}{name}"


def selected(case: Case) -> Iterator[Gauge]:
    """The gauges that a request is about, in the order of labels; whatever its selector of objects."""
    requested = MetricRequest.by(case)
    selector = case.series_selector or LabelSelector()
    for gauge in sorted(GAUGES, key=lambda gauge: sorted(gauge.labels.items())):
        if (
            gauge.name == requested.metric
            and selector.matches(gauge.labels)
            and requested.namespace in ("", gauge.labels.get("namespace"))
            and requested.name in ("*", gauge.labels.get(requested.label))
        ):
            yield gauge


def metric_items(case: Case) -> list[dict[str, Any]]:
    """The items of the response to a request for a metric of pods, without their time, sorted by the pods' names.

    Of several pods there are those that the recorded queries name.
    """
    requested = MetricRequest.by(case)
    values: dict[str, float] = {}
    for gauge in selected(case):
        pod = gauge.labels[requested.label]
        if requested.metric in SUMMED:
            values[pod] = values.get(pod, 0) + gauge.value
        else:
            values.setdefault(pod, gauge.value)
    named = {name for query in case.queries for name in re.findall(r'(?<=["|])[^"|]+(?=["|])', query)}
    return [
        {
            "describedObject": {"kind": "Pod", "namespace": requested.namespace, "name": pod, "apiVersion": "v1"},
            **_identifier(case, requested.metric),
            "timestamp": "",
            "value": quantity(value),
        }
        for pod, value in sorted(values.items())
        if pod in named
    ]


def quantity(value: float) -> str:
    """A value as the metrics APIs write it: in thousandths, the rest cut off."""
    return str(Quantity.from_milli(int(value * 1000)))


def _identifier(case: Case, metric: str) -> dict[str, Any]:
    """A metric's name and selector, as an item of this API version has them."""
    selector = _selector(case.series_selector or LabelSelector())
    if case.segments[2] == "v1beta1":
        return {"metricName": metric, "selector": selector}
    return {"metric": {"name": metric, "selector": selector}}


def _selector(selector: LabelSelector) -> dict[str, Any] | None:
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for one in selector.requirements:
        if one.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS):
            labels[one.key] = one.values[0]
            continue
        expressions.append({"key": one.key, "operator": _EXPRESSIONS[one.operator]})
        if one.values:
            expressions[-1]["values"] = list(one.values)
    parts = {"matchLabels": labels, "matchExpressions": expressions}
    return {key: part for key, part in parts.items() if part} or None
