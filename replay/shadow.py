"""A replay that follows the real replicas, so that one decision that reality did not make leads to no others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from replay.load import Series


def seen_scales(replicas: Series, start_ms: int, end_ms: int) -> list[tuple[int, int, int]]:
    """Return the scale events of recorded replicas, as `Shadow` has them."""
    scales: list[tuple[int, int, int]] = []
    before_ms, before = start_ms, None
    for time_ms, _, value in replicas.segments(start_ms, end_ms):
        if math.isnan(value):
            continue
        if before is not None and round(value) != before:
            scales.append((before_ms, time_ms, round(value)))
        before_ms, before = time_ms, round(value)
    return scales


class Shadow:
    """Follows the real replicas, and counts the decisions that reality did not make, and the reverse.

    Real replicas are seen some time after they change, by a scrape. So a decision that leads to the next replicas seen,
    if that is soon, is taken for the real one and applied at once. No other is applied. Real replicas to which no
    decision leads are found by the second reconciliation after they are seen.
    """

    def __init__(self, scales: Sequence[tuple[int, int, int]], *, late_ms: int) -> None:
        """Follow real scale events.

        Args:
            scales: (the last time the replicas before were seen, the first time those after were, the replicas after).
            late_ms: so much later than here the real controller may decide the same.
        """
        self.mistakes = 0.0
        """A decision that leads to other replicas than the real one is half a mistake."""
        self.scales = 0
        """The number of real scale events so far."""
        self._scales = scales
        self.seen_ms = [seen_ms for _, seen_ms, _ in scales]
        self._late_ms = late_ms
        self._before_ms = 0
        self._is_near = False

    @property
    def waits(self) -> bool:
        """Whether the next real scale event was seen by now, and not yet decided."""
        return self.scales < len(self._scales) and self._scales[self.scales][1] <= self._before_ms

    def found(self, now_ms: int) -> int | None:
        """Return the real replicas that a reconciliation finds, if no decision led to them, once; otherwise None."""
        replicas = None
        while self.waits:
            self.mistakes += 0.5 if self._is_near else 1.0
            replicas = self._scales[self.scales][2]
            self._next()
        self._before_ms = now_ms
        return replicas

    def applies(self, now_ms: int, replicas: int, scale_to: int) -> bool:
        """Return True if the real controller scales from and to these replicas, too."""
        if self.scales < len(self._scales):
            since_ms, _, real = self._scales[self.scales]
            if since_ms <= now_ms + self._late_ms and (real > replicas) is (scale_to > replicas):
                if scale_to == real:
                    self._next()
                    return True
                self._is_near = True
                return False
        self.mistakes += 1
        return False

    def _next(self) -> None:
        self.scales += 1
        self._is_near = False
