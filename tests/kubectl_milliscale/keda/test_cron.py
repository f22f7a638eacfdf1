"""A migrated cron trigger has the value that KEDA gives it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from adapter.rules.model import ScheduleRule
from adapter.rules.objects import Tenancy, read_object
from kubectl_milliscale.keda.triggers import debian_cron
from tests.kubectl_milliscale.keda.test_migrate import cron, one


def keda_value(start: str, end: str, zone: str, replicas: int, now: datetime) -> int:
    """Return the trigger's value. Upstream: cronScaler.GetMetricsAndActivity."""
    here = now.astimezone(ZoneInfo(zone))
    next_start, next_end = (next(CronSim(text, here)) for text in (start, end))
    return 0 if next_start < next_end else replicas


@pytest.mark.parametrize(
    ("start", "end", "zone"),
    [
        ("0 8 * * 1-5", "0 18 * * 1-5", "Europe/Berlin"),
        ("00 22 * * *", "30 05 * * *", "Asia/Kolkata"),
        ("30 * * * *", "45 * * * *", "UTC"),
        ("0 0 1 * *", "0 12 3 * *", "America/New_York"),
        ("0 20 * * SUN", "0 4 * * MON", "Australia/Lord_Howe"),
        ("0 6 ? * *", "20 7 ? * *", "Asia/Seoul"),
    ],
)
def test_schedule_has_the_value_of_keda(start: str, end: str, zone: str) -> None:
    result = one(cron(start=start, end=end, timezone=zone, desiredReplicas="10"), minReplicaCount=1)
    assert result.notes == []
    made = result.objects[0]
    [rule] = read_object(made, servers={}, tenancy=Tenancy()).rules
    assert isinstance(rule, ScheduleRule)
    first = datetime(2026, 5, 25, tzinfo=UTC)  # no clock changes in these three weeks
    texts = debian_cron(start), debian_cron(end)
    values = set()
    for step in range(21 * 24 * 6):
        now = first + timedelta(minutes=10 * step, seconds=1)
        expected = keda_value(*texts, zone, 10, now)
        assert rule.schedule.milli_at(now.timestamp()) == 1000 * expected, now
        values.add(expected)
    assert values == {0, 10}


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("* 8 * * *", "0 18 * * *"),
        ("0 8 * * *", "* 18 * * *"),
        ("0 8,12 * * *", "0 18 * * *"),
        ("0 8 * * 1", "0 18 * * *"),
    ],
)
def test_start_or_end_that_matches_several_times_is_noted(start: str, end: str) -> None:
    result = one(cron(start=start, end=end), minReplicaCount=1)
    assert result.problems == []
    assert "KEDA counts from its last match" in result.notes[0]
