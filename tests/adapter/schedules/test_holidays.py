"""Holidays from iCalendar texts, also from hostile ones."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from adapter.schedules.cron import instant
from adapter.schedules.holidays import read_holidays

BERLIN = ZoneInfo("Europe/Berlin")


def calendar(*events: str) -> str:
    """A calendar; each event has its lines separated by spaces."""
    texts = ["\r\n".join(["BEGIN:VEVENT", "SUMMARY:Day", *event.split(), "END:VEVENT", ""]) for event in events]
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\n{''.join(texts)}END:VCALENDAR\r\n"


def holidays(text: str, since: str = "2026-01-01", until: str = "2028-12-31") -> list[str]:
    """The holidays as local times."""
    spans = read_holidays(text, BERLIN).spans(*(instant(datetime.fromisoformat(one), BERLIN) for one in (since, until)))
    return [" - ".join(f"{datetime.fromtimestamp(one, BERLIN):%Y-%m-%d %H:%M}" for one in span) for span in spans]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART;VALUE=DATE:20261225", ["2026-12-25 00:00 - 2026-12-26 00:00"]),
        ("DTSTART;VALUE=DATE:20261225 DTEND;VALUE=DATE:20261228", ["2026-12-25 00:00 - 2026-12-28 00:00"]),
        ("DTSTART;VALUE=DATE:20261225 DURATION:P2D", ["2026-12-25 00:00 - 2026-12-27 00:00"]),
        ("DTSTART:20261224T140000 DTEND:20261224T180000", ["2026-12-24 14:00 - 2026-12-24 18:00"]),
        ("DTSTART:20261224T140000Z DTEND:20261224T150000Z", ["2026-12-24 15:00 - 2026-12-24 16:00"]),
        (
            "DTSTART;TZID=America/New_York:20261224T140000 DTEND;TZID=America/New_York:20261224T150000",
            ["2026-12-24 20:00 - 2026-12-24 21:00"],
        ),
        # The day on which clocks change has 23 hours.
        ("DTSTART;VALUE=DATE:20260329", ["2026-03-29 00:00 - 2026-03-30 00:00"]),
        ("DTSTART;VALUE=DATE:20261225 STATUS:CANCELLED", []),
    ],
)
def test_event_is_a_holiday(event: str, expected: list[str]) -> None:
    assert holidays(calendar(event, "DTSTART;VALUE=DATE:19990101")) == expected


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ("DTSTART;VALUE=DATE:20201225 RRULE:FREQ=YEARLY", ["2026-12-25", "2027-12-25", "2028-12-25"]),
        ("DTSTART;VALUE=DATE:20271225 RRULE:FREQ=YEARLY", ["2027-12-25", "2028-12-25"]),
        (
            "DTSTART;VALUE=DATE:20201126 RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
            ["2026-11-26", "2027-11-25", "2028-11-23"],
        ),
        ("DTSTART;VALUE=DATE:20200501 RRULE:FREQ=YEARLY;BYMONTH=5", ["2026-05-01", "2027-05-01", "2028-05-01"]),
        ("DTSTART;VALUE=DATE:20200229 RRULE:FREQ=YEARLY", ["2028-02-29"]),
        ("DTSTART;VALUE=DATE:20250101 RRULE:FREQ=YEARLY;INTERVAL=2", ["2027-01-01"]),
        ("DTSTART;VALUE=DATE:20250101 RRULE:FREQ=YEARLY;UNTIL=20270101", ["2026-01-01", "2027-01-01"]),
        ("DTSTART;VALUE=DATE:20250101 RRULE:FREQ=YEARLY EXDATE;VALUE=DATE:20270101", ["2026-01-01", "2028-01-01"]),
        ("DTSTART;VALUE=DATE:20250101 RDATE;VALUE=DATE:20260707,20270707", ["2026-07-07", "2027-07-07"]),
    ],
)
def test_event_recurs_yearly(rule: str, days: list[str]) -> None:
    assert [holiday[:10] for holiday in holidays(calendar(rule))] == days


def test_moved_occurrence_replaces_the_one_of_the_rule() -> None:
    text = calendar(
        "UID:a DTSTART;VALUE=DATE:20250101 RRULE:FREQ=YEARLY",
        "UID:a RECURRENCE-ID;VALUE=DATE:20270101 DTSTART;VALUE=DATE:20270104",
    )
    assert [holiday[:10] for holiday in holidays(text)] == ["2026-01-01", "2027-01-04", "2028-01-01"]


def test_holidays_that_overlap_or_touch_are_one() -> None:
    text = calendar("DTSTART;VALUE=DATE:20261225", "DTSTART;VALUE=DATE:20261226", "DTSTART;VALUE=DATE:20261225")
    assert holidays(text) == ["2026-12-25 00:00 - 2026-12-27 00:00"]


def test_holiday_that_began_before_the_period_is_found() -> None:
    text = calendar("DTSTART;VALUE=DATE:20261220 DTEND;VALUE=DATE:20270110")
    assert holidays(text, "2027-01-05", "2027-01-06") == ["2026-12-20 00:00 - 2027-01-10 00:00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not an iCalendar"),
        ("hello", "this is not an iCalendar"),
        (calendar(), "the calendar has no events"),
        (calendar("LOCATION:x"), "event Day: "),
        (calendar("DTSTART:yesterday"), "event Day: "),
        (calendar("DTSTART;VALUE=DATE:20261225 DTEND;VALUE=DATE:20261224"), "event Day: it must end after its start"),
        (
            calendar("DTSTART;VALUE=DATE:20261225 DTEND;VALUE=DATE:20991224"),
            "event Day: it must end after its start, and",
        ),
        (calendar("DTSTART;VALUE=DATE:20261225 RRULE:FREQ=SECONDLY"), "event Day: one RRULE with FREQ=YEARLY"),
        (calendar("DTSTART;VALUE=DATE:20261225 RRULE:FREQ=YEARLY;BYSECOND=1"), "event Day: BYSECOND in RRULE"),
        (calendar("DTSTART;VALUE=DATE:20261225 RRULE:FREQ=YEARLY;BYDAY=MO"), "event Day: it recurs more than 20 times"),
        (
            calendar("DTSTART;VALUE=DATE:20261225 RRULE:FREQ=YEARLY;COUNT=2"),
            "event Day: COUNT in RRULE is not supported",
        ),
        (calendar("DTSTART;VALUE=DATE:19000101 RRULE:FREQ=YEARLY"), "event Day: a recurrence may begin in 1970"),
        (calendar("DTSTART;VALUE=DATE:20260101 RRULE:FREQ=YEARLY;BYDAY=XX"), "event Day: "),
    ],
)
def test_invalid_calendar_is_an_error_that_names_the_event(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        read_holidays(text, BERLIN)


def test_number_of_events_is_limited() -> None:
    with pytest.raises(ValueError, match="2001 events are too many"):
        read_holidays(calendar(*["DTSTART;VALUE=DATE:20260101"] * 2001), BERLIN)
    with pytest.raises(ValueError, match="51 events that recur are too many"):
        read_holidays(calendar(*["DTSTART;VALUE=DATE:20260101 RRULE:FREQ=YEARLY"] * 51), BERLIN)


def test_time_zones_of_the_text_do_not_count() -> None:
    """The recurrences of a VTIMEZONE can be endless."""
    rule = "DTSTART:19700101T000000 TZOFFSETFROM:+0000 TZOFFSETTO:+0900 RRULE:FREQ=SECONDLY;BYMONTHDAY=31;BYMONTH=2"
    parts = [f"BEGIN:{part} {rule} END:{part}" for part in ("STANDARD", "DAYLIGHT")]
    zone = f"BEGIN:VTIMEZONE TZID:Europe/Berlin {' '.join(parts)} END:VTIMEZONE".replace(" ", "\r\n")
    event = "DTSTART;TZID={0}:20261224T140000 DTEND;TZID={0}:20261224T150000"
    text = calendar(event.format("Europe/Berlin")).replace("PRODID:test", f"PRODID:test\r\n{zone}")
    assert holidays(text) == ["2026-12-24 14:00 - 2026-12-24 15:00"]
    with pytest.raises(ValueError, match="the TZID of DTSTART is not a name of the IANA time zone database"):
        read_holidays(text.replace("Europe/Berlin", "mine"), BERLIN)


def test_recurrence_that_never_matches_ends_at_once() -> None:
    """The library dateutil searches it until the year 9999, if it may."""
    rules = [f"DTSTART;VALUE=DATE:20200101 RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY={day}" for day in (30, 31)]
    assert holidays(calendar(*rules * 25)) == []
