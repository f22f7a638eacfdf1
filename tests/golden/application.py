"""The measured application: its series, as they were when the responses were recorded.

Gauges are constant. Counters grow at a known rate (n * 100 + p a second for the pod pod-n-p, in two halves, one for
each port); they are loaded some minutes into the future, so that Prometheus can tell every rate at once and goes on
doing so while the cases are sent, without anything that must be scraped first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from playground.prometheus import Series, openmetrics

NAMESPACES: Final = 20
"""Namespaces ns-1, ns-2 and so on."""

PODS: Final = 20
"""Pods in each of them: pod-N-0, pod-N-1 and so on."""

BIG_PODS: Final = 1000
"""Pods of the namespace `big`: big-0, big-1 and so on."""

_TARGET: Final = {"instance": "127.0.0.1:17011", "job": "app"}

# Values that are hard to write as a quantity, by pod of ns-1.
_EDGES: Final = (
    *(0.0, 1.0, 0.5, 1.5, 1e6, 1234567.8915, float("nan"), float("inf"), float("-inf"), -2.25),
    *(0.0001, 1e16, 1e17, 1e25, 1024.0, 0.9999, 9223372036854775.0, -0.0005, 2048000.0, 100000.0),
)

_PAST: Final = 3600.0  # seconds for which the application has been running
_BEFORE: Final = 300.0
_AFTER: Final = 1200.0
_COUNTER_STEP: Final = 20.0  # three to a minute, over which the rules take their rates
_GAUGE_STEP: Final = 120.0  # Prometheus looks back five minutes


@dataclass(frozen=True, slots=True)
class Gauge:
    """A series that does not change."""

    name: str
    labels: Mapping[str, str]
    value: float


def _gauges() -> Iterator[Gauge]:
    def gauge(name: str, value: float, **labels: str) -> Gauge:
        return Gauge(name, {**labels, **_TARGET}, value)

    for pod, value in enumerate(_EDGES):
        yield gauge("edge_value", value, namespace="ns-1", pod=f"pod-1-{pod}")
    for n in range(1, NAMESPACES + 1):
        for pod in range(PODS):
            for verb, more in (("GET", 0), ("POST", 100)):
                yield gauge("conn_open", n * 10 + pod + more, namespace=f"ns-{n}", pod=f"pod-{n}-{pod}", verb=verb)
    for pod in range(BIG_PODS):
        yield gauge("conn_open", pod, namespace="big", pod=f"big-{pod}", verb="GET")
    for verb, value in (("GET", 3), ("POST", 5)):
        for pod in range(3):
            yield gauge("conn_raw", value + 10 * pod, namespace="ns-1", pod=f"pod-1-{pod}", verb=verb)
    for pod in range(3):
        yield gauge("nolabel", pod, namespace="ns-1", pod=f"pod-1-{pod}")
    for pod in range(3):
        yield gauge("ns:conn:sum", pod + 40, namespace="ns-1", pod=f"pod-1-{pod}")
    yield gauge("dep_lag", 4.5, namespace="ns-1", deployment="web")
    yield gauge("dep_lag", 8, namespace="ns-1", deployment="api")
    for node in (1, 2, 3):
        yield gauge("node_load", node + 0.25, node=f"node-{node}")
    for n in range(1, NAMESPACES + 1):
        for queue, tier in enumerate(("gold", "silver", "gold", "silver")):
            yield gauge("queue_depth", n * 1000 + queue, namespace=f"ns-{n}", queue=f"q{queue}", tier=tier)
    yield gauge("global_backlog", 12.5, region="eu")
    yield gauge("global_backlog", 7, region="us")


def _rates() -> Iterator[tuple[Mapping[str, str], float]]:
    """The labels and rates of http_packets_total, the only counter."""

    def labels(namespace: str, pod: str, service: str, port: int = 80) -> Mapping[str, str]:
        return {"namespace": namespace, "pod": pod, "service": service, "port": str(port), **_TARGET}

    for n in range(1, NAMESPACES + 1):
        for pod in range(PODS):
            for port in (80, 443):
                yield labels(f"ns-{n}", f"pod-{n}-{pod}", f"svc-{n}", port), (n * 100 + pod) / 2
    for pod in range(BIG_PODS):
        yield labels("big", f"big-{pod}", "svc-big"), 1 + pod
    # A pod that Kubernetes does not know, and one in a namespace that it does not know.
    yield labels("ns-1", "ghost", "svc-1"), 7
    yield labels("ns-ghost", "pod-x", "svc-x"), 9


GAUGES: Final = tuple(_gauges())
"""Every series that does not change."""


def samples(now: float) -> str:
    """All series around `now` (seconds since the epoch), as OpenMetrics text."""
    start, end = now - _BEFORE, now + _AFTER
    return openmetrics(
        [
            *(
                Series(
                    "http_packets_total",
                    labels,
                    [(time, rate * (time - now + _PAST)) for time in _times(start, end, _COUNTER_STEP)],
                )
                for labels, rate in _rates()
            ),
            *(
                Series(gauge.name, gauge.labels, [(time, gauge.value) for time in _times(start, end, _GAUGE_STEP)])
                for gauge in GAUGES
            ),
        ]
    )


def _times(start: float, end: float, step: float) -> list[float]:
    return [start + step * number for number in range(int((end - start) / step) + 1)]
