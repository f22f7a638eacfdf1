"""Values that follow the clock.

A schedule has a default, windows that recur (two cron expressions), one-off dates, and holidays. Its value is a
function of time alone: integer milli-units, constant between two whole seconds. Two replicas return the same.

- Where several windows or dates hold, the largest of their values counts; where none holds, the default.
- On holidays windows and their ramps do not hold, the default is that of the holidays, and dates hold as on other days.
- A ramp lies outside of the window: the value rises before the start, and falls after the end, in STEPS equal steps
  between the default and the window's value. The window itself has its value from the start to the end. The steps are
  large, because an HPA ignores a change of 10 % and less: with small ones, 12 replicas would stay 11.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from adapter.schedules.cron import Cron
from kube.values.quantity import milli_text

STEPS = 5
"""Steps of a ramp."""

MAX_STARTS_PER_DAY = 200
"""How often the windows of one schedule may start on a day, all together."""

_CHUNK_SECONDS = 86_400
_CACHED_CHUNKS = 4
_NEXT_SECONDS = 8 * _CHUNK_SECONDS

Span = tuple[int, int]
"""The start and the end, which is not included, in seconds since the epoch."""


class Spans(Protocol):
    """Spans of time, such as holidays."""

    def spans(self, since: int, until: int) -> list[Span]:
        """Return the spans that overlap a period, in order and without overlaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurring:
    """A window that recurs: from each match of `start` until the next match of `end`.

    One that clocks skip as a whole, because they go forward, does not begin.
    """

    start: Cron
    end: Cron

    def spans(self, since: int, until: int) -> list[Span]:
        """Return the windows that overlap a period. The first may have begun earlier than its start says."""
        found: list[Span] = []
        start = self.start.previous(since)
        if start is None or ((end := self._end(start)) is not None and end <= since):
            start = self.start.next(since)
        while start is not None and start < until:
            end = self._end(start)
            if end is None:
                return [*found, (start, until)]
            if end > start:
                found.append((start, end))
            start = self.start.next(max(start, end - 1))
        return found

    def _end(self, start: int) -> int | None:
        """Return when the window that starts then ends: at once if clocks skip all of it, None if never."""
        return start if self.end.minute_at(start) > self.start.minute_at(start) else self.end.next(start)


@dataclass(frozen=True, slots=True)
class OneOff:
    """A window that happens once."""

    span: Span

    def spans(self, since: int, until: int) -> list[Span]:
        """Return the window, if it overlaps a period."""
        return [self.span] if self.span[0] < until and since < self.span[1] else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A value for some time."""

    when: Spans
    """The time."""
    milli: int
    """The value."""
    step: int = 0
    """The length of a step of the ramp, in seconds; 0 without a ramp."""
    on_holidays: bool = False
    """Whether it holds on holidays."""

    @property
    def margin(self) -> int:
        """The length of a ramp in seconds."""
        return STEPS * self.step


@dataclass(frozen=True, slots=True)
class Change:
    """From `at` on, in seconds since the epoch, the value is `milli`."""

    at: int
    milli: int


@dataclass(frozen=True, slots=True)
class _Course:
    """The spans of a window around one day, without holidays."""

    window: Window
    starts: Sequence[int]
    ends: Sequence[int]

    def milli_at(self, now: int, base: int) -> int | None:
        """Return the window's value, or that of its ramp from `base`; None if it does not hold."""
        index = bisect.bisect_right(self.starts, now)
        if index and now < self.ends[index - 1]:
            return self.window.milli
        step, done = self.window.step, 0
        if step and index < len(self.starts):
            done = STEPS + (now - self.starts[index]) // step
        if step and index:
            done = max(done, STEPS - 1 - (now - self.ends[index - 1]) // step)
        return base + (self.window.milli - base) * done // STEPS if done > 0 else None

    def turning_points(self) -> Iterator[int]:
        """Yield the times at which it can change."""
        for start, end in zip(self.starts, self.ends, strict=True):
            for step in range(STEPS if self.window.step else 1):
                yield start - step * self.window.step
                yield end + step * self.window.step


@dataclass(frozen=True, slots=True)
class _Day:
    holidays: Sequence[Span]
    courses: Sequence[_Course]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A value that follows the clock."""

    zone: ZoneInfo
    """The time zone, in which people read its times."""
    default_milli: int = 0
    """The value outside of all windows."""
    windows: tuple[Window, ...] = ()
    """Windows that recur, and dates."""
    holidays: Spans | None = None
    """When windows do not hold."""
    holiday_milli: int = 0
    """The value outside of all windows on holidays."""
    _days: dict[int, _Day] = field(default_factory=dict, init=False, repr=False, compare=False)

    def milli_at(self, now: float) -> int:
        """Return the value at a time, in seconds since the epoch."""
        second = int(now)
        day = self._day(second // _CHUNK_SECONDS)
        is_holiday = _holds(day.holidays, second)
        base = self.holiday_milli if is_holiday else self.default_milli
        courses = (course for course in day.courses if course.window.on_holidays or not is_holiday)
        found = [milli for course in courses if (milli := course.milli_at(second, base)) is not None]
        return max(found, default=base)

    def is_known(self, now: float) -> bool:
        """Return whether `milli_at` returns at once; else it computes a day, which takes up to 0.2 s."""
        return int(now) // _CHUNK_SECONDS in self._days

    def changes(self, since: float, until: float) -> Iterator[Change]:
        """Yield the changes of the value after `since` and before `until`, in order."""
        milli, after = self.milli_at(since), int(since)
        for chunk in range(after // _CHUNK_SECONDS, int(until) // _CHUNK_SECONDS + 1):
            first, last = max(after + 1, chunk * _CHUNK_SECONDS), min(int(until), (chunk + 1) * _CHUNK_SECONDS)
            for point in sorted(set(self._turning_points(self._day(chunk)))):
                if first <= point < last and (new := self.milli_at(point)) != milli:
                    milli = new
                    yield Change(point, milli)

    @staticmethod
    def _turning_points(day: _Day) -> Iterator[int]:
        for span in day.holidays:
            yield from span
        for course in day.courses:
            yield from course.turning_points()

    def _day(self, chunk: int) -> _Day:
        """Return the windows around a day of UTC."""
        if (day := self._days.get(chunk)) is None:
            if len(self._days) >= _CACHED_CHUNKS:
                self._days.clear()
            day = self._days[chunk] = self._made(chunk * _CHUNK_SECONDS)
        return day

    def _made(self, since: int) -> _Day:
        until = since + _CHUNK_SECONDS
        margin = max((window.margin for window in self.windows), default=0)
        holidays = self.holidays.spans(since - margin, until + margin) if self.holidays is not None else []
        courses = []
        for window in self.windows:
            spans = window.when.spans(since - window.margin, until + window.margin)
            if not window.on_holidays:
                spans = list(_without(spans, holidays))
            courses.append(_Course(window, [start for start, _ in spans], [end for _, end in spans]))
        return _Day(holidays, courses)


def next_change(schedule: Schedule, now: float) -> str:
    """Return the next change of a schedule, for people: "12 from Mon 2026-11-23 08:00 CET"."""
    change = next(schedule.changes(now, now + _NEXT_SECONDS), None)
    if change is None:
        return "no change in the next 8 days"
    at = datetime.fromtimestamp(change.at, schedule.zone)
    return f"{milli_text(change.milli)} from {at:%a %Y-%m-%d %H:%M %Z}"


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that overlap or touch as one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _without(spans: Iterable[Span], cuts: Sequence[Span]) -> Iterator[Span]:
    """Yield the parts of spans that no cut covers; both are in order."""
    for start, end in spans:
        for cut_start, cut_end in cuts:
            if cut_start >= end:
                break
            if cut_end > start:
                if cut_start > start:
                    yield start, cut_start
                start = cut_end
        if start < end:
            yield start, end


def _holds(spans: Sequence[Span], now: int) -> bool:
    return any(start <= now < end for start, end in spans)
