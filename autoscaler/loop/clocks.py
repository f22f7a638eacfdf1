"""The two clocks of decisions, read together: the wall clock, and the monotonic clock of histories.

Records have times of the wall clock, and windows are of the monotonic clock. A replay of the records finds the same
samples in each window only if a decision is exactly as long after another by both clocks. Two readings do not say so:
each is rounded, and on a busy machine the process may have to wait between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_ROUNDING_MS: Final = 1
# The wall clock being set by less than this is ignored. Kubernetes' own times are whole seconds.
_INTERRUPTION_MS: Final = 250
# Of which at least one is not interrupted.
_READINGS: Final = 5


@dataclass(slots=True)
class Clocks:
    """Returns the current time of both clocks, with a constant difference until the wall clock is set.

    Args:
        wall: the time in seconds since the epoch, for statuses, records, and times that come from the API.
        monotonic: the clock of histories and durations, in seconds.
    """

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _difference_ms: int | None = field(default=None, init=False)

    def read_ms(self) -> tuple[int, int]:
        """Return the milliseconds since the epoch, and those of the monotonic clock."""
        known_ms, (monotonic_ms, difference_ms) = self._difference_ms, self._read()
        if known_ms is None or not known_ms - _ROUNDING_MS <= difference_ms <= known_ms + _INTERRUPTION_MS:
            self._difference_ms = known_ms = min(self._read()[1] for _ in range(_READINGS))
        return monotonic_ms + known_ms, monotonic_ms

    def _read(self) -> tuple[int, int]:
        """Return the monotonic time, and by how much the wall clock is ahead of it: after an interruption, by more."""
        monotonic = self.monotonic()
        return round(1000 * monotonic), round(1000 * (self.wall() - monotonic))
