"""The adapter's own metrics, under the names that Kubernetes API servers give theirs, so that dashboards fit.

A label's values must be few, whatever clients send: a resource is named only if it has metrics, and verbs beyond
Kubernetes' own count as one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from adapter.content.encoding import Encoded
from adapter.security.request_info import RequestInfo

_LABELS = ("verb", "group", "version", "resource")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})


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
        # The children of both by what they are labelled with, so that no request looks up labels.
        self._children: dict[tuple[str, str, str, str, int], tuple[Counter, Histogram]] = {}
        self.loop_lag = Histogram(
            "milliscale_adapter_event_loop_lag_seconds",
            "How late the event loop was, looked at every 20 milliseconds.",
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests", "Requests being answered now.", registry=self.registry
        )

    def observe(self, info: RequestInfo, knows: Callable[[str, str], bool], *, code: int, seconds: float) -> None:
        """Count a request. `knows` tells whether a resource, by group and name, has metrics."""
        key = (info.verb, info.group, info.version, info.resource, code)
        children = self._children.get(key)
        if children is None:
            if info.is_resource and not knows(info.group, info.resource):
                children = self._labelled(info.verb, "", "", "unknown", code)
            else:
                children = self._children[key] = self._labelled(*key)
        children[0].inc()
        children[1].observe(seconds)

    def observe_unparsed(self, method: str, *, code: int, seconds: float) -> None:
        """Count a request that could not be parsed."""
        self.observe(RequestInfo(verb=method.lower(), path=""), lambda *_: False, code=code, seconds=seconds)

    def keep(self, knows: Callable[[str, str], bool]) -> None:
        """Drop the series of resources that have no metrics any more."""
        for key in [key for key in self._children if key[1] and not knows(key[1], key[3])]:
            del self._children[key]
            *labels, code = key
            labels[0] = _verb(labels[0])
            with contextlib.suppress(KeyError):
                self._requests.remove(*labels, str(code))
            with contextlib.suppress(KeyError):
                self._seconds.remove(*labels)

    def _labelled(self, verb: str, group: str, version: str, resource: str, code: int) -> tuple[Counter, Histogram]:
        labels = (_verb(verb), group, version, resource)
        return self._requests.labels(*labels, str(code)), self._seconds.labels(*labels)

    def count_in_flight(self, count: Callable[[], int]) -> None:
        """Read the number of requests in flight from `count`, at each scrape."""
        self._in_flight.set_function(count)

    def exposition(self) -> Encoded:
        """Return /metrics: the registry as text."""
        return Encoded(generate_latest(self.registry), CONTENT_TYPE_LATEST)


def _verb(verb: str) -> str:
    return verb.upper() if verb in _VERBS else "other"
