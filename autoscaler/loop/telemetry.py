"""The autoscaler's own metrics, under the names that kube-controller-manager gives to its HPA controller's.

Dashboards and alerts made for that controller work here unchanged. What it does not count (decisions by reason,
lateness, failed requests, shadow mode's comparisons) has names of the same kind. The registry is an object and not the
library's global one, so that two controllers in one process (tests) do not share counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscaler.core.model import HPAKey
from autoscaler.records.shadow import Comparison, Verdict
from kube.client import KubeClient
from kube.client_metrics import ClientMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What `Telemetry.render` is, for an HTTP header."""

_PREFIX = "horizontal_pod_autoscaler_controller"
# 1 ms doubled up to 16 s: kube-controller-manager's buckets.
_BUCKETS = tuple(0.001 * 2**exponent for exponent in range(15))
_LAG_BUCKETS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)


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


class _DesiredReplicas(Collector):
    """A gauge for each HPA. The library's own takes a kilobyte for each, and an HPA's wish is but a number."""

    def __init__(self) -> None:
        self.replicas: dict[HPAKey, int] = {}

    def collect(self) -> Iterable[Metric]:
        """The gauge, with all that is known now."""
        family = GaugeMetricFamily(
            f"{_PREFIX}_desired_replicas",
            "Replicas that an HPA wants for its target.",
            labels=["namespace", "hpa_name"],
        )
        for key, replicas in self.replicas.items():
            family.add_metric([key.namespace, key.qualified_name], replicas)
        return [family]


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
        self._leads = Gauge(
            "leader_election_master_status",
            "Whether this process holds the Lease of this name and acts: 1, or waits for it: 0.",
            ["name"],
            registry=self._registry,
        )
        self._waits_for_shards = Gauge(
            f"{_PREFIX}_waiting_for_shards",
            "Whether this process does not act, as another one acts that has another number of shards: 1; else 0.",
            registry=self._registry,
        )
        self._desired = _DesiredReplicas()
        self._registry.register(self._desired)

        self._decisions = Counter(
            f"{_PREFIX}_decisions_total",
            "Number of decisions, by the way they wanted to move the target and what had the last word on the count.",
            ["action", "reason"],
            registry=self._registry,
        )
        self._schedule_lag = Histogram(
            f"{_PREFIX}_schedule_lag_seconds",
            "Seconds by which a reconciliation of an HPA started later than it was due.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._api_errors = Counter(
            f"{_PREFIX}_api_errors_total",
            "Number of requests to the API server that failed, by API group and HTTP status code; "
            'the core group is "core", a request without an answer has the code "<error>".',
            ["group", "code"],
            registry=self._registry,
        )
        self._superseded_statuses = Counter(
            f"{_PREFIX}_status_writes_superseded_total",
            "Number of statuses with nothing new but metric values that were not written, as --kube-api-qps left no "
            "room for them until the HPA's next reconciliation.",
            registry=self._registry,
        )
        self._rival_writes = Counter(
            f"{_PREFIX}_rival_status_writes_total",
            "Number of status writes of kube-controller-manager that were seen, on HPAs for this controller to act on.",
            registry=self._registry,
        )
        self._held = Gauge(
            f"{_PREFIX}_foreign_controlled_hpas",
            "Number of HPAs that this controller does not act on, as kube-controller-manager writes their status.",
            registry=self._registry,
        )
        self._audit_records_lost = Counter(
            f"{_PREFIX}_audit_records_lost_total",
            "Number of decisions that could not be written to the file of --audit-log.",
            registry=self._registry,
        )
        self._shadow_comparisons = Counter(
            f"{_PREFIX}_shadow_comparisons_total",
            "Number of decisions in shadow mode, by how they compare with the built-in controller's.",
            ["namespace", "hpa_name", "verdict"],
            registry=self._registry,
        )
        self._shadow_difference = Gauge(
            f"{_PREFIX}_shadow_difference_replicas",
            "Replicas that the last decision in shadow mode wanted more than the built-in controller.",
            ["namespace", "hpa_name"],
            registry=self._registry,
        )
        self._shadow_lag = Histogram(
            f"{_PREFIX}_shadow_lag_seconds",
            "Seconds between a decision in shadow mode and the built-in controller's equal one, whichever was first.",
            buckets=_LAG_BUCKETS,
            registry=self._registry,
        )

    def leads(self, lease: str, *, leading: bool) -> None:
        """Whether this process holds a Lease; shown once it has been said. Who stands by knows of no HPA's wishes."""
        self._leads.labels(lease).set(leading)
        if not leading:
            self._desired.replicas.clear()

    def waits_for_shards(self, waits: Callable[[], bool]) -> None:
        """Ask this, each time that the metrics are read, whether the process waits for others to end."""
        self._waits_for_shards.set_function(lambda: float(waits()))

    def reconciled(self, action: Action, error: ErrorKind, *, seconds: float) -> None:
        """One reconciliation has ended."""
        self._reconciliations.labels(action, error).inc()
        self._reconciliation_seconds.labels(action, error).observe(seconds)

    def computed(self, metric_type: str, action: Action, error: ErrorKind, *, seconds: float) -> None:
        """One metric of an HPA has been evaluated; `metric_type` is "Pods", "External" and so on."""
        self._computations.labels(action, error, metric_type).inc()
        self._computation_seconds.labels(action, error, metric_type).observe(seconds)

    def decided(self, action: Action, reason: str) -> None:
        """One decision was made; `reason` is one of few words (`autoscaler.core.decision`)."""
        self._decisions.labels(action, reason).inc()

    def started(self, late_seconds: float) -> None:
        """One reconciliation has started, so much later than it was due."""
        self._schedule_lag.observe(late_seconds)

    def request_failed(self, group: str, code: int | None) -> None:
        """One request to an API group failed, with an HTTP status code or without an answer."""
        self._api_errors.labels(group or "core", "<error>" if code is None else str(code)).inc()

    def status_superseded(self) -> None:
        """One status was given up for the next one."""
        self._superseded_statuses.inc()

    def audit_record_lost(self) -> None:
        """One decision is missing in the audit file; may be called on any thread."""
        self._audit_records_lost.inc()

    def rival_wrote(self) -> None:
        """Kubernetes' own controller has written the status of an HPA that this one acts on."""
        self._rival_writes.inc()

    def held(self, number: int) -> None:
        """So many HPAs are left to Kubernetes' own controller."""
        self._held.set(number)

    def compared(self, key: HPAKey, comparison: Comparison) -> None:
        """One decision in shadow mode was compared."""
        labels = (key.namespace, key.qualified_name)
        self._shadow_comparisons.labels(*labels, comparison.verdict).inc()
        self._shadow_difference.labels(*labels).set(comparison.difference)
        if comparison.verdict is Verdict.AGREED:
            self._shadow_lag.observe(abs(comparison.lag_ms) / 1000)

    def autoscalers(self, number: int) -> None:
        """So many HPAs are known."""
        self._autoscalers.set(number)

    def desired_replicas(self, key: HPAKey, replicas: int) -> None:
        """An HPA wants so many replicas."""
        self._desired.replicas[key] = replicas

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone, and its series with it."""
        self._desired.replicas.pop(key, None)
        self.no_longer_compared(key)

    def no_longer_compared(self, key: HPAKey) -> None:
        """An HPA is not in shadow mode any more."""
        self._shadow_difference.remove(key.namespace, key.qualified_name)
        for verdict in Verdict:
            self._shadow_comparisons.remove(key.namespace, key.qualified_name, verdict)

    def about_client(self, client: KubeClient) -> None:
        """Show what a client counts."""
        self._registry.register(ClientMetrics([client]))

    def collect(self) -> Iterable[Metric]:
        """Everything, as the library's own types."""
        return self._registry.collect()

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)
