"""A simulated cluster for decisions: HPAs, scales, pods and metric responses, with defaults."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from autoscaler.core.config import Config
from autoscaler.core.decide import conclude, decide, status_not_stored
from autoscaler.core.decision import Decision
from autoscaler.core.history import History
from autoscaler.core.model import (
    HPA,
    Behavior,
    CrossVersionObjectReference,
    ExternalMetric,
    MetricIdentifier,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ScaleDownRules,
    ScaleUpRules,
    ScalingPolicy,
    ScalingRules,
    Spec,
    Status,
)
from autoscaler.core.observation import (
    Container,
    MetricError,
    MetricResponse,
    Observation,
    Pod,
    PodSample,
    PodsResponse,
    ReadError,
    ReadyCondition,
    Scale,
    ValuesResponse,
)
from autoscaler.core.preconditions import FetchMetrics, ListPods, ReadScale, next_read
from autoscaler.core.quantities import CanonicalQuantity, canonical_quantity
from autoscaler.core.stabilization import (
    NormalizationArg,
    Normalized,
    normalize_desired_replicas,
    normalize_desired_replicas_with_behaviors,
)
from kube.values.selectors import LabelSelector

NOW = 1_000_000_000_000
"""Milliseconds since the epoch; a whole second."""
SERVICE = CrossVersionObjectReference("Service", "front", "v1")


def quantity(milli: int) -> CanonicalQuantity:
    return canonical_quantity(f"{milli}m")


def average_target(milli: int) -> MetricTarget:
    return MetricTarget("AverageValue", average_value=quantity(milli))


def pods_metric(average: int, name: str = "packets") -> MetricSpec:
    return MetricSpec.of(PodsMetric(MetricIdentifier(name), average_target(average)))


def object_metric(value: int, name: str = "requests") -> MetricSpec:
    target = MetricTarget("Value", value=quantity(value))
    return MetricSpec.of(ObjectMetric(MetricIdentifier(name), SERVICE, target))


def external_metric(average: int, name: str = "queue") -> MetricSpec:
    return MetricSpec.of(ExternalMetric(MetricIdentifier(name), average_target(average)))


def hpa(
    *metrics: MetricSpec,
    minimum: int = 1,
    maximum: int = 10,
    behavior: Behavior | None = None,
    status: Status | None = None,
    api_version: str = "apps/v1",
) -> HPA:
    return HPA(
        namespace="default",
        name="web",
        spec=Spec(
            scale_target_ref=CrossVersionObjectReference("Deployment", "web", api_version),
            min_replicas=minimum,
            max_replicas=maximum,
            metrics=metrics or (pods_metric(100),),
            behavior=behavior,
        ),
        status=status or Status(),
    )


def with_spec(given: HPA, **changes: Any) -> HPA:
    return replace(given, spec=msgspec.structs.replace(given.spec, **changes))


def behavior(up: ScalingRules | None = None, down: ScalingRules | None = None) -> Behavior:
    """Rules for one direction; the other one is not limited."""
    up, down = up or rules(percent(1000, 1), window=0), down or rules(percent(100, 1), window=0)
    return Behavior(ScaleUpRules(**asdict(up)), ScaleDownRules(**asdict(down)))


def rules(*policies: ScalingPolicy, select: str = "Max", window: int | None = None) -> ScalingRules:
    return ScalingRules(policies, select, window)


def some_pods(value: int, seconds: int) -> ScalingPolicy:
    return ScalingPolicy("Pods", value, seconds)


def percent(value: int, seconds: int) -> ScalingPolicy:
    return ScalingPolicy("Percent", value, seconds)


def pod(name: str, *, phase: str = "Running", ready: str | None = "True", cpu: int | None = 1000) -> Pod:
    """A pod that has been running for an hour."""
    start = NOW - 3_600_000
    return Pod(
        name=name,
        namespace="default",
        labels={"app": "web"},
        phase=phase,
        start_ms=start,
        ready=None if ready is None else ReadyCondition(status=ready, last_transition_ms=start + 10_000),
        containers=(Container(name="app", requests={} if cpu is None else {"cpu": cpu}),),
    )


def pods(count: int) -> tuple[Pod, ...]:
    return tuple(pod(f"web-{index}") for index in range(count))


def sample(value: int, *, timestamp_ms: int = NOW, window_ms: int = 60_000) -> PodSample:
    return PodSample(value=value, timestamp_ms=timestamp_ms, window_ms=window_ms)


def samples(*values: int) -> dict[str, PodSample]:
    """Values of web-0, web-1 and so on."""
    return {f"web-{index}": sample(value) for index, value in enumerate(values)}


def normalize(*, behavior: Behavior | None, **arg: Any) -> Normalized:
    """Stabilize and limit a proposal by the rules with or without behavior; `arg`: a NormalizationArg's fields."""
    if behavior is None:
        return normalize_desired_replicas(NormalizationArg(**arg))
    return normalize_desired_replicas_with_behaviors(NormalizationArg(**arg), behavior)


def default_response(source: MetricSource, value: int, count: int) -> MetricResponse:
    """`value`: of each pod, of the object, or the sum of the external metric's series."""
    match source:
        case PodsMetric():
            return PodsResponse(samples(*[value] * count))
        case ObjectMetric():
            return ValuesResponse(values=(value,), timestamp_ms=NOW)
        case ExternalMetric():
            return ValuesResponse(values=(value,), timestamp_ms=NOW)
        case _:
            return MetricError("not simulated")


class SimulatedCluster:
    """A cluster with one HPA. It keeps the history and applies the decisions."""

    def __init__(
        self,
        hpa: HPA,
        *,
        replicas: int,
        config: Config | None = None,
        others: Mapping[str, LabelSelector] | None = None,
    ) -> None:
        self.hpa = hpa
        self.scale: Scale | ReadError = Scale(spec_replicas=replicas, status_replicas=replicas, selector="app=web")
        self.pods = pods(replicas)
        self.config = config or Config()
        self.others = others or {}
        self.stale: tuple[str, ...] = ()
        self.history = History()
        self.now_ms = NOW
        self.reads: list[str] = []
        self.decision: Decision | None = None

    @property
    def replicas(self) -> int:
        assert isinstance(self.scale, Scale)
        return self.scale.spec_replicas

    def scale_by_hand(self, replicas: int) -> None:
        self.scale = Scale(spec_replicas=replicas, status_replicas=replicas, selector="app=web")
        self.pods = pods(replicas)

    def reconcile(
        self,
        *values: int | str | MetricResponse,
        seconds: int = 15,
        scale_error: str | None = None,
        status_error: str | None = None,
    ) -> Decision:
        """Let time pass and reconcile; `values`: one per metric, a text being the metrics API's error.

        Returns the concluded decision.
        """
        self.now_ms += seconds * 1000
        observation = self._observe(values)
        self.decision = decide(observation, self.history, self.now_ms)
        outcome = conclude(self.decision, scale_error=scale_error)
        self.history = outcome.next_history
        if self.decision.scale_to is not None and scale_error is None:
            self.scale_by_hand(self.decision.scale_to)
        if outcome.new_status is not None and status_error is not None:
            return status_not_stored(outcome, status_error)
        self.hpa = replace(self.hpa, status=outcome.status)
        return outcome

    def reasons(self) -> dict[str, str]:
        """{condition: reason}, with a minus before the reason where the condition is False."""
        return {
            each.type: each.reason if each.status == "True" else f"-{each.reason}"
            for each in self.hpa.status.conditions
        }

    def _observe(self, values: Iterable[int | str | MetricResponse]) -> Observation:
        self.reads = []
        observation = Observation(hpa=self.hpa, config=self.config, stale=self.stale)
        given = list(values)
        while (read := next_read(observation)) is not None:
            self.reads.append(type(read).__name__)
            match read:
                case ReadScale():
                    observation = replace(observation, scale=self.scale)
                case ListPods(selector):
                    selected = tuple(each for each in self.pods if selector.matches(each.labels))
                    observation = replace(observation, pods=selected, other_selectors=self.others)
                case FetchMetrics(flags):
                    responses = [
                        self._response(spec, value) if flag else None
                        for spec, flag, value in zip(self.hpa.spec.metrics, flags, given, strict=True)
                    ]
                    observation = replace(observation, responses=tuple(responses))
        return observation

    def _response(self, spec: MetricSpec, value: int | str | MetricResponse) -> MetricResponse:
        if isinstance(value, int):
            return default_response(spec.source, value, len(self.pods))
        return MetricError(value) if isinstance(value, str) else value
