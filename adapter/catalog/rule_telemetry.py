"""The adapter's own metrics of its rules, its rules file and Prometheus.

Two names are prometheus-adapter's, so that its dashboards and alerts fit: the latency of Prometheus, and the age of the
values in responses.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FRESHNESS_BUCKETS = tuple(1.364**power for power in range(20))

_SERIES = "milliscale_adapter_rule_series"
_METRICS = "milliscale_adapter_rule_metrics"
_RELISTED = "milliscale_adapter_rule_last_relist_timestamp_seconds"
_RELIST_ERRORS = "milliscale_adapter_rule_relist_errors"
_QUERY_ERRORS = "milliscale_adapter_rule_query_errors"
_REQUESTS = "milliscale_adapter_rule_requests"
_COALESCED_QUERIES = "milliscale_adapter_rule_merged_queries"
_PAUSED = "milliscale_adapter_rule_merging_paused"
_LEFT_OUT = "milliscale_adapter_samples_left_out"
# Of each metric by rule: its kind, help text, and labels beside the rule.
_BY_RULE: dict[str, tuple[type[GaugeMetricFamily | CounterMetricFamily], str, tuple[str, ...]]] = {
    _SERIES: (GaugeMetricFamily, "Names of series found by a rule's last list.", ()),
    _METRICS: (GaugeMetricFamily, "Metrics made by a rule's last list.", ()),
    _RELISTED: (GaugeMetricFamily, "When a rule was last listed with success.", ()),
    _RELIST_ERRORS: (CounterMetricFamily, "Lists of a rule's series that failed.", ()),
    _QUERY_ERRORS: (CounterMetricFamily, "Queries of a rule that failed.", ()),
    _REQUESTS: (
        CounterMetricFamily,
        (
            "Requests that a rule's coalesced query can serve, by what served them: its result (merged), or a query of"
            " their own (alone)."
        ),
        ("query",),
    ),
    _COALESCED_QUERIES: (CounterMetricFamily, "Coalesced queries of a rule.", ("outcome",)),
    _PAUSED: (
        GaugeMetricFamily,
        (
            "Groups of requests that are sent alone for a while though a coalesced query could serve them, by reason:"
            " it costs more than it saves, it fails, or its result is too large for the cache."
        ),
        ("reason",),
    ),
    _LEFT_OUT: (CounterMetricFamily, "Samples that no quantity in milli-units can hold, by rule.", ()),
}


class RuleTelemetry:
    """The metrics of one version of the rules, and those of the process.

    The first one, which is made with a registry, is exported at once. The one of the next version (`following`) counts
    from its beginning, and is exported in its place once it is in force (`begin`); requests that end with older rules
    then bring no label back.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._set_up(_Process(registry, self))

    def _set_up(self, process: _Process) -> None:
        self._process = process
        self._values: dict[str, defaultdict[tuple[str, ...], float]] = {name: defaultdict(float) for name in _BY_RULE}
        self._requests = self._values[_REQUESTS]
        self._paused: Callable[[], Iterable[tuple[str, str]]] = tuple

    def following(self) -> RuleTelemetry:
        """Return the telemetry of the next version."""
        other = RuleTelemetry.__new__(RuleTelemetry)
        other._set_up(self._process)
        return other

    def begin(self, rules: Iterable[str], *, digest: str, now: float) -> None:
        """Put these rules in force: their metrics replace those of the version before."""
        for rule in rules:
            for name in (_RELIST_ERRORS, _QUERY_ERRORS, _LEFT_OUT):
                self._values[name][(rule,)] += 0
        self._process.begin(self, digest, now)

    def queried(self, server: str, path: str, seconds: float) -> None:
        """Observe a request to a Prometheus."""
        self._process.latency.labels(path, server).observe(seconds)

    def server_gone(self, server: str) -> None:
        """Remove a Prometheus that no rule names any more."""
        for path in ("/api/v1/query", "/api/v1/series"):
            with contextlib.suppress(KeyError):
                self._process.latency.remove(path, server)

    def observe_freshness(self, group: str, ages: Sequence[float]) -> None:
        """Observe the ages of the values in a response, in seconds; most often they are the same."""
        if ages and ages.count(ages[0]) == len(ages):
            self._process.freshness.add(group, ages[0], len(ages))
            return
        for age, count in Counter(ages).items():
            self._process.freshness.add(group, age, count)

    def listed(self, rule: str, *, series: int, metrics: int, now: float) -> None:
        """Record a rule's list. Timestamps are in seconds since the epoch."""
        for name, value in ((_SERIES, series), (_METRICS, metrics), (_RELISTED, now)):
            self._values[name][(rule,)] = value

    def not_listed(self, rule: str) -> None:
        """Count a list that failed."""
        self._values[_RELIST_ERRORS][(rule,)] += 1

    def query_failed(self, rule: str) -> None:
        """Count a query that failed."""
        self._values[_QUERY_ERRORS][(rule,)] += 1

    def left_out(self, rule: str) -> None:
        """Count a sample that was left out."""
        self._values[_LEFT_OUT][(rule,)] += 1

    def requested(self, rule: str, *, merged: bool) -> None:
        """Count a request that a coalesced query can serve, and whether it did."""
        self._requests[rule, "merged" if merged else "alone"] += 1

    def merged_query(self, rule: str, *, failed: bool) -> None:
        """Count a coalesced query."""
        self._values[_COALESCED_QUERIES][rule, "failure" if failed else "success"] += 1

    def watch_paused(self, paused: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Export what `paused` yields at each scrape: the rule's key and the reason of each paused group."""
        self._paused = paused

    def rules_refused(self) -> None:
        """Record that the rules file cannot be used."""
        self._process.reload_successful.set(0)

    def rules_usable(self) -> None:
        """Record that the rules file is again the one in force."""
        self._process.reload_successful.set(1)

    def metrics_gone(self, group: str, count: int) -> None:
        """Record how many metrics of a group went with the last reload."""
        self._process.gone.labels(group).set(count)

    def values(self, name: str) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the values of a metric by rule, with their labels."""
        return list((Counter(self._paused()) if name == _PAUSED else self._values[name]).items())


class _Process(Collector):
    """The metrics of the process, and the version whose metrics are exported."""

    def __init__(self, registry: CollectorRegistry, current: RuleTelemetry) -> None:
        self._current = current
        registry.register(self)
        self.freshness = _Ages(registry)
        self.latency = Histogram(
            "prometheus_adapter_prometheus_client_request_duration_seconds",
            "Time of requests to Prometheus, by path and server: its name in the rules file, or default.",
            ("path", "server"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.reload_successful = Gauge(
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

    def begin(self, telemetry: RuleTelemetry, digest: str, now: float) -> None:
        self._current = telemetry
        self.config.clear()
        self.config.labels(f"sha256:{digest}").set(1)
        self.reload_successful.set(1)
        self.reloaded.set(now)

    def describe(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return the metrics by rule, without values."""
        return [kind(name, text, labels=("rule", *labels)) for name, (kind, text, labels) in _BY_RULE.items()]

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return the metrics by rule of the version in force."""
        for name, (kind, text, labels) in _BY_RULE.items():
            family = kind(name, text, labels=("rule", *labels))
            for values, number in self._current.values(name):
                family.add_metric(values, number)
            yield family


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
