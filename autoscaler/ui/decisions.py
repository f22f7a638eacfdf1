"""The kept decisions of one HPA: all of them for the charts, and one page of them for the list."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.figures import Point, figure, scales
from kube.security.request_info import Query

_T = TypeVar("_T")

PAGE_SIZE: Final = 30
_SLICE_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which decisions the list shows: the newest ones that fulfil the conditions.

    Attributes:
        scaling_only: only decisions that change the replicas.
        decision: the time of one, which is shown open, with those before it; empty: none.
        before: only decisions before this time; empty: all.
    """

    scaling_only: bool = False
    decision: str = ""
    before: str = ""

    @classmethod
    def parse(cls, query: Query) -> Selection:
        """Return the selection of a request."""
        return cls(
            scaling_only=query.get("show") == "scaling", decision=query.get("decision"), before=query.get("before")
        )

    @property
    def is_newest(self) -> bool:
        """True if the list begins with the newest decision."""
        return not self.decision and not self.before

    def includes(self, record: DecisionRecord) -> bool:
        """Return True if the record may be shown. All times have the same format, so they compare as texts."""
        if self.scaling_only and record.time != self.decision and not scales(record):
            return False
        return not (self.decision and record.time > self.decision) and not (self.before and record.time >= self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The kept decisions.

    Attributes:
        points: {number in the log: point of the charts}, oldest first.
        figure: the charts, as JSON for plotly.js; empty if there are no decisions.
        shown: one page, newest first, without their sentences.
        has_older: there are more after this page.
    """

    points: dict[int, Point]
    figure: str
    shown: Sequence[DecisionRecord]
    has_older: bool


async def read_decisions(
    log: DecisionLog, key: HPAKey, selection: Selection, *, known: Decisions | None = None
) -> Decisions:
    """Read the kept decisions on an HPA.

    Args:
        log: the log.
        key: the HPA.
        selection: which of them to show.
        known: what was read before. Only newer decisions are read then, and shown.
    """
    old = {} if known is None else known.points
    last = max(old, default=0)
    numbers = log.numbers(key)
    points = {number: old[number] for number in numbers if number in old}
    shown: deque[DecisionRecord] = deque(maxlen=PAGE_SIZE + 1)
    async for number in in_slices(each for each in numbers if each > last):
        record = log.get(number)
        if record is None:  # dropped meanwhile
            continue
        points[number] = Point.of(record)
        if selection.includes(record):
            shown.append(record)
    if known is not None and points.keys() == old.keys():
        return replace(known, shown=[], has_older=False)
    newest_first = list(reversed(shown))
    return Decisions(
        points=points,
        figure=msgspec.json.encode(figure(list(points.values()))).decode() if points else "",
        shown=newest_first[:PAGE_SIZE],
        has_older=len(newest_first) > PAGE_SIZE,
    )


async def in_slices(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield the items. There may be a thousand, so other tasks run every few milliseconds, and after the last one."""
    started = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - started > _SLICE_SECONDS:
            await asyncio.sleep(0)
            started = time.monotonic()
    await asyncio.sleep(0)
