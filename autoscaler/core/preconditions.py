"""Checks before the metrics: a usable target, a replica count within bounds, an unambiguous selector.

If one of them decides, the metrics are not fetched. `next_read` and `decide` use the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from autoscaler.core.config import Config
from autoscaler.core.metrics import validate_metric_source
from autoscaler.core.model import HPA, ExternalMetric, ObjectMetric
from autoscaler.core.observation import Observation, Pod, ReadError, Scale
from autoscaler.core.status import SCALED_TO_ZERO
from kube.values.selectors import LabelSelector, SelectorError

_LONGEST_CACHED_SELECTOR = 1024
_ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN = "Current number of replicas below Spec.MinReplicas"


class NoScale(Struct, frozen=True):
    """The scale of the target could not be read."""

    cause: str
    """The message of the event, and the end of the condition's message."""
    error: str
    """The reconciliation's error."""


class Bound(Struct, frozen=True, kw_only=True):
    """The current replica count alone decides."""

    replicas: int
    """The replica count to scale to."""
    reason: str = ""
    """The event's reason; empty: scaling is disabled and the count stays."""


class SelectorProblem(Struct, frozen=True, kw_only=True):
    """The reason why the scale's selector cannot be used, with Kubernetes' message."""

    event_reason: str
    condition_reason: str
    condition_message: str
    error: str
    """The message of the condition and of the event."""


def find_obstacle(observation: Observation) -> NoScale | Bound | SelectorProblem | None:
    """Return why the metrics do not matter, as far as it is known; None: they do.

    Raises:
        ValueError: the scale has not been read yet.
    """
    hpa, scale = observation.hpa, observation.scale
    match scale:
        case ReadError(cause, unknown_kind=True):
            return NoScale(cause, f"unable to determine resource for scale target reference: {cause}")
        case ReadError(cause):
            return NoScale(cause, f"failed to query scale subresource for {hpa.target}: {cause}")
        case Scale():
            return check_bounds(hpa, scale, observation.config) or validate_selector(observation, scale)
    version_error = api_version_error(hpa)
    if version_error is None:
        raise ValueError("the scale has not been read yet")
    return NoScale(version_error, f"invalid API version in scale target reference: {version_error}")


def api_version_error(hpa: HPA) -> str | None:
    """Return why `scaleTargetRef.apiVersion` is invalid; None if it is valid."""
    version = hpa.spec.scale_target_ref.api_version
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else None


def check_bounds(hpa: HPA, scale: Scale, config: Config) -> Bound | None:
    """Return the count that applies whatever the metrics say; None if the metrics decide.

    A target at 0 replicas stays there, because autoscaling is disabled, unless this controller scaled it to zero.
    Upstream: podautoscaler.reconcileAutoscaler, podautoscaler.shouldComputeMetricsForZeroReplicas.
    """
    current, spec = scale.spec_replicas, hpa.spec
    if current == 0:
        by_us = config.scale_to_zero and any(
            each.type == SCALED_TO_ZERO and each.status == "True" for each in hpa.status.conditions
        )
        return None if by_us and (spec.min_replicas != 0 or has_object_or_external_metrics(hpa)) else Bound(replicas=0)
    if current > spec.max_replicas:
        return Bound(replicas=spec.max_replicas, reason=_ABOVE_MAX)
    if current < spec.min_replicas:
        return Bound(replicas=spec.min_replicas, reason=BELOW_MIN)
    return None


def has_object_or_external_metrics(hpa: HPA) -> bool:
    """Return True if a metric has a value without pods. Upstream: podautoscaler.hasObjectOrExternalMetrics."""
    return any(isinstance(each.source, ObjectMetric | ExternalMetric) for each in hpa.spec.metrics)


def parse_selector(text: str) -> LabelSelector | SelectorProblem:
    """Parse the selector of a scale. Upstream: podautoscaler.validateAndParseSelector."""
    if not text:
        return SelectorProblem(
            event_reason="SelectorRequired",
            condition_reason="InvalidSelector",
            condition_message="the HPA target's scale is missing a selector",
            error="selector is required",
        )
    return _cached_selector(text) if len(text) <= _LONGEST_CACHED_SELECTOR else _parse_selector(text)


def _parse_selector(text: str) -> LabelSelector | SelectorProblem:
    try:
        return LabelSelector.parse(text)
    except SelectorError as error:
        return _problem(
            "InvalidSelector", f"couldn't convert selector into a corresponding internal selector object: {error}"
        )


# Each reconciliation parses the same text several times.
_cached_selector = lru_cache(maxsize=1024)(_parse_selector)


def validate_selector(observation: Observation, scale: Scale) -> SelectorProblem | None:
    """Return why the HPA's selector is unusable or ambiguous; None if it can be used.

    Upstream: podautoscaler.validateAndParseSelector.
    """
    selector = parse_selector(scale.selector)
    if isinstance(selector, SelectorProblem):
        return selector
    hpa = observation.hpa
    others = hpas_controlling_pods(hpa, observation.pods, observation.other_selectors)
    if not others:
        return None
    hpas = " ".join(sorted([str(hpa.key), *others]))
    text = f"pods by selector {scale.selector} are controlled by multiple HPAs: [{hpas}]"
    return _problem("AmbiguousSelector", text)


def hpas_controlling_pods(
    hpa: HPA, pods: tuple[Pod, ...] | ReadError | None, other_selectors: Mapping[str, LabelSelector]
) -> list[str]:
    """Return the other HPAs that select one of the pods. Upstream: podautoscaler.hpasControllingPodsUnderSelector."""
    if not pods or isinstance(pods, ReadError):
        return []
    return [
        key
        for key, selector in other_selectors.items()
        if key != str(hpa.key) and any(selector.matches(pod.labels) for pod in pods)
    ]


def _problem(reason: str, text: str) -> SelectorProblem:
    return SelectorProblem(event_reason=reason, condition_reason=reason, condition_message=text, error=text)


# --- reads -----------------------------------------------------------------------------------------------------------


class ReadScale(Struct, frozen=True):
    """Read the target's scale."""


class ListPods(Struct, frozen=True):
    """List the pods of `selector` in the HPA's namespace, and the other HPAs' selectors there.

    Here Kubernetes also records that this HPA controls the pods of `selector`.
    """

    selector: LabelSelector


class FetchMetrics(Struct, frozen=True):
    """Query the metrics APIs: one flag per `spec.metrics` entry, in order; entries without it stay None."""

    wanted: tuple[bool, ...]
    selector: LabelSelector


NextRead: TypeAlias = ReadScale | ListPods | FetchMetrics


def next_read(observation: Observation) -> NextRead | None:
    """Return what to read before `observation` can be decided on; None: nothing more.

    Only data that can affect the decision is read: no metrics for a target that is scaled to 0 by hand or out of
    bounds, or has an unusable selector.
    """
    hpa, scale = observation.hpa, observation.scale
    if scale is None and api_version_error(hpa) is None:
        return ReadScale()
    if observation.responses is not None or find_obstacle(observation) is not None:
        return None
    assert isinstance(scale, Scale)
    selector = parse_selector(scale.selector)
    assert isinstance(selector, LabelSelector)
    if observation.pods is None:
        return ListPods(selector)
    wanted = tuple(validate_metric_source(spec) is None for spec in hpa.spec.metrics)
    return FetchMetrics(wanted, selector) if any(wanted) else None
