"""Stabilization, rate limits and bounds: what explains them, and bounds for any numbers.

The arithmetic is that of the recorded cases in tests/conformance (`normalize`).
"""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.history import History, Recommendation, ScaleEvent
from autoscaler.core.integers import MAX_INT32, MIN_INT32
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
) -> Normalized:
    return normalize(
        proposed_replicas=proposed,
        current_replicas=current,
        min_replicas=minimum,
        max_replicas=maximum,
        behavior=rules,
        downscale_stabilization_ms=300_000,
        history=history or History(),
        now_ms=NOW,
    )


def recommended(*samples: tuple[int, int]) -> History:
    """A history of (replicas, age in seconds)."""
    return History(recommendations=tuple(Recommendation(replicas, NOW - age * 1000) for replicas, age in samples))


def test_stabilized_by_is_the_deciding_recommendation() -> None:
    history = recommended((6, 200), (9, 290), (9, 100), (20, 301))
    normalized = apply(2, current=9, history=history)
    assert (normalized.stabilized_by, normalized.window_ms) == (Recommendation(9, NOW - 100_000), 300_000)
    assert normalized.proposed_replicas == 2
    assert apply(9, current=9, history=history).stabilized_by is None
    policies = behavior(up=rules(percent(900, 15), window=60))
    up = apply(9, current=3, rules=policies, history=recommended((1, 10), (2, 30), (0, 61)))
    assert (up.stabilized_by, up.window_ms, up.stabilized_replicas) == (Recommendation(1, NOW - 10_000), 60_000, 3)
    assert up.proposed_replicas == 9
    assert apply(3, current=3, rules=policies).window_ms == 60_000, "a proposal of no change is one to scale up"


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
    few, many = some_pods(2, 60), percent(50, 15)
    history = History(scale_down_events=(ScaleEvent(3, NOW - 30_000),))
    for select, limit in (
        ("Max", RateLimit(replicas=5, policy=many, period_start_replicas=10)),
        ("Min", RateLimit(replicas=11, policy=few, period_start_replicas=13)),
        ("Disabled", RateLimit(replicas=10)),
    ):
        policies = behavior(down=rules(few, many, select=select, window=0))
        assert apply(1, current=10, rules=policies, history=history).scale_down_limit == limit
    without = apply(900, current=10)
    assert (without.scale_up_limit, without.scale_down_limit) == (RateLimit(replicas=20), None)


def test_limits_without_policies_are_those_of_32_bits() -> None:
    for select, up, down in (("Max", MIN_INT32, MAX_INT32), ("Min", MAX_INT32, MIN_INT32)):
        none = rules(select=select, window=0)
        limits = apply(5, current=5, rules=behavior(up=none, down=none))
        assert (limits.scale_up_limit, limits.scale_down_limit) == (RateLimit(replicas=up), RateLimit(replicas=down))


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
