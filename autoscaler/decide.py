"""What to do about one HPA: the order of a reconciliation in Kubernetes 1.36, as a pure function.

    missing(observation)                  what to read next; None: everything that matters is known
    decide(observation, history, now_ms)  the decision, with all that explains it
    conclude(decision, scale_error)       the status, events and memory once the scale has been written, or not

No I/O, no clock, no globals: the live loop, shadow mode, replays and explanations call these same functions. The scale
is written between `decide` and `conclude`, because a failed write leads to other conditions, events and memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from autoscaler.conditions import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, Conditions
from autoscaler.evaluate import Circumstances, Evaluation, evaluate, unanswerable
from autoscaler.model import (
    ExternalMetric,
    History,
    ObjectMetric,
    PodListError,
    Recommendation,
    Scale,
    ScaleError,
    Status,
    TargetError,
)
from autoscaler.normalize import Normalized, normalize, remember_scale
from autoscaler.pod_groups import PodTiming
from autoscaler.replicas import Tolerance
from kube.selectors import LabelSelector, SelectorError

if TYPE_CHECKING:
    from autoscaler.model import HPA, Config, Observation

__all__ = [
    "AnswersWanted",
    "Decision",
    "Event",
    "Missing",
    "Outcome",
    "PodsWanted",
    "ScaleWanted",
    "conclude",
    "decide",
    "missing",
]

_ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
_BELOW_MIN = "Current number of replicas below Spec.MinReplicas"


@dataclass(frozen=True, slots=True)
class ScaleWanted:
    """Read the target's scale."""


@dataclass(frozen=True, slots=True)
class PodsWanted:
    """List the pods that `selector` selects in the HPA's namespace, and the other HPAs' selectors there.

    This is also the moment at which Kubernetes takes note that this HPA controls the pods of `selector`.
    """

    selector: LabelSelector


@dataclass(frozen=True, slots=True)
class AnswersWanted:
    """Ask the metrics APIs: one flag per entry of `spec.metrics`, in order; entries without it stay None."""

    wanted: tuple[bool, ...]
    selector: LabelSelector


Missing: TypeAlias = ScaleWanted | PodsWanted | AnswersWanted


@dataclass(frozen=True, slots=True)
class Event:
    """An event about the HPA: `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one HPA and why; `conclude` completes it."""

    observation: Observation
    now_ms: int
    current_replicas: int | None = None
    """`spec.replicas` of the scale; None if that could not be read."""
    evaluations: tuple[Evaluation, ...] = ()
    """One per metric; empty if the metrics did not matter."""
    winner: Evaluation | None = None
    """The metric that asks for the most replicas."""
    normalized: Normalized | None = None
    """How the winner's proposal was stabilised and limited; None if the metrics did not decide."""
    scale_to: int | None = None
    """The replica count to write to the scale; None: leave it alone."""
    rescale_reason: str = ""
    """Why, in the words of the event."""
    status: Status
    """The HPA's status as far as it is known before the scale is written."""
    events: tuple[Event, ...] = ()
    """Events before the status is written."""
    late_events: tuple[Event, ...] = ()
    """Events after the status is written."""
    error: str | None = None
    """What the step returns as its error, even if it scales."""
    failed: bool = False
    """The step ends here with `error`; a status that cannot be written does not change that."""
    history: History
    """The memory with this step's recommendation; a scale that succeeds is added by `conclude`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one step."""

    status: Status | None
    """The status to store; None: nothing changed."""
    events: tuple[Event, ...]
    """To emit before the status is stored, in order."""
    late_events: tuple[Event, ...]
    """To emit after the status is stored, in order."""
    error: str | None
    """The error that the step returns; None: all went well."""
    history: History
    """The memory for the next step."""
    failed: bool

    def status_not_stored(self, hpa: HPA, message: str) -> Outcome:
        """This outcome if the status could not be stored, for the reason `message`."""
        event = Event("Warning", "FailedUpdateStatus", message)
        error = self.error if self.failed else f"failed to update status for {hpa.name}: {message}"
        return replace(self, status=None, late_events=(event, *self.late_events), error=error)


def missing(observation: Observation) -> Missing | None:
    """What must be read before `observation` can be decided on; None: nothing more.

    Nothing is asked for that could not matter: no metrics of a target that is scaled to 0 by hand, or that is out of
    bounds, or whose selector is unusable.
    """
    hpa, scale = observation.hpa, observation.scale
    if scale is None:
        return None if _api_version_error(hpa) else ScaleWanted()
    if not isinstance(scale, Scale) or _without_metrics(hpa, scale, observation.config) is not None:
        return None
    selector = _parse_selector(scale)
    if isinstance(selector, _BadSelector):
        return None
    if observation.pods is None:
        return PodsWanted(selector)
    if observation.answers is None and not _rivals(observation):
        wanted = tuple(unanswerable(spec) is None for spec in hpa.spec.metrics)
        return AnswersWanted(wanted, selector) if any(wanted) else None
    return None


def decide(observation: Observation, history: History, now_ms: int) -> Decision:
    """Decide what to do, given everything that `missing` asked for.

    Args:
        observation: what was read.
        history: what was remembered of this HPA so far; empty for one that is new.
        now_ms: the time of the whole step, in milliseconds since the Unix epoch.
    """
    hpa, scale, config = observation.hpa, observation.scale, observation.config
    conditions = Conditions(hpa.status.conditions, now_ms)
    if not isinstance(scale, Scale):
        return _without_scale(observation, conditions, history, now_ms)
    if not config.scale_to_zero:
        conditions.remove(SCALED_TO_ZERO)
    conditions.set(ABLE_TO_SCALE, True, "SucceededGetScale")
    if not history.recommendations:
        history = replace(history, recommendations=(Recommendation(scale.spec_replicas, now_ms),))
    bound = _without_metrics(hpa, scale, config)
    if bound is not None:
        return _by_bound(observation, scale, bound, conditions, history, now_ms)
    return _by_metrics(observation, scale, conditions, history, now_ms)


def conclude(decision: Decision, *, scale_error: str | None = None) -> Outcome:
    """The end of the step, after `decision.scale_to`, if any, was written.

    Args:
        decision: what was decided.
        scale_error: why the scale could not be written; None: it was, or there was nothing to write.
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
            history = remember_scale(
                history,
                behavior=hpa.spec.behavior,
                previous_replicas=decision.current_replicas or 0,
                new_replicas=decision.scale_to,
                now_ms=decision.now_ms,
            )
    return Outcome(
        status=None if status == hpa.status else status,
        events=events,
        late_events=decision.late_events,
        error=error,
        history=history,
        failed=failed,
    )


# --- the steps of a reconciliation ---------------------------------------------------------------------------------


def _without_scale(observation: Observation, conditions: Conditions, history: History, now_ms: int) -> Decision:
    hpa, scale = observation.hpa, observation.scale
    match scale:
        case TargetError(cause):
            error = f"unable to determine resource for scale target reference: {cause}"
        case ScaleError(cause):
            error = f"failed to query scale subresource for {hpa.target}: {cause}"
        case _:
            cause = _api_version_error(hpa) or "the scale was not read"
            error = f"invalid API version in scale target reference: {cause}"
    message = f"the HPA controller was unable to get the target's current scale: {cause}"
    conditions.set(ABLE_TO_SCALE, False, "FailedGetScale", message)
    return Decision(
        observation=observation,
        now_ms=now_ms,
        status=replace(hpa.status, conditions=conditions.all),
        events=(Event("Warning", "FailedGetScale", cause),),
        error=error,
        failed=True,
        history=history,
    )


def _by_bound(
    observation: Observation,
    scale: Scale,
    bound: tuple[int, str],
    conditions: Conditions,
    history: History,
    now_ms: int,
) -> Decision:
    """Scaling is disabled, or the count is out of bounds: the metrics, stabilisation and rate limits do not matter."""
    desired, reason = bound
    if desired == scale.spec_replicas:
        conditions.set(SCALING_ACTIVE, False, "ScalingDisabled")
    return Decision(
        observation=observation,
        now_ms=now_ms,
        current_replicas=scale.spec_replicas,
        scale_to=None if desired == scale.spec_replicas else desired,
        rescale_reason=reason,
        status=_status(observation.hpa, scale, desired, (), conditions),
        history=history,
    )


def _by_metrics(
    observation: Observation, scale: Scale, conditions: Conditions, history: History, now_ms: int
) -> Decision:
    hpa, current = observation.hpa, scale.spec_replicas
    unusable = _selector_problem(observation, scale)
    if unusable is not None:
        condition_reason, message, problem = unusable
        conditions.set(SCALING_ACTIVE, False, condition_reason, message)
        event = Event("Warning", condition_reason if scale.selector else "SelectorRequired", problem)
        return _failed_metrics(observation, scale, (), (event,), problem, conditions, history, now_ms)

    evaluations = _evaluate(observation, scale, now_ms)
    failures = [each.failure for each in evaluations if each.failure is not None]
    events = tuple(Event("Warning", failure.reason, failure.message) for failure in failures)
    winner = _winner(evaluations)
    proposed = winner.proposal.replicas if winner and winner.proposal else 0
    error: str | None = None
    if failures or not evaluations:
        first = failures[0].error if failures else "<nil>"
        error = f"invalid metrics ({len(failures)} invalid out of {len(evaluations)}), first error is: {first}"
    if len(failures) == len(evaluations) or (failures and proposed < current):
        if failures:
            message = f"the HPA was unable to compute the replica count: {failures[0].message}"
            conditions.set(SCALING_ACTIVE, False, failures[0].reason, message)
        return _failed_metrics(observation, scale, evaluations, events, error or "", conditions, history, now_ms)

    name = winner.name if winner else ""
    message = f"the HPA was able to successfully calculate a replica count from {name}"
    conditions.set(SCALING_ACTIVE, True, "ValidMetricFound", message)
    normalized = normalize(
        proposed_replicas=max(proposed, 0),
        current_replicas=current,
        min_replicas=hpa.spec.min_replicas,
        max_replicas=hpa.spec.max_replicas,
        behavior=hpa.spec.behavior,
        downscale_stabilization_ms=observation.config.downscale_stabilization_ms,
        history=history,
        now_ms=now_ms,
    )
    conditions.set_normalized(normalized)
    desired, reason = normalized.desired_replicas, ""
    if proposed > current:
        reason = f"{name} above target"
    elif proposed < current:
        reason = "All metrics below target"
    if current == 0 and desired < hpa.spec.min_replicas:
        # minReplicas was raised while the target was scaled to zero.
        desired, reason = hpa.spec.min_replicas, reason or _BELOW_MIN
    return Decision(
        observation=observation,
        now_ms=now_ms,
        current_replicas=current,
        evaluations=evaluations,
        winner=winner,
        normalized=normalized,
        scale_to=None if desired == current else desired,
        rescale_reason=reason,
        status=_status(hpa, scale, desired, evaluations, conditions),
        events=events,
        error=error,
        history=replace(history, recommendations=normalized.recommendations),
    )


def _failed_metrics(
    observation: Observation,
    scale: Scale,
    evaluations: tuple[Evaluation, ...],
    events: tuple[Event, ...],
    error: str,
    conditions: Conditions,
    history: History,
    now_ms: int,
) -> Decision:
    """No replica count could be computed: leave the target alone, and say so."""
    hpa = observation.hpa
    return Decision(
        observation=observation,
        now_ms=now_ms,
        current_replicas=scale.spec_replicas,
        evaluations=evaluations,
        status=_status(hpa, scale, hpa.status.desired_replicas, evaluations, conditions),
        events=events,
        late_events=(Event("Warning", "FailedComputeMetricsReplicas", error),),
        error=f"failed to compute desired number of replicas based on listed metrics for {hpa.target}: {error}",
        failed=True,
        history=history,
    )


def _evaluate(observation: Observation, scale: Scale, now_ms: int) -> tuple[Evaluation, ...]:
    hpa, config = observation.hpa, observation.config
    circumstances = Circumstances(
        namespace=hpa.namespace,
        scale=scale,
        pods=() if observation.pods is None else observation.pods,
        tolerance=_tolerance(hpa, config),
        timing=PodTiming(
            now_ms=now_ms,
            cpu_initialization_period_ms=config.cpu_initialization_period_ms,
            initial_readiness_delay_ms=config.initial_readiness_delay_ms,
        ),
    )
    metrics = hpa.spec.metrics
    answers = (None,) * len(metrics) if observation.answers is None else observation.answers
    return tuple(evaluate(spec, answer, circumstances) for spec, answer in zip(metrics, answers, strict=True))


def _winner(evaluations: tuple[Evaluation, ...]) -> Evaluation | None:
    """The valid metric that asks for the most; the first of equals."""
    winner, most = None, 0
    for each in evaluations:
        if each.proposal is not None and (most == 0 or each.proposal.replicas > most):
            winner, most = each, each.proposal.replicas
    return winner


def _tolerance(hpa: HPA, config: Config) -> Tolerance:
    behavior = hpa.spec.behavior
    down = behavior.scale_down.tolerance if behavior else None
    up = behavior.scale_up.tolerance if behavior else None
    return Tolerance(
        scale_down=config.tolerance if down is None else down, scale_up=config.tolerance if up is None else up
    )


def _status(
    hpa: HPA, scale: Scale, desired: int, evaluations: tuple[Evaluation, ...], conditions: Conditions
) -> Status:
    return replace(
        hpa.status,
        current_replicas=scale.spec_replicas,
        desired_replicas=desired,
        current_metrics=tuple(each.current for each in evaluations),
        conditions=conditions.all,
    )


# --- what stands in the way of the metrics -------------------------------------------------------------------------


def _api_version_error(hpa: HPA) -> str | None:
    version = hpa.spec.scale_target_ref.api_version
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else None


def _without_metrics(hpa: HPA, scale: Scale, config: Config) -> tuple[int, str] | None:
    """(replicas, reason) where the current count alone decides; None where the metrics do.

    A target at 0 stays there, unless this controller scaled it to zero.
    """
    current, spec = scale.spec_replicas, hpa.spec
    if current == 0:
        by_us = config.scale_to_zero and any(
            each.type == SCALED_TO_ZERO and each.status == "True" for each in hpa.status.conditions
        )
        return None if by_us and (spec.min_replicas != 0 or _can_wake(hpa)) else (0, "")
    if current > spec.max_replicas:
        return spec.max_replicas, _ABOVE_MAX
    if current < spec.min_replicas:
        return spec.min_replicas, _BELOW_MIN
    return None


def _can_wake(hpa: HPA) -> bool:
    """Whether some metric has a value without any pod."""
    return any(isinstance(each.source, ObjectMetric | ExternalMetric) for each in hpa.spec.metrics)


def _set_scaled_to_zero(decision: Decision, conditions: Conditions) -> None:
    hpa = decision.observation.hpa
    if not decision.observation.config.scale_to_zero:
        return
    zero = decision.scale_to == 0 and hpa.spec.min_replicas == 0 and _can_wake(hpa)
    conditions.set(SCALED_TO_ZERO, zero, "ScaledToZero" if zero else "NotScaledToZero")


@dataclass(frozen=True, slots=True)
class _BadSelector:
    """(condition's message, error)."""

    message: str
    error: str


def _parse_selector(scale: Scale) -> LabelSelector | _BadSelector:
    if not scale.selector:
        return _BadSelector("the HPA target's scale is missing a selector", "selector is required")
    try:
        return LabelSelector.parse(scale.selector)
    except SelectorError as error:
        text = f"couldn't convert selector into a corresponding internal selector object: {error}"
        return _BadSelector(text, text)


def _selector_problem(observation: Observation, scale: Scale) -> tuple[str, str, str] | None:
    """(reason, condition's message, error) if the scale's selector cannot be used."""
    selector = _parse_selector(scale)
    if isinstance(selector, _BadSelector):
        return "InvalidSelector", selector.message, selector.error
    if isinstance(observation.pods, PodListError):
        return None
    rivals = _rivals(observation)
    if not rivals:
        return None
    hpas = " ".join(sorted([observation.hpa.key, *rivals]))
    text = f"pods by selector {scale.selector} are controlled by multiple HPAs: [{hpas}]"
    return "AmbiguousSelector", text, text


def _rivals(observation: Observation) -> list[str]:
    """Other HPAs that control one of the pods."""
    if not observation.pods or isinstance(observation.pods, PodListError):
        return []
    return [
        key
        for key, selector in observation.other_selectors.items()
        if any(selector.matches(pod.labels) for pod in observation.pods)
    ]
