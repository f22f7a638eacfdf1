"""What comes before the metrics: a usable target, a replica count within bounds, a selector of one's own.

Where one of these already settles the matter, the metrics are not asked for and do not count, as in Kubernetes 1.36.
Each function looks only at what it is given, so that the same rules say what to read next and what to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from autoscaler.core.conditions import SCALED_TO_ZERO
from autoscaler.core.config import Config
from autoscaler.core.metrics import validate_metric_source
from autoscaler.core.model import HPA, ExternalMetric, ObjectMetric
from autoscaler.core.observation import Observation, Pod, PodListError, Scale
from kube.selectors import LabelSelector, SelectorError

_ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN = "Current number of replicas below Spec.MinReplicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The current replica count alone decides."""

    replicas: int
    """What the count has to be."""
    reason: str = ""
    """Why, in the words of the event; empty: scaling is disabled and the count stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorProblem:
    """Why the scale's selector cannot be used, in the words that Kubernetes uses in each place."""

    event_reason: str
    condition_reason: str
    condition_message: str
    error: str
    """Also the event's message."""


def api_version_error(hpa: HPA) -> str | None:
    """What is wrong with `scaleTargetRef.apiVersion`, if anything."""
    version = hpa.spec.scale_target_ref.api_version
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else None


def bound(hpa: HPA, scale: Scale, config: Config) -> Bound | None:
    """Why the metrics do not matter; None if they do.

    A target at 0 was switched off by somebody and stays there, unless this controller scaled it to zero.
    """
    current, spec = scale.spec_replicas, hpa.spec
    if current == 0:
        by_us = config.scale_to_zero and any(
            each.type == SCALED_TO_ZERO and each.status == "True" for each in hpa.status.conditions
        )
        return None if by_us and (spec.min_replicas != 0 or can_wake(hpa)) else Bound(replicas=0)
    if current > spec.max_replicas:
        return Bound(replicas=spec.max_replicas, reason=_ABOVE_MAX)
    if current < spec.min_replicas:
        return Bound(replicas=spec.min_replicas, reason=BELOW_MIN)
    return None


def can_wake(hpa: HPA) -> bool:
    """Whether some metric has a value without any pod, so that it can end a scale to zero."""
    return any(isinstance(each.source, ObjectMetric | ExternalMetric) for each in hpa.spec.metrics)


def validate_and_parse_selector(scale: Scale) -> LabelSelector | SelectorProblem:
    """The selector of the target's pods."""
    return _parsed(scale.selector)


# Every step asks several times, one right after the other.
@lru_cache(maxsize=1024)
def _parsed(text: str) -> LabelSelector | SelectorProblem:
    if not text:
        return SelectorProblem(
            event_reason="SelectorRequired",
            condition_reason="InvalidSelector",
            condition_message="the HPA target's scale is missing a selector",
            error="selector is required",
        )
    try:
        return LabelSelector.parse(text)
    except SelectorError as error:
        return _problem(
            "InvalidSelector", f"couldn't convert selector into a corresponding internal selector object: {error}"
        )


def hpas_controlling_pods(
    hpa: HPA,
    scale: Scale,
    pods: tuple[Pod, ...] | PodListError | None,
    other_selectors: Mapping[str, LabelSelector],
) -> SelectorProblem | None:
    """The problem that one of the pods is controlled by another HPA, too; None if there is no such HPA.

    Args:
        hpa: the HPA in question.
        scale: its target's scale.
        pods: the pods of the target.
        other_selectors: {NAMESPACE/NAME: selector} of other HPAs in the same namespace.
    """
    if not pods or isinstance(pods, PodListError):
        return None
    keys = [
        key
        for key, selector in other_selectors.items()
        if key != str(hpa.key) and any(selector.matches(pod.labels) for pod in pods)
    ]
    if not keys:
        return None
    hpas = " ".join(sorted([str(hpa.key), *keys]))
    return _problem("AmbiguousSelector", f"pods by selector {scale.selector} are controlled by multiple HPAs: [{hpas}]")


def _problem(reason: str, text: str) -> SelectorProblem:
    return SelectorProblem(event_reason=reason, condition_reason=reason, condition_message=text, error=text)


def selector_problem(observation: Observation, scale: Scale) -> SelectorProblem | None:
    """Why it is not clear which pods the HPA controls; None: it is, as far as the pods are known."""
    selector = validate_and_parse_selector(scale)
    if isinstance(selector, SelectorProblem):
        return selector
    return hpas_controlling_pods(observation.hpa, scale, observation.pods, observation.other_selectors)


@dataclass(frozen=True, slots=True)
class ReadScale:
    """Read the target's scale."""


@dataclass(frozen=True, slots=True)
class ListPods:
    """List the pods that `selector` selects in the HPA's namespace, and the other HPAs' selectors there.

    This is also the moment at which Kubernetes takes note that this HPA controls the pods of `selector`.
    """

    selector: LabelSelector


@dataclass(frozen=True, slots=True)
class FetchMetrics:
    """Ask the metrics APIs: one flag per entry of `spec.metrics`, in order; entries without it stay None."""

    wanted: tuple[bool, ...]
    selector: LabelSelector


Missing: TypeAlias = ReadScale | ListPods | FetchMetrics


def next_read(observation: Observation) -> Missing | None:
    """What must be read before `observation` can be decided on; None: nothing more.

    Nothing is asked for that could not matter: no metrics of a target that is scaled to 0 by hand, or that is out of
    bounds, or whose selector is unusable.
    """
    hpa, scale = observation.hpa, observation.scale
    if scale is None:
        return None if api_version_error(hpa) else ReadScale()
    if not isinstance(scale, Scale) or bound(hpa, scale, observation.config) is not None:
        return None
    selector = validate_and_parse_selector(scale)
    if isinstance(selector, SelectorProblem):
        return None
    if observation.pods is None:
        return ListPods(selector)
    if observation.responses is not None or selector_problem(observation, scale) is not None:
        return None
    wanted = tuple(validate_metric_source(spec) is None for spec in hpa.spec.metrics)
    return FetchMetrics(wanted, selector) if any(wanted) else None
