"""What a controller that does not act remembers of the scales that another one makes."""

from dataclasses import replace

import pytest

from autoscaler.core.history import (
    History,
    Recommendation,
    ScaleEvent,
    record_foreign_scale,
    record_initial_recommendation,
)
from autoscaler.core.model import Behavior, Status
from autoscaler.core.reconcile import conclude_without_writing, decide
from tests.autoscaler.worlds import NOW, World, behavior, hpa, percent, pods_metric, rules, some_pods

RULES = behavior(up=rules(some_pods(4, 60), window=0), down=rules(percent(10, 60), window=0))
BEFORE = Status(current_replicas=2, desired_replicas=2, last_scale_ms=NOW - 60_000)


def seen(new: Status, *, old: Status = BEFORE, after_ms: int = 300, rules: Behavior | None = RULES) -> History:
    return record_foreign_scale(History(), old=old, new=new, behavior=rules, now_ms=NOW + after_ms)


def test_a_scale_is_what_a_status_with_a_new_time_tells() -> None:
    up = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    assert seen(up) == History(scale_up_events=(ScaleEvent(4, NOW + 300),))
    down = Status(current_replicas=6, desired_replicas=5, last_scale_ms=NOW)
    assert seen(down) == History(scale_down_events=(ScaleEvent(1, NOW + 300),))


def test_the_first_scale_ever_is_one() -> None:
    first = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    assert seen(first, old=Status()).scale_up_events == (ScaleEvent(4, NOW + 300),)


@pytest.mark.parametrize(("after_ms", "time_ms"), [(0, NOW), (999, NOW + 999), (45_000, NOW + 999), (-50, NOW - 50)])
def test_it_was_made_within_the_second_that_the_status_names(after_ms: int, time_ms: int) -> None:
    up = Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW)
    assert seen(up, after_ms=after_ms).scale_up_events == (ScaleEvent(4, time_ms),)


@pytest.mark.parametrize(("after_ms", "age_ms"), [(300, 0), (45_000, 44_001), (-3_600_000, 0)])
def test_its_age_by_the_wall_clock_is_its_age_in_the_history(after_ms: int, age_ms: int) -> None:
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
def test_other_changes_of_the_status_are_none(status: Status) -> None:
    assert seen(status) == History()


def test_without_behavior_nothing_is_remembered_as_in_kubernetes() -> None:
    assert seen(Status(current_replicas=2, desired_replicas=6, last_scale_ms=NOW), rules=None) == History()


def test_who_follows_remembers_what_the_one_who_acts_does_and_is_held_by_the_same_limits() -> None:
    """Two controllers on one HPA, one of them only looking on."""
    acting = World(hpa(pods_metric(100), behavior=RULES, maximum=100), replicas=10)
    following = acting.history
    for value in (200, 200, 200, 200, 200, 10, 10, 10, 10, 10, 10):
        old = acting.hpa.status
        acting.step(value, seconds=20)
        assert acting.decision is not None
        own = decide(acting.decision.observation, following, acting.now_ms)
        assert own.scale_to == acting.decision.scale_to
        following = conclude_without_writing(own).history
        following = record_foreign_scale(
            following, old=old, new=acting.hpa.status, behavior=acting.hpa.spec.behavior, now_ms=acting.now_ms
        )
        assert following == acting.history
    assert following.scale_up_events
    assert following.scale_down_events


# --- after a process that was killed -------------------------------------------------------------------------------

SAVED = History(
    recommendations=(Recommendation(1, NOW - 20_000),), scale_up_events=(ScaleEvent(1, NOW - 60_000),), complete=False
)


def caught_up(history: History, status: Status = BEFORE) -> History:
    return record_initial_recommendation(history, current_replicas=3, status=status, behavior=RULES, now_ms=NOW)


def test_a_memory_that_is_complete_stays_as_it_is() -> None:
    complete = replace(SAVED, complete=True)
    assert caught_up(complete, Status(current_replicas=1, desired_replicas=3, last_scale_ms=NOW - 5_000)) == complete


def test_one_that_is_not_begins_with_the_current_number_of_replicas_beside_what_it_has() -> None:
    after = caught_up(SAVED)
    assert after == replace(SAVED, recommendations=(*SAVED.recommendations, Recommendation(3, NOW)), complete=True), (
        "once"
    )
    assert caught_up(after) == after


def test_the_scale_that_is_missing_in_it_is_taken_from_the_status() -> None:
    scaled = Status(current_replicas=1, desired_replicas=3, last_scale_ms=NOW - 5_000)
    assert caught_up(SAVED, scaled).scale_up_events == (*SAVED.scale_up_events, ScaleEvent(2, NOW - 4_001))


def test_a_scale_that_it_knows_is_not_added_again() -> None:
    known = Status(current_replicas=1, desired_replicas=2, last_scale_ms=NOW - 60_000)
    assert caught_up(SAVED, known).scale_up_events == SAVED.scale_up_events


def test_nothing_is_scaled_down_by_a_memory_from_before_the_last_scale_up() -> None:
    early, in_time = World(hpa(pods_metric(10)), replicas=3), World(hpa(pods_metric(10)), replicas=3)
    early.history, in_time.history = replace(SAVED, complete=True), SAVED
    early.step(1)
    in_time.step(1)
    assert (early.replicas, in_time.replicas) == (1, 3)
