"""What to read before a decision: one thing after the other, and nothing that could not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from autoscaler.core import preconditions
from autoscaler.core.evaluate import unanswerable
from autoscaler.core.observation import Observation, Scale
from autoscaler.core.preconditions import SelectorProblem
from kube.selectors import LabelSelector


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


def missing(observation: Observation) -> Missing | None:
    """What must be read before `observation` can be decided on; None: nothing more.

    Nothing is asked for that could not matter: no metrics of a target that is scaled to 0 by hand, or that is out of
    bounds, or whose selector is unusable.
    """
    hpa, scale = observation.hpa, observation.scale
    if scale is None:
        return None if preconditions.api_version_error(hpa) else ScaleWanted()
    if not isinstance(scale, Scale) or preconditions.bound(hpa, scale, observation.config) is not None:
        return None
    selector = preconditions.parse_selector(scale)
    if isinstance(selector, SelectorProblem):
        return None
    if observation.pods is None:
        return PodsWanted(selector)
    if observation.answers is not None or preconditions.selector_problem(observation, scale) is not None:
        return None
    wanted = tuple(unanswerable(spec) is None for spec in hpa.spec.metrics)
    return AnswersWanted(wanted, selector) if any(wanted) else None
