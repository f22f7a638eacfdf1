"""Cron expressions in time zones: daylight saving time, and the search for times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.schedules.cron import Cron, instants

BERLIN, SYDNEY, LORD_HOWE = "Europe/Berlin", "Australia/Sydney", "Australia/Lord_Howe"

TIMES = st.datetimes(datetime.fromisoformat("2024-01-01"), datetime.fromisoformat("2032-01-01"))


def local(times: Sequence[int], zone: str) -> list[str]:
    return [f"{datetime.fromtimestamp(one, ZoneInfo(zone)):%H:%M %z}" for one in times]


@pytest.mark.parametrize(
    ("text", "zone", "day", "expected"),
    [
        # Clocks go forward: a time that does not exist becomes the first that does.
        ("30 2 * * *", BERLIN, date(2026, 3, 29), ["03:00 +0200"]),
        ("30 2 * * *", SYDNEY, date(2026, 10, 4), ["03:00 +1100"]),
        ("10 2 * * *", LORD_HOWE, date(2026, 10, 4), ["02:30 +1100"]),
        ("0 0 * * *", "America/Santiago", date(2026, 9, 6), ["01:00 -0300"]),  # at midnight
        ("0 0 * * *", "Africa/Cairo", date(2026, 4, 24), ["01:00 +0300"]),
        # Clocks go back: a time that exists twice counts the first time.
        ("30 2 * * *", BERLIN, date(2026, 10, 25), ["02:30 +0200"]),
        ("30 2 * * *", SYDNEY, date(2026, 4, 5), ["02:30 +1100"]),
        ("45 1 * * *", LORD_HOWE, date(2026, 4, 5), ["01:45 +1100"]),
        ("30 23 * * *", "America/Santiago", date(2026, 4, 4), ["23:30 -0300"]),
        # Two times that become the same are one.
        ("0,30 2,3 * * *", BERLIN, date(2026, 3, 29), ["03:00 +0200", "03:30 +0200"]),
        # With a star in minute or hour, each time that exists counts, as often as it exists.
        ("30 * * * *", BERLIN, date(2026, 3, 29), None),
        ("*/30 2 * * *", BERLIN, date(2026, 10, 25), ["02:00 +0200", "02:30 +0200", "02:00 +0100", "02:30 +0100"]),
        ("*/30 2 * * *", BERLIN, date(2026, 3, 29), []),
        ("0 8 * * *", BERLIN, date(2026, 3, 29), ["08:00 +0200"]),
        ("0 8 * * *", "UTC", date(2026, 3, 29), ["08:00 +0000"]),
        ("0 8 * * *", "Asia/Kolkata", date(2026, 3, 29), ["08:00 +0530"]),
    ],
)
def test_times_of_a_day_follow_daylight_saving_time(
    text: str, zone: str, day: date, expected: list[str] | None
) -> None:
    times = local(Cron(text, ZoneInfo(zone)).times(day), zone)
    if expected is None:
        assert len(times) == 23
        assert not any(time.startswith("02") for time in times)
    else:
        assert times == expected


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 * * MON#1", ["2026-01-05", "2026-02-02", "2026-03-02"]),
        ("0 0 13 * FRI", ["2026-01-02", "2026-01-09", "2026-01-13"]),  # either one
        ("0 0 29 FEB *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
    ],
)
def test_days_are_those_of_debian_cron(text: str, days: list[str]) -> None:
    cron, found, after = Cron(text, ZoneInfo("UTC")), [], datetime(2026, 1, 1, tzinfo=UTC).timestamp() - 1
    for _ in days:
        after = cron.next(after) or 0
        found.append(f"{datetime.fromtimestamp(after, UTC):%Y-%m-%d}")
    assert found == days


def test_time_at_the_given_one_is_previous_but_not_next() -> None:
    cron, at = Cron("0 8 * * *", ZoneInfo("UTC")), 8 * 3600
    assert (cron.previous(at), cron.next(at), cron.next(at - 0.5)) == (at, at + 86_400, at)


@pytest.mark.parametrize("zone", [BERLIN, SYDNEY, LORD_HOWE])
def test_search_from_a_time_that_exists_twice_goes_in_its_direction(zone: str) -> None:
    """The library cronsim itself goes back in time here."""
    cron = Cron("45 1,2 * * *", ZoneInfo(zone))
    start = int(datetime(2026, 4 if zone != BERLIN else 10, 4 if zone != BERLIN else 24, tzinfo=UTC).timestamp())
    for now in range(start, start + 2 * 86_400, 1800):
        following, previous = cron.next(now), cron.previous(now)
        assert following is not None
        assert previous is not None
        assert previous <= now < following
        assert cron.previous(following) == following
        assert cron.next(previous) == following


@settings(max_examples=25)
@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekdays=st.sampled_from(["*", "1-5", "0,6", "SUN", "MON#2", "5L"]),
    days=st.sampled_from(["*", "1", "L", "10-20", "*/3"]),
    zone=st.sampled_from([BERLIN, SYDNEY, LORD_HOWE, "America/Santiago", "America/St_Johns", "UTC"]),
    start=TIMES,
)
def test_times_are_those_of_cronsim(
    minute: int, hour: int, weekdays: str, days: str, zone: str, start: datetime
) -> None:
    noon = start.replace(hour=12, minute=0, second=0, microsecond=0, tzinfo=ZoneInfo(zone))  # exists once
    text = f"{minute} {hour} {days} * {weekdays}"
    cron, now, expected = Cron(text, ZoneInfo(zone)), noon.timestamp(), CronSim(text, noon)
    for _ in range(40):
        following = cron.next(now)
        assert following is not None
        assert following == int(next(expected).timestamp())
        now = following


@given(TIMES, st.sampled_from([BERLIN, SYDNEY, LORD_HOWE]))
def test_clock_shows_a_time_never_once_or_twice(wall: datetime, zone: str) -> None:
    wall = wall.replace(second=0, microsecond=0)
    for found in instants(wall, ZoneInfo(zone)):
        assert datetime.fromtimestamp(found, ZoneInfo(zone)).replace(tzinfo=None) == wall


def test_day_that_a_zone_skipped_has_the_times_of_the_next() -> None:
    cron = Cron("0 8 * * *", ZoneInfo("Pacific/Apia"))
    assert local(cron.times(date(2011, 12, 30)), "Pacific/Apia") == ["00:00 +1400"]
    assert cron.next((datetime(2011, 12, 31, tzinfo=ZoneInfo("Pacific/Apia")) + timedelta(hours=1)).timestamp())
