"""The results of a replay: its steps, and the figures by which specs are compared."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from autoscaler.core.decision import Decision
from autoscaler.records.build import build_record
from autoscaler.records.sentence import with_sentence
from replay.workload import Loads

FLAP_MS: Final = 600_000
"""A scale event in the other direction within this time after the one before is a flap."""
_MOMENT_GAP_MS: Final = 600_000
_MOMENTS: Final = 10
_HOUR_MS: Final = 3_600_000
_SECOND_MS: Final = 1000


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A time with the same replicas, of a replay or in reality."""

    time_ms: int
    end_ms: int
    replicas: int
    """Before it."""
    desired_replicas: int
    """In it."""
    values: tuple[float, ...] = ()
    """The recorded value of each metric of the spec, in its order; NaN: none."""
    overloads: tuple[tuple[int, int], ...] = ()
    """(start, end) of each overload of a metric."""
    loads: Loads = ()

    @property
    def has_gap(self) -> bool:
        """True if a metric of the spec had no value."""
        return any(map(math.isnan, self.values))


class Step(Span, frozen=True, kw_only=True):
    """One reconciliation, and the time until the next one, or the end; `replicas` are before the decision."""

    ready: int
    decision: Decision


def sentence(decision: Decision) -> str:
    """Return a decision in one sentence, as `explain` prints it."""
    record = build_record(decision, with_values=False)
    if record.stabilization is not None:
        # The window of a replay is a millisecond shorter than what was configured; see `simulate`.
        seconds = round(record.stabilization.window_seconds, 2)
        record = replace(record, stabilization=replace(record.stabilization, window_seconds=seconds))
    return with_sentence(record).sentence


class Moment(msgspec.Struct, kw_only=True):
    """A time of overload, with breaks of at most 10 minutes."""

    start_ms: int
    end_ms: int = 0
    overload_ms: int = 0
    """Of this time, in overload."""
    missing_pod_seconds: float = 0.0
    """The load above capacity, divided by the capacity of a pod, integrated; of the metric for which it is the most."""
    peak: float = -1.0
    """`missing_pod_seconds` of the step with the most for its length, in a millisecond."""
    decision: Decision
    """Of that step."""


class Moments:
    """Finds the worst moments of a replay; `capacities` are those of `Step.loads`."""

    def __init__(self, capacities: Sequence[float]) -> None:
        self._capacities = capacities
        self._found: list[Moment] = []

    def add(self, step: Step) -> None:
        """Add a step."""
        if not step.overloads:
            return
        start_ms = step.overloads[0][0]
        if not self._found or start_ms - self._found[-1].end_ms > _MOMENT_GAP_MS:
            if len(self._found) > _MOMENTS:  # decisions take memory; the last one could go on until now
                self._found.remove(min(self._found, key=_missing))
            self._found.append(Moment(start_ms=start_ms, decision=step.decision))
        moment = self._found[-1]
        missing = max(above / limit for (above, _), limit in zip(step.loads, self._capacities, strict=True))
        moment.end_ms = step.overloads[-1][1]
        moment.overload_ms += sum(end - start for start, end in step.overloads)
        moment.missing_pod_seconds += missing
        peak = missing / (step.end_ms - step.time_ms)
        if peak > moment.peak:
            moment.peak, moment.decision = peak, step.decision

    @property
    def worst(self) -> list[Moment]:
        """The worst ten, the worst first."""
        return sorted(self._found, key=_missing, reverse=True)[:_MOMENTS]


_missing: Final = operator.attrgetter("missing_pod_seconds")


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The figures by which specs are compared, as JSON has them."""

    seconds: float
    min_replicas: int
    mean_replicas: float
    max_replicas: int
    pod_hours: float
    scale_events: int
    flaps: int
    """Scale events in the other direction than the one before, within 10 minutes of it."""
    overload_seconds: float | None
    """None: no metric has a capacity."""
    overload_requests: float | None
    """The load above capacity of the first metric that has one, integrated over time: requests for a metric of requests
    per second."""
    overload_ratio: float | None
    """The load above capacity as a share of the load, of the metric for which it is the highest; 0 without load."""
    at_max_seconds: float | None
    """Time at the spec's maxReplicas. None: this is reality, not the replay of a spec."""
    no_metrics_seconds: float | None
    """Time in which a metric of the spec had no value. None: reality."""
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """One change of the replicas."""

    time_ms: int
    replicas: int
    """Before."""
    desired_replicas: int
    """After."""
    sentence: str
    """The decision in one sentence; empty if sentences were not wanted, or in reality."""

    def is_flap_after(self, last: Rescale) -> bool:
        """Return True if this goes in the other direction than the one before, soon after it."""
        is_reversed = (self.desired_replicas > self.replicas) != (last.desired_replicas > last.replicas)
        return is_reversed and self.time_ms - last.time_ms <= FLAP_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One HPA over the whole load. Everything that plots need, in little memory."""

    name: str
    """How outputs name the spec: NAMESPACE/NAME, with its file where several have the same name."""
    summary: Summary
    start_ms: int
    """Of the first reconciliation."""
    end_ms: int
    initial_replicas: int
    scales: Sequence[Rescale]
    overloads: Sequence[tuple[int, int]]
    """(start, end) of each overload, in milliseconds."""
    gaps: Sequence[tuple[int, int]]
    """(start, end) of each time without a metric."""
    worst: Sequence[Moment] = ()
    """The ten times with the most overload, the worst first."""

    @property
    def replicas(self) -> list[tuple[int, int, int]]:
        """(start, end, replicas) of the times between the changes."""
        starts = [self.start_ms, *(scale.time_ms for scale in self.scales)]
        counts = [self.initial_replicas, *(scale.desired_replicas for scale in self.scales)]
        return list(zip(starts, [*starts[1:], self.end_ms], counts, strict=True))


@dataclass(slots=True, kw_only=True)
class Totals:
    """The figures of a Summary, or of a part of the history, while the replay runs."""

    has_capacity: bool = True
    max_replicas: int | None = None
    """The spec's; None for reality."""
    pod_cost: float | None = None
    """Per pod and hour."""
    milliseconds: int = 0
    pod_milliseconds: int = 0
    initial_replicas: int | None = None
    least: int | None = None
    most: int = 0
    scales: list[Rescale] = field(default_factory=list)
    last_scale: Rescale | None = None
    """Perhaps of an earlier part of the history."""
    flaps: int = 0
    loads: Loads = ()
    at_max_ms: int = 0
    overloads: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, span: Span, *, sentences: bool = False) -> None:
        """Add a time; with `sentences`, a step that scales gets its decision's."""
        before, replicas, length = span.replicas, span.desired_replicas, span.end_ms - span.time_ms
        self.milliseconds += length
        self.pod_milliseconds += replicas * length
        if self.initial_replicas is None:
            self.initial_replicas = before
        self.least = replicas if self.least is None else min(self.least, replicas)
        self.most = max(self.most, replicas)
        if self.max_replicas is not None and replicas >= self.max_replicas:
            self.at_max_ms += length
        if replicas != before:
            text = sentence(span.decision) if sentences and isinstance(span, Step) else ""
            scale = Rescale(time_ms=span.time_ms, replicas=before, desired_replicas=replicas, sentence=text)
            self.flaps += self.last_scale is not None and scale.is_flap_after(self.last_scale)
            self.last_scale = scale
            self.scales.append(scale)
        for start_ms, end_ms in span.overloads:
            _extend(self.overloads, start_ms, end_ms)
        self.loads = add_loads(self.loads, span.loads)
        if span.has_gap:
            _extend(self.gaps, span.time_ms, span.end_ms)

    @property
    def figures(self) -> Figures:
        """Those that add up with others'."""
        gap_ms = sum(end - start for start, end in self.gaps)
        hours = self.pod_milliseconds / _HOUR_MS
        return Figures(hours, self.loads, len(self.scales), self.flaps, self.milliseconds, gap_ms)

    def summary(self) -> Summary:
        """Return the figures of a whole replay."""
        figures = self.figures
        overload_ms = sum(end - start for start, end in self.overloads)
        is_spec = self.max_replicas is not None
        return Summary(
            seconds=self.milliseconds / _SECOND_MS,
            min_replicas=self.least or 0,
            mean_replicas=self.pod_milliseconds / self.milliseconds if self.milliseconds else 0.0,
            max_replicas=self.most,
            pod_hours=figures.pod_hours,
            scale_events=figures.scale_events,
            flaps=self.flaps,
            overload_seconds=overload_ms / _SECOND_MS if self.has_capacity else None,
            overload_requests=figures.overload_requests if self.has_capacity else None,
            overload_ratio=figures.overload_ratio if self.has_capacity else None,
            at_max_seconds=self.at_max_ms / _SECOND_MS if is_spec else None,
            no_metrics_seconds=figures.gap_milliseconds / _SECOND_MS if is_spec else None,
            cost=None if self.pod_cost is None else self.pod_cost * figures.pod_hours,
        )

    def replayed(self, name: str, start_ms: int, end_ms: int, *, worst: Sequence[Moment] = ()) -> Replayed:
        """Return the results."""
        return Replayed(
            name=name,
            summary=self.summary(),
            start_ms=start_ms,
            end_ms=end_ms,
            initial_replicas=self.initial_replicas or 0,
            scales=self.scales,
            overloads=self.overloads,
            gaps=self.gaps,
            worst=worst,
        )


class Figures(msgspec.Struct, frozen=True):
    """What a spec cost and how well it served, over some time."""

    pod_hours: float = 0.0
    loads: Loads = ()
    scale_events: int = 0
    flaps: int = 0
    milliseconds: int = 0
    gap_milliseconds: int = 0
    """In which a metric had no value."""

    @property
    def overload_ratio(self) -> float:
        """The load above capacity as a share of the load, of the metric for which it is the highest; 0 without load."""
        return max((above / load for above, load in self.loads if load > 0), default=0.0)

    @property
    def overload_requests(self) -> float:
        """The load above capacity of the first metric that has one, integrated."""
        return self.loads[0][0] if self.loads else 0.0

    @property
    def has_load(self) -> bool:
        """False: the load was zero, or had no values most of the time."""
        return any(load for _, load in self.loads) and 2 * self.gap_milliseconds <= self.milliseconds

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.pod_hours + other.pod_hours,
            add_loads(self.loads, other.loads),
            self.scale_events + other.scale_events,
            self.flaps + other.flaps,
            self.milliseconds + other.milliseconds,
            self.gap_milliseconds + other.gap_milliseconds,
        )


def total(days: Iterable[Figures]) -> Figures:
    """Return the sum of the figures."""
    return sum(days, Figures())


def add_loads(first: Loads, second: Loads) -> Loads:
    """Add the loads of two times; () is none of any metric."""
    if not first or not second:
        return first or second
    return tuple([(above + more, total + load) for (above, total), (more, load) in zip(first, second, strict=True)])


def _extend(times: list[tuple[int, int]], start_ms: int, end_ms: int) -> None:
    """Add a time to a list of ascending ones; it continues the last if it begins where that ends."""
    if times and times[-1][1] == start_ms:
        start_ms = times.pop()[0]
    times.append((start_ms, end_ms))
