"""The adapter's own metrics of objects with rules."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from adapter.rule_objects.controller import RuleObjects


class RuleObjectCounts(Collector):
    """Counts objects at each scrape."""

    def __init__(self, rule_objects: RuleObjects) -> None:
        self._rule_objects = rule_objects

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauge."""
        family = GaugeMetricFamily(
            "milliscale_adapter_rule_objects",
            "Objects that have rules, by kind and state: Ready, or why their metrics are not served.",
            labels=("kind", "state"),
        )
        for (kind, reason), count in sorted(self._rule_objects.counts().items()):
            family.add_metric((kind, reason), count)
        yield family
