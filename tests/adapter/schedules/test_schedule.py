"""The value of a schedule: windows, dates, holidays, ramps."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.schedules.cron import Cron, instant
from adapter.schedules.holidays import read_holidays
from adapter.schedules.schedule import OneOff, Recurring, Schedule, Window

BERLIN = ZoneInfo("Europe/Berlin")
DAY = 86_400


def window(start: str, end: str, milli: int, *, step: int = 0, zone: ZoneInfo = BERLIN) -> Window:
    return Window(when=Recurring(start=Cron(start, zone), end=Cron(end, zone)), milli=milli, step=step)


def at(text: str, zone: ZoneInfo = BERLIN) -> int:
    return instant(datetime.fromisoformat(text), zone)


def course(schedule: Schedule, since: str, until: str) -> list[tuple[str, int]]:
    """The changes in a period, as local times."""
    changes = schedule.changes(at(since, schedule.zone), at(until, schedule.zone))
    return [(f"{datetime.fromtimestamp(one.at, schedule.zone):%d %H:%M}", one.milli) for one in changes]


def test_window_over_midnight_and_the_weekend() -> None:
    schedule = Schedule(zone=BERLIN, windows=(window("0 22 * * FRI", "30 6 * * MON", 3),))
    assert course(schedule, "2026-11-16", "2026-11-30") == [
        ("16 06:30", 0),
        ("20 22:00", 3),
        ("23 06:30", 0),
        ("27 22:00", 3),
    ]
    assert schedule.milli_at(at("2026-11-22T12:00")) == 3


def test_start_within_the_window_changes_nothing_and_one_at_its_end_continues_it() -> None:
    schedule = Schedule(zone=BERLIN, windows=(window("0 8,9,12 * * *", "0 12,14 * * *", 3),))
    assert course(schedule, "2026-11-16", "2026-11-17") == [("16 08:00", 3), ("16 14:00", 0)]


def test_largest_value_of_overlapping_windows_counts() -> None:
    windows = (
        window("0 8 * * *", "0 18 * * *", 10),
        window("0 12 * * *", "0 13 * * *", 30),
        window("0 9 * * *", "0 20 * * *", 5),
    )
    assert course(Schedule(zone=BERLIN, windows=windows), "2026-11-16", "2026-11-17") == [
        ("16 08:00", 10),
        ("16 12:00", 30),
        ("16 13:00", 10),
        ("16 18:00", 5),
        ("16 20:00", 0),
    ]


def test_ramp_is_outside_of_the_window_and_has_five_steps() -> None:
    schedule = Schedule(zone=BERLIN, default_milli=1000, windows=(window("0 8 * * *", "0 18 * * *", 11_000, step=120),))
    assert course(schedule, "2026-11-16", "2026-11-17") == [
        ("16 07:52", 3000),
        ("16 07:54", 5000),
        ("16 07:56", 7000),
        ("16 07:58", 9000),
        ("16 08:00", 11_000),
        ("16 18:00", 9000),
        ("16 18:02", 7000),
        ("16 18:04", 5000),
        ("16 18:06", 3000),
        ("16 18:08", 1000),
    ]


def test_ramps_that_meet_never_fall_below_the_higher_one() -> None:
    schedule = Schedule(zone=BERLIN, windows=(window("0 8,10 * * *", "0 9,12 * * *", 10, step=1200),))
    assert course(schedule, "2026-11-16T08:00", "2026-11-16T12:00") == [
        ("16 09:00", 8),
        ("16 09:20", 6),
        ("16 09:40", 8),
        ("16 10:00", 10),
    ]


HOLIDAY = """BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Day off
DTSTART;VALUE=DATE:20261118
END:VEVENT
END:VCALENDAR
"""


def test_windows_do_not_hold_on_holidays_but_dates_do() -> None:
    schedule = Schedule(
        zone=BERLIN,
        default_milli=1,
        windows=(
            window("0 8 * * *", "0 18 * * *", 10),
            Window(when=OneOff((at("2026-11-18T20:00"), at("2026-11-18T21:00"))), milli=5, on_holidays=True),
        ),
        holidays=read_holidays(HOLIDAY, BERLIN),
        holiday_milli=2,
    )
    assert course(schedule, "2026-11-17T12:00", "2026-11-19T12:00") == [
        ("17 18:00", 1),
        ("18 00:00", 2),
        ("18 20:00", 5),
        ("18 21:00", 2),
        ("19 00:00", 1),
        ("19 08:00", 10),
    ]


def test_ramps_of_a_window_on_a_holiday_do_not_hold_on_the_next_day() -> None:
    zone = ZoneInfo("UTC")
    schedule = Schedule(
        zone=zone,
        windows=(window("0 23 18 * *", "58 23 * * *", 10, step=600, zone=zone),),
        holidays=read_holidays(HOLIDAY, zone),
    )
    assert course(schedule, "2026-11-18", "2026-11-19T12:00") == []
    assert schedule.milli_at(at("2026-11-19T00:05", zone)) == 0


def test_holiday_cuts_a_long_window_and_has_no_ramps_of_it() -> None:
    schedule = Schedule(
        zone=BERLIN,
        windows=(window("0 8 * * MON", "0 18 * * FRI", 10, step=600),),
        holidays=read_holidays(HOLIDAY, BERLIN),
    )
    assert course(schedule, "2026-11-17T12:00", "2026-11-19T12:00") == [("18 00:00", 0), ("19 00:00", 10)]


def test_ramps_of_the_days_around_a_holiday_end_and_begin_at_its_midnights() -> None:
    zone = ZoneInfo("UTC")
    schedule = Schedule(
        zone=zone,
        default_milli=1,
        windows=(
            window("20 0 * * *", "40 23 * * *", 11, step=600, zone=zone),
            Window(
                when=OneOff((at("2026-11-18T12:00", zone), at("2026-11-18T13:00", zone))),
                milli=6,
                on_holidays=True,
                step=60,
            ),
        ),
        holidays=read_holidays(HOLIDAY, zone),
        holiday_milli=1,
    )
    assert course(schedule, "2026-11-17T12:00", "2026-11-19T12:00") == [
        *(("17 23:40", 9), ("17 23:50", 7), ("18 00:00", 1)),
        *(("18 11:56", 2), ("18 11:57", 3), ("18 11:58", 4), ("18 11:59", 5), ("18 12:00", 6)),
        *(("18 13:00", 5), ("18 13:01", 4), ("18 13:02", 3), ("18 13:03", 2), ("18 13:04", 1)),
        *(("19 00:00", 7), ("19 00:10", 9), ("19 00:20", 11)),
    ]


@pytest.mark.parametrize(
    ("zone", "since", "until", "hours"),
    [
        ("Europe/Berlin", "2026-03-28T12:00", "2026-03-29T12:00", 7),
        ("Europe/Berlin", "2026-10-24T12:00", "2026-10-25T12:00", 9),
        ("Australia/Sydney", "2026-10-03T12:00", "2026-10-04T12:00", 7),
        ("Australia/Sydney", "2026-04-04T12:00", "2026-04-05T12:00", 9),
        ("Australia/Lord_Howe", "2026-10-03T12:00", "2026-10-04T12:00", 7.5),
        ("Australia/Lord_Howe", "2026-04-04T12:00", "2026-04-05T12:00", 8.5),
    ],
)
def test_night_is_as_long_as_clocks_make_it(zone: str, since: str, until: str, hours: float) -> None:
    schedule = Schedule(zone=ZoneInfo(zone), windows=(window("0 22 * * *", "0 6 * * *", 1, zone=ZoneInfo(zone)),))
    start, end = schedule.changes(at(since, ZoneInfo(zone)), at(until, ZoneInfo(zone)))
    assert (start.milli, end.milli) == (1, 0)
    assert end.at - start.at == hours * 3600


SYDNEY, CAIRO = "Australia/Sydney", "Africa/Cairo"


@pytest.mark.parametrize(
    ("zone", "day", "start", "end", "changes"),
    [
        ("Europe/Berlin", "2026-03-29", "0 2 * * *", "0 3 * * *", ["30 02:00", "30 03:00"]),
        ("Europe/Berlin", "2026-03-29", "15 2 * * *", "45 2 * * *", ["30 02:15", "30 02:45"]),
        ("Europe/Berlin", "2026-03-29", "30 2 * * *", "45 3 * * *", ["29 03:00", "29 03:45", "30 02:30", "30 03:45"]),
        (
            "Europe/Berlin",
            "2026-03-29",
            "0,40 2 * * *",
            "20,50 2 * * *",
            ["30 02:00", "30 02:20", "30 02:40", "30 02:50"],
        ),
        ("Europe/Berlin", "2026-03-29", "45 2 * * *", "15 2 * * *", ["30 02:15", "30 02:45"]),
        ("Europe/Berlin", "2026-03-29", "0 3 * * *", "30 2 * * *", ["30 02:30", "30 03:00"]),
        ("Europe/Berlin", "2026-03-29", "0 1 * * *", "30 2 * * *", ["29 01:00", "29 03:00", "30 01:00", "30 02:30"]),
        (SYDNEY, "2026-10-04", "0 2 * * *", "0 3 * * *", ["05 02:00", "05 03:00"]),
        (CAIRO, "2026-04-24", "0 0 * * *", "30 0 * * *", ["25 00:00", "25 00:30"]),
        ("Europe/Berlin", "2026-10-25", "0 2 * * *", "0 3 * * *", ["25 02:00", "25 03:00", "26 02:00", "26 03:00"]),
    ],
)
def test_window_that_clocks_skip_does_not_begin(zone: str, day: str, start: str, end: str, changes: list[str]) -> None:
    """One that they skip in part begins with the first time that exists."""
    schedule = Schedule(zone=ZoneInfo(zone), windows=(window(start, end, 1, zone=ZoneInfo(zone)),))
    morning = at(day, ZoneInfo(zone))
    found = [
        f"{datetime.fromtimestamp(change.at, ZoneInfo(zone)):%d %H:%M}"
        for change in schedule.changes(morning - 1, morning + 2 * DAY - 3601)
    ]
    assert found == changes


def test_window_whose_end_never_comes_again_stays_open() -> None:
    never = Recurring(start=Cron("0 8 * * *", BERLIN), end=Cron("0 0 29 2 */7", BERLIN))  # a Sunday: 2032, 2060
    assert never.spans(at("2040-01-01"), at("2040-01-02")) == [(at("2040-01-01T08:00") - DAY, at("2040-01-02"))]


CRONS = st.sampled_from(["0 8 * * *", "30 2 * * *", "0 */7 * * *", "15 1,2 * * 0,6", "0 0 1 * *", "0 22 * * 1-5"])
WINDOWS = st.builds(
    lambda start, end, milli, step: window(start, end, milli, step=step),
    CRONS,
    CRONS,
    st.integers(0, 20),
    st.sampled_from([0, 300, 3600]),
)


@settings(max_examples=10, deadline=None)
@given(st.lists(WINDOWS, max_size=3), st.sampled_from([1_774_569_600, 1_792_800_000]), st.integers(0, 5))
def test_value_is_constant_between_its_changes(windows: list[Window], since: int, default: int) -> None:
    """Two schedules agree whatever they were asked before, over a change of the clocks in spring and in autumn."""
    schedule = Schedule(zone=BERLIN, default_milli=default, windows=tuple(windows))
    other = Schedule(zone=BERLIN, default_milli=default, windows=tuple(windows))
    until, value = since + 3 * DAY, schedule.milli_at(since)
    changes = {one.at: one.milli for one in schedule.changes(since, until)}
    for now in range(since, until, 300):
        value = changes.get(now, value)
        assert other.milli_at(now) == value
        assert other.milli_at(now + 299.9) == value


def test_time_before_the_epoch_has_a_value() -> None:
    schedule = Schedule(zone=BERLIN, windows=(window("0 8 * * *", "0 18 * * *", 10),))
    assert schedule.milli_at(datetime(1969, 5, 5, 12, tzinfo=UTC).timestamp()) == 10
