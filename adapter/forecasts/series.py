"""A load with one value a minute, and where the same time of day was on days before, by the clock of a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

MINUTE: Final = 60
DAY_MINUTES: Final = 24 * 60
_OFFSET_MINUTES: Final = 15
"""No time zone changes its offset but at a quarter of an hour."""


@dataclass(frozen=True, slots=True, eq=False)
class MinuteSeries:
    """A load, the sum over a group's pods or an object's value; read-only."""

    start: int
    """Of the first minute, a multiple of 60."""
    values: NDArray[np.floating]
    """The value at the beginning of each minute, or the newest since then in the last one; NaN: none is known."""

    @property
    def end(self) -> int:
        """The end of the last minute."""
        return self.start + MINUTE * len(self.values)

    def between(self, start: float, end: float) -> MinuteSeries:
        """Return the minutes that begin from `start` to before `end`."""
        first = min(max(-int(-(start - self.start) // MINUTE), 0), len(self.values))
        return self.part(first, max(-int(-(end - self.start) // MINUTE), first))

    def part(self, first: int, last: int | None = None) -> MinuteSeries:
        """Return the minutes from one index to before another."""
        return MinuteSeries(self.start + first * MINUTE, self.values[first:last])


def local_minutes(start: int, count: int, zone: ZoneInfo) -> Indices:
    """Return the time on the clocks of a zone at the beginning of each minute, in minutes since 1970-01-01 there."""
    minutes = np.arange(start // MINUTE, start // MINUTE + count)
    days = range(int(start // MINUTE // DAY_MINUTES), int((start // MINUTE + count) // DAY_MINUTES) + 1)
    offsets = np.concatenate([_offsets(day, zone) for day in days])
    local: Indices = minutes + offsets[minutes // _OFFSET_MINUTES - days[0] * (DAY_MINUTES // _OFFSET_MINUTES)]
    return local


@lru_cache(maxsize=1024)
def _offsets(day: int, zone: ZoneInfo) -> Indices:
    """Return the offset from UTC in minutes at each quarter of an hour of a day since the epoch, in UTC."""
    times = range(day * 86_400, (day + 1) * 86_400, _OFFSET_MINUTES * MINUTE)
    found = [datetime.fromtimestamp(time, zone).utcoffset() for time in times]
    return np.array([0 if offset is None else int(offset.total_seconds()) // MINUTE for offset in found])


def days_before(local: Indices, at: Indices, days: int) -> Indices:
    """Return the indices of the minutes with the same time on the clock some days before; below 0: before the first.

    Args:
        local: `local_minutes` of all minutes.
        at: the minutes' indices.
        days: how many days.
    """
    found = at - days * DAY_MINUTES
    inside = np.maximum(found, 0)
    there: Indices = found + (local[at] - local[inside] - days * DAY_MINUTES)
    return there
