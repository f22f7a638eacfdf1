"""Find queries with several values for one object, of which the metrics APIs can serve only one."""

from __future__ import annotations

from adapter.catalog.inventory import CustomSource
from adapter.planning.rule_queries import by_name
from adapter.prometheus import Sample, Vector
from adapter.promql import label_text
from adapter.rules import QueryRule, Rule

_SHOWN = 5


def several_values(source: CustomSource, namespace: str, result: Vector | None) -> str:
    """Return a sentence about the first object with several values, with the query that adds them up; "" for none."""
    for name, samples in (by_name(source, namespace, result) or {}).items():
        if isinstance(samples, list):
            return _sentence(source, f"{namespace}/{name}" if namespace else name, samples)
    return ""


def _sentence(source: CustomSource, of: str, samples: list[Sample]) -> str:
    labels = sorted(set().union(*(sample.labels for sample in samples)))
    different = [f"`{one}`" for one in labels if len({sample.labels.get(one) for sample in samples}) > 1]
    by = f", by {', '.join(different[:_SHOWN])}" if different else ""
    return (
        f"the query makes {len(samples)} values for {of}{by}; the first ({samples[0].value:.6g}) is taken, their sum is"
        f" {sum(sample.value for sample in samples):.6g}: aggregate them, as in {_aggregated(source)}"
    )


def _aggregated(source: CustomSource) -> str:
    """Return the rule's query with a sum around it."""
    if isinstance(source.rule, QueryRule):
        labels = filter(None, (source.namespace_label, source.resource_label))
        return f"sum by ({', '.join(map(label_text, labels))}) ({source.rule.query})"
    assert isinstance(source.rule, Rule), "a schedule makes no custom metric"
    return f"sum({source.rule.query.source}) by (<<.GroupBy>>)"
