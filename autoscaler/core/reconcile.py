"""One reconciliation of an HPA, in the order of Kubernetes 1.36.

    decide(observation, history, now_ms)   the decision and the reasons for it
    conclude(decision, scale_error)        status, events and history after the write of the scale succeeded or failed
    conclude_without_writing(decision)     the same in dry-run and shadow mode

`autoscaler.core.preconditions.next_read` returns the next read before a decision. The scale is written between `decide`
and `conclude`, because a failed write changes conditions, events and history.

Upstream: podautoscaler.reconcileAutoscaler.
"""

from __future__ import annotations

from msgspec.structs import replace

from autoscaler.core.conditions import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED, Conditions
from autoscaler.core.decision import PAUSED, STALE, BlockedScale, Decision, Event, FallbackReplicas, Outcome
from autoscaler.core.history import History, record_initial_recommendation, store_scale_event
from autoscaler.core.metrics import Evaluation, compute_replicas_for_metric
from autoscaler.core.model import Status
from autoscaler.core.observation import MetricError, Observation, ReadError, Scale
from autoscaler.core.preconditions import (
    BELOW_MIN,
    Bound,
    SelectorProblem,
    api_version_error,
    check_bounds,
    has_object_or_external_metrics,
    validate_selector,
)
from autoscaler.core.replica_calculator import ReplicaCalculator, Tolerances
from autoscaler.core.stabilization import (
    NormalizationArg,
    normalize_desired_replicas,
    normalize_desired_replicas_with_behaviors,
)


def decide(observation: Observation, history: History, now_ms: int, *, monotonic_ms: int | None = None) -> Decision:
    """Decide, once `next_read` returns None.

    Args:
        observation: what was read.
        history: the HPA's history; empty for a new one.
        now_ms: the time of the reconciliation, in milliseconds since the Unix epoch: for conditions, `lastScaleTime`,
            and comparisons with times from the API.
        monotonic_ms: the same time on the history's monotonic clock, for windows and rate limits. None: `now_ms`, for
            recordings with a single clock.

    Raises:
        ValueError: a read that `next_read` returns is missing.
    """
    return _apply_pause(_decide(observation, history, now_ms, now_ms if monotonic_ms is None else monotonic_ms))


def _decide(observation: Observation, history: History, now_ms: int, monotonic_ms: int) -> Decision:
    """Decide, ignoring a pause."""
    hpa, scale, config = observation.hpa, observation.scale, observation.config
    conditions = Conditions(hpa.status.conditions, now_ms)
    start = Decision(
        observation=observation, now_ms=now_ms, monotonic_ms=monotonic_ms, status=hpa.status, history=history
    )
    if not isinstance(scale, Scale):
        return _without_scale(start, scale, conditions)
    conditions.set(ABLE_TO_SCALE, True, "SucceededGetScale")
    history = record_initial_recommendation(
        history,
        current_replicas=scale.spec_replicas,
        status=hpa.status,
        behavior=hpa.spec.behavior,
        now_ms=now_ms,
        monotonic_ms=monotonic_ms,
    )
    start = replace(start, current_replicas=scale.spec_replicas, history=history)
    bound = check_bounds(hpa, scale, config)
    if bound is not None:
        return _by_bound(start, scale, bound, conditions)
    problem = validate_selector(observation, scale)
    if problem is not None:
        return _by_selector(start, scale, problem, conditions)
    return _by_metrics(start, scale, conditions)


def conclude(decision: Decision, *, scale_error: str | None = None) -> Outcome:
    """Return the outcome after `decision.scale_to`, if any, was written.

    Args:
        decision: the decision.
        scale_error: why the scale could not be written; None if it was written or there was nothing to write.
    """
    hpa = decision.observation.hpa
    status, events, history = decision.status, decision.events, decision.history
    error, failed = decision.error, decision.failed
    if decision.scale_to is not None:
        conditions = Conditions(status.conditions, decision.now_ms)
        size = f"New size: {decision.scale_to}; reason: {decision.rescale_reason}"
        if scale_error is not None:
            message = f"the HPA controller was unable to update the target scale: {scale_error}"
            conditions.set(ABLE_TO_SCALE, False, "FailedUpdateScale", message)
            events = (*events, Event("Warning", "FailedRescale", f"{size}; error: {scale_error}"))
            status = replace(status, desired_replicas=hpa.status.desired_replicas, conditions=conditions.all)
            error, failed = f"failed to rescale {hpa.target}: {scale_error}", True
        else:
            message = f"the HPA controller was able to update the target scale to {decision.scale_to}"
            conditions.set(ABLE_TO_SCALE, True, "SucceededRescale", message)
            _set_scaled_to_zero(decision, conditions)
            events = (*events, Event("Normal", "SuccessfulRescale", size))
            status = replace(status, last_scale_ms=decision.now_ms, conditions=conditions.all)
            history = store_scale_event(
                history,
                behavior=hpa.spec.behavior,
                previous_replicas=decision.current_replicas or 0,
                new_replicas=decision.scale_to,
                now_ms=decision.monotonic_ms,
            )
    if hpa.generation:
        status = replace(status, observed_generation=hpa.generation)
    return Outcome(
        status=None if status == hpa.status else status,
        events=events,
        late_events=decision.late_events,
        error=error,
        history=history,
        failed=failed,
    )


def conclude_without_writing(decision: Decision) -> Outcome:
    """Return the outcome for modes that write neither scale nor status; an event reports the scale."""
    events = decision.events
    if decision.scale_to is not None:
        size = f"New size would be: {decision.scale_to}; reason: {decision.rescale_reason}"
        events = (*events, Event("Normal", "WouldRescale", size))
    return Outcome(
        status=None,
        events=events,
        late_events=decision.late_events,
        error=decision.error,
        history=decision.history,
        failed=decision.failed,
    )


# --- causes of a decision --------------------------------------------------------------------------------------------


def _without_scale(start: Decision, scale: ReadError | None, conditions: Conditions) -> Decision:
    """The target, or its scale, could not be read."""
    hpa = start.observation.hpa
    match scale:
        case ReadError(cause, unknown_kind=True):
            error = f"unable to determine resource for scale target reference: {cause}"
        case ReadError(cause):
            error = f"failed to query scale subresource for {hpa.target}: {cause}"
        case None:
            version_error = api_version_error(hpa)
            if version_error is None:
                raise ValueError("the scale has not been read yet")
            cause = version_error
            error = f"invalid API version in scale target reference: {cause}"
    message = f"the HPA controller was unable to get the target's current scale: {cause}"
    conditions.set(ABLE_TO_SCALE, False, "FailedGetScale", message)
    return replace(
        start,
        status=replace(hpa.status, conditions=conditions.all),
        events=(Event("Warning", "FailedGetScale", cause),),
        error=error,
        failed=True,
    )


def _by_bound(start: Decision, scale: Scale, bound: Bound, conditions: Conditions) -> Decision:
    """Scaling is disabled, or the count is out of bounds: neither stabilization nor rate limits apply."""
    if not bound.reason:
        conditions.set(SCALING_ACTIVE, False, "ScalingDisabled")
        if not start.observation.config.scale_to_zero:
            conditions.remove(SCALED_TO_ZERO)
    blocked = _blocked_by_stale_watches(start, scale, bound.replicas, bound.reason)
    if blocked is not None:
        conditions.set(SCALING_LIMITED, True, blocked.condition, blocked.message)
        status = _status(start, scale, conditions, desired_replicas=scale.spec_replicas)
        return replace(start, blocked=blocked, status=status)
    return replace(
        start,
        scale_to=bound.replicas if bound.reason else None,
        rescale_reason=bound.reason,
        status=_status(start, scale, conditions, desired_replicas=bound.replicas),
    )


def _by_selector(start: Decision, scale: Scale, problem: SelectorProblem, conditions: Conditions) -> Decision:
    """The selector is invalid, or ambiguous with other HPAs'."""
    conditions.set(SCALING_ACTIVE, False, problem.condition_reason, problem.condition_message)
    start = replace(start, events=(Event("Warning", problem.event_reason, problem.error),))
    return _without_count(start, scale, conditions, problem.error)


def _by_metrics(start: Decision, scale: Scale, conditions: Conditions) -> Decision:
    """The metric with the highest proposal decides, unless a failed metric might propose more.

    Upstream: podautoscaler.computeReplicasForMetrics.
    """
    current = scale.spec_replicas
    tolerance = _tolerances(start.observation)
    evaluations = _evaluate(start.observation, scale, tolerance, start.now_ms)
    failures = [each.failure for each in evaluations if each.failure is not None]
    events = tuple(Event("Warning", failure.reason, failure.message) for failure in failures)
    start = replace(start, tolerance=tolerance, evaluations=evaluations, events=events)
    winner, proposed = _highest_proposal(evaluations)
    if failures:
        count = f"{len(failures)} invalid out of {len(evaluations)}"
        start = replace(start, error=f"invalid metrics ({count}), first error is: {failures[0].error}")
    failure_count = start.history.metric_failures + 1 if failures else 0
    if failure_count != start.history.metric_failures:
        start = replace(start, history=replace(start.history, metric_failures=failure_count))
    fallback = _fallback(start.observation, failure_count)
    if fallback is not None and proposed < max(fallback.replicas, current):
        _set_compute_failed(conditions, failures[0], f"; {fallback.message}")
        reason = fallback.rescale_reason if fallback.replicas > current else ""
        proposed = max(fallback.replicas, current)
        return _by_proposal(replace(start, fallback=fallback), scale, proposed, reason, conditions)
    if winner is None or (failures and proposed < current):
        _set_compute_failed(conditions, failures[0])
        return _without_count(start, scale, conditions, start.error or "")

    message = f"the HPA was able to successfully calculate a replica count from {winner.name}"
    conditions.set(SCALING_ACTIVE, True, "ValidMetricFound", message)
    # The reason follows the metrics' proposal, even if stabilization reverses the direction.
    proposed, reason = max(proposed, 0), ""
    if proposed > current:
        reason = f"{winner.name} above target"
    elif proposed < current:
        reason = "All metrics below target"
    return _by_proposal(replace(start, winner=winner), scale, proposed, reason, conditions)


def _by_proposal(start: Decision, scale: Scale, proposed: int, reason: str, conditions: Conditions) -> Decision:
    """Stabilize and limit the replica count that is proposed for `reason`."""
    spec, current = start.observation.hpa.spec, scale.spec_replicas
    blocked = _blocked_by_stale_watches(start, scale, proposed, reason)
    arg = NormalizationArg(
        proposed_replicas=current if blocked else proposed,
        current_replicas=current,
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        downscale_stabilization_ms=start.observation.config.downscale_stabilization_ms,
        history=start.history,
        now_ms=start.monotonic_ms,
    )
    if spec.behavior is None:
        normalized = normalize_desired_replicas(arg)
    else:
        normalized = normalize_desired_replicas_with_behaviors(arg, spec.behavior)
    conditions.set_normalized(normalized)
    if blocked is not None:
        stored = start.observation.hpa.status.conditions
        conditions.set(SCALING_LIMITED, True, blocked.condition, blocked.message, stored=stored)
    desired = normalized.desired_replicas
    if current == 0 and desired < spec.min_replicas:
        # The minimum was raised while the target was scaled to zero.
        desired, reason = spec.min_replicas, reason or BELOW_MIN
    return replace(
        start,
        normalized=normalized,
        blocked=blocked,
        scale_to=None if desired == current else desired,
        rescale_reason=reason,
        status=_status(start, scale, conditions, desired_replicas=desired),
        history=replace(start.history, recommendations=normalized.recommendations),
    )


def _apply_pause(decision: Decision) -> Decision:
    """Remove the scale that the HPA's pause forbids, and the condition of a pause that has ended."""
    current, scale_to = decision.current_replicas or 0, decision.scale_to
    pause = decision.observation.config.paused
    conditions = Conditions(decision.status.conditions, decision.now_ms)
    if scale_to is None or not pause.forbids(current=current, desired=scale_to):
        # If the metrics were not fetched, the condition is from an earlier reconciliation.
        ended = (PAUSED, STALE) if decision.blocked is None else ()
        if any(each.type == SCALING_LIMITED and each.reason in ended for each in conditions.all):
            conditions.remove(SCALING_LIMITED)
            decision = replace(decision, status=replace(decision.status, conditions=conditions.all))
        return decision
    blocked = BlockedScale(paused=pause.value, replicas=scale_to, reason=decision.rescale_reason)
    stored = decision.observation.hpa.status.conditions
    conditions.set(SCALING_LIMITED, True, blocked.condition, blocked.message, stored=stored)
    status = replace(decision.status, desired_replicas=current, conditions=conditions.all)
    return replace(decision, scale_to=None, rescale_reason="", blocked=blocked, status=status)


def _without_count(start: Decision, scale: Scale, conditions: Conditions, problem: str) -> Decision:
    """Do not scale, and report that no replica count could be computed."""
    hpa = start.observation.hpa
    return replace(
        start,
        status=_status(start, scale, conditions, desired_replicas=hpa.status.desired_replicas),
        late_events=(Event("Warning", "FailedComputeMetricsReplicas", problem),),
        error=f"failed to compute desired number of replicas based on listed metrics for {hpa.target}: {problem}",
        failed=True,
    )


# --- helpers ---------------------------------------------------------------------------------------------------------


def _evaluate(observation: Observation, scale: Scale, tolerances: Tolerances, now_ms: int) -> tuple[Evaluation, ...]:
    hpa, config = observation.hpa, observation.config
    if observation.pods is None:
        raise ValueError("the pods have not been listed yet")
    calculator = ReplicaCalculator(
        pods=observation.pods,
        spec_replicas=scale.spec_replicas,
        status_replicas=scale.status_replicas,
        tolerances=tolerances,
        now_ms=now_ms,
        cpu_initialization_period_ms=config.cpu_initialization_period_ms,
        initial_readiness_delay_ms=config.initial_readiness_delay_ms,
    )
    metrics = hpa.spec.metrics
    responses = (None,) * len(metrics) if observation.responses is None else observation.responses
    return tuple(
        compute_replicas_for_metric(spec, response, calculator, namespace=hpa.namespace)
        for spec, response in zip(metrics, responses, strict=True)
    )


def _highest_proposal(evaluations: tuple[Evaluation, ...]) -> tuple[Evaluation | None, int]:
    """Return the valid metric with the highest proposal, the first of equals, and its count."""
    winner, most = None, 0
    for each in evaluations:
        if each.proposal is not None and (most == 0 or each.proposal.replicas > most):
            winner, most = each, each.proposal.replicas
    return winner, most


def _tolerances(observation: Observation) -> Tolerances:
    """Upstream: podautoscaler.tolerancesForHpa."""
    behavior, default = observation.hpa.spec.behavior, observation.config.tolerance
    down = behavior.scale_down.tolerance if behavior else None
    up = behavior.scale_up.tolerance if behavior else None
    return Tolerances(
        scale_down=default if down is None else down.quantity.as_float(),
        scale_up=default if up is None else up.quantity.as_float(),
    )


def _fallback(observation: Observation, failures: int) -> FallbackReplicas | None:
    """Return the fallback's proposal after enough failures in a row."""
    fallback = observation.config.fallback
    if fallback is None or failures < fallback.failure_threshold:
        return None
    return FallbackReplicas(replicas=fallback.replicas, failure_threshold=fallback.failure_threshold, failures=failures)


def _blocked_by_stale_watches(start: Decision, scale: Scale, desired: int, reason: str) -> BlockedScale | None:
    """Block a scale-down while objects may be out of date, since missing pods look like missing load."""
    stale = start.observation.stale
    if not stale or desired >= scale.spec_replicas:
        return None
    return BlockedScale(paused="", stale=stale, replicas=desired, reason=reason)


def _set_compute_failed(conditions: Conditions, failure: MetricError, suffix: str = "") -> None:
    """Upstream: podautoscaler.getUnableComputeReplicaCountCondition."""
    message = f"the HPA was unable to compute the replica count: {failure.message}{suffix}"
    conditions.set(SCALING_ACTIVE, False, failure.reason, message)


def _status(start: Decision, scale: Scale, conditions: Conditions, *, desired_replicas: int) -> Status:
    """Upstream: podautoscaler.setStatus."""
    return replace(
        start.observation.hpa.status,
        current_replicas=scale.spec_replicas,
        desired_replicas=desired_replicas,
        current_metrics=tuple(each.current for each in start.evaluations),
        conditions=conditions.all,
        # If the API does not count generations, Kubernetes 1.36 removes an observedGeneration from the status.
        observed_generation=None,
    )


def _set_scaled_to_zero(decision: Decision, conditions: Conditions) -> None:
    """Set the condition ScaledToZero, so that this controller may scale the target up again.

    With the feature off, an old condition is removed with the next scale, or if scaling is disabled.
    """
    hpa = decision.observation.hpa
    if decision.observation.config.scale_to_zero:
        zero = decision.scale_to == 0 and hpa.spec.min_replicas == 0 and has_object_or_external_metrics(hpa)
        conditions.set(SCALED_TO_ZERO, zero, "ScaledToZero" if zero else "NotScaledToZero")
    else:
        conditions.remove(SCALED_TO_ZERO)
