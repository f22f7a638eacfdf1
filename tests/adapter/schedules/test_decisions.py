"""What HPAs do with schedules and activation: a floor for replicas, from zero and back. Decisions are upstream's."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from adapter.rules import ScheduleRule, parse_rules
from adapter.schedules.cron import instant
from adapter.schedules.schedule import Schedule
from autoscaler.core.config import Config
from tests.adapter.test_activation import TwoQueries, peaks, queues, values
from tests.autoscaler.simulated_cluster import (
    NOW,
    SimulatedCluster,
    behavior,
    external_metric,
    hpa,
    percent,
    rules,
    some_pods,
)

BERLIN = ZoneInfo("Europe/Berlin")
AT_ONCE = behavior(up=rules(some_pods(100, 15), window=0), down=rules(percent(100, 15), window=0))
FLOOR = external_metric(1000, "office-hours")  # AverageValue: "1"


def schedule(value: int, ramp: str) -> Schedule:
    window = f'{{start: "0 8 * * *", end: "0 18 * * *", value: {value}, ramp: {ramp}}}'
    text = f"externalRules: [{{name: a, schedule: {{timezone: Europe/Berlin, windows: [{window}]}}}}]"
    [rule] = parse_rules(text, source="rules.yaml").external
    assert isinstance(rule, ScheduleRule)
    return rule.schedule


def test_schedule_is_the_least_number_of_replicas() -> None:
    """The largest proposal wins: load above the schedule's value still counts."""
    cluster = SimulatedCluster(hpa(FLOOR, external_metric(100_000, "load"), maximum=50, behavior=AT_ONCE), replicas=1)
    cluster.reconcile(12_000, 200_000)
    assert cluster.replicas == 12
    cluster.reconcile(12_000, 2_000_000)
    assert cluster.replicas == 20
    cluster.reconcile(12_000, 0)
    assert cluster.replicas == 12
    cluster.reconcile(0, 0)
    assert cluster.replicas == 1


@pytest.mark.parametrize("value", [1, 2, 3, 7, 10, 11, 12, 13, 23, 59])
def test_replicas_reach_the_value_by_the_start_of_the_window(value: int) -> None:
    """With smaller steps the last one would be within the HPA's tolerance of 10 %, and 12 replicas would stay 11."""
    course = schedule(value, "10m")
    cluster = SimulatedCluster(hpa(FLOOR, maximum=100, behavior=AT_ONCE), replicas=1)
    cluster.now_ms = instant(datetime.fromisoformat("2026-11-23T07:45"), BERLIN) * 1000
    replicas = []
    while cluster.now_ms < instant(datetime.fromisoformat("2026-11-23T08:00:15"), BERLIN) * 1000:
        cluster.reconcile(course.milli_at(cluster.now_ms / 1000 + 15))
        replicas.append(cluster.replicas)
    assert replicas == sorted(replicas)
    assert replicas[-1] == value
    assert cluster.now_ms > NOW


async def test_activation_scales_to_zero_and_back(tmp_path: Path) -> None:
    waiting = external_metric(1000, "waiting")
    cluster = SimulatedCluster(hpa(waiting, minimum=0, behavior=AT_ONCE), replicas=3, config=Config(scale_to_zero=True))

    async def reconcile(now: float, *, recently: bool) -> int:
        prometheus = TwoQueries(now=queues(a=now), recent=peaks(a=9) if recently else queues())
        found = await values(tmp_path, prometheus, activation="{threshold: 2, for: 2m}")
        cluster.reconcile(found["a"])
        return cluster.replicas

    assert await reconcile(3, recently=True) == 3
    assert await reconcile(1, recently=True) == 1
    assert await reconcile(0, recently=True) == 1  # empty, but not for long enough
    assert await reconcile(1, recently=False) == 0
    assert cluster.reasons()["ScaledToZero"] == "ScaledToZero"
    assert await reconcile(1, recently=False) == 0
    assert await reconcile(4, recently=True) == 4
    assert cluster.reasons()["ScaledToZero"] == "-NotScaledToZero"


def test_failed_metric_does_not_scale_to_zero() -> None:
    """The HPA keeps its replicas, whatever a schedule beside it says."""
    metrics = (external_metric(1000, "waiting"), FLOOR)
    cluster = SimulatedCluster(
        hpa(*metrics, minimum=0, behavior=AT_ONCE), replicas=3, config=Config(scale_to_zero=True)
    )
    cluster.reconcile("Prometheus is down", 0)
    assert cluster.replicas == 3
