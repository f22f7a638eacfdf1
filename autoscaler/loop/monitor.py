"""Count reconciliations and metric computations under the labels that kube-controller-manager gives them.

The two controllers' numbers can be compared only if a situation has the same labels in both. Three of the rules are not
obvious. The only `spec` error of a reconciliation is an apiVersion that cannot be parsed; invalid metrics are internal
errors. A metric's action is relative to the replicas in the stored status, not to those of the scale. A scale that
could not be written has the action `none`.

Upstream: podautoscaler.reconcileAutoscaler, podautoscaler.computeReplicasForMetric, podautoscaler/monitor.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.core.decision import Decision, Outcome
from autoscaler.core.metrics import Evaluation
from autoscaler.core.model import InvalidMetric
from autoscaler.core.preconditions import api_version_error
from autoscaler.loop.telemetry import Action, ErrorKind, Telemetry


def observe_reconciliation(
    telemetry: Telemetry,
    decision: Decision,
    outcome: Outcome,
    *,
    scale_error: str | None,
    metric_seconds: Sequence[float],
    seconds: float,
) -> None:
    """Count one reconciliation, with each of its metrics.

    Args:
        telemetry: what counts.
        decision: what was decided.
        outcome: how it ended, the status write included.
        scale_error: why the scale could not be written; None: it was, or there was nothing to write.
        metric_seconds: how long each metric took, in the order of `decision.evaluations`; may be empty.
        seconds: how long the whole took.
    """
    hpa, current = decision.observation.hpa, decision.current_replicas or 0
    for index, evaluation in enumerate(decision.evaluations):
        telemetry.computed(
            evaluation.spec.type,
            _metric_action(evaluation, hpa.status.current_replicas),
            _metric_error(evaluation),
            seconds=metric_seconds[index] if metric_seconds else 0.0,
        )
    wanted = current if decision.scale_to is None else decision.scale_to
    telemetry.decided(Action.of(current=current, desired=wanted), decision.reason)
    error = ErrorKind.NONE
    if outcome.error is not None:
        error = ErrorKind.INTERNAL if api_version_error(hpa) is None else ErrorKind.SPEC
    desired = current if scale_error is not None else wanted
    telemetry.reconciled(Action.of(current=current, desired=desired), error, seconds=seconds)
    if not outcome.failed:
        telemetry.desired_replicas(hpa.key, desired)


def _metric_action(evaluation: Evaluation, status_replicas: int) -> Action:
    if evaluation.proposal is None:
        return Action.NONE
    return Action.of(current=status_replicas, desired=evaluation.proposal.replicas)


def _metric_error(evaluation: Evaluation) -> ErrorKind:
    if evaluation.failure is None:
        return ErrorKind.NONE
    return ErrorKind.SPEC if isinstance(evaluation.spec.source, InvalidMetric) else ErrorKind.INTERNAL
