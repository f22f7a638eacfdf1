"""The kept decisions of one HPA: all of them for the charts, and one page of them for the list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.figures import Point, figure, scales
from kube.aio.pace import in_slices
from kube.security.request_info import Query

PAGE_SIZE: Final = 30


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


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Charts:
    """The charts of an HPA.

    Attributes:
        points: {number in the log: point}, oldest first.
        figure: JSON for plotly.js; empty if there are no decisions.
    """

    points: Mapping[int, Point]
    figure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The kept decisions.

    Attributes:
        charts: of all of them.
        shown: one page, newest first, without their sentences.
        has_older: there are more after this page.
        last: the number of the newest one, or `after`.
        newest: the number of the newest one; 0: there is none.
    """

    charts: Charts
    shown: Sequence[DecisionRecord]
    has_older: bool
    last: int
    newest: int


class DecisionReader:
    """Reads the kept decisions. Open pages of the same HPA share its charts, which may take megabytes."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._charts: WeakValueDictionary[HPAKey, Charts] = WeakValueDictionary()

    async def read(self, key: HPAKey, selection: Selection, *, after: int = 0) -> Decisions:
        """Read the kept decisions on an HPA.

        Args:
            key: the HPA.
            selection: which of them to show.
            after: only show decisions after this number.
        """
        charts = self._charts.get(key, Charts({}, ""))
        points = dict(charts.points)
        numbers = self._log.numbers(key)
        async for number in in_slices(each for each in numbers if each not in points):
            if (record := self._log.get(number)) is not None:  # it may be dropped meanwhile
                points[number] = Point.of(record)
        kept = {number: points[number] for number in numbers if number in points}
        if kept.keys() != charts.points.keys():
            charts = Charts(kept, await asyncio.to_thread(_figure_json, list(kept.values())) if kept else "")
            self._charts[key] = charts
        shown: list[DecisionRecord] = []
        async for number in in_slices(each for each in reversed(numbers) if each > after):
            if (record := self._log.get(number)) is not None and selection.includes(record):
                shown.append(record)
                if len(shown) > PAGE_SIZE:
                    break
        return Decisions(
            charts=charts,
            shown=shown[:PAGE_SIZE],
            has_older=len(shown) > PAGE_SIZE,
            last=max(numbers, default=after),
            newest=max(numbers, default=0),
        )


def _figure_json(points: Sequence[Point]) -> str:
    return msgspec.json.encode(figure(points)).decode()
