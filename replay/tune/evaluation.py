"""Evaluate candidates: replay them, and count pod-hours and overload for each part of the history.

A replay is stopped early if it is already clear that the candidate loses. Its figures are then projected from those of
the given spec, so that the search still learns where not to look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import Struct

from autoscaler.objects.hpa import parse_hpa
from replay.load import Load
from replay.results import Step
from replay.simulation import Settings, simulate
from replay.tune.space import Candidate
from replay.tune.specs import candidate_object
from replay.tune.split import Split

_HOUR_MS: Final = 3_600_000
_CHECK_STEPS: Final = 240
"""Steps between two looks at the limits."""


class Figures(Struct, frozen=True):
    """What a spec cost and how well it served, over some time."""

    pod_hours: float = 0.0
    overload_requests: float = 0.0
    requests: float = 0.0
    scale_events: int = 0

    @property
    def overload_ratio(self) -> float:
        """`overload_requests` of all requests."""
        return self.overload_requests / self.requests if self.requests else 0.0

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.pod_hours + other.pod_hours,
            self.overload_requests + other.overload_requests,
            self.requests + other.requests,
            self.scale_events + other.scale_events,
        )


def total(parts: Sequence[Figures]) -> Figures:
    """Return the sum of the figures."""
    return sum(parts, Figures())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A replay is stopped above one of these: the candidate has lost."""

    overload_requests: float = math.inf
    pod_hours: float = math.inf


class Stopped(Exception):
    """The search was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """All that a process needs to evaluate candidates. It is sent to each process once."""

    document: Mapping[str, Any]
    """The given HPA."""
    load: Load
    settings: Settings
    split: Split


class Evaluation(Struct, frozen=True):
    """The figures of a candidate for each part that was replayed to its end."""

    parts: tuple[Figures, ...]
    is_complete: bool
    """False: the replay was stopped; the last part may be short."""
    cpu_seconds: float


def evaluate(
    problem: Problem,
    candidate: Candidate,
    *,
    parts: int,
    limits: Limits | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Replay a candidate over the first parts of the history.

    Unseen parts are replayed in one go with those before them, so their replicas and history are as they would be.

    Raises:
        ReplayError: a metric is not in the load.
        Stopped: it was interrupted.
    """
    started = time.process_time()
    given = parse_hpa(problem.document)
    hpa = parse_hpa(candidate_object(problem.document, given, problem.load, problem.settings, candidate))
    ends = problem.split.boundaries_ms[1 : parts + 1]
    load = replace(problem.load, end_ms=ends[-1])
    counted_from = problem.load.start_ms + problem.split.warm_up_ms
    found: list[Figures] = []
    part, all_so_far, steps = _Part(), _Part(), 0
    for step in simulate(hpa, load, problem.settings):
        if step.time_ms < counted_from:
            continue
        while step.time_ms >= ends[len(found)]:
            found.append(part.figures())
            part = _Part()
        part.add(step)
        all_so_far.add(step)
        steps += 1
        if steps % _CHECK_STEPS == 0:
            if is_interrupted():
                raise Stopped
            if limits is not None and all_so_far.exceeds(limits):
                found.append(part.figures())
                return Evaluation(tuple(found), False, time.process_time() - started)
    found.append(part.figures())
    found.extend([Figures()] * (parts - len(found)))
    return Evaluation(tuple(found), True, time.process_time() - started)


@dataclass(slots=True)
class _Part:
    """The sums of a part that is not over."""

    pod_ms: int = 0
    overload_requests: float = 0.0
    requests: float = 0.0
    scale_events: int = 0

    def add(self, step: Step) -> None:
        self.pod_ms += step.desired_replicas * (step.end_ms - step.time_ms)
        self.overload_requests += step.overload_requests
        self.requests += step.requests
        self.scale_events += step.desired_replicas != step.replicas

    def exceeds(self, limits: Limits) -> bool:
        return self.overload_requests > limits.overload_requests or self.pod_ms / _HOUR_MS > limits.pod_hours

    def figures(self) -> Figures:
        return Figures(self.pod_ms / _HOUR_MS, self.overload_requests, self.requests, self.scale_events)


def project(stopped: Evaluation, given: Sequence[Figures]) -> tuple[Figures, ...]:
    """Return the parts of a stopped replay, with the missing ones estimated from the given spec's.

    They keep the proportion to the given spec that the replayed ones have. The last one, which is short, is estimated
    by its requests.
    """
    done = len(stopped.parts)
    last, whole = stopped.parts[-1], given[done - 1]
    share = last.requests / whole.requests if whole.requests else 1.0
    reference = total(given[: done - 1]) + _scaled(whole, share, share)
    found = total(stopped.parts)
    pods = found.pod_hours / reference.pod_hours if reference.pod_hours else 1.0
    over = found.overload_requests / reference.overload_requests if reference.overload_requests else 1.0
    rest = [_scaled(whole, pods * max(1 - share, 0.0), over * max(1 - share, 0.0))]
    rest += [_scaled(each, pods, over) for each in given[done:]]
    completed = last + Figures(rest[0].pod_hours, rest[0].overload_requests, max(whole.requests - last.requests, 0.0))
    return (*stopped.parts[:-1], completed, *rest[1:])


def _scaled(figures: Figures, pods: float, overload: float) -> Figures:
    return Figures(
        figures.pod_hours * pods, figures.overload_requests * overload, figures.requests, figures.scale_events
    )
