"""The history in parts of equal length, mostly days: the first ones to search on, the last ones kept unseen.

Specs are compared by the figures of their parts. The split is by time, since neighbouring hours are alike: a random
split would let the search see almost the same load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replay.load import Load, ReplayError

DAY_MS: Final = 24 * 3_600_000
WARM_UP_MS: Final = 3_600_000
"""At the beginning, not counted: the replicas there are assumed, and no stabilization window is longer."""
_UNITS: Final = ((DAY_MS, 3), (6 * 3_600_000, 8), (3_600_000, 8), (900_000, 8), (300_000, 8))
"""(length of a part, how many there must be at least)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The parts of a history."""

    boundaries_ms: tuple[int, ...]
    """The start of each part, ascending, and the end of the last."""
    train: int
    """How many parts are searched on; the others are unseen."""
    warm_up_ms: int
    """At the beginning of the first part, not counted."""
    part_ms: int
    """The length of a part; the first and the last one may differ."""

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self.boundaries_ms) - 1

    @property
    def unseen(self) -> int:
        """The number of unseen parts."""
        return self.parts - self.train

    @property
    def split_ms(self) -> int:
        """The start of the unseen parts."""
        return self.boundaries_ms[self.train]

    @property
    def unit(self) -> str:
        """The name of a part: day, or such as 6 hours."""
        if self.part_ms == DAY_MS:
            return "day"
        minutes = self.part_ms // 60_000
        return f"{minutes // 60} h" if minutes >= 60 else f"{minutes} min"

    def count(self, parts: int) -> str:
        """Return a number of parts in words: `4 days`, `5 parts of 6 h`."""
        if self.part_ms == DAY_MS:
            return f"{parts} {'day' if parts == 1 else 'days'}"
        return f"{parts} {'part' if parts == 1 else 'parts'} of {self.unit}"


def split_load(load: Load, *, train: float = 0.7) -> Split:
    """Return the parts of a load: days of 24 hours from its start, or shorter ones if there are not three days.

    Raises:
        ReplayError: the load is too short.
    """
    length = load.end_ms - load.start_ms
    for part_ms, least in _UNITS:
        parts = max(round(length / part_ms), 1)
        if parts >= least:
            # The rest that is no whole part belongs to the last one, or is a short one itself.
            starts = [load.start_ms + index * part_ms for index in range(parts)]
            return Split(
                boundaries_ms=(*starts, load.end_ms),
                train=min(max(round(train * parts), 1), parts - 1),
                warm_up_ms=min(WARM_UP_MS, part_ms // 2),
                part_ms=part_ms,
            )
    minutes = round(length / 60_000)
    raise ReplayError(
        f"{minutes} minutes of load are too short to tune on: give a longer range, an hour at least, better some weeks"
    )
