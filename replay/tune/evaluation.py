"""Evaluate candidates: replay them over the whole history, and count pod-hours, overload and scale events of each day.

The days are cut out of one replay, so their replicas and history are as they would be. Figures of any of the days need
no further replay. A history without a second day has parts instead of days.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec import Struct

from autoscaler.objects.hpa import parse_hpa
from replay.hpa_files import HPAFile
from replay.load import Load, ReplayError
from replay.results import Figures, Totals
from replay.simulation import Settings, simulate
from replay.tune.candidates import FIELDS, Candidate, candidate_object
from replay.tune.goal import Goal

DAY_MS: Final = 24 * 3_600_000
LEAST_DAYS: Final = 4
"""Nothing is recommended by fewer: too often they are all good by chance."""
_WARM_UP_MS: Final = 3_600_000
"""At the beginning, not counted: the replicas there are assumed, and no stabilization window is longer."""
_ALMOST: Final = 0.05  # a load of whole days lacks the time after its last sample
_LEAST_MS: Final = 3_600_000
_PARTS: Final = 8
"""Of a history without a second day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """The days of a history."""

    starts_ms: tuple[int, ...]
    """Ascending. The first and the last day may be shorter or longer than 24 hours."""
    end_ms: int
    counted_from_ms: int
    """In the first day; what is before does not count."""
    are_days: bool
    """False: they are parts of less than two days."""

    def __len__(self) -> int:
        return len(self.starts_ms)

    @property
    def ends_ms(self) -> tuple[int, ...]:
        """The end of each day."""
        return (*self.starts_ms[1:], self.end_ms)

    @property
    def unit(self) -> str:
        """`day` or `part`."""
        return "day" if self.are_days else "part"

    def count(self, number: int) -> str:
        """Return a number of days in words: `4 days`, `5 parts`."""
        return f"{number} {self.unit}{'' if number == 1 else 's'}"


def days_of(load: Load) -> Days:
    """Return the days of a load, of 24 hours each from its start.

    Raises:
        ReplayError: the load is too short.
    """
    length = load.end_ms - load.start_ms
    if length < _LEAST_MS:
        raise ReplayError(
            f"{round(length / 60_000)} minutes of load are too short to tune on: give a longer range, better some weeks"
        )
    count = int(length / DAY_MS + _ALMOST)
    are_days = count > 1
    part_ms = DAY_MS if are_days else length // _PARTS
    return Days(
        starts_ms=tuple([load.start_ms + index * part_ms for index in range(count if are_days else _PARTS)]),
        end_ms=load.end_ms,
        counted_from_ms=load.start_ms + min(_WARM_UP_MS, part_ms // 2),
        are_days=are_days,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """The options of `tune`."""

    goal: Goal = field(default_factory=Goal)
    fields: Collection[str] = FIELDS
    max_target: float = 90.0
    """The highest target, in percent of the capacity."""
    jobs: int | None = None
    """Processes; None: one for each core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A better HPA is wanted."""

    file: HPAFile
    """The given one."""
    load: Load
    settings: Settings
    """What replays assume. At least one metric must have a capacity."""
    options: TuneOptions = TuneOptions()

    @property
    def days(self) -> Days:
        """The days of the load; see `days_of`."""
        return days_of(self.load)

    def document(self, candidate: Candidate) -> dict[str, Any]:
        """Return the HPA's object with the changes of a candidate."""
        return candidate_object(self.file.document, self.file.hpa, self.load, self.settings, candidate)


class Run(Struct, frozen=True):
    """A replay of a candidate, whose reconciliations may be later than otherwise by some milliseconds."""

    candidate: Candidate
    offset_ms: int = 0
    is_given: bool = False
    """This is the given spec, which has no forecasts."""


def evaluate(problem: Problem, run: Run) -> tuple[Figures, ...]:
    """Return the figures of each day.

    Raises:
        ReplayError: a metric is not in the load.
    """
    hpa = parse_hpa(problem.document(run.candidate))
    days = problem.days
    ends, totals, index = days.ends_ms, [Totals() for _ in days.ends_ms], 0
    settings = replace(problem.settings, offset_ms=problem.settings.offset_ms + run.offset_ms)
    load = replace(problem.load, seen={}) if run.is_given else problem.load
    for step in simulate(hpa, load, settings, merge=True, ends_ms=[days.counted_from_ms, *ends]):
        while step.time_ms >= ends[index]:
            index += 1
            totals[index].last_scale = totals[index - 1].last_scale
        if step.time_ms >= days.counted_from_ms:
            totals[index].add(step)
    return tuple([each.figures for each in totals])
