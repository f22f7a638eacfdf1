"""The adapter's own metrics, with the names of Kubernetes API servers' metrics, so that dashboards work unchanged.

The cardinality of labels must not depend on clients: only resources with metrics are named, and all verbs that
Kubernetes does not know share one value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.content.encoding import Encoded
from kube.aio.pace import in_slices
from kube.process.runtime import LOOP_LAG_BUCKETS
from kube.security.request_info import RequestInfo

_LABELS = ("verb", "group", "version", "resource")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})

_Labels = tuple[str, str, str, str]
_Knows = Callable[[str, str, str], bool]
"""Whether a resource, by group, version and name, has metrics; see adapter.serving.discovery.Discovery.knows."""


class _Requests:
    """The requests with the same labels: how many by status, and how long they took."""

    __slots__ = ("by_bucket", "by_code", "seconds")

    def __init__(self) -> None:
        self.by_code: dict[int, int] = {}
        self.by_bucket = [0] * (len(_BUCKETS) + 1)
        self.seconds = 0.0


class Telemetry(Collector):
    """The adapter's metrics, in a separate registry, so that imported libraries do not add to it.

    Requests are not counted with prometheus_client's classes: their locks, which a single thread does not need, take
    longer than authorizing a request from the cache.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
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
        requests.by_bucket[bisect_left(_BUCKETS, seconds)] += 1
        requests.seconds += seconds

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
            bounds = (*map(str, _BUCKETS), "+Inf")
            cumulative = [sum(requests.by_bucket[: index + 1]) for index in range(len(bounds))]
            duration.add_metric(labels, list(zip(bounds, cumulative, strict=True)), sum_value=requests.seconds)
        return total, duration

    def count_in_flight(self, count: Callable[[], int]) -> None:
        """Read the number of requests in flight from `count`, at each scrape."""
        self._in_flight.set_function(count)

    async def exposition(self) -> Encoded:
        """Return /metrics: the registry as text.

        A few hundred rules have thousands of samples, so requests are served between one family and the next. A thread
        would compete with those that compute, and both with the event loop: it has waited for seconds.
        """
        texts = []
        async for family in in_slices(self.registry.collect()):
            registry = CollectorRegistry()
            registry.register(_Collected(family))
            texts.append(generate_latest(registry))
        return Encoded(b"".join(texts), CONTENT_TYPE_LATEST)


class _Collected(Collector):
    """A family of metrics that was collected before."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return [self._family]
