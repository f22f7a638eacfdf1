"""From the proposed replica count to the desired one: stabilization, rate limits, bounds.

The rules differ with and without `spec.behavior`: which edge of a window counts, whether scaling up is stabilized, and
whether scale events are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from autoscaler.core.history import History, Recommendation, ScaleEvent
from autoscaler.core.integers import MAX_INT32, MIN_INT32, clamp_int32, int32
from autoscaler.core.model import Behavior, ScalingPolicy, ScalingRules


class RateLimit(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The replica count that the rules of one direction allow now."""

    replicas: int
    policy: ScalingPolicy | None = None
    """The selected policy; None without behavior or policies, or if the direction is disabled."""
    period_start_replicas: int | None = None
    """The replicas at the start of the policy's period."""


class Normalized(Struct, frozen=True, kw_only=True):
    """A proposal after each stage."""

    proposed_replicas: int
    stabilized_replicas: int
    stabilization: str
    """Reason of the AbleToScale condition: ReadyForNewScale, ScaleUpStabilized or ScaleDownStabilized."""
    window_ms: int
    """The stabilization window of the proposal's direction."""
    stabilized_by: Recommendation | None
    """The earlier recommendation that changed the count: the highest or lowest in the window, of equals the latest."""
    scale_up_limit: RateLimit
    scale_down_limit: RateLimit | None
    """None without behavior."""
    desired_replicas: int
    """After rate limits and bounds."""
    limit: str
    """Reason of the ScalingLimited condition: DesiredWithinRange, or the limit or bound that applied."""
    recommendations: tuple[Recommendation, ...]
    """The history's recommendations with this proposal."""

    @property
    def limited(self) -> bool:
        """True if rate limits or bounds changed the stabilized count."""
        return self.desired_replicas != self.stabilized_replicas


class NormalizationArg(Struct, frozen=True, kw_only=True):
    """The input of stabilization and limits. Upstream: podautoscaler.NormalizationArg."""

    proposed_replicas: int
    """The replica count that the metrics propose."""
    current_replicas: int
    """`spec.replicas` of the scale."""
    min_replicas: int
    max_replicas: int
    downscale_stabilization_ms: int
    """The window for scaling down if behavior sets none."""
    history: History
    now_ms: int
    """The current time of the history's clock."""


def normalize_desired_replicas(arg: NormalizationArg) -> Normalized:
    """Apply the rules for HPAs without `behavior`. Upstream: podautoscaler.normalizeDesiredReplicas."""
    cutoff = arg.now_ms - arg.downscale_stabilization_ms
    recent = [each for each in arg.history.recommendations if each.time_ms >= cutoff]
    stabilized = max([arg.proposed_replicas, *[each.replicas for each in recent]])
    up_limit = RateLimit(replicas=max(2 * arg.current_replicas, 4))  # Upstream: podautoscaler.calculateScaleUpLimit
    desired, limit = _convert_with_rules(stabilized, arg, up_limit.replicas)
    return Normalized(
        proposed_replicas=arg.proposed_replicas,
        stabilized_replicas=stabilized,
        stabilization="ReadyForNewScale" if stabilized == arg.proposed_replicas else "ScaleDownStabilized",
        window_ms=arg.downscale_stabilization_ms,
        stabilized_by=_stabilizer(recent, arg.proposed_replicas, stabilized),
        scale_up_limit=up_limit,
        scale_down_limit=None,
        desired_replicas=desired,
        limit=limit,
        recommendations=_with_recommendation(arg, cutoff),
    )


def normalize_desired_replicas_with_behaviors(arg: NormalizationArg, behavior: Behavior) -> Normalized:
    """Apply the rules for HPAs with `behavior`. Upstream: podautoscaler.normalizeDesiredReplicasWithBehaviors."""
    now_ms, current, history = arg.now_ms, arg.current_replicas, arg.history
    up_window, down_window = stabilization_windows(behavior, arg.downscale_stabilization_ms)
    up_cutoff, down_cutoff = now_ms - up_window, now_ms - down_window
    up_recent = [each for each in history.recommendations if each.time_ms > up_cutoff]
    down_recent = [each for each in history.recommendations if each.time_ms > down_cutoff]
    stabilized = _stabilize_with_behaviors(arg, up_recent, down_recent)
    stabilization, window_ms, recent = "ScaleDownStabilized", down_window, down_recent
    if arg.proposed_replicas >= current:
        stabilization, window_ms, recent = "ScaleUpStabilized", up_window, up_recent
    up_limit = calculate_scale_up_limit_with_scaling_rules(behavior.scale_up, current, history, now_ms)
    down_limit = calculate_scale_down_limit_with_behaviors(behavior.scale_down, current, history, now_ms)
    desired, limit = _convert_with_behavior_rate(
        stabilized, arg, up_limit=up_limit.replicas, down_limit=down_limit.replicas
    )
    return Normalized(
        proposed_replicas=arg.proposed_replicas,
        stabilized_replicas=stabilized,
        stabilization="ReadyForNewScale" if stabilized == arg.proposed_replicas else stabilization,
        window_ms=window_ms,
        stabilized_by=_stabilizer(recent, arg.proposed_replicas, stabilized),
        scale_up_limit=up_limit,
        scale_down_limit=down_limit,
        desired_replicas=desired,
        limit=limit,
        recommendations=_with_recommendation(arg, min(up_cutoff, down_cutoff)),
    )


# --- stabilization -------------------------------------------------------------------------------------------------


def stabilization_windows(behavior: Behavior | None, downscale_stabilization_ms: int) -> tuple[int, int]:
    """Return the windows for scaling up and down in milliseconds, with the default of the latter."""
    if behavior is None:
        return 0, downscale_stabilization_ms
    down_seconds = behavior.scale_down.stabilization_window_seconds
    down_ms = downscale_stabilization_ms if down_seconds is None else 1000 * down_seconds
    return 1000 * (behavior.scale_up.stabilization_window_seconds or 0), down_ms


def _stabilize_with_behaviors(
    arg: NormalizationArg, up_recent: list[Recommendation], down_recent: list[Recommendation]
) -> int:
    """Upstream: podautoscaler.stabilizeRecommendationWithBehaviors."""
    least = min([arg.proposed_replicas, *[each.replicas for each in up_recent]])
    most = max([arg.proposed_replicas, *[each.replicas for each in down_recent]])
    return min(max(arg.current_replicas, least), most)


def _stabilizer(
    recent: list[Recommendation], proposed_replicas: int, stabilized_replicas: int
) -> Recommendation | None:
    """Return the recommendation in the window that changed the proposal, if it was changed."""
    if stabilized_replicas == proposed_replicas or not recent:
        return None
    counts = [each.replicas for each in recent]
    most = min(counts) if stabilized_replicas < proposed_replicas else max(counts)
    return max([each for each in recent if each.replicas == most], key=lambda each: each.time_ms)


def _with_recommendation(arg: NormalizationArg, cutoff: int) -> tuple[Recommendation, ...]:
    """Put the proposal into the last slot that is older than `cutoff`, or into a new one."""
    latest = Recommendation(arg.proposed_replicas, arg.now_ms)
    slots = list(arg.history.recommendations)
    for index in reversed(range(len(slots))):
        if slots[index].time_ms < cutoff:
            slots[index] = latest
            return tuple(slots)
    return (*slots, latest)


# --- limits --------------------------------------------------------------------------------------------------------


def _convert_with_rules(replicas: int, arg: NormalizationArg, up_limit: int) -> tuple[int, str]:
    """Upstream: podautoscaler.convertDesiredReplicasWithRules."""
    if replicas < arg.min_replicas:
        return arg.min_replicas, "TooFewReplicas"
    most = min(arg.max_replicas, up_limit)
    if replicas > most:
        return most, "ScaleUpLimit" if up_limit < arg.max_replicas else "TooManyReplicas"
    return replicas, "DesiredWithinRange"


def _convert_with_behavior_rate(
    replicas: int, arg: NormalizationArg, *, up_limit: int, down_limit: int
) -> tuple[int, str]:
    """Upstream: podautoscaler.convertDesiredReplicasWithBehaviorRate."""
    if replicas > arg.current_replicas:
        # The limit may be below the current count if the rules were tightened.
        up_limit = max(up_limit, arg.current_replicas)
        most = min(arg.max_replicas, up_limit)
        if replicas > most:
            return most, "ScaleUpLimit" if up_limit < arg.max_replicas else "TooManyReplicas"
    elif replicas < arg.current_replicas:
        down_limit = min(down_limit, arg.current_replicas)
        least = max(arg.min_replicas, down_limit)
        if replicas < least:
            return least, "ScaleDownLimit" if down_limit > arg.min_replicas else "TooFewReplicas"
    return replicas, "DesiredWithinRange"


def calculate_scale_up_limit_with_scaling_rules(
    rules: ScalingRules, current_replicas: int, history: History, now_ms: int
) -> RateLimit:
    """Return the highest allowed replica count. Upstream: podautoscaler.calculateScaleUpLimitWithScalingRules."""
    if rules.select_policy == "Disabled":
        return RateLimit(replicas=current_replicas)
    limits = []
    for policy in rules.policies:
        start = _period_start(policy, current_replicas, history, now_ms)
        if policy.type == "Pods":
            most = int32(start + policy.value)
        else:
            most = clamp_int32(math.ceil(start * (1 + policy.value / 100)))
        limits.append(RateLimit(replicas=most, policy=policy, period_start_replicas=start))
    if rules.select_policy == "Min":
        return min(limits, key=_replicas, default=RateLimit(replicas=MAX_INT32))
    return max(limits, key=_replicas, default=RateLimit(replicas=MIN_INT32))


def calculate_scale_down_limit_with_behaviors(
    rules: ScalingRules, current_replicas: int, history: History, now_ms: int
) -> RateLimit:
    """Return the lowest allowed replica count. Upstream: podautoscaler.calculateScaleDownLimitWithBehaviors."""
    if rules.select_policy == "Disabled":
        return RateLimit(replicas=current_replicas)
    limits = []
    for policy in rules.policies:
        start = _period_start(policy, current_replicas, history, now_ms)
        if policy.type == "Pods":
            least = int32(start - policy.value)
        else:
            least = clamp_int32(math.trunc(start * (1 - policy.value / 100)))
        limits.append(RateLimit(replicas=least, policy=policy, period_start_replicas=start))
    if rules.select_policy == "Min":
        return max(limits, key=_replicas, default=RateLimit(replicas=MIN_INT32))
    return min(limits, key=_replicas, default=RateLimit(replicas=MAX_INT32))


def _replicas(limit: RateLimit) -> int:
    return limit.replicas


def _period_start(policy: ScalingPolicy, current_replicas: int, history: History, now_ms: int) -> int:
    """Return the replica count at the start of the policy's period."""
    added = get_replicas_change_per_period(policy.period_seconds, history.scale_up_events, now_ms)
    deleted = get_replicas_change_per_period(policy.period_seconds, history.scale_down_events, now_ms)
    return int32(current_replicas - added + deleted)


def get_replicas_change_per_period(period_seconds: int, events: Iterable[ScaleEvent], now_ms: int) -> int:
    """Return the sum of the changes within a period. Upstream: podautoscaler.getReplicasChangePerPeriod."""
    cutoff = now_ms - 1000 * period_seconds
    return sum(each.change for each in events if each.time_ms > cutoff)
