"""A replay that follows the real replicas, so that one decision that reality did not make leads to no others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from replay.load import Series


class SeenScale(NamedTuple):
    """A change of real replicas, as scrapes see it."""

    since_ms: int
    """The last time when the replicas before it were seen."""
    seen_ms: int
    """The first time when those after it were seen."""
    replicas: int
    is_gap: bool
    """True: in between, the replicas are not known, and perhaps the same after it."""


def seen_scales(replicas: Series, start_ms: int, end_ms: int) -> list[SeenScale]:
    """Return the changes and gaps of recorded replicas."""
    scales: list[SeenScale] = []
    before_ms, before, is_gap = start_ms, None, False
    for time_ms, _, value in replicas.segments(start_ms, end_ms):
        if math.isnan(value):
            is_gap = True
            continue
        if before is not None and (is_gap or round(value) != before):
            scales.append(SeenScale(before_ms, time_ms, round(value), is_gap))
        before_ms, before, is_gap = time_ms, round(value), False
    return scales


class Shadow:
    """Follows the real replicas, and counts the decisions that reality did not make, and the reverse.

    Real replicas are seen some time after they change, by a scrape. So a decision that leads to the next replicas seen,
    if that is soon, is taken for the real one and applied at once. No other is applied. Real replicas to which no
    decision leads are found by the second reconciliation after they are seen. In gaps, all decisions are applied.
    """

    def __init__(self, scales: Sequence[SeenScale], *, late_ms: int) -> None:
        """Follow real replicas, of a controller that may decide the same up to `late_ms` later."""
        self.mistakes = 0.0
        """A decision that leads to other replicas than the real one is half a mistake."""
        self.scales = 0
        """The number of real changes and gaps so far."""
        self._scales = scales
        self.seen_ms = [each.seen_ms for each in scales]
        self._late_ms = late_ms
        self._before_ms = 0
        self._is_near = False

    @property
    def waits(self) -> bool:
        """Whether the next real change was seen by now, and not yet decided."""
        return self.scales < len(self._scales) and self._scales[self.scales].seen_ms <= self._before_ms

    def found(self, now_ms: int) -> int | None:
        """Return the real replicas that a reconciliation finds, if no decision led to them, once; otherwise None."""
        replicas = None
        while self.waits:
            _, _, replicas, is_gap = self._scales[self.scales]
            self.mistakes += 0.0 if is_gap else 0.5 if self._is_near else 1.0
            self._next()
        self._before_ms = now_ms
        return replicas

    def applies(self, now_ms: int, replicas: int, scale_to: int) -> bool:
        """Return True if the real controller scales from and to these replicas, too."""
        if self.scales < len(self._scales):
            since_ms, _, real, is_gap = self._scales[self.scales]
            is_soon = since_ms <= now_ms + self._late_ms
            if is_soon and is_gap:
                return True
            if is_soon and (real > replicas) is (scale_to > replicas):
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
