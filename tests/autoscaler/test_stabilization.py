"""Stabilisation, rate limits and bounds: the examples of Kubernetes' documentation, and the edges of the windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.history import History, Recommendation, ScaleEvent, store_scale_event
from autoscaler.core.model import Behavior, ScalingRules
from autoscaler.core.stabilization import Normalized, RateLimit
from tests.autoscaler.simulated_cluster import NOW, behavior, normalize, percent, rules, some_pods


def apply(
    proposed: int,
    *,
    current: int,
    minimum: int = 1,
    maximum: int = 1000,
    rules: Behavior | None = None,
    history: History | None = None,
    now_ms: int = NOW,
) -> Normalized:
    return normalize(
        proposed_replicas=proposed,
        current_replicas=current,
        min_replicas=minimum,
        max_replicas=maximum,
        behavior=rules,
        downscale_stabilization_ms=300_000,
        history=history or History(),
        now_ms=now_ms,
    )


def recommended(*samples: tuple[int, int]) -> History:
    """A history of (replicas, age in seconds)."""
    return History(recommendations=tuple(Recommendation(replicas, NOW - age * 1000) for replicas, age in samples))


def scale_down(rules: Behavior, start: int, target: int, *, syncs: int, seconds: int) -> list[int]:
    """The replica counts while the metrics ask for `target`, one sync every `seconds`."""
    history, current, now_ms, counts = History(), start, NOW, [start]
    for _ in range(syncs):
        now_ms += seconds * 1000
        desired = apply(target, current=current, rules=rules, history=history, now_ms=now_ms).desired_replicas
        if desired != current:
            history = store_scale_event(
                history, behavior=rules, previous_replicas=current, new_replicas=desired, now_ms=now_ms
            )
        current = desired
        counts.append(current)
    return counts


# --- the documentation's examples ----------------------------------------------------------------------------------


def test_4_pods_or_10_percent_take_80_towards_10_first_by_tenths_then_by_4() -> None:
    policies = behavior(down=rules(some_pods(4, 60), percent(10, 60), window=0))
    counts = scale_down(policies, 80, 10, syncs=19, seconds=61)
    assert counts[:7] == [80, 72, 64, 57, 51, 45, 40]
    assert counts[7:15] == [36, 32, 28, 24, 20, 16, 12, 10]


def test_select_policy_min_takes_the_smaller_change() -> None:
    policies = behavior(down=rules(some_pods(4, 60), percent(10, 60), select="Min", window=0))
    assert scale_down(policies, 80, 10, syncs=2, seconds=61) == [80, 76, 72]


def test_select_policy_disabled_switches_a_direction_off() -> None:
    policies = behavior(down=rules(percent(100, 15), select="Disabled", window=0))
    assert apply(1, current=80, rules=policies).desired_replicas == 80
    assert apply(90, current=80, rules=policies).desired_replicas == 90


def test_only_one_change_of_the_allowed_size_fits_into_a_period() -> None:
    policies = behavior(down=rules(some_pods(4, 60), window=0))
    assert scale_down(policies, 80, 10, syncs=9, seconds=15) == [80, 76, 76, 76, 76, 72, 72, 72, 72, 68]


# --- without behavior ----------------------------------------------------------------------------------------------


def test_highest_recommendation_in_the_window_delays_a_scale_down() -> None:
    normalized = apply(2, current=8, history=recommended((6, 299), (5, 10)))
    assert (normalized.desired_replicas, normalized.stabilization) == (6, "ScaleDownStabilized")


@pytest.mark.parametrize(("age", "replicas"), [(300, 6), (301, 2)])
def test_a_recommendation_as_old_as_the_window_still_counts(age: int, replicas: int) -> None:
    assert apply(2, current=8, history=recommended((6, age))).desired_replicas == replicas


@pytest.mark.parametrize(("current", "limit"), [(0, 4), (1, 4), (2, 4), (3, 6), (50, 100)])
def test_one_reconciliation_at_most_doubles_but_permits_4(current: int, limit: int) -> None:
    limited = apply(900, current=current)
    assert (limited.desired_replicas, limited.limit) == (limit, "ScaleUpLimit")


def test_bounds_apply_last_and_give_the_reason() -> None:
    assert apply(9, current=5, maximum=8).limit == "TooManyReplicas"
    assert apply(1, current=5, minimum=3).desired_replicas == 3
    assert apply(1, current=5, minimum=3).limit == "TooFewReplicas"
    assert apply(10, current=5, maximum=10).limit == "DesiredWithinRange"
    assert apply(11, current=5, maximum=10).limit == "TooManyReplicas"


def test_without_behavior_no_scale_event_is_stored() -> None:
    assert store_scale_event(History(), behavior=None, previous_replicas=1, new_replicas=5, now_ms=NOW) == History()


# --- with behavior -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "replicas"), [(59, 6), (60, 2)])
def test_a_recommendation_as_old_as_the_window_of_behavior_no_longer_counts(age: int, replicas: int) -> None:
    policies = behavior(down=rules(percent(100, 15), window=60))
    assert apply(2, current=8, rules=policies, history=recommended((6, age))).desired_replicas == replicas


def test_scaling_up_can_be_stabilised_by_the_lowest_recommendation() -> None:
    policies = behavior(up=rules(percent(900, 15), window=60))
    normalized = apply(9, current=3, rules=policies, history=recommended((5, 30)))
    assert (normalized.desired_replicas, normalized.stabilization) == (5, "ScaleUpStabilized")


def test_an_unset_scale_down_window_is_the_controllers() -> None:
    policies = behavior(down=rules(percent(100, 15)))
    assert apply(2, current=8, rules=policies, history=recommended((6, 299))).desired_replicas == 6


def test_percents_are_doubles_rounded_up_going_up_and_down_going_down() -> None:
    assert apply(900, current=50, rules=behavior(up=rules(percent(10, 15), window=0))).desired_replicas == 56
    assert apply(0, current=10, minimum=0, rules=behavior(down=rules(percent(90, 15)))).desired_replicas == 0


def test_a_period_starts_with_the_changes_of_both_directions_undone() -> None:
    policies = behavior(up=rules(some_pods(4, 60), window=0))
    history = History(
        scale_up_events=(ScaleEvent(3, NOW - 10_000), ScaleEvent(50, NOW - 60_000)),
        scale_down_events=(ScaleEvent(1, NOW - 20_000),),
    )
    assert apply(900, current=10, rules=policies, history=history).scale_up_limit.replicas == 10 - 3 + 1 + 4


def test_a_limit_never_forces_a_change_against_its_direction() -> None:
    policies = behavior(up=rules(some_pods(1, 60), window=0))
    history = History(scale_up_events=(ScaleEvent(8, NOW - 10_000),))
    normalized = apply(20, current=10, rules=policies, history=history)
    assert (normalized.scale_up_limit.replicas, normalized.desired_replicas) == (3, 10)


def test_a_rate_limit_gives_the_reason_only_where_it_is_tighter_than_the_bound() -> None:
    policies = behavior(up=rules(some_pods(5, 60), window=0), down=rules(some_pods(5, 60), window=0))
    assert apply(1, current=10, minimum=4, rules=policies).limit == "ScaleDownLimit"
    assert apply(1, current=10, minimum=5, rules=policies).limit == "TooFewReplicas"
    assert apply(5, current=10, minimum=5, rules=policies).limit == "DesiredWithinRange"
    assert apply(20, current=10, maximum=16, rules=policies).limit == "ScaleUpLimit"
    assert apply(20, current=10, maximum=15, rules=policies).limit == "TooManyReplicas"


def test_stabilized_by_is_the_deciding_recommendation() -> None:
    history = recommended((6, 200), (9, 290), (9, 100), (20, 301))
    normalized = apply(2, current=9, history=history)
    assert (normalized.stabilized_by, normalized.window_ms) == (Recommendation(9, NOW - 100_000), 300_000)
    assert apply(9, current=9, history=history).stabilized_by is None
    policies = behavior(up=rules(percent(900, 15), window=60))
    up = apply(9, current=3, rules=policies, history=recommended((1, 10), (2, 30), (0, 61)))
    assert (up.stabilized_by, up.window_ms, up.stabilized_replicas) == (Recommendation(1, NOW - 10_000), 60_000, 3)


def test_rate_limit_has_its_policy_and_period_start() -> None:
    few, many = some_pods(4, 60), percent(100, 15)
    history = History(scale_up_events=(ScaleEvent(3, NOW - 30_000),))
    for select, limit in (
        ("Max", RateLimit(replicas=20, policy=many, period_start_replicas=10)),
        ("Min", RateLimit(replicas=11, policy=few, period_start_replicas=7)),
        ("Disabled", RateLimit(replicas=10)),
    ):
        policies = behavior(up=rules(few, many, select=select, window=0))
        assert apply(900, current=10, rules=policies, history=history).scale_up_limit == limit
    without = apply(900, current=10)
    assert (without.scale_up_limit, without.scale_down_limit) == (RateLimit(replicas=20), None)


# --- the history ---------------------------------------------------------------------------------------------------


def test_last_outdated_slot_is_reused() -> None:
    after = apply(7, current=7, history=recommended((1, 400), (2, 10), (3, 301), (4, 20)))
    assert [each.replicas for each in after.recommendations] == [1, 2, 7, 4]


def test_slot_within_either_window_is_kept() -> None:
    policies = behavior(up=rules(percent(100, 15), window=0), down=rules(percent(100, 15), window=300))
    after = apply(7, current=7, rules=policies, history=recommended((1, 300)))
    assert [each.replicas for each in after.recommendations] == [1, 7]


def test_scale_events_older_than_the_longest_period_are_marked_and_replaced() -> None:
    policies = behavior(up=rules(some_pods(4, 30), some_pods(9, 60), window=0))
    before = History(scale_up_events=(ScaleEvent(1, NOW - 60_000), ScaleEvent(2, NOW - 60_001), ScaleEvent(3, NOW)))
    after = store_scale_event(before, behavior=policies, previous_replicas=3, new_replicas=8, now_ms=NOW)
    assert after.scale_up_events == (ScaleEvent(1, NOW - 60_000), ScaleEvent(5, NOW), ScaleEvent(3, NOW))


# --- for any numbers -----------------------------------------------------------------------------------------------

counts = st.integers(0, 200)
some_rules = st.builds(
    lambda policies, select, window: rules(*policies, select=select, window=window),
    st.lists(
        st.builds(some_pods, st.integers(1, 20), st.integers(1, 60))
        | st.builds(percent, st.integers(1, 200), st.integers(1, 60)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.sampled_from([0, 60, 300]),
)


@given(counts, counts, counts, counts, st.none() | st.builds(behavior, some_rules, some_rules))
def test_result_stays_in_bounds(
    proposed: int, current: int, minimum: int, spread: int, policies: Behavior | None
) -> None:
    maximum = minimum + spread
    current = min(max(current, minimum), maximum)
    desired = apply(proposed, current=current, minimum=minimum, maximum=maximum, rules=policies).desired_replicas
    assert minimum <= desired <= maximum


@given(counts, counts, some_rules, some_rules)
def test_behavior_never_moves_away_from_the_proposal(
    proposed: int, current: int, up: ScalingRules, down: ScalingRules
) -> None:
    policies = behavior(up, down)
    desired = apply(proposed, current=current, minimum=0, rules=policies).desired_replicas
    assert min(proposed, current) <= desired <= max(proposed, current)
