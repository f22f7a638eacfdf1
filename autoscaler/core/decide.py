"""The decision on an HPA, in the order of Kubernetes 1.36: target, bounds, selector, metrics, stabilization, limits.

`autoscaler.core.preconditions.next_read` returns the next read before a decision. `conclude` completes it after the
scale was written or could not be written: a failed write changes status, events and history.
"""

from __future__ import annotations

from msgspec.structs import replace

from autoscaler.core.decision import PAUSED, STALE, BlockedScale, Decision, Event, FallbackReplicas
from autoscaler.core.history import History, record_initial_recommendation, store_scale_event
from autoscaler.core.metrics import Evaluation, compute_replicas_for_metric
from autoscaler.core.model import Status
from autoscaler.core.observation import MetricError, Observation, Scale
from autoscaler.core.preconditions import (
    BELOW_MIN,
    Bound,
    NoScale,
    SelectorProblem,
    find_obstacle,
    has_object_or_external_metrics,
)
from autoscaler.core.replica_calculator import ReplicaCalculator, Tolerances
from autoscaler.core.stabilization import (
    NormalizationArg,
    Normalized,
    normalize_desired_replicas,
    normalize_desired_replicas_with_behaviors,
)
from autoscaler.core.status import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED, Conditions


def decide(observation: Observation, history: History, now_ms: int, *, monotonic_ms: int | None = None) -> Decision:
    """Decide, once `next_read` returns None. Upstream: podautoscaler.reconcileAutoscaler.

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
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    hpa, scale, config = observation.hpa, observation.scale, observation.config
    conditions = Conditions(hpa.status.conditions, now_ms)
    decision = Decision(
        observation=observation, now_ms=now_ms, monotonic_ms=monotonic_ms, status=hpa.status, history=history
    )
    obstacle = find_obstacle(observation)
    if isinstance(obstacle, NoScale):
        message = f"the HPA controller was unable to get the target's current scale: {obstacle.cause}"
        conditions.set(ABLE_TO_SCALE, False, "FailedGetScale", message)
        conditions.remove(SCALING_LIMITED, PAUSED, STALE)
        return replace(
            decision,
            status=replace(hpa.status, conditions=conditions.all),
            events=(Event("Warning", "FailedGetScale", obstacle.cause),),
            error=obstacle.error,
            failed=True,
        )
    assert isinstance(scale, Scale)
    conditions.set(ABLE_TO_SCALE, True, "SucceededGetScale")
    current = scale.spec_replicas
    history = record_initial_recommendation(
        history,
        current_replicas=current,
        status=hpa.status,
        behavior=hpa.spec.behavior,
        now_ms=now_ms,
        monotonic_ms=monotonic_ms,
    )
    decision = replace(decision, current_replicas=current, history=history)

    proposed: int | None
    if isinstance(obstacle, Bound):
        proposed, reason = obstacle.replicas, obstacle.reason
        if not reason:
            conditions.set(SCALING_ACTIVE, False, "ScalingDisabled")
            if not config.scale_to_zero:
                conditions.remove(SCALED_TO_ZERO)
    else:
        decision, proposed, reason = _compute_replicas_for_metrics(decision, scale, obstacle, conditions)
        if proposed is None:
            conditions.remove(SCALING_LIMITED, PAUSED, STALE)
            problem = decision.error or ""
            error = f"failed to compute desired number of replicas based on listed metrics for {hpa.target}: {problem}"
            return replace(
                decision,
                status=_status(decision, scale, conditions, desired_replicas=hpa.status.desired_replicas),
                late_events=(Event("Warning", "FailedComputeMetricsReplicas", problem),),
                error=error,
                failed=True,
            )

    blocked: BlockedScale | None = None
    if observation.stale and proposed < current:  # missing pods look like missing load
        blocked = BlockedScale(paused="", stale=observation.stale, replicas=proposed, reason=reason)
        proposed = current
    desired = proposed
    if not isinstance(obstacle, Bound):
        normalized = _normalize(decision, scale, proposed)
        conditions.set_normalized(normalized)
        history = replace(decision.history, recommendations=normalized.recommendations)
        decision = replace(decision, normalized=normalized, history=history)
        desired = normalized.desired_replicas
        if current == 0 and desired < hpa.spec.min_replicas:
            # The minimum was raised while the target was scaled to zero.
            desired, reason = hpa.spec.min_replicas, reason or BELOW_MIN
    if config.paused.forbids(current=current, desired=desired):
        blocked = BlockedScale(paused=config.paused.value, replicas=desired, reason=reason)
        desired, reason = current, ""
    if blocked is None:
        # If the metrics were not fetched, the condition is from an earlier reconciliation.
        conditions.remove(SCALING_LIMITED, PAUSED, STALE)
    else:
        stored = hpa.status.conditions
        conditions.set(SCALING_LIMITED, True, blocked.condition, blocked.message, stored=stored)
    return replace(
        decision,
        blocked=blocked,
        scale_to=None if desired == current else desired,
        rescale_reason=reason,
        status=_status(decision, scale, conditions, desired_replicas=desired),
    )


def _compute_replicas_for_metrics(
    decision: Decision, scale: Scale, problem: SelectorProblem | None, conditions: Conditions
) -> tuple[Decision, int | None, str]:
    """Evaluate the metrics: the highest proposal decides, unless a failed metric might propose more.

    Upstream: podautoscaler.computeReplicasForMetrics.

    Returns:
        The decision with the evaluations, the proposed count (None: there is none), and the reason for a scale.
    """
    if problem is not None:
        conditions.set(SCALING_ACTIVE, False, problem.condition_reason, problem.condition_message)
        event = Event("Warning", problem.event_reason, problem.error)
        return replace(decision, events=(event,), error=problem.error), None, ""
    current, history = scale.spec_replicas, decision.history
    observation = decision.observation
    tolerance = Tolerances.of(observation.hpa.spec.behavior, observation.config.tolerance)
    evaluations = evaluate(observation, tolerance, decision.now_ms)
    failures = [each.failure for each in evaluations if each.failure is not None]
    winner, proposed = _highest_proposal(evaluations)
    count = f"{len(failures)} invalid out of {len(evaluations)}"
    failure_count = history.metric_failures + 1 if failures else 0
    if failure_count != history.metric_failures:
        history = replace(history, metric_failures=failure_count)
    decision = replace(
        decision,
        tolerance=tolerance,
        evaluations=evaluations,
        events=tuple(Event("Warning", failure.reason, failure.message) for failure in failures),
        error=f"invalid metrics ({count}), first error is: {failures[0].error}" if failures else None,
        history=history,
    )
    fallback = _fallback(observation, failure_count)
    if fallback is not None and proposed < max(fallback.replicas, current):
        _set_compute_failed(conditions, failures[0], f"; {fallback.message}")
        reason = fallback.rescale_reason if fallback.replicas > current else ""
        return replace(decision, fallback=fallback), max(fallback.replicas, current), reason
    if winner is None or (failures and proposed < current):
        _set_compute_failed(conditions, failures[0])
        return decision, None, ""

    message = f"the HPA was able to successfully calculate a replica count from {winner.name}"
    conditions.set(SCALING_ACTIVE, True, "ValidMetricFound", message)
    # The reason follows the metrics' proposal, even if stabilization reverses the direction.
    proposed, reason = max(proposed, 0), ""
    if proposed > current:
        reason = f"{winner.name} above target"
    elif proposed < current:
        reason = "All metrics below target"
    return replace(decision, winner=winner), proposed, reason


def _normalize(decision: Decision, scale: Scale, proposed: int) -> Normalized:
    """Stabilize and limit a proposal."""
    spec = decision.observation.hpa.spec
    arg = NormalizationArg(
        proposed_replicas=proposed,
        current_replicas=scale.spec_replicas,
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        downscale_stabilization_ms=decision.observation.config.downscale_stabilization_ms,
        history=decision.history,
        now_ms=decision.monotonic_ms,
    )
    if spec.behavior is None:
        return normalize_desired_replicas(arg)
    return normalize_desired_replicas_with_behaviors(arg, spec.behavior)


def evaluate(observation: Observation, tolerances: Tolerances, now_ms: int) -> tuple[Evaluation, ...]:
    """Evaluate each metric of an HPA whose scale and pods are known, at `now_ms` since the Unix epoch."""
    hpa, config, scale = observation.hpa, observation.config, observation.scale
    assert isinstance(scale, Scale)
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


def _fallback(observation: Observation, failures: int) -> FallbackReplicas | None:
    """Return the fallback's proposal after enough failures in a row."""
    fallback = observation.config.fallback
    if fallback is None or failures < fallback.failure_threshold:
        return None
    return FallbackReplicas(replicas=fallback.replicas, failure_threshold=fallback.failure_threshold, failures=failures)


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


def conclude(decision: Decision, *, act: bool = True, scale_error: str | None = None) -> Decision:
    """Complete a decision after `decision.scale_to`, if any, was written.

    Args:
        decision: the decision.
        act: False in modes that write neither scale nor status; an event reports the scale.
        scale_error: why the scale could not be written; None if it was written or there was nothing to write.
    """
    hpa = decision.observation.hpa
    status, events, error = decision.status, decision.events, decision.error
    scaled_history: History | None = None
    if decision.scale_to is not None:
        conditions = Conditions(status.conditions, decision.now_ms)
        size = f"{decision.scale_to}; reason: {decision.rescale_reason}"
        if not act:
            events = (*events, Event("Normal", "WouldRescale", f"New size would be: {size}"))
        elif scale_error is not None:
            message = f"the HPA controller was unable to update the target scale: {scale_error}"
            conditions.set(ABLE_TO_SCALE, False, "FailedUpdateScale", message)
            events = (*events, Event("Warning", "FailedRescale", f"New size: {size}; error: {scale_error}"))
            status = replace(status, desired_replicas=hpa.status.desired_replicas, conditions=conditions.all)
            error = f"failed to rescale {hpa.target}: {scale_error}"
        else:
            message = f"the HPA controller was able to update the target scale to {decision.scale_to}"
            conditions.set(ABLE_TO_SCALE, True, "SucceededRescale", message)
            _set_scaled_to_zero(decision, conditions)
            events = (*events, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
            status = replace(status, last_scale_ms=decision.now_ms, conditions=conditions.all)
            scaled_history = store_scale_event(
                decision.history,
                behavior=hpa.spec.behavior,
                previous_replicas=decision.current_replicas or 0,
                new_replicas=decision.scale_to,
                now_ms=decision.monotonic_ms,
            )
    if hpa.generation:
        status = replace(status, observed_generation=hpa.generation)
    return replace(
        decision,
        status=status,
        events=events,
        error=error,
        scaled_history=scaled_history,
        concluded=True,
        scale_error=None if decision.scale_to is None else scale_error,
    )


def status_not_stored(decision: Decision, message: str) -> Decision:
    """Complete a concluded decision after the status write failed with `message`."""
    event = Event("Warning", "FailedUpdateStatus", message)
    error = decision.error
    if not decision.failed and decision.scale_error is None:
        error = f"failed to update status for {decision.observation.hpa.name}: {message}"
    return replace(decision, late_events=(event, *decision.late_events), error=error, status_error=message)


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
