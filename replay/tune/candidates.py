"""The fields of an HPA that may change, the values that are tried, and candidates as HPA objects.

A candidate is {field: value} with the fields that differ from the given spec, so `{}` is the given spec. `target` is
in percent of the capacity of a pod; where an HPA has several such targets, it is the first one's, and the others change
in proportion.

minReplicas is never below the given one, and maxReplicas stays: both are often there for reasons that no load shows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from autoscaler.core.model import HPA, ScalingRules
from autoscaler.objects.hpa import default_hpa
from kube.values.quantity import Format, Quantity, milli_text
from replay.load import Load, metric_key, metric_name
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
_ROUNDED: Final = 1e-3
_LEAST_WHOLE_MILLI: Final = 20_000
_LEAST_BINARY: Final = 100 * 1024
_SERVER_FIELDS: Final = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

Candidate: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field that may change."""

    name: str
    given: float
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
    up, down = (spec.behavior.scale_up, spec.behavior.scale_down) if spec.behavior else (None, None)
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
    directions = zip(DIRECTIONS, (up, down), strict=True)
    disabled = [name for name, rules in directions if rules and rules.select_policy == "Disabled"]
    return [
        Field(name=name, given=given, choices=tuple(value for value in values if abs(value - given) > _TINY))
        for name, (given, values) in fields.items()
        if name in names and name.partition(".")[0] not in disabled
    ]


def _tolerance(rules: ScalingRules | None, default: float) -> float:
    return rules.tolerance.quantity.as_float() if rules and rules.tolerance else default


# --- objects ---------------------------------------------------------------------------------------------------------


def candidate_object(
    document: Mapping[str, Any], hpa: HPA, load: Load, settings: Settings, candidate: Candidate
) -> dict[str, Any]:
    """Return the object of a candidate: the user's, of which `hpa` is parsed, with only the candidate's changes.

    What the API server adds (status, managedFields, uid and the like) is left out.
    """
    found: dict[str, Any] = {key: copy.deepcopy(document[key]) for key in ("apiVersion", "kind", "metadata", "spec")}
    metadata, spec = found["metadata"], found["spec"]
    for name in _SERVER_FIELDS:
        metadata.pop(name, None)
    (metadata.get("annotations") or {}).pop(_LAST_APPLIED, None)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    for name, value in candidate.items():
        if name == TARGET:
            _set_targets(found, hpa, load, settings, value)
            continue
        direction, _, field = name.rpartition(".")
        parent = spec
        for key in ("behavior", direction) if direction else ():
            parent[key] = parent = parent.get(key) or {}
        whole = int(value) if value == int(value) else round(value, 4)
        parent[field] = f"{value:.4g}" if field == "tolerance" else whole
    return found


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return an object as YAML."""
    return yaml.dump(dict(document), Dumper=yaml.CSafeDumper, sort_keys=False, width=120)


def _set_targets(found: dict[str, Any], hpa: HPA, load: Load, settings: Settings, percent: float) -> None:
    """Set the targets, which keep their proportion; `percent` is the first one's."""
    percents = target_percents(hpa, load, settings)
    first = next(iter(percents.values()))
    if not found["spec"].get("metrics"):
        found["spec"]["metrics"] = default_hpa(found)["spec"]["metrics"]
    for index, given in percents.items():
        spec, raw = hpa.spec.metrics[index], found["spec"]["metrics"][index]
        share = given * percent / first / 100
        capacity = settings.capacity[metric_key(spec.source)]
        target = raw[raw["type"][0].lower() + raw["type"][1:]]["target"]
        if spec.target.average_value is None:
            request = load.requests[metric_name(spec.source)] / 1000
            target["averageUtilization"] = max(1, math.floor(share * 100 * capacity / request + _ROUNDED))
        else:
            target["averageValue"] = _quantity(share * capacity, spec.target.average_value.quantity)


def _quantity(value: float, given: Quantity) -> str:
    """Return a quantity as people write it, rounded down by at most 5 %: three digits, no fraction from 20 on.

    It has a binary suffix, such as Mi, if the given one has. It is at least 1m.
    """
    if given.format is Format.BINARY_SI and value >= _LEAST_BINARY:
        unit = 1024 ** int(math.log(value / 100, 1024))
        return str(Quantity(math.floor(value / unit + _ROUNDED) * unit, 0, Format.BINARY_SI))
    milli = max(1, math.floor(value * 1000 + _ROUNDED))
    unit = 10 ** max(int(math.log10(milli)) - 2, 3 if milli >= _LEAST_WHOLE_MILLI else 0)
    return milli_text(milli // unit * unit)
