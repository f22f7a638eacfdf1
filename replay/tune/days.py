"""The history in days, by which specs are compared and statistics are made; parts of it if there is no second day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replay.load import Load, ReplayError

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

    def count(self, number: int) -> str:
        """Return a number of days in words: `4 days`, `5 parts`."""
        return f"{number} {'day' if self.are_days else 'part'}{'' if number == 1 else 's'}"


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
