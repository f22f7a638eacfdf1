"""The fields of an HPA that may change, and the values that are tried.

A candidate is {field: value} with the fields that differ from the given spec, so `{}` is the given spec. `target` is
in percent of the capacity of a pod; where an HPA has several such targets, it is the first one's, and the others change
in proportion.

minReplicas is never below the given one, and maxReplicas stays: both are often there for reasons that no load shows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from autoscaler.core.model import HPA, Behavior, ScalingRules
from replay.load import Load, metric_key
from replay.simulation import Settings, target_per_pod

TARGET: Final = "target"
MIN_REPLICAS: Final = "minReplicas"
_UP_TOLERANCE: Final = "scaleUp.tolerance"
_DOWN_TOLERANCE: Final = "scaleDown.tolerance"
_DOWN_WINDOW: Final = "scaleDown.stabilizationWindowSeconds"
FIELDS: Final = (TARGET, _UP_TOLERANCE, _DOWN_TOLERANCE, _DOWN_WINDOW, MIN_REPLICAS)
"""In the order of the search."""
DIRECTIONS: Final = ("scaleUp", "scaleDown")

_LEAST_TARGET: Final = 30
_TOLERANCES: Final = (0.02, 0.05, 0.1)
_WINDOWS: Final = (60.0, 120.0, 300.0, 600.0)
_OF_MEAN_REPLICAS: Final = (0.25, 0.5)
_TINY: Final = 1e-6

Candidate: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field that may change."""

    name: str
    given: float
    """The value that it has now."""
    choices: tuple[float, ...]
    """Ascending; of the target with the given one, of others without."""


def target_percents(hpa: HPA, load: Load, settings: Settings) -> dict[int, float]:
    """Return {index of the metric: its target in percent of its capacity} of the targets that can be searched."""
    percents: dict[int, float] = {}
    for index, spec in enumerate(hpa.spec.metrics):
        capacity = settings.capacity.get(metric_key(spec.source))
        target = target_per_pod(spec, load.requests) if capacity else None
        if capacity and target:
            percents[index] = 100 * target / capacity
    return percents


def target_field(hpa: HPA, load: Load, settings: Settings, *, max_target: float) -> Field | None:
    """Return the target, with values up to `max_target` percent of the capacity; None if it cannot be searched.

    No target in proportion to it exceeds that either. A given target above it may stay as it is.
    """
    percents = target_percents(hpa, load, settings)
    if not percents:
        return None
    first = next(iter(percents.values()))
    most = math.floor(max_target * first / max(percents.values()) + _TINY)
    inside = {float(percent) for percent in range(min(_LEAST_TARGET, most), most + 1) if abs(percent - first) > _TINY}
    return Field(name=TARGET, given=first, choices=tuple(sorted({*inside, first})))


def other_fields(hpa: HPA, settings: Settings, *, mean_replicas: float, names: Collection[str]) -> list[Field]:
    """Return the other fields of these names. Those of a direction with selectPolicy Disabled would change nothing."""
    spec, config = hpa.spec, hpa.overrides.apply_to(settings.config)
    up, down = _rules(spec.behavior, "scaleUp"), _rules(spec.behavior, "scaleDown")
    window = config.downscale_stabilization_ms / 1000
    if down is not None and down.stabilization_window_seconds is not None:
        window = down.stabilization_window_seconds
    least = spec.min_replicas
    counts = {round(share * mean_replicas) for share in _OF_MEAN_REPLICAS} if least else set()
    fields = {
        _UP_TOLERANCE: (_tolerance(up, config.tolerance), _TOLERANCES),
        _DOWN_TOLERANCE: (_tolerance(down, config.tolerance), _TOLERANCES),
        _DOWN_WINDOW: (window, _WINDOWS),
        MIN_REPLICAS: (least, sorted(float(each) for each in counts if least < each <= spec.max_replicas)),
    }
    disabled = [name for name, rules in zip(DIRECTIONS, (up, down), strict=True) if _is_disabled(rules)]
    return [
        Field(name=name, given=given, choices=tuple(value for value in values if abs(value - given) > _TINY))
        for name, (given, values) in fields.items()
        if name in names and name.partition(".")[0] not in disabled
    ]


def _rules(behavior: Behavior | None, direction: str) -> ScalingRules | None:
    if behavior is None:
        return None
    return behavior.scale_up if direction == "scaleUp" else behavior.scale_down


def _is_disabled(rules: ScalingRules | None) -> bool:
    return rules is not None and rules.select_policy == "Disabled"


def _tolerance(rules: ScalingRules | None, default: float) -> float:
    return rules.tolerance.quantity.as_float() if rules and rules.tolerance else default
