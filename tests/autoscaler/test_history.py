"""History: scales of other controllers, and the initial recommendation."""

import pytest
from msgspec.structs import replace

from autoscaler.core.decide import conclude, decide
from autoscaler.core.history import (
    History,
    Recommendation,
    ScaleEvent,
    record_foreign_scale,
    record_initial_recommendation,
    store_scale_event,
)
from autoscaler.core.model import Behavior, ScalingRules, Status
from tests.autoscaler.simulated_cluster import (
    NOW,
    SimulatedCluster,
    behavior,
    hpa,
    percent,
    pods_metric,
    rules,
    some_pods,
)

RULES = behavior(up=rules(some_pods(4, 60), window=0), down=rules(percent(10, 60), window=0))
BEFORE = Status(current_replicas=2, desired_replicas=2, last_scale_ms=NOW - 60_000)


def seen(new: Status, *, old: Status = BEFORE, after_ms: int = 300, rules: Behavior | None = RULES) -> History:
    return record_foreign_scale(History(), old=old, new=new, behavior=rules, now_ms=NOW + after_ms)


def test_new_last_scale_time_is_a_scale() -> None:
    up = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    assert seen(up) == History(scale_up_events=(ScaleEvent(4, NOW + 300),))
    down = Status(current_replicas=6, desired_replicas=5, last_scale_ms=NOW)
    assert seen(down) == History(scale_down_events=(ScaleEvent(1, NOW + 300),))


def test_first_last_scale_time_is_a_scale() -> None:
    first = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    assert seen(first, old=Status()).scale_up_events == (ScaleEvent(4, NOW + 300),)


@pytest.mark.parametrize(("after_ms", "time_ms"), [(0, NOW), (999, NOW + 999), (45_000, NOW + 999), (-50, NOW - 50)])
def test_scale_happened_within_the_second_of_last_scale_time(after_ms: int, time_ms: int) -> None:
    up = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    assert seen(up, after_ms=after_ms).scale_up_events == (ScaleEvent(4, time_ms),)


@pytest.mark.parametrize(("after_ms", "age_ms"), [(300, 0), (45_000, 44_001), (-3_600_000, 0)])
def test_age_by_the_wall_clock_is_the_age_in_the_history(after_ms: int, age_ms: int) -> None:
    up = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    history = record_foreign_scale(
        History(), old=BEFORE, new=up, behavior=RULES, now_ms=NOW + after_ms, monotonic_ms=7_000
    )
    assert history.scale_up_events == (ScaleEvent(4, 7_000 - age_ms),)


@pytest.mark.parametrize(
    "status",
    [
        Status(current_replicas=2, desired_replicas=6, last_scale_ms=BEFORE.last_scale_ms),
        Status(current_replicas=6, desired_replicas=6, last_scale_ms=NOW),
        Status(current_replicas=2, desired_replicas=6),
    ],
    ids=["the same time", "no change", "no time"],
)
def test_other_status_changes_are_not_scales(status: Status) -> None:
    assert seen(status) == History()


def test_without_behavior_no_scale_event_is_stored() -> None:
    assert seen(Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW), rules=None) == History()


def test_following_controller_has_the_history_of_the_acting_one() -> None:
    """Two controllers on one HPA, one of them only looking on."""
    acting = SimulatedCluster(hpa(pods_metric(100), behavior=RULES, maximum=100), replicas=10)
    following = acting.history
    for value in (200, 200, 200, 200, 200, 10, 10, 10, 10, 10, 10):
        old = acting.hpa.status
        acting.reconcile(value, seconds=20)
        assert acting.decision is not None
        own = decide(acting.decision.observation, following, acting.now_ms)
        assert own.scale_to == acting.decision.scale_to
        following = conclude(own, act=False).next_history
        following = record_foreign_scale(
            following, old=old, new=acting.hpa.status, behavior=acting.hpa.spec.behavior, now_ms=acting.now_ms
        )
        assert following == acting.history
    assert following.scale_up_events
    assert following.scale_down_events


@pytest.mark.parametrize(
    ("limits", "period_ms"),
    [(rules(some_pods(4, 15), percent(10, 60)), 60_000), (rules(), 0)],
    ids=["the longest period", "no policies"],
)
def test_slot_of_an_event_that_no_policy_counts_is_used_again(limits: ScalingRules, period_ms: int) -> None:
    old = ScaleEvent(1, NOW - period_ms - 1), ScaleEvent(1, NOW - period_ms)
    after = store_scale_event(
        History(scale_up_events=old), behavior=behavior(up=limits), previous_replicas=1, new_replicas=3, now_ms=NOW
    )
    assert after.scale_up_events == (ScaleEvent(2, NOW), old[1])


# --- history that was saved before its process ended ---------------------------------------------------------------

SAVED = History(
    recommendations=(Recommendation(1, NOW - 20_000),), scale_up_events=(ScaleEvent(1, NOW - 60_000),), complete=False
)


def seeded(history: History, status: Status = BEFORE) -> History:
    return record_initial_recommendation(history, current_replicas=3, status=status, behavior=RULES, now_ms=NOW)


def test_complete_history_is_not_seeded() -> None:
    complete = replace(SAVED, complete=True)
    assert seeded(complete, Status(current_replicas=1, desired_replicas=3, last_scale_ms=NOW - 5_000)) == complete


def test_incomplete_history_is_seeded_with_current_replicas() -> None:
    after = seeded(SAVED)
    assert after == replace(SAVED, recommendations=(*SAVED.recommendations, Recommendation(3, NOW)), complete=True), (
        "once"
    )
    assert seeded(after) == after


def test_missing_last_scale_is_taken_from_the_status() -> None:
    scaled = Status(current_replicas=1, desired_replicas=3, last_scale_ms=NOW - 5_000)
    assert seeded(SAVED, scaled).scale_up_events == (*SAVED.scale_up_events, ScaleEvent(2, NOW - 4_001))
    assert seeded(History(complete=False), scaled).scale_up_events == (ScaleEvent(2, NOW - 4_001),)


def test_stored_scale_is_not_added_again() -> None:
    known = Status(current_replicas=1, desired_replicas=2, last_scale_ms=NOW - 60_000)
    assert seeded(SAVED, known).scale_up_events == SAVED.scale_up_events


@pytest.mark.parametrize("monotonic_ms", [7_000, NOW + 10_000_000])
def test_stored_scales_are_compared_by_the_wall_clock(monotonic_ms: int) -> None:
    """Whatever the monotonic clock's zero is: both scales below are older than the clock, or younger."""
    stored = (ScaleEvent(1, monotonic_ms - 60_000),)
    for last_scale_ms, added in ((NOW - 60_000, ()), (NOW - 5_000, (ScaleEvent(2, monotonic_ms - 4_001),))):
        history = record_initial_recommendation(
            History(scale_up_events=stored, complete=False),
            current_replicas=3,
            status=Status(current_replicas=1, desired_replicas=3, last_scale_ms=last_scale_ms),
            behavior=RULES,
            now_ms=NOW,
            monotonic_ms=monotonic_ms,
        )
        assert history.scale_up_events == (*stored, *added)


def test_incomplete_history_does_not_scale_down() -> None:
    early, in_time = (
        SimulatedCluster(hpa(pods_metric(10)), replicas=3),
        SimulatedCluster(hpa(pods_metric(10)), replicas=3),
    )
    early.history, in_time.history = replace(SAVED, complete=True), SAVED
    early.reconcile(1)
    in_time.reconcile(1)
    assert (early.replicas, in_time.replicas) == (1, 3)
