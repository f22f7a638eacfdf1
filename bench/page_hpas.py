"""HPAs for measuring pages, whose status changes as if they were reconciled every 15 s. No API server is involved."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec.structs import replace

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPAKey, MetricSpec, MetricTarget
from autoscaler.core.quantities import canonical_quantity
from autoscaler.objects.hpa import track_hpa
from autoscaler.records.decision_log import DecisionLog
from autoscaler.ui.sources import Sources

_NAMESPACES: Final = 50
_TICK_SECONDS: Final = 0.05
# So that all states have HPAs.
_SCALES_EACH, _LIMITED_EACH, _FAILING_EACH, _PAUSED_EACH = 40, 23, 97, 211


class ChangingHPAs:
    """A number of HPAs; `run` changes their statuses in turn."""

    def __init__(self, count: int) -> None:
        hpas = filter(None, (track_hpa(_object(number)) for number in range(count)))
        # In the order of a list of the API server.
        self._hpas = {hpa.key: hpa for hpa in sorted(hpas, key=lambda hpa: (hpa.namespace, hpa.name))}
        self._changed = 0

    def sources(self) -> Sources:
        """Return what pages read."""
        return Sources(
            hpas=lambda: list(self._hpas.values()),
            hpa=self._hpas.get,
            mode_of=lambda hpa: hpa.overrides.mode or Mode.ACT,
            is_foreign=lambda _: False,
            owns=lambda _: True,
            is_leader=lambda: True,
            decisions=DecisionLog(0),
            version=lambda: self._changed,
            config=Config(),
            sync_period=15.0,
            what_if=_unused,
            explain_metric=_unused,
        )

    async def run(self, changes_per_second: float) -> None:
        """Change statuses at an even rate, until cancelled."""
        keys, loop = list(self._hpas), asyncio.get_running_loop()
        started, done = loop.time(), 0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            while done < (loop.time() - started) * changes_per_second:
                self._change(keys[done % len(keys)], done)
                done += 1

    def _change(self, key: HPAKey, number: int) -> None:
        hpa = self._hpas[key]
        status = hpa.status
        replicas = status.desired_replicas
        desired = 2 + number % 7 if number % _SCALES_EACH == 0 else replicas
        metrics = tuple(_measured(metric, number) for metric in hpa.spec.metrics)
        status = replace(status, current_replicas=replicas, desired_replicas=desired, current_metrics=metrics)
        self._hpas[key] = replace(hpa, status=status)
        self._changed += 1


def _measured(metric: MetricSpec, number: int) -> MetricSpec:
    percent = 60 + number % 61
    if metric.resource is not None:
        return metric.with_target(MetricTarget(average_utilization=percent))
    return metric.with_target(MetricTarget(average_value=canonical_quantity(f"{percent * 1000 + number % 997}m")))


def _object(number: int) -> dict[str, Any]:
    """Return an HPA as an API server has it; the first have one metric, the last three."""
    since = "2026-01-01T00:00:00Z"
    failing, limited = number % _FAILING_EACH == 0, number % _LIMITED_EACH == 0
    conditions = [
        ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
        ("ScalingActive", "True", "ValidMetricFound", "the HPA was able to successfully calculate a replica count"),
        ("ScalingLimited", "False", "DesiredWithinRange", "the desired count is within the acceptable range"),
    ]
    if failing:
        message = "the HPA was unable to compute the replica count: no metrics returned from custom metrics API"
        conditions[1] = ("ScalingActive", "False", "FailedGetPodsMetric", message)
    if limited:
        message = "the desired replica count is more than the maximum replica count"
        conditions[2] = ("ScalingLimited", "True", "TooManyReplicas", message)
    utilization = {"type": "Utilization", "averageUtilization": 80}
    average = {"type": "AverageValue", "averageValue": "100"}
    metrics: list[dict[str, Any]] = [
        {"type": "Pods", "pods": {"metric": {"name": "http_requests_per_second"}, "target": average}},
        {"type": "Resource", "resource": {"name": "cpu", "target": utilization}},
        {"type": "External", "external": {"metric": {"name": "queue_messages"}, "target": average}},
    ]
    replicas = 10 if limited else 2 + number % 7
    paused = {"milliscale.io/paused": "scale-in"} if number % _PAUSED_EACH == 0 else {}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": f"app-{number:05}",
            "namespace": f"bench-{number % _NAMESPACES:03}",
            "annotations": paused,
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"app-{number:05}"},
            "minReplicas": 2,
            "maxReplicas": 10,
            "metrics": metrics[: 1 + number % len(metrics)],
        },
        "status": {
            "currentReplicas": replicas,
            "desiredReplicas": replicas,
            "lastScaleTime": since,
            "conditions": [
                {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
                for type_, status, reason, message in conditions
            ],
        },
    }


async def _unused(*_: object, **__: object) -> Any:
    raise NotImplementedError
