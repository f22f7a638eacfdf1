"""How the HPA's texts name metrics: in conditions, events and errors, word for word as Kubernetes 1.36 prints them.

Dashboards and alerts match on these texts, Go's print form of a label selector included.
"""

from __future__ import annotations

from typing import Any

from autoscaler.core.model import CrossVersionObjectReference, MetricIdentifier, MetricSelector


def object_metric(metric: MetricIdentifier, described: CrossVersionObjectReference, namespace: str) -> str:
    """NAME: KIND on NAMESPACE OBJECT."""
    return f"{metric.name}: {described.kind} on {namespace} {described.name}"


def external_metric(metric: MetricIdentifier, namespace: str) -> str:
    """NAMESPACE/NAME/SELECTOR."""
    return f"{namespace}/{metric.name}/{selector_text(metric.selector)}"


def selector_text(selector: MetricSelector | None) -> str:
    """`selector` as Go prints a `*metav1.LabelSelector`."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in selector.match_labels)
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def selector_object(selector: MetricSelector) -> dict[str, Any]:
    """`selector` as metav1.LabelSelector JSON, without what is empty."""
    body: dict[str, Any] = {}
    if selector.match_labels:
        body["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        body["matchExpressions"] = [
            {"key": each.key, "operator": each.operator} | ({"values": list(each.values)} if each.values else {})
            for each in selector.match_expressions
        ]
    return body
