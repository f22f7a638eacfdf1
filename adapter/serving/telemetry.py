"""The adapter's own metrics, under the names that Kubernetes API servers give theirs, so that dashboards fit.

A label's values must be few, whatever strangers send: a resource is named only where the catalog knows it, and verbs
beyond Kubernetes' own count as one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from adapter.content.encoding import Encoded

_LABELS = ("verb", "group", "version", "resource")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})


class RequestLabels(msgspec.Struct, frozen=True):
    """What one request is counted under; `resource` is bounded by whoever fills it in."""

    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""

    def values(self) -> tuple[str, ...]:
        """The label values in order."""
        verb = self.verb.upper() if self.verb in _VERBS else "other"
        return (verb, self.group, self.version, self.resource)


class Telemetry:
    """A registry of its own, so that nothing else in the process adds to it by being imported."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "apiserver_request_total",
            "Requests answered, by verb, group, version, resource and HTTP status.",
            (*_LABELS, "code"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "apiserver_request_duration_seconds",
            "Time from a request's head to its answer.",
            _LABELS,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        # What has been counted before, so that labels are not looked up anew for each request.
        self._series: dict[tuple[RequestLabels, int], tuple[Counter, Histogram]] = {}
        self.loop_lag = Histogram(
            "milliscale_adapter_event_loop_lag_seconds",
            "How late the event loop was, looked at every 20 milliseconds.",
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests", "Requests being answered now.", registry=self.registry
        )

    def observe(self, labels: RequestLabels, *, code: int, seconds: float) -> None:
        """Count a request that has been answered."""
        series = self._series.get((labels, code))
        if series is None:
            values = labels.values()
            series = self._requests.labels(*values, str(code)), self._seconds.labels(*values)
            self._series[labels, code] = series
        counter, histogram = series
        counter.inc()
        histogram.observe(seconds)

    def keep(self, knows: Callable[[str, str], bool]) -> None:
        """Drop what was counted for resources that are not known any more, by group and name."""
        gone = [key for key in self._series if key[0].group and not knows(key[0].group, key[0].resource)]
        for labels, code in gone:
            del self._series[labels, code]
            values = labels.values()
            with contextlib.suppress(KeyError):
                self._requests.remove(*values, str(code))
            with contextlib.suppress(KeyError):
                self._seconds.remove(*values)

    def count_in_flight(self, count: Callable[[], int]) -> None:
        """`count` tells how many requests are being answered, whenever that is looked at."""
        self._in_flight.set_function(count)

    def exposition(self) -> Encoded:
        """/metrics: the registry as text."""
        return Encoded(generate_latest(self.registry), CONTENT_TYPE_LATEST)
