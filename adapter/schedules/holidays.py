"""Holidays from an iCalendar text (RFC 5545).

Every event is a holiday, from its DTSTART to its DTEND (or for its DURATION; without both, for the day). All-day
events, and times without a zone, are in the schedule's time zone. An event may recur with FREQ=YEARLY, and have EXDATE
and RDATE. Cancelled events do not count.

The text may be hostile: its size, the number of events and the years of a recurrence are limited, and a year's
recurrences are computed one year at a time, when they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from adapter.schedules.cron import instant
from adapter.schedules.schedule import Span, joined

_MAX_EVENTS = 2000
_MAX_RECURRENCES = 50
_MAX_TIMES_A_YEAR = 20
_MAX_DAYS = 366
_MIN_YEAR = 1970
_YEAR_SECONDS = 366 * 86_400
_CACHED_YEARS = 8
_DAYS = frozenset(["BYMONTHDAY", "BYDAY", "BYYEARDAY", "BYWEEKNO"])
_NOT_IN_RULE = frozenset(["INTERVAL", "UNTIL"])
# Time zones are those of zoneinfo. The recurrences of one in the text could take hours, and the library caches them.
_VTIMEZONE = re.compile(r"^BEGIN:VTIMEZONE\s.*?(?:^END:VTIMEZONE\s|\Z)", re.DOTALL | re.IGNORECASE | re.MULTILINE)
_PARTS = frozenset(["FREQ", "WKST", "BYMONTH", "BYSETPOS", *_DAYS, *_NOT_IN_RULE])


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """FREQ=YEARLY; `rule` is the RRULE without INTERVAL and UNTIL, which are here."""

    start: datetime
    rule: str
    interval: int
    until: datetime | None

    def starts(self, year: int) -> list[datetime]:
        """Return the starts in a year."""
        if year < self.start.year or (year - self.start.year) % self.interval:
            return []
        first = datetime.combine(date(year, 1, 1), self.start.time())
        import dateutil.rrule

        # With this interval the rule ends with the year; without, one that never matches runs to the year 9999.
        found = dateutil.rrule.rrulestr(f"{self.rule};INTERVAL={date.max.year}", dtstart=first)
        return [one for one in found if self.start <= one and (self.until is None or one <= self.until)]


@dataclass(frozen=True, slots=True)
class _Event:
    """An event; its times are as clocks in its zone show them."""

    zone: ZoneInfo
    start: datetime
    length: timedelta
    recurrence: _Recurrence | None = None
    added: tuple[datetime, ...] = ()
    left_out: frozenset[datetime] = frozenset()

    def spans(self, year: int) -> Iterator[Span]:
        """Yield the times of the event that begin in a year, in seconds since the epoch."""
        starts = {one for one in (self.start, *self.added) if one.year == year}
        starts.update(self.recurrence.starts(year) if self.recurrence is not None else ())
        for start in starts - self.left_out:
            yield instant(start, self.zone), instant(start + self.length, self.zone)


@dataclass(frozen=True)
class Holidays:
    """The events of a calendar."""

    events: tuple[_Event, ...]
    _years: dict[int, list[Span]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def spans(self, since: int, until: int) -> list[Span]:
        """Return the holidays that overlap a period, in order; times in seconds since the epoch."""
        first, last = (datetime.fromtimestamp(one, UTC) for one in (since - _YEAR_SECONDS, until + 86_400))
        spans = [span for year in range(first.year, last.year + 1) for span in self._year(year)]
        return joined((start, end) for start, end in spans if start < until and since < end)

    def _year(self, year: int) -> list[Span]:
        """Return the holidays that begin in a year."""
        if (spans := self._years.get(year)) is None:
            if len(self._years) >= _CACHED_YEARS:
                self._years.clear()
            spans = self._years[year] = [span for event in self.events for span in event.spans(year)]
        return spans


def read_holidays(text: str, zone: ZoneInfo) -> Holidays:
    """Read a calendar; `zone` is that of all-day events.

    Raises:
        ValueError: it is invalid or has something that is not supported; the message names the event.
    """
    import icalendar  # few rules have a calendar, and the library is large

    try:
        calendar = icalendar.Calendar.from_ical(_VTIMEZONE.sub("", text))
    except Exception as error:  # the library raises what its parsing of a hostile text meets
        raise ValueError(f"this is not an iCalendar: {error}") from error
    components = calendar.walk("VEVENT")
    if len(components) > _MAX_EVENTS:
        raise ValueError(f"{len(components)} events are too many; there may be {_MAX_EVENTS}")
    if not components:
        raise ValueError("the calendar has no events")
    if (count := sum("RRULE" in one for one in components)) > _MAX_RECURRENCES:
        raise ValueError(f"{count} events that recur are too many; there may be {_MAX_RECURRENCES}")
    # An event with a RECURRENCE-ID replaces one of the times of the event with the same UID.
    moved: dict[str, list[Any]] = {}
    for one in components:
        if "RECURRENCE-ID" in one:
            moved.setdefault(str(one.get("UID", "")), []).append(one["RECURRENCE-ID"])
    events = (_event(one, zone, moved) for one in components if str(one.get("STATUS", "")).upper() != "CANCELLED")
    return Holidays(tuple(events))


def _event(component: Any, zone: ZoneInfo, moved: dict[str, list[Any]]) -> _Event:
    name = str(component.get("SUMMARY") or component.get("UID") or "without a name")[:60]
    try:
        for key in ("DTSTART", "DTEND"):
            if key in component and _is_in_unknown_zone(component[key]):
                raise ValueError(f"the TZID of {key} is not a name of the IANA time zone database")
        first = component.start
        own = first.tzinfo if isinstance(first, datetime) and isinstance(first.tzinfo, ZoneInfo) else zone
        start = _wall(first, own)
        length = _wall(component.end, own) - start
        if not timedelta(0) < length <= timedelta(days=_MAX_DAYS):
            raise ValueError(f"it must end after its start, and within {_MAX_DAYS} days")
        left_out = _dates(component.get("EXDATE"), own)
        if "RECURRENCE-ID" not in component:
            left_out += [_wall(one.dt, own) for one in moved.get(str(component.get("UID", "")), ())]
        recurrence = _recurrence(component.get("RRULE"), start, own)
        if recurrence is not None and len(recurrence.starts(start.year + recurrence.interval)) > _MAX_TIMES_A_YEAR:
            raise ValueError(f"it recurs more than {_MAX_TIMES_A_YEAR} times a year; use a window instead")
        added = tuple(_dates(component.get("RDATE"), own))
        return _Event(own, start, length, recurrence, added, frozenset(left_out))
    except Exception as error:
        raise ValueError(f"event {name}: {error}") from error


def _is_in_unknown_zone(value: Any) -> bool:
    return "TZID" in value.params and getattr(value.dt, "tzinfo", None) is None


def _wall(value: date, zone: ZoneInfo) -> datetime:
    """Return a time as clocks in a zone show it; a date is its midnight."""
    if not isinstance(value, datetime):
        return datetime.combine(value, time())
    return (value if value.tzinfo is None else value.astimezone(zone)).replace(tzinfo=None, fold=0)


def _dates(found: Any, zone: ZoneInfo) -> list[datetime]:
    lists = found if isinstance(found, list) else [found] if found is not None else []
    return [_wall(entry.dt, zone) for one in lists for entry in one.dts]


def _recurrence(rule: Any, start: datetime, zone: ZoneInfo) -> _Recurrence | None:
    if rule is None:
        return None
    if isinstance(rule, list) or rule.get("FREQ") != ["YEARLY"]:
        raise ValueError("one RRULE with FREQ=YEARLY is supported")
    if unknown := sorted(rule.keys() - _PARTS):
        instead = "; write UNTIL instead" if unknown[0] == "COUNT" else ""
        raise ValueError(f"{unknown[0]} in RRULE is not supported{instead}")
    if start.year < _MIN_YEAR:
        raise ValueError(f"a recurrence may begin in {_MIN_YEAR} at the earliest")
    parts = rule.to_ical().decode().split(";")
    texts = [part for part in parts if part.partition("=")[0] not in _NOT_IN_RULE]
    if not rule.keys() & _DAYS:
        texts += [f"BYMONTHDAY={start.day}", *([] if "BYMONTH" in rule else [f"BYMONTH={start.month}"])]
    until = rule.get("UNTIL", [None])[0]
    return _Recurrence(
        start, ";".join(texts), max(1, int(rule.get("INTERVAL", [1])[0])), None if until is None else _wall(until, zone)
    )
