"""The autoscaler's own metrics, under the names that kube-controller-manager gives to its HPA controller's.

Dashboards and alerts made for that controller work here unchanged. The registry is an object and not the library's
global one, so that two controllers in one process (tests) do not share counters.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

if TYPE_CHECKING:
    from autoscaler.model import HPAKey

__all__ = ["CONTENT_TYPE", "Action", "ErrorKind", "Telemetry"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What `Telemetry.render` is, for an HTTP header."""

_PREFIX = "horizontal_pod_autoscaler_controller"
# 1 ms doubled up to 16 s: kube-controller-manager's buckets.
_BUCKETS = tuple(0.001 * 2**exponent for exponent in range(15))


class Action(StrEnum):
    """Which way a reconciliation, or one metric's proposal, moves the target."""

    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    NONE = "none"

    @classmethod
    def of(cls, *, current: int, desired: int) -> Action:
        """The way from the current to the desired number of replicas."""
        if desired > current:
            return cls.SCALE_UP
        return cls.SCALE_DOWN if desired < current else cls.NONE


class ErrorKind(StrEnum):
    """Whose fault an error is: the HPA's spec, or anything else."""

    SPEC = "spec"
    INTERNAL = "internal"
    NONE = "none"


class Telemetry:
    """Counters, gauges and histograms of one controller."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._reconciliations = Counter(
            f"{_PREFIX}_reconciliations_total",
            "Number of reconciliations of HPAs, by the way they moved the target and whose fault an error was.",
            ["action", "error"],
            registry=self._registry,
        )
        self._reconciliation_seconds = Histogram(
            f"{_PREFIX}_reconciliation_duration_seconds",
            "Seconds that a reconciliation of an HPA took.",
            ["action", "error"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._computations = Counter(
            f"{_PREFIX}_metric_computation_total",
            "Number of evaluations of a metric, by the way it proposed to move the target.",
            ["action", "error", "metric_type"],
            registry=self._registry,
        )
        self._computation_seconds = Histogram(
            f"{_PREFIX}_metric_computation_duration_seconds",
            "Seconds that the evaluation of a metric took, mostly to fetch it.",
            ["action", "error", "metric_type"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._autoscalers = Gauge(
            f"{_PREFIX}_num_horizontal_pod_autoscalers",
            "Number of HPAs that this controller looks after.",
            registry=self._registry,
        )
        self._desired = Gauge(
            f"{_PREFIX}_desired_replicas",
            "Replicas that an HPA wants for its target.",
            ["namespace", "hpa_name"],
            registry=self._registry,
        )

    def reconciled(self, action: Action, error: ErrorKind, *, seconds: float) -> None:
        """One reconciliation has ended."""
        self._reconciliations.labels(action, error).inc()
        self._reconciliation_seconds.labels(action, error).observe(seconds)

    def computed(self, metric_type: str, action: Action, error: ErrorKind, *, seconds: float) -> None:
        """One metric of an HPA has been evaluated; `metric_type` is "Pods", "External" and so on."""
        self._computations.labels(action, error, metric_type).inc()
        self._computation_seconds.labels(action, error, metric_type).observe(seconds)

    def autoscalers(self, number: int) -> None:
        """So many HPAs are known."""
        self._autoscalers.set(number)

    def desired_replicas(self, key: HPAKey, replicas: int) -> None:
        """An HPA wants so many replicas."""
        self._desired.labels(key.namespace, key.qualified_name).set(replicas)

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone, and its series with it."""
        self._desired.remove(key.namespace, key.qualified_name)

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)
