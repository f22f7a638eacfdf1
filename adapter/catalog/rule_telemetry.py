"""What the adapter tells about its rules, its rules file and Prometheus, as metrics of its own.

Two names are prometheus-adapter's, so that its dashboards and alerts fit: the latency of Prometheus, and the age of
the values that are handed out.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter as Counted
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["RuleTelemetry"]

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FRESHNESS_BUCKETS = tuple(1.364**power for power in range(20))


class RuleTelemetry:
    """The metrics; a rule's disappear with the rule."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._prometheus = Histogram(
            "prometheus_adapter_prometheus_client_request_duration_seconds",
            "Time of requests to Prometheus, by path and server: its name in the rules file, or default.",
            ("path", "server"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._freshness = _Ages(registry)
        self._series = _gauge("series", "Names of series found by a rule's last list.", registry)
        self._metrics = _gauge("metrics", "Metrics made by a rule's last list.", registry)
        self._relisted = _gauge("last_relist_timestamp_seconds", "When a rule was last listed with success.", registry)
        self._list_errors = _counter("relist_errors", "Lists of a rule's series that failed.", registry)
        self._query_errors = _counter("query_errors", "Queries of a rule that failed.", registry)
        self._left_out = Counter(
            "milliscale_adapter_samples_left_out",
            "Samples that no quantity in milli-units can hold, by rule.",
            ("rule",),
            registry=registry,
        )
        self._by_rule = (
            self._series,
            self._metrics,
            self._relisted,
            self._list_errors,
            self._query_errors,
            self._left_out,
        )
        self._reload_good = Gauge(
            "milliscale_adapter_config_last_reload_successful",
            "1 when the rules file could be used when it was last read.",
            registry=registry,
        )
        self._reloaded = Gauge(
            "milliscale_adapter_config_last_reload_success_timestamp_seconds",
            "When the rules that are in force were taken up.",
            registry=registry,
        )
        self._config = Gauge(
            "milliscale_adapter_config_info",
            "The SHA-256 of the rules file that is in force.",
            ("hash",),
            registry=registry,
        )

    def asked(self, server: str, path: str, seconds: float) -> None:
        """Count a request to a Prometheus."""
        self._prometheus.labels(path, server).observe(seconds)

    def handed_out(self, group: str, ages: Sequence[float]) -> None:
        """Note the ages of values, in seconds."""
        if len(ages) == 1:
            self._freshness.add(group, ages[0], 1)
            return
        for age, count in Counted(ages).items():
            self._freshness.add(group, age, count)

    def listed(self, rule: str, *, series: int, metrics: int, now: float) -> None:
        """Note a rule's list."""
        self._series.labels(rule).set(series)
        self._metrics.labels(rule).set(metrics)
        self._relisted.labels(rule).set(now)

    def not_listed(self, rule: str) -> None:
        """Count a list that failed."""
        self._list_errors.labels(rule).inc()

    def query_failed(self, rule: str) -> None:
        """Count a query that failed."""
        self._query_errors.labels(rule).inc()

    def left_out(self, rule: str) -> None:
        """Count a sample that was left out."""
        self._left_out.labels(rule).inc()

    def rules_taken_up(self, rules: Iterable[str], *, digest: str, now: float) -> None:
        """Note which rules are in force; counters begin to be shown, and those of rules that are gone end."""
        for metric in self._by_rule:
            metric.clear()
        for rule in rules:
            for counter in (self._list_errors, self._query_errors, self._left_out):
                counter.labels(rule)
        self._config.clear()
        self._config.labels(f"sha256:{digest}").set(1)
        self._reload_good.set(1)
        self._reloaded.set(now)

    def rules_refused(self) -> None:
        """Note that the rules file cannot be used."""
        self._reload_good.set(0)


class _Ages(Collector):
    """A histogram to which many values of one age are added at once, as a list of thousands of pods has them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def add(self, group: str, age: float, count: int) -> None:
        """Add values of an age in seconds."""
        age = max(age, 0.0)
        counts = self._counts.setdefault(group, [0] * (len(_FRESHNESS_BUCKETS) + 1))
        counts[bisect.bisect_left(_FRESHNESS_BUCKETS, age)] += count
        self._sums[group] = self._sums.get(group, 0.0) + age * count

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """The histogram, with a series for each group."""
        family = HistogramMetricFamily(
            "metrics_apiserver_metric_freshness_seconds",
            "Age of the values that were handed out, by API group.",
            labels=("group",),
        )
        bounds = (*map(floatToGoString, _FRESHNESS_BUCKETS), "+Inf")
        for group, counts in self._counts.items():
            buckets = [*zip(bounds, itertools.accumulate(counts), strict=True)]
            family.add_metric((group,), buckets=buckets, sum_value=self._sums[group])
        yield family


def _gauge(name: str, text: str, registry: CollectorRegistry) -> Gauge:
    return Gauge(f"milliscale_adapter_rule_{name}", text, ("rule",), registry=registry)


def _counter(name: str, text: str, registry: CollectorRegistry) -> Counter:
    return Counter(f"milliscale_adapter_rule_{name}", text, ("rule",), registry=registry)
