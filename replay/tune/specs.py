"""Candidates as HPA objects: the user's own with other values, and as YAML that can be applied."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Final

import yaml

from autoscaler.core.model import HPA
from autoscaler.objects.hpa import default_hpa
from kube.values.quantity import Format, Quantity, milli_text
from replay.load import Load, metric_key, metric_name
from replay.simulation import Settings
from replay.tune.fields import DIRECTIONS, TARGET, Candidate, target_percents

_TINY: Final = 1e-3
_SERVER_FIELDS: Final = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SOURCES: Final = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def candidate_object(
    document: Mapping[str, Any], hpa: HPA, load: Load, settings: Settings, candidate: Candidate
) -> dict[str, Any]:
    """Return the object of a candidate: the user's, with only the candidate's fields changed.

    What the API server adds (status, managedFields, uid and the like) is left out.

    Args:
        document: the user's object.
        hpa: the same, parsed.
        load: the load, for what its pods request.
        settings: for the capacity.
        candidate: the changes.
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
        if direction in DIRECTIONS:
            behavior = _mapping(spec, "behavior")
            _mapping(behavior, direction)[field] = _behavior_value(field, value)
        else:
            spec[name] = _plain(value)
    return found


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return an object as YAML."""
    return yaml.dump(dict(document), Dumper=yaml.CSafeDumper, sort_keys=False, width=120)


def describe(candidate: Candidate) -> str:
    """Return a candidate in one line, `target 82%, scaleDown.tolerance 0.02`; "as given" without changes."""
    return ", ".join(f"{name} {_text(name, value)}" for name, value in candidate.items()) or "as given"


def needs_tolerance(candidate: Candidate) -> bool:
    """Return True if the candidate sets a tolerance, which not all clusters know."""
    return any(name.endswith(".tolerance") for name in candidate)


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
        target = raw[_SOURCES[raw["type"]]]["target"]
        if spec.target.average_value is None:
            request = load.requests[metric_name(spec.source)] / 1000
            target["averageUtilization"] = max(1, math.floor(share * 100 * capacity / request + _TINY))
        else:
            target["averageValue"] = _quantity(share * capacity)


def _quantity(value: float) -> str:
    """Return a quantity of three digits, or of all digits before the point, rounded down; at least 1m."""
    milli = max(1, math.floor(value * 1000 + _TINY))
    digits = int(math.log10(milli)) + 1
    if digits > 3:
        unit = 10 ** min(digits - 3, 3)
        milli = milli // unit * unit
    units, rest = divmod(milli, 1000)
    if rest == 0 and units % 1024 == 0:
        return str(Quantity(units, 0, Format.BINARY_SI))
    return milli_text(milli)


def _mapping(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    if found is None:
        found = parent[name] = {}
    assert isinstance(found, dict)
    return found


def _behavior_value(field: str, value: float) -> int | float | str:
    return f"{value:.4g}" if field == "tolerance" else _plain(value)


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 4)


def _text(name: str, value: float) -> str:
    unit = "%" if name == TARGET else " s" if name.endswith("Seconds") else ""
    return f"{value:g}{unit}"
