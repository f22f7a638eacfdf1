"""Cron expressions with five fields, in a time zone.

The syntax is that of the library cronsim, which reads expressions as Debian's cron does: names (MON, JAN), lists,
ranges, steps, `L` for the last day of the month, `MON#1` for the first Monday. If day-of-month or day-of-week begins
with `*`, both must match; otherwise one is enough.

Daylight saving time, as in Debian's cron:

- A time of day that does not exist, because clocks go forward, is moved to the first minute that exists.
- A time of day that exists twice, because clocks go back, counts the first time only.
- If minute or hour begins with `*`, neither holds: the expression matches each minute that exists.

cronsim itself steps from time to time, and from a time that exists twice it steps to a wrong one. So only its parser
and its matching of days are used; the times of one day are computed here.
"""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_MAX_TEXT = 200
_SHARED = 1024
_CACHED_DAYS = 512
_DAY = timedelta(days=1)
_MINUTE = 60
# The Gregorian calendar's dates and weekdays repeat after 28 years (except around 2100).
_CYCLE_DAYS = 28 * 366
# How far `next` and `previous` look: past a leap day.
_HORIZON_DAYS = 5 * 366


class Cron:
    """A cron expression in a time zone.

    Attributes:
        text: the expression.
        zone: the time zone.
        per_day: how often it matches on a day that it matches.
    """

    def __init__(self, text: str, zone: ZoneInfo) -> None:
        """Parse an expression.

        Raises:
            ValueError: it is invalid or never matches; the message says why.
        """
        parts = text.split()
        if len(parts) != 5 or len(text) > _MAX_TEXT:
            raise ValueError(
                f"{text[:40]!r} is not a cron expression: write minute, hour, day, month, weekday: 0 8 * * 1-5"
            )
        try:
            self._sim = CronSim(text, datetime(2024, 1, 1))  # noqa: DTZ001  (only its fields are used)
        except CronSimError as error:
            raise ValueError(f"{text!r} is not a cron expression: {str(error)[:1].lower()}{str(error)[1:]}") from error
        self.text = " ".join(parts)
        self.zone = zone
        minutes = (hour * 60 + minute for hour in self._sim.hours for minute in self._sim.minutes)
        self._minutes = array("H", sorted(minutes))
        self._each = parts[0].startswith("*") or parts[1].startswith("*")
        self.per_day = len(self._minutes)
        if next(self._days(date(2024, 1, 1), _CYCLE_DAYS, _DAY), None) is None:
            raise ValueError(f"{text!r} never matches a day")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cron) and (self.text, self.zone) == (other.text, other.zone)

    def __hash__(self) -> int:
        return hash((self.text, self.zone))

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, {self.zone.key!r})"

    def next(self, after: float) -> int | None:
        """Return the first time after a time; None if there is none within five years. Seconds since the epoch."""
        day = datetime.fromtimestamp(after, self.zone).date()
        for one in self._days(day - _DAY, _HORIZON_DAYS, _DAY):
            times = self.times(one)
            index = bisect.bisect_right(times, after)
            if index < len(times):
                return times[index]
        return None

    def previous(self, until: float) -> int | None:
        """Return the last time up to and including a time; None if there is none within five years."""
        day = datetime.fromtimestamp(until, self.zone).date()
        for one in self._days(day + _DAY, _HORIZON_DAYS, -_DAY):
            times = self.times(one)
            index = bisect.bisect_right(times, until)
            if index:
                return times[index - 1]
        return None

    def minute_at(self, at: int) -> int:
        """Return the minute of the day, as the expression says it, that matches at a time; -1 if none does.

        Where clocks go forward, all minutes that they skip match at the first one after these; the last counts.
        """
        shown = datetime.fromtimestamp(at, self.zone).replace(tzinfo=None, fold=0)
        index = bisect.bisect_right(self._minutes, shown.hour * 60 + shown.minute) - 1
        if index < 0 or shown.month not in self._sim.months or not self._sim.match_day(shown.date()):
            return -1
        wall = datetime.combine(shown.date(), time()) + timedelta(minutes=self._minutes[index])
        return self._minutes[index] if at in self._instants(wall) else -1

    def _days(self, first: date, count: int, step: timedelta) -> Iterator[date]:
        """Yield the matching days among `count` days, in the direction of `step`."""
        day, last = first, first + count * step
        while (last - day) * step.days > timedelta(0):
            if day.month not in self._sim.months:
                month = day.replace(day=1)
                day = (month + 31 * _DAY).replace(day=1) if step > timedelta(0) else month - _DAY
                continue
            if self._sim.match_day(day):
                yield day
            day += step

    @lru_cache(maxsize=_CACHED_DAYS)  # noqa: B019  (few, of all expressions: a day has up to 1,440 times)
    def times(self, day: date) -> Sequence[int]:
        """Return the times of a matching day in seconds since the epoch, ascending."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        start, end = midnight.timestamp(), (midnight + _DAY).timestamp()
        if end - start == _DAY.total_seconds():  # no day has two changes of the clocks
            return array("q", (int(start) + minute * _MINUTE for minute in self._minutes))
        wall = [midnight.replace(tzinfo=None) + timedelta(minutes=minute) for minute in self._minutes]
        return array("q", sorted(set(itertools.chain.from_iterable(map(self._instants, wall)))))

    def _instants(self, wall: datetime) -> tuple[int, ...]:
        return instants(wall, self.zone) if self._each else (instant(wall, self.zone),)


@lru_cache(maxsize=_SHARED)
def shared_cron(text: str, zone: ZoneInfo) -> Cron:
    """Return the expression, the same object for many schedules: one takes some KiB.

    Raises:
        ValueError: as for `Cron`.
    """
    return Cron(text, zone)


def instant(wall: datetime, zone: ZoneInfo) -> int:
    """Return when clocks in a zone first show a time, or, if they skip it, the first minute that they show after it."""
    while not (found := instants(wall, zone)):
        wall += timedelta(minutes=1)
    return found[0]


def instants(wall: datetime, zone: ZoneInfo) -> tuple[int, ...]:
    """Return when clocks in a zone show a time: once, twice or never."""
    found = {int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1)}
    return tuple(sorted(one for one in found if datetime.fromtimestamp(one, zone).replace(tzinfo=None, fold=0) == wall))
