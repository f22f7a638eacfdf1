"""The adapter's own metrics of its rules, its rules file and Prometheus.

Two names are prometheus-adapter's, so that its dashboards and alerts fit: the latency of Prometheus, and the age of the
values in responses.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FRESHNESS_BUCKETS = tuple(1.364**power for power in range(20))


class RuleTelemetry:
    """The metrics of one version of the rules; those of its rules disappear with the version.

    The first one, which is made with a registry, is in force at once. One that follows another (`following`) records
    nothing before it is in force (`begin`), but makes up for it then. From then on the one before records nothing, so
    requests that end with older rules bring no label back.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._set_up(_Families(registry), held_back=None)
        self._families.current = self

    def _set_up(self, families: _Families, *, held_back: list[Callable[[], None]] | None) -> None:
        self._families = families
        self._held_back = held_back  # None once it has been in force
        self.requests: Counted[tuple[str, str]] = Counted()
        self._paused: Callable[[], Iterable[tuple[str, str]]] = tuple

    def following(self) -> RuleTelemetry:
        """Return the telemetry of the next version."""
        other = RuleTelemetry.__new__(RuleTelemetry)
        other._set_up(self._families, held_back=[])
        return other

    def begin(self, rules: Iterable[str], *, digest: str, now: float) -> None:
        """Put these rules in force: their counters replace those of the version before."""
        families = self._families
        for metric in families.by_rule:
            metric.clear()
        for rule in rules:
            for counter in (families.list_errors, families.query_errors, families.left_out):
                counter.labels(rule)
        families.current = self
        held_back = self._held_back or []
        self._held_back = None
        for record in held_back:
            record()
        families.config.clear()
        families.config.labels(f"sha256:{digest}").set(1)
        families.reload_good.set(1)
        families.reloaded.set(now)

    def asked(self, server: str, path: str, seconds: float) -> None:
        """Count a request to a Prometheus."""
        self._families.prometheus.labels(path, server).observe(seconds)

    def server_gone(self, server: str) -> None:
        """Remove a Prometheus that no rule names any more."""
        for path in ("/api/v1/query", "/api/v1/series"):
            with contextlib.suppress(KeyError):
                self._families.prometheus.remove(path, server)

    def observe_freshness(self, group: str, ages: Sequence[float]) -> None:
        """Observe the ages of the values in a response, in seconds; most often they are the same."""
        if ages and ages.count(ages[0]) == len(ages):
            self._families.freshness.add(group, ages[0], len(ages))
            return
        for age, count in Counted(ages).items():
            self._families.freshness.add(group, age, count)

    def listed(self, rule: str, *, series: int, metrics: int, now: float) -> None:
        """Record a rule's list."""

        def record() -> None:
            self._families.series.labels(rule).set(series)
            self._families.metrics.labels(rule).set(metrics)
            self._families.relisted.labels(rule).set(now)

        self._record(record)

    def not_listed(self, rule: str) -> None:
        """Count a list that failed."""
        self._record(lambda: self._families.list_errors.labels(rule).inc())

    def query_failed(self, rule: str) -> None:
        """Count a query that failed."""
        self._record(lambda: self._families.query_errors.labels(rule).inc())

    def left_out(self, rule: str) -> None:
        """Count a sample that was left out."""
        self._record(lambda: self._families.left_out.labels(rule).inc())

    def requested(self, rule: str, *, merged: bool) -> None:
        """Count a request that a coalesced query can serve, and whether it did."""
        self.requests[rule, "merged" if merged else "alone"] += 1

    def merged_query(self, rule: str, *, failed: bool) -> None:
        """Count a coalesced query."""
        outcome = "failure" if failed else "success"
        self._record(lambda: self._families.merged_queries.labels(rule, outcome).inc())

    def watch_paused(self, paused: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Export what `paused` yields at each scrape: the rule's key and the reason of each paused group."""
        self._paused = paused

    def paused(self) -> Iterable[tuple[str, str]]:
        """The rule's key and the reason of each group that is paused."""
        return self._paused()

    def rules_refused(self) -> None:
        """Record that the rules file cannot be used."""
        self._families.reload_good.set(0)

    def rules_usable(self) -> None:
        """Record that the rules file is again the one in force."""
        self._families.reload_good.set(1)

    def metrics_gone(self, group: str, count: int) -> None:
        """Record how many metrics of a group went with the last reload."""
        self._families.gone.labels(group).set(count)

    def _record(self, record: Callable[[], None]) -> None:
        if self._families.current is self:
            record()
        elif self._held_back is not None:
            self._held_back.append(record)


class _Families:
    """The metrics of all versions, and the version that is in force."""

    current: RuleTelemetry

    def __init__(self, registry: CollectorRegistry) -> None:
        self.prometheus = Histogram(
            "prometheus_adapter_prometheus_client_request_duration_seconds",
            "Time of requests to Prometheus, by path and server: its name in the rules file, or default.",
            ("path", "server"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.freshness = _Ages(registry)
        self.series = _gauge("series", "Names of series found by a rule's last list.", registry)
        self.metrics = _gauge("metrics", "Metrics made by a rule's last list.", registry)
        self.relisted = _gauge("last_relist_timestamp_seconds", "When a rule was last listed with success.", registry)
        self.list_errors = _counter("relist_errors", "Lists of a rule's series that failed.", registry)
        self.query_errors = _counter("query_errors", "Queries of a rule that failed.", registry)
        self.merged_queries = _counter("merged_queries", "Coalesced queries of a rule.", registry, "outcome")
        self.left_out = Counter(
            "milliscale_adapter_samples_left_out",
            "Samples that no quantity in milli-units can hold, by rule.",
            ("rule",),
            registry=registry,
        )
        registry.register(_Requests(self))
        registry.register(_Paused(self))
        self.by_rule = (
            *(self.series, self.metrics, self.relisted, self.list_errors, self.query_errors, self.left_out),
            self.merged_queries,
        )
        self.reload_good = Gauge(
            "milliscale_adapter_config_last_reload_successful",
            "1 when the rules file could be used when it was last read.",
            registry=registry,
        )
        self.reloaded = Gauge(
            "milliscale_adapter_config_last_reload_success_timestamp_seconds",
            "When the rules that are in force were loaded.",
            registry=registry,
        )
        self.gone = Gauge(
            "milliscale_adapter_config_last_reload_metrics_gone",
            "Metrics of an API group that there were before the last reload and not after it.",
            ("group",),
            registry=registry,
        )
        self.config = Gauge(
            "milliscale_adapter_config_info",
            "The SHA-256 of the rules file that is in force.",
            ("hash",),
            registry=registry,
        )


class _Requests(Collector):
    """The requests that can be coalesced, counted without the lock of a Counter: there is one for each request."""

    def __init__(self, families: _Families) -> None:
        self._families = families

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Return the metric without values."""
        return [self._family()]

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return the metric of the version in force."""
        family = self._family()
        for labels, count in self._families.current.requests.items():
            family.add_metric(labels, count)
        yield family

    @staticmethod
    def _family() -> CounterMetricFamily:
        return CounterMetricFamily(
            "milliscale_adapter_rule_requests",
            "Requests that a rule's coalesced query can serve, by what served them: its result (merged), or a query of"
            " their own (alone).",
            labels=("rule", "query"),
        )


class _Paused(Collector):
    """How many groups of requests are paused, by rule and reason."""

    def __init__(self, families: _Families) -> None:
        self._families = families

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric without values."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric as it is now."""
        family = self._family()
        for (rule, reason), count in Counted(self._families.current.paused()).items():
            family.add_metric((rule, reason), count)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "milliscale_adapter_rule_merging_paused",
            "Groups of requests that are sent alone for a while though a coalesced query could serve them, by reason:"
            " it costs more than it saves, it fails, or its result is too large for the cache.",
            labels=("rule", "reason"),
        )


class _Ages(Collector):
    """A histogram to which many values of one age are added at once, as in a list of thousands of pods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def add(self, group: str, age: float, count: int) -> None:
        """Add values of an age in seconds."""
        age = max(age, 0.0)
        counts = self._counts.get(group)
        if counts is None:
            counts = self._counts[group] = [0] * (len(_FRESHNESS_BUCKETS) + 1)
        counts[bisect.bisect_left(_FRESHNESS_BUCKETS, age)] += count
        self._sums[group] = self._sums.get(group, 0.0) + age * count

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Return the histogram, with a series for each group."""
        family = HistogramMetricFamily(
            "metrics_apiserver_metric_freshness_seconds",
            "Age of the values in responses, by API group.",
            labels=("group",),
        )
        bounds = (*map(floatToGoString, _FRESHNESS_BUCKETS), "+Inf")
        for group, counts in self._counts.items():
            buckets = [*zip(bounds, itertools.accumulate(counts), strict=True)]
            family.add_metric((group,), buckets=buckets, sum_value=self._sums[group])
        yield family


def _gauge(name: str, text: str, registry: CollectorRegistry) -> Gauge:
    return Gauge(f"milliscale_adapter_rule_{name}", text, ("rule",), registry=registry)


def _counter(name: str, text: str, registry: CollectorRegistry, *labels: str) -> Counter:
    return Counter(f"milliscale_adapter_rule_{name}", text, ("rule", *labels), registry=registry)
