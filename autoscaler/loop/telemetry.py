"""The autoscaler's own metrics, under the names that kube-controller-manager gives to its HPA controller's.

Dashboards and alerts for that controller work here unchanged. Metrics without a counterpart there (decisions by reason,
lag, failed requests, comparisons in shadow mode) have names of the same kind. The registry is an object and not the
library's global one, so that two controllers in one process (tests) do not share counters. Labels have
kube-controller-manager's values, so the numbers can be compared.

Upstream: podautoscaler/monitor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscaler.core.decision import Decision
from autoscaler.core.model import HPAKey, InvalidMetric
from autoscaler.core.preconditions import api_version_error
from autoscaler.core.status import INVALID_SPEC
from autoscaler.records.shadow import Comparison, Verdict
from kube.api.client import KubeClient
from kube.api.retries import RetryMetrics
from kube.process.runtime import LOOP_LAG_BUCKETS

_PREFIX = "horizontal_pod_autoscaler_controller"
# 1 ms doubled up to 16 s: kube-controller-manager's buckets.
_BUCKETS = tuple(0.001 * 2**exponent for exponent in range(15))
_SHADOW_LAG_BUCKETS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)
# The reason of the condition AbleToScale.
_SCALE_NOT_WRITTEN = "FailedUpdateScale"


class Action(StrEnum):
    """The direction in which a reconciliation, or the proposal of one metric, moves the target."""

    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    NONE = "none"

    @classmethod
    def of(cls, *, current: int, desired: int) -> Action:
        """The direction from the current to the desired number of replicas."""
        if desired > current:
            return cls.SCALE_UP
        return cls.SCALE_DOWN if desired < current else cls.NONE


class ErrorKind(StrEnum):
    """The cause of an error: the HPA's spec, or anything else."""

    SPEC = "spec"
    INTERNAL = "internal"
    NONE = "none"


class _LastDecisions(Collector):
    """Two gauges for each HPA; the library's gauge takes a kilobyte per HPA."""

    def __init__(self) -> None:
        self.replicas: dict[HPAKey, int] = {}
        self.reasons: dict[HPAKey, str] = {}

    def remove(self, key: HPAKey) -> None:
        """Remove the gauges of an HPA."""
        self.replicas.pop(key, None)
        self.reasons.pop(key, None)

    def clear(self) -> None:
        """Remove the gauges of all HPAs."""
        self.replicas.clear()
        self.reasons.clear()

    def collect(self) -> Iterable[Metric]:
        """The gauges with their current values. May run in a thread, so it iterates over copies."""
        replicas = GaugeMetricFamily(
            f"{_PREFIX}_desired_replicas",
            "Replicas that an HPA wants for its target.",
            labels=["namespace", "hpa_name"],
        )
        for key, value in list(self.replicas.items()):
            replicas.add_metric([key.namespace, key.qualified_name], value)
        reasons = GaugeMetricFamily(
            f"{_PREFIX}_last_decision_info",
            "1, with the reason of the last decision on an HPA: what had the last word on the replica count, "
            "or why the decision failed.",
            labels=["namespace", "hpa_name", "reason"],
        )
        for key, reason in list(self.reasons.items()):
            reasons.add_metric([key.namespace, key.qualified_name, reason], 1)
        return [replicas, reasons]


class Telemetry:
    """Counters, gauges and histograms of one controller."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = self._registry = CollectorRegistry() if registry is None else registry
        ProcessCollector(registry=registry)

        def counter(name: str, help_: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"{_PREFIX}_{name}", help_, labels, registry=registry)

        def gauge(name: str, help_: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", help_, labels, registry=registry)

        def seconds(
            name: str, help_: str, labels: Sequence[str] = (), buckets: Sequence[float] = _BUCKETS
        ) -> Histogram:
            return Histogram(f"{_PREFIX}_{name}_seconds", help_, labels, buckets=buckets, registry=registry)

        self._reconciliations = counter(
            "reconciliations_total",
            "Number of reconciliations of HPAs, by the direction of the scale and the cause of an error.",
            ["action", "error"],
        )
        self._reconciliation_seconds = seconds(
            "reconciliation_duration", "Seconds that a reconciliation of an HPA took.", ["action", "error"]
        )
        self._computations = counter(
            "metric_computation_total",
            "Number of evaluations of a metric, by the direction of its proposal.",
            ["action", "error", "metric_type"],
        )
        self._computation_seconds = seconds(
            "metric_computation_duration",
            "Seconds that the evaluation of a metric took, mostly to fetch it.",
            ["action", "error", "metric_type"],
        )
        self._last = _LastDecisions()
        registry.register(self._last)
        self._is_leader = Gauge(
            "leader_election_master_status",
            "Whether this process holds the Lease of this name and acts: 1, or waits for it: 0.",
            ["name"],
            registry=registry,
        )
        self.hpas = gauge("num_horizontal_pod_autoscalers", "Number of HPAs that this controller reconciles.")
        self.unreadable_hpas = gauge(
            "unreadable_horizontal_pod_autoscalers",
            "Number of HPAs that cannot be read, because they are too large or nested too deeply; the log names them.",
        )
        self.waiting_for_shards = gauge(
            "waiting_for_shards",
            "1 while this process waits for a process with another number of shards to stop acting; else 0.",
        )

        self._decisions = counter(
            "decisions_total",
            "Number of decisions, by the direction of the scale and what had the last word on the replica count.",
            ["action", "reason"],
        )
        self.schedule_lag = seconds(
            "schedule_lag", "Seconds by which a reconciliation of an HPA started later than it was due."
        )
        self._eager_evaluations = counter(
            "eager_evaluations_total",
            "Number of evaluations of eager HPAs between their syncs, by result: none, failed, or scale_up: the HPA "
            "is reconciled at once.",
            ["result"],
        )
        self.loop_lag = seconds(
            "event_loop_lag", "How late the event loop was, measured every 20 milliseconds.", buckets=LOOP_LAG_BUCKETS
        )
        self._watch_stale = gauge(
            "watch_stale",
            "1 while the watch on a resource is silent or fails, so that objects may be out of date; else 0.",
            ["resource"],
        )
        self._api_errors = counter(
            "api_errors_total",
            "Number of requests to the API server that failed, by API group and HTTP status code; "
            'the core group is "core", a request without a response has the code "<error>".',
            ["group", "code"],
        )
        self.foreign_status_writes = counter(
            "foreign_status_writes_total",
            "Number of status writes by other controllers to HPAs that this controller should act on.",
        )
        self.foreign_hpas = gauge(
            "foreign_controlled_hpas",
            "Number of HPAs that this controller does not act on, as another controller writes their status.",
        )
        self.audit_records_lost = counter(
            "audit_records_lost_total", "Number of decisions that could not be written to the file of --audit-log."
        )
        self._shadow_comparisons = counter(
            "shadow_comparisons_total",
            "Number of decisions in shadow mode, by how they compare with the built-in controller's.",
            ["namespace", "hpa_name", "verdict"],
        )
        self._shadow_difference = gauge(
            "shadow_difference_replicas",
            "Desired replicas of the last decision in shadow mode, minus those of the built-in controller.",
            ["namespace", "hpa_name"],
        )
        self._shadow_lag = seconds(
            "shadow_lag",
            "Seconds between a decision in shadow mode and the built-in controller's equal one, whichever was first.",
            buckets=_SHADOW_LAG_BUCKETS,
        )

    def leader_changed(self, lease: str, *, is_leader: bool) -> None:
        """Record that this process acquired or lost a Lease; without it, no decisions are exposed."""
        self._is_leader.labels(lease).set(is_leader)
        if not is_leader:
            self._last.clear()

    def watched(self, resource: str, stale: Callable[[], bool]) -> None:
        """Expose whether the watch on a resource is stale, read at each scrape."""
        self._watch_stale.labels(resource).set_function(lambda: float(stale()))

    def decided(self, decision: Decision, *, metric_seconds: Sequence[float], seconds: float) -> None:
        """Count one reconciliation, with each of its metrics.

        Upstream: podautoscaler.reconcileAutoscaler, podautoscaler.computeReplicasForMetric.

        Args:
            decision: the concluded decision.
            metric_seconds: how long each metric took, in the order of `decision.evaluations`; may be empty.
            seconds: how long the whole took.
        """
        hpa, current = decision.observation.hpa, decision.current_replicas or 0
        for index, evaluation in enumerate(decision.evaluations):
            action, error = Action.NONE, ErrorKind.NONE
            if evaluation.proposal is not None:
                # Relative to the replicas in the stored status, not to those of the scale.
                action = Action.of(current=hpa.status.current_replicas, desired=evaluation.proposal.replicas)
            if evaluation.failure is not None:
                is_invalid = isinstance(evaluation.spec.source, InvalidMetric)
                error = ErrorKind.SPEC if is_invalid else ErrorKind.INTERNAL
            labels = (action, error, evaluation.spec.type)
            self._computations.labels(*labels).inc()
            self._computation_seconds.labels(*labels).observe(metric_seconds[index] if metric_seconds else 0.0)
        scale_to = current if decision.scale_to is None else decision.scale_to
        self._decisions.labels(Action.of(current=current, desired=scale_to), decision.reason).inc()
        error = ErrorKind.NONE
        if decision.error is not None:
            # The only error of the spec is an invalid apiVersion; invalid metrics are internal errors.
            error = ErrorKind.INTERNAL if api_version_error(hpa) is None else ErrorKind.SPEC
        # If the scale could not be written, the action is `none`.
        desired = current if decision.scale_error is not None else scale_to
        self.reconciled(Action.of(current=current, desired=desired), error, seconds=seconds)
        self._last.reasons[hpa.key] = decision.reason if decision.scale_error is None else _SCALE_NOT_WRITTEN
        if not decision.failed and decision.scale_error is None:
            self._last.replicas[hpa.key] = desired

    def eagerly_evaluated(self, result: str) -> None:
        """Count one evaluation of an eager HPA between its syncs."""
        self._eager_evaluations.labels(result).inc()

    def refused(self, key: HPAKey, *, seconds: float) -> None:
        """Count one reconciliation of an HPA that is invalid."""
        self._last.reasons[key] = INVALID_SPEC
        self.reconciled(Action.NONE, ErrorKind.SPEC, seconds=seconds)

    def reconciled(self, action: Action, error: ErrorKind, *, seconds: float) -> None:
        """Count one reconciliation."""
        self._reconciliations.labels(action, error).inc()
        self._reconciliation_seconds.labels(action, error).observe(seconds)

    def request_failed(self, group: str, code: int | None) -> None:
        """Count one failed request to an API group; `code` is the HTTP status code, None without a response."""
        self._api_errors.labels(group or "core", "<error>" if code is None else str(code)).inc()

    def compared(self, key: HPAKey, comparison: Comparison) -> None:
        """Count one comparison in shadow mode."""
        labels = (key.namespace, key.qualified_name)
        self._shadow_comparisons.labels(*labels, comparison.verdict).inc()
        self._shadow_difference.labels(*labels).set(comparison.difference)
        if comparison.verdict == Verdict.AGREED:
            self._shadow_lag.observe(abs(comparison.lag_seconds))

    def no_longer_compared(self, key: HPAKey) -> None:
        """Remove the series of an HPA that has left shadow mode."""
        self._shadow_difference.remove(key.namespace, key.qualified_name)
        for verdict in Verdict:
            self._shadow_comparisons.remove(key.namespace, key.qualified_name, verdict)

    def forget(self, key: HPAKey) -> None:
        """Remove the series of an HPA that was deleted."""
        self._last.remove(key)
        self.no_longer_compared(key)

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of all metrics."""
        return self._registry

    def register_client(self, client: KubeClient) -> None:
        """Show the counters of a client."""
        self._registry.register(RetryMetrics([(client.host, client.retries)]))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
