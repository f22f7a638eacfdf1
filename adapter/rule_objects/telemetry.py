"""The adapter's own metrics of objects with rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

_Counts = Callable[[], Mapping[tuple[str, Any], int]]
"""Returns the number of objects by the values of two labels."""


class _ObjectCounts(Collector):
    """A gauge with the number of objects by two labels, counted at each scrape."""

    def __init__(self, name: str, documentation: str, labels: tuple[str, str], counts: _Counts) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._counts = counts

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauge."""
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, count in sorted(self._counts().items()):
            family.add_metric(labels, count)
        yield family


def rule_object_counts(counts: _Counts) -> Collector:
    """Return the gauge of objects by kind and state."""
    return _ObjectCounts(
        "milliscale_adapter_rule_objects",
        "Objects that have rules, by kind and state: Ready, or why their metrics are not served.",
        ("kind", "state"),
        counts,
    )


def condition_counts(counts: _Counts) -> Collector:
    """Return the gauge of objects by kind and the reason of their condition."""
    return _ObjectCounts(
        "milliscale_adapter_rule_object_conditions",
        "MetricRules and ClusterMetricRules by the reason of their condition Ready, from the replica that writes it.",
        ("kind", "reason"),
        counts,
    )
