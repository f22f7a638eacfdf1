"""The adapter's own metrics: of requests, of rules, the rules file and Prometheus.

Those of requests have the names of Kubernetes API servers' metrics, so that dashboards work unchanged. Two more names
are prometheus-adapter's, for its dashboards and alerts: the latency of Prometheus, and the age of the values in
responses.

The cardinality of labels must not depend on clients: only resources with metrics are named, and all verbs that
Kubernetes does not know share one value.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kube.aio.tasks import in_slices
from kube.process.runtime import LOOP_LAG_BUCKETS
from kube.security.request_info import RequestInfo

_Values = Callable[[], Mapping[Any, float]]
"""Returns values by those of the labels."""

_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FRESHNESS_BUCKETS = tuple(1.364**power for power in range(20))


_LABELS = ("verb", "group", "version", "resource")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})
_Labels = tuple[str, str, str, str]
_Knows = Callable[[str, str, str], bool]
"""Whether a resource, by group, version and name, has metrics; see adapter.serving.routes.Router.knows."""


class _Histogram:
    """How many values there are up to each of some bounds, and the sum of all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Add a value so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add it to a metric."""
        bounds = (*map(floatToGoString, self.bounds), "+Inf")
        family.add_metric(labels, [*zip(bounds, itertools.accumulate(self.counts), strict=True)], self.sum)


class _Requests(_Histogram):
    """The requests with the same labels: how long they took, and how many there are by status."""

    __slots__ = ("by_code",)

    def __init__(self) -> None:
        super().__init__(_BUCKETS)
        self.by_code: dict[int, int] = {}


class Telemetry(Collector):
    """The adapter's metrics, in a separate registry, so that imported libraries do not add to it.

    Requests are not counted with prometheus_client's classes: their locks, which a single thread does not need, take
    longer than authorizing a request from the cache.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self.rules = RuleTelemetry(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        # By the attributes of requests, which are the labels but for the case of the verb.
        self._requests: dict[_Labels, _Requests] = {}
        self.registry.register(self)
        self.loop_lag = Histogram(
            "milliscale_adapter_event_loop_lag_seconds",
            "How late the event loop was, measured every 20 milliseconds.",
            buckets=LOOP_LAG_BUCKETS,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests", "Requests in flight now.", registry=self.registry
        )

    def observe(self, info: RequestInfo, knows: _Knows, *, code: int, seconds: float) -> None:
        """Count a request."""
        attributes = (info.verb, info.group, info.version, info.resource)
        requests = self._requests.get(attributes)
        if requests is None:
            if info.verb not in _VERBS:
                attributes = ("other", *attributes[1:])
            if info.is_resource and not knows(info.group, info.version, info.resource):
                attributes = (attributes[0], "", "", "unknown")
            requests = self._requests.setdefault(attributes, _Requests())
        requests.by_code[code] = requests.by_code.get(code, 0) + 1
        requests.add(seconds)

    def observe_unparsed(self, method: str, *, code: int, seconds: float) -> None:
        """Count a request that could not be parsed."""
        self.observe(RequestInfo(verb=method.lower(), path=""), lambda *_: False, code=code, seconds=seconds)

    def drop_unknown_resources(self, knows: _Knows) -> None:
        """Drop the series of resources that have no metrics any more."""
        for labels in [labels for labels in self._requests if labels[1] and not knows(*labels[1:])]:
            del self._requests[labels]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of requests. Called by the registry."""
        total = CounterMetricFamily(
            "apiserver_request_total",
            "Requests served, by verb, group, version, resource and HTTP status.",
            labels=(*_LABELS, "code"),
        )
        duration = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time from a request's head to its response.", labels=_LABELS
        )
        for (verb, *where), requests in self._requests.items():
            labels = (verb.upper() if verb in _VERBS else verb, *where)
            for code, count in requests.by_code.items():
                total.add_metric((*labels, str(code)), count)
            requests.add_to(duration, labels)
        return total, duration

    def count_in_flight(self, count: Callable[[], int]) -> None:
        """Read the number of requests in flight from `count`, at each scrape."""
        self._in_flight.set_function(count)

    async def exposition(self) -> bytes:
        """Return /metrics: the registry as text.

        A few hundred rules have thousands of samples, so requests are served between one family and the next. A thread
        would compete with those that compute, and both with the event loop: it has waited for seconds.
        """
        texts = []
        async for family in in_slices(self.registry.collect()):
            registry = CollectorRegistry()
            registry.register(_Collected(family))
            texts.append(generate_latest(registry))
        return b"".join(texts)


class _Collected(Collector):
    """A family of metrics that was collected before."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return [self._family]


class Numbers(dict[tuple[str, ...], float]):
    """The values of a metric by those of its labels; 0 for others."""

    def __missing__(self, labels: tuple[str, ...]) -> float:
        """Return 0, and add nothing."""
        return 0


class RuleTelemetry:
    """The metrics, of all versions of the rules: a rule's are those of its key, such as "rules[2]".

    Those of rules are plain numbers, since the pages read them, too.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry` exposes them; None: nothing does."""
        registry = CollectorRegistry() if registry is None else registry
        gauge = functools.partial(Gauge, registry=registry)
        self._of_rules: list[Numbers] = []

        def of_rules(family: _Family, name: str, documentation: str, *labels: str) -> Numbers:
            values = Numbers()
            self._of_rules.append(values)
            registry.register(LiveFamily(name, documentation, ("rule", *labels), lambda: values, family=family))
            return values

        live, counter = functools.partial(of_rules, GaugeMetricFamily), functools.partial(of_rules, CounterMetricFamily)
        self.series = live("milliscale_adapter_rule_series", "Names of series found by a rule's last list.")
        self.metrics = live("milliscale_adapter_rule_metrics", "Metrics made by a rule's last list.")
        self.relisted = live(
            "milliscale_adapter_rule_last_relist_timestamp_seconds", "When a rule was last listed with success."
        )
        self.relist_errors = counter("milliscale_adapter_rule_relist_errors", "Lists of a rule's series that failed.")
        self.query_errors = counter("milliscale_adapter_rule_query_errors", "Queries of a rule that failed.")
        self.left_out = counter(
            "milliscale_adapter_samples_left_out", "Samples that no quantity in milli-units can hold, by rule."
        )
        self.requests = counter(
            "milliscale_adapter_rule_requests",
            "Requests that a rule's coalesced query can serve, by what served them: its result (merged), or a query of"
            " their own (alone).",
            "query",
        )
        self.coalesced_queries = counter(
            "milliscale_adapter_rule_merged_queries", "Coalesced queries of a rule.", "outcome"
        )
        self.reload_successful = gauge(
            "milliscale_adapter_config_last_reload_successful",
            "1 if the last read of the rules file succeeded, else 0.",
        )
        self.gone = gauge(
            "milliscale_adapter_config_last_reload_metrics_gone",
            "Metrics of an API group that the last reload removed.",
            ("group",),
        )
        self._reloaded = gauge(
            "milliscale_adapter_config_last_reload_success_timestamp_seconds",
            "When the active rules were loaded.",
        )
        self._config = gauge("milliscale_adapter_config_info", "The SHA-256 of the active rules file.", ("hash",))
        self.latency = Histogram(
            "prometheus_adapter_prometheus_client_request_duration_seconds",
            "Time of requests to Prometheus, by path and server: its name in the rules file, or default.",
            ("path", "server"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._freshness = _Ages()
        registry.register(self._freshness)
        self._paused = LiveFamily(
            "milliscale_adapter_rule_merging_paused",
            "Groups of requests that are sent alone for a while though a coalesced query could serve them, by reason:"
            " it costs more than it saves, it fails, or its result is too large for the cache.",
            ("rule", "reason"),
        )
        self._forwards = LiveFamily(
            "milliscale_adapter_forward_last_list_successful",
            "1 if the metrics of an adapter of forwardExternal could be listed the last time, else 0.",
            ("adapter",),
        )
        registry.register(self._paused)
        registry.register(self._forwards)

    def begin(
        self,
        rules: Collection[str],
        *,
        others: Collection[str] = (),
        digest: str,
        now: float,
        paused: Callable[[], Iterable[tuple[str, str]]],
        forwards: Callable[[], Iterable[tuple[str, bool]]] = tuple,
    ) -> None:
        """Start counting for the file's rules, given by their keys, and remove the metrics of all but `others`.

        `others` are the keys of rules in objects, which can be many: they are counted from their first failure.
        `digest` is the SHA-256 of the file, `now` in seconds since the epoch; `paused` returns the rule's key and the
        reason of each group of requests whose coalescing is paused; `forwards` the name of each adapter of
        forwardExternal, and whether its metrics could be listed the last time.
        """
        self._remove(lambda rule: rule not in rules and rule not in others)
        for counter, rule in itertools.product((self.relist_errors, self.query_errors, self.left_out), rules):
            counter.setdefault((rule,), 0)
        self._paused.values = lambda: Counts(paused())
        self._forwards.values = lambda: {(name,): int(successful) for name, successful in forwards()}
        self._config.clear()
        self._config.labels(f"sha256:{digest}").set(1)
        self.reload_successful.set(1)
        self._reloaded.set(now)

    def forget(self, rules: Iterable[str]) -> None:
        """Remove the metrics of rules that are gone."""
        gone = frozenset(rules)
        if gone:
            self._remove(lambda rule: rule in gone)

    def _remove(self, is_gone: Callable[[str], bool]) -> None:
        for values in self._of_rules:
            for labels in [labels for labels in values if is_gone(labels[0])]:
                del values[labels]

    def queried(self, server: str, path: str, seconds: float) -> None:
        """Observe a request to a Prometheus."""
        self.latency.labels(path, server).observe(seconds)

    def server_gone(self, server: str) -> None:
        """Remove a Prometheus that no rule names any more."""
        for path in ("/api/v1/query", "/api/v1/query_range", "/api/v1/series"):
            with contextlib.suppress(KeyError):
                self.latency.remove(path, server)

    def observe_freshness(self, group: str, ages: Sequence[float]) -> None:
        """Observe the ages of the values in a response, in seconds; most often they are the same."""
        if ages and ages.count(ages[0]) == len(ages):
            self._freshness.add(group, ages[0], len(ages))
            return
        for age, count in Counts(ages).items():
            self._freshness.add(group, age, count)


class LiveFamily(Collector):
    """A metric, by default a gauge, whose values are read at each scrape."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        values: _Values = dict,
        *,
        family: _Family = GaugeMetricFamily,
    ) -> None:
        self._new = functools.partial(family, name, documentation, labels=labels)
        self.values = values

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return the metric."""
        family = self._new()
        for labels, value in sorted(self.values().items()):
            family.add_metric(labels, value)
        yield family


def rule_object_counts(counts: _Values) -> Collector:
    """Return the gauge of objects by kind and state."""
    return LiveFamily(
        "milliscale_adapter_rule_objects",
        "Objects that have rules, by kind and state: Ready, or why their metrics are not served.",
        ("kind", "state"),
        counts,
    )


def condition_counts(counts: _Values) -> Collector:
    """Return the gauge of objects by kind and the reason of their condition."""
    return LiveFamily(
        "milliscale_adapter_rule_object_conditions",
        "MetricRules and ClusterMetricRules by the reason of their condition Ready, from the replica that writes it.",
        ("kind", "reason"),
        counts,
    )


class _Ages(Collector):
    """A histogram to which many values of one age are added at once, as in a list of thousands of pods."""

    def __init__(self) -> None:
        self._by_group = defaultdict[str, _Histogram](lambda: _Histogram(_FRESHNESS_BUCKETS))

    def add(self, group: str, age: float, count: int) -> None:
        """Add values of an age in seconds."""
        self._by_group[group].add(max(age, 0.0), count)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Return the histogram, with a series for each group."""
        family = HistogramMetricFamily(
            "metrics_apiserver_metric_freshness_seconds",
            "Age of the values in responses, by API group.",
            labels=("group",),
        )
        for group, ages in self._by_group.items():
            ages.add_to(family, (group,))
        yield family
