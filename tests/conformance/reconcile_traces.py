"""Check reconcile_traces.jsonl: the reconciliations of one HPA, one after the other.

The observation has only what `next_read` returns, so this also checks that it returns enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import conclude, decide, status_not_stored
from autoscaler.core.decision import Decision
from autoscaler.core.history import History
from autoscaler.core.model import (
    ExternalMetric,
    MetricSource,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    Observation,
    Pod,
    PodSample,
    PodsResponse,
    PodUsage,
    ReadError,
    ResourceResponse,
    Scale,
    ValuesResponse,
)
from autoscaler.core.preconditions import FetchMetrics, ListPods, ReadScale, next_read
from autoscaler.core.status import status_json
from autoscaler.objects.decoding import time_ms
from autoscaler.objects.hpa import parse_hpa
from kube.values.selectors import LabelSelector
from tests.conformance.comparison import difference
from tests.conformance.observed import milliseconds, parse_pod

_GARBAGE = "-9223372036854775808m"
"""What Kubernetes shows for an average over no replicas; we show nothing."""


def check(case: dict[str, Any]) -> str | None:
    """Return the differences in the first reconciliation that differs; None if none does."""
    cluster = _Cluster(case)
    for index, step in enumerate(case["steps"]):
        found = difference(_expected(step), cluster.step(step))
        if found is not None:
            return f"step {index} (t={step['t']}):\n{found}"
    return None


def reconciliations(case: dict[str, Any]) -> Iterator[Decision]:
    """Reconcile a whole trace; yield the concluded decisions."""
    cluster = _Cluster(case)
    for step in case["steps"]:
        cluster.step(step)
        assert cluster.concluded is not None
        yield cluster.concluded


class _Cluster:
    """The recorded cluster of one trace, and our history."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self._start_ms = time_ms(trace["start"], "start")
        self._template = trace["podTemplate"]
        config = trace["config"]
        self._config = Config(
            tolerance=config["tolerance"],
            downscale_stabilization_ms=milliseconds(config["downscaleStabilisationWindowSeconds"]),
            cpu_initialization_period_ms=milliseconds(config["cpuInitializationPeriodSeconds"]),
            initial_readiness_delay_ms=milliseconds(config["delayOfInitialReadinessStatusSeconds"]),
            scale_to_zero=config["scaleToZeroEnabled"],
        )
        other = config.get("otherHPASelector")
        self._others = {} if other is None else {"default/web-other": LabelSelector.parse(other)}
        self._raw: dict[str, Any] = trace["hpa"]
        self._hpa = parse_hpa(self._raw)
        self._pods: list[dict[str, Any]] = []
        self._conditions: list[dict[str, Any]] | None = None
        self._history = History()
        self.concluded: Decision | None = None

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        """Reconcile once; return the form of the recorded output."""
        spec = self._hpa.spec
        spec = msgspec.structs.replace(
            spec,
            min_replicas=step.get("setMinReplicas", spec.min_replicas),
            max_replicas=step.get("setMaxReplicas", spec.max_replicas),
        )
        self._hpa = replace(self._hpa, spec=spec)
        if step["pods"] is not None:
            self._pods = step["pods"]

        observation = Observation(hpa=self._hpa, config=self._config)
        while (read := next_read(observation)) is not None:
            observation = self._observe(observation, read, step)
        now_ms = self._time(step["t"])
        decision = decide(observation, self._history, now_ms)
        outcome = conclude(decision, scale_error=step.get("scaleUpdateError"))
        new_status = outcome.new_status
        if new_status is not None and "statusUpdateError" in step:
            outcome, new_status = status_not_stored(outcome, step["statusUpdateError"]), None
        self.concluded = outcome
        self._history = outcome.next_history
        status = None
        if new_status is not None:
            stored = status_json(new_status)
            self._hpa = replace(self._hpa, status=parse_hpa({**self._raw, "status": stored}).status)
            status = self._recorded_status(stored)
        return {
            "scaleUpdate": decision.scale_to,
            "error": outcome.error,
            "status": status,
            "events": [[each.type, each.reason, each.message] for each in (*outcome.events, *outcome.late_events)],
        }

    def _observe(
        self, observation: Observation, read: ReadScale | ListPods | FetchMetrics, step: dict[str, Any]
    ) -> Observation:
        match read:
            case ReadScale():
                return replace(observation, scale=self._scale(step))
            case ListPods(selector):
                pods = [self._pod(pod) for pod in self._pods]
                selected = tuple(pod for pod in pods if selector.matches(pod.labels))
                return replace(observation, pods=selected, other_selectors=self._others)
            case FetchMetrics(flags):
                metrics = observation.hpa.spec.metrics
                responses = [
                    self._response(spec.source, step["metrics"]) if flag else None
                    for spec, flag in zip(metrics, flags, strict=True)
                ]
                return replace(observation, responses=tuple(responses))

    def _scale(self, step: dict[str, Any]) -> Scale | ReadError:
        target = self._hpa.spec.scale_target_ref
        if target.kind != "Deployment":
            group = target.api_version.rpartition("/")[0]
            return ReadError(f'no matches for kind "{target.kind}" in group "{group}"', unknown_kind=True)
        scale = step["scale"]
        if "error" in scale:
            return ReadError(scale["error"])
        return Scale(
            spec_replicas=scale["specReplicas"], status_replicas=scale["statusReplicas"], selector=scale["selector"]
        )

    def _response(self, source: MetricSource, metrics: dict[str, Any]) -> MetricResponse:
        match source:
            case ResourceMetric():
                return self._resource_response(metrics["resource"])
            case PodsMetric(metric=metric):
                return self._pods_response(metrics["pods"][metric.name])
            case ObjectMetric(metric=metric):
                recorded = metrics["object"][metric.name]
                if "error" in recorded:
                    return MetricError(recorded["error"])
                return ValuesResponse(values=(recorded["value"],), timestamp_ms=self._time(recorded["timestamp"]))
            case ExternalMetric(metric=metric):
                recorded = metrics["external"][metric.name]
                if "error" in recorded:
                    return MetricError(recorded["error"])
                values = tuple(recorded.get("values") or ())
                return ValuesResponse(values=values, timestamp_ms=0)
            case _:
                raise ValueError(f"no response for {source}")

    def _resource_response(self, recorded: dict[str, Any]) -> ResourceResponse | MetricError:
        if "error" in recorded:
            return MetricError(recorded["error"])
        return ResourceResponse(
            {
                name: PodUsage(
                    timestamp_ms=self._time(recorded["timestamp"]),
                    window_ms=milliseconds(recorded["windowSeconds"]),
                    containers=tuple(containers.items()),
                )
                for name, containers in (recorded.get("containers") or {}).items()
            }
        )

    def _pods_response(self, recorded: dict[str, Any]) -> PodsResponse | MetricError:
        if "error" in recorded:
            return MetricError(recorded["error"])
        return PodsResponse(
            {
                name: PodSample(
                    value=value,
                    timestamp_ms=self._time(recorded["timestamp"]),
                    window_ms=milliseconds(recorded["windowSeconds"]),
                )
                for name, value in (recorded.get("pods") or {}).items()
            }
        )

    def _pod(self, pod: dict[str, Any]) -> Pod:
        parsed = parse_pod(pod, self._template)
        return replace(
            parsed,
            start_ms=None if parsed.start_ms is None else parsed.start_ms + self._start_ms,
            ready=None
            if parsed.ready is None
            else replace(parsed.ready, last_transition_ms=parsed.ready.last_transition_ms + self._start_ms),
        )

    def _time(self, seconds: float) -> int:
        return self._start_ms + milliseconds(seconds)

    def _recorded_status(self, stored: dict[str, Any]) -> dict[str, Any]:
        unchanged = stored["conditions"] == self._conditions
        self._conditions = stored["conditions"]
        return {
            "currentReplicas": stored["currentReplicas"],
            "desiredReplicas": stored["desiredReplicas"],
            "lastScaleTime": stored.get("lastScaleTime"),
            "currentMetrics": stored.get("currentMetrics", []),
            "conditions": None if unchanged else stored["conditions"],
        }


def _expected(step: dict[str, Any]) -> dict[str, Any]:
    output: dict[str, Any] = dict(step["output"])
    if step.get("platformDependent") and output["status"] is not None:
        output["status"] = {
            **output["status"],
            "currentMetrics": [_without_garbage(each) for each in output["status"]["currentMetrics"]],
        }
    return output


def _without_garbage(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_garbage(each) for key, each in value.items() if each != _GARBAGE}
