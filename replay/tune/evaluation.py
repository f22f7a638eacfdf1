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
from replay.results import Totals, add_loads, highest_share
from replay.simulation import Settings, simulate
from replay.tune.space import Candidate
from replay.tune.specs import candidate_object
from replay.tune.split import Split
from replay.workload import Loads

_CHECK_STEPS: Final = 240
"""Steps between two looks at the limits."""


class Figures(Struct, frozen=True):
    """What a spec cost and how well it served, over some time."""

    pod_hours: float = 0.0
    loads: Loads = ()
    scale_events: int = 0
    milliseconds: int = 0
    gap_milliseconds: int = 0
    """In which a metric had no value."""

    @property
    def overload_ratio(self) -> float:
        """The load above capacity as a share of the load, of the metric for which it is the highest."""
        return highest_share(self.loads)

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
            self.milliseconds + other.milliseconds,
            self.gap_milliseconds + other.gap_milliseconds,
        )


def total(parts: Sequence[Figures]) -> Figures:
    """Return the sum of the figures."""
    return sum(parts, Figures())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A replay is stopped above one of these: the candidate has lost."""

    overloads: tuple[float, ...] = ()
    """The load above capacity of each metric, integrated; (): any."""
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
    offset_ms: int = 0,
    limits: Limits | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Replay a candidate over the first parts of the history.

    Unseen parts are replayed in one go with those before them, so their replicas and history are as they would be.
    With `offset_ms`, all reconciliations are this much later.

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
    part, whole, steps = Totals(), Totals(), 0
    settings = replace(problem.settings, offset_ms=problem.settings.offset_ms + offset_ms)
    for step in simulate(hpa, load, settings):
        if step.time_ms < counted_from:
            continue
        while step.time_ms >= ends[len(found)]:
            found.append(_figures(part))
            part = Totals()
        part.add(step)
        whole.add(step)
        steps += 1
        if steps % _CHECK_STEPS == 0:
            if is_interrupted():
                raise Stopped
            if limits is not None and _exceeds(whole, limits):
                found.append(_figures(part))
                return Evaluation(tuple(found), False, time.process_time() - started)
    found.append(_figures(part))
    found.extend([Figures()] * (parts - len(found)))
    return Evaluation(tuple(found), True, time.process_time() - started)


def _figures(totals: Totals) -> Figures:
    return Figures(totals.pod_hours, totals.loads, totals.scale_events, totals.milliseconds, totals.gap_milliseconds)


def _exceeds(totals: Totals, limits: Limits) -> bool:
    above = any(above > limit for (above, _), limit in zip(totals.loads, limits.overloads, strict=False))
    return above or totals.pod_hours > limits.pod_hours


def project(stopped: Evaluation, given: Sequence[Figures]) -> tuple[Figures, ...]:
    """Return the parts of a stopped replay, with the missing ones estimated from the given spec's.

    They keep the proportion to the given spec that the replayed ones have. The last one, which is short, is estimated
    by its requests.
    """
    done = len(stopped.parts)
    last, whole = stopped.parts[-1], given[done - 1]
    requests, all_requests = (sum(load for _, load in each.loads) for each in (last, whole))
    share = min(requests / all_requests, 1.0) if all_requests else 1.0
    reference = total(given[: done - 1]) + _scaled(whole, share)
    found = total(stopped.parts)
    pods = found.pod_hours / reference.pod_hours if reference.pod_hours else 1.0
    over = found.overload_ratio / reference.overload_ratio if reference.overload_ratio else 1.0
    completed = last + _scaled(whole, 1 - share, pods=pods, over=over)
    return (*stopped.parts[:-1], completed, *(_scaled(each, 1.0, pods=pods, over=over) for each in given[done:]))


def _scaled(figures: Figures, share: float, *, pods: float = 1.0, over: float = 1.0) -> Figures:
    """Return a share of a part, with other pod-hours and overload in proportion."""
    loads = tuple([(above * share * over, load * share) for above, load in figures.loads])
    return Figures(figures.pod_hours * share * pods, loads, round(figures.scale_events * share))
