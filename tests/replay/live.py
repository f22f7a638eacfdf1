"""Decisions of a controller on a workload that is no model: irregular times, start-ups, shares, and failures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import conclude, decide
from autoscaler.core.history import History
from autoscaler.core.model import HPA, ExternalMetric, InvalidMetric, ObjectMetric, PodsMetric, ResourceMetric
from autoscaler.core.observation import (
    Container,
    MetricError,
    MetricResponse,
    Observation,
    Pod,
    PodSample,
    PodsResponse,
    PodUsage,
    ReadyCondition,
    ResourceResponse,
    Scale,
    ValuesResponse,
)
from autoscaler.loop.clocks import Clocks
from autoscaler.records.build import build_record
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import DecisionRecord
from tests.replay.builders import START_MS

REQUESTS_PER_CORE = 500
_BOOT_MS = START_MS - 864_000_000.3
"""When the monotonic clock began: between two milliseconds."""
REQUESTS = {"cpu": 250, "memory": 128 * 2**20 * 1000}


@dataclass
class _Pod:
    name: str
    start_ms: int
    ready_ms: int
    measured_ms: int
    deleted_ms: int | None = None


@dataclass
class Live:
    """A cluster with one HPA. `records` has its decisions, as the autoscaler keeps them."""

    hpa: HPA
    seed: int = 0
    config: Config = field(default_factory=Config)
    failures: float = 0.0
    """How often a metric fails."""
    refusals: float = 0.0
    """How often a scale cannot be written."""
    interruptions: float = 0.0
    """How often the process has to wait between its readings of the two clocks."""
    startup_seconds: float = 60.0
    """The longest start-up of a pod."""
    replicas: int = 2
    mode: str = "act"

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now_ms = START_MS
        self.fraction_ms = 0.0
        """Of the time, beside `now_ms`."""
        self.clocks = Clocks(
            wall=lambda: (self.now_ms + self.fraction_ms + self._interruption_ms()) / 1000,
            monotonic=lambda: (self.now_ms + self.fraction_ms - _BOOT_MS) / 1000,
        )
        self.history = History()
        self.log = DecisionLog(1000)
        self.pods: list[_Pod] = []
        self._created = 0
        self._resize()
        for pod in self.pods:
            pod.start_ms = pod.ready_ms = pod.measured_ms = START_MS - 3_600_000

    @property
    def records(self) -> list[DecisionRecord]:
        """Oldest first, without sentences."""
        kept = [self.log.get(number) for number in self.log.numbers(self.hpa.key)]
        return [each for each in kept if each is not None]

    def run(self, totals: Sequence[float], *, period: float = 15.0) -> None:
        """Reconcile once for each total load, in the metrics' unit."""
        for total in totals:
            self.reconcile(total)
            self.now_ms += round(1000 * period) + self.random.randrange(1, 400)

    def reconcile(self, total: float) -> None:
        """Decide once, and keep the record."""
        self.pods = [pod for pod in self.pods if pod.deleted_ms is None or pod.deleted_ms > self.now_ms]
        listed = tuple(self._pod(pod) for pod in self.pods)
        observation = Observation(
            hpa=self.hpa,
            config=self.hpa.overrides.apply_to(self.config),
            scale=Scale(spec_replicas=self.replicas, status_replicas=len(self.pods), selector="app=web"),
            pods=listed,
            responses=tuple(self._response(index, total) for index in range(len(self.hpa.spec.metrics))),
        )
        now_ms, monotonic_ms = self.clocks.read_ms()
        decision = decide(observation, self.history, now_ms, monotonic_ms=monotonic_ms)
        refused = self.random.random() < self.refusals
        error = "the object has been modified" if decision.scale_to is not None and refused else None
        decision = conclude(decision, scale_error=error)
        self.log.add(build_record(decision, mode=self.mode))
        self.history = decision.next_history
        self.hpa = replace(self.hpa, status=decision.status)
        if decision.scale_to is not None and error is None and self.mode == "act":
            self.replicas = decision.scale_to
            self._resize()

    def _interruption_ms(self) -> float:
        return self.random.uniform(0, 200) if self.random.random() < self.interruptions else 0.0

    def _resize(self) -> None:
        living = [pod for pod in self.pods if pod.deleted_ms is None]
        for pod in living[self.replicas :]:
            pod.deleted_ms = self.now_ms + self.random.randrange(40_000)
        for _ in range(self.replicas - len(living)):
            self._created += 1
            ready_ms = self.now_ms + round(self.random.uniform(1, self.startup_seconds) * 1000)
            measured_ms = ready_ms + self.random.randrange(30_000)
            self.pods.append(_Pod(f"web-{self._created}", self.now_ms, ready_ms, measured_ms))

    def _pod(self, pod: _Pod) -> Pod:
        ready = pod.ready_ms <= self.now_ms
        pending = pod.start_ms + 3_000 > self.now_ms
        return Pod(
            name=pod.name,
            namespace=self.hpa.namespace,
            labels={"app": "web"},
            phase="Pending" if pending else "Running",
            deleted=pod.deleted_ms is not None,
            start_ms=pod.start_ms,
            ready=ReadyCondition(
                status="True" if ready and not pending else "False",
                last_transition_ms=pod.ready_ms if ready else pod.start_ms,
            ),
            containers=(Container(name="app", requests=REQUESTS),),
        )

    def _response(self, index: int, total: float) -> MetricResponse:
        if self.random.random() < self.failures:
            return MetricError("the server is currently unable to handle the request")
        measured = [pod for pod in self.pods if pod.measured_ms <= self.now_ms]
        # Unequal shares, and each a little different at each time.
        weights = [self.random.uniform(0.5, 1.5) for _ in measured]
        scale = total * 1000 * (1 + index / 7)
        values = [round(scale * weight / sum(weights)) for weight in weights]
        match self.hpa.spec.metrics[index].source:
            case PodsMetric():
                if not measured:
                    return MetricError("the server could not find the metric")
                samples = zip(measured, values, strict=True)
                return PodsResponse(
                    {pod.name: PodSample(value=value, timestamp_ms=self.now_ms, window_ms=0) for pod, value in samples}
                )
            case ResourceMetric(name=resource):
                if resource == "cpu":
                    values = [value // REQUESTS_PER_CORE for value in values]
                return ResourceResponse(
                    {
                        pod.name: PodUsage(
                            timestamp_ms=self.now_ms - 5_000,
                            window_ms=15_000,
                            containers=(("app", {resource: value}),),
                        )
                        for pod, value in zip(measured, values, strict=True)
                    }
                )
            case ObjectMetric() | ExternalMetric():
                if self.hpa.spec.metrics[index].target.value is not None:
                    scale /= len(self.pods)  # such as requests per pod, or a latency
                return ValuesResponse(values=(round(scale),), timestamp_ms=self.now_ms)
            case InvalidMetric():
                raise AssertionError
