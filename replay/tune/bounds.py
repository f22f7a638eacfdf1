"""The bounds of the search: which fields of an HPA may change, and how far.

A bounds file is YAML. A field has a range, `minReplicas: [2, 10]`, or one value, `scaleUp.tolerance: 0`, which is set
and not searched, or `given`, which leaves it as the HPA has it. Fields that the file does not name have the default
ranges of `replay.tune.space`.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from replay.load import ReplayError

GIVEN: Final = "given"

_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_MAX_REPLICAS: Final = 2**31 - 1


class Given(msgspec.Struct, frozen=True):
    """The field stays as the HPA has it."""


class Range(msgspec.Struct, frozen=True):
    """From the least to the highest value, both included; equal: a fixed value. Targets are in percent."""

    low: float
    high: float


class PolicyRanges(msgspec.Struct, frozen=True, kw_only=True):
    """The scaling policies of a direction that are searched as alternatives to the given ones, one at a time."""

    percent: Range | None = None
    pods: Range | None = None
    period_seconds: Range | None = None
    """None: the default range."""


Bound: TypeAlias = Range | Given


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of all fields; None: the default range."""

    target: Bound | None = None
    """Percent of the capacity of a pod."""
    min_replicas: Bound | None = None
    max_replicas: Bound | None = None
    scale_up_window: Bound | None = None
    scale_down_window: Bound | None = None
    scale_up_tolerance: Bound | None = None
    scale_down_tolerance: Bound | None = None
    scale_up_policies: PolicyRanges | Given | None = None
    scale_down_policies: PolicyRanges | Given | None = None


@dataclass(frozen=True, slots=True)
class _Field:
    attribute: str
    low: float
    high: float
    whole: bool = True
    percent: bool = False


_FIELDS: Final = {
    "target": _Field("target", 1, 100, whole=False, percent=True),
    "minReplicas": _Field("min_replicas", 0, _MAX_REPLICAS),
    "maxReplicas": _Field("max_replicas", 1, _MAX_REPLICAS),
    "scaleUp.stabilizationWindowSeconds": _Field("scale_up_window", 0, 3600),
    "scaleDown.stabilizationWindowSeconds": _Field("scale_down_window", 0, 3600),
    "scaleUp.tolerance": _Field("scale_up_tolerance", 0, 1, whole=False),
    "scaleDown.tolerance": _Field("scale_down_tolerance", 0, 1, whole=False),
}
_POLICIES: Final = {"scaleUp.policies": "scale_up_policies", "scaleDown.policies": "scale_down_policies"}
_POLICY_FIELDS: Final = {
    "Percent": _Field("percent", 1, 1000),
    "Pods": _Field("pods", 1, _MAX_REPLICAS),
    "periodSeconds": _Field("period_seconds", 1, 1800),
}


def read_bounds(path: Path) -> Bounds:
    """Read a bounds file.

    Raises:
        ReplayError: it cannot be read, or a field of it is wrong; the message names file and field.
    """
    try:
        document = yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ReplayError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from error
    try:
        return parse_bounds(document)
    except ReplayError as error:
        raise ReplayError(f"{path}: {error}") from None


def parse_bounds(document: Any) -> Bounds:
    """Parse the content of a bounds file.

    Raises:
        ReplayError: a field is wrong; the message names it.
    """
    if document is None:
        return Bounds()
    if not isinstance(document, dict):
        raise ReplayError("write fields and their ranges, such as minReplicas: [2, 10]")
    parsed: dict[str, Any] = {}
    for name, value in document.items():
        if name in _FIELDS:
            parsed[_FIELDS[name].attribute] = _bound(value, _FIELDS[name], name)
        elif name in _POLICIES:
            parsed[_POLICIES[name]] = _policies(value, name)
        else:
            raise _unknown(name, [*_FIELDS, *_POLICIES])
    bounds = Bounds(**parsed)
    least, most = bounds.min_replicas, bounds.max_replicas
    if isinstance(least, Range) and isinstance(most, Range) and least.high > most.low:
        raise ReplayError("minReplicas: its highest value must not be above the least maxReplicas")
    return bounds


def _policies(value: Any, name: str) -> PolicyRanges | Given:
    if value == GIVEN:
        return Given()
    if not isinstance(value, dict):
        raise ReplayError(f"{name}: write {GIVEN}, or ranges of Percent, Pods and periodSeconds")
    ranges: dict[str, Any] = {}
    for key, inner in value.items():
        if key not in _POLICY_FIELDS:
            raise _unknown(key, _POLICY_FIELDS, f"{name}.")
        bound = _bound(inner, _POLICY_FIELDS[key], f"{name}.{key}")
        if isinstance(bound, Given):
            raise ReplayError(f"{name}.{key}: write a range, or {name}: {GIVEN}")
        ranges[_POLICY_FIELDS[key].attribute] = bound
    policies = PolicyRanges(**ranges)
    if policies.percent is None and policies.pods is None:
        raise ReplayError(f"{name}: give a range of Percent or Pods, or write {GIVEN}")
    return policies


def _bound(value: Any, field: _Field, name: str) -> Bound:
    if value == GIVEN:
        return Given()
    values = value if isinstance(value, list) else [value]
    if len(values) not in (1, 2):
        raise ReplayError(f"{name}: write the least and the highest value, such as {_example(field)}")
    numbers = [_number(each, field, name) for each in values]
    for number in numbers:
        if not field.low <= number <= field.high:
            unit = "%" if field.percent else ""
            raise ReplayError(f"{name}: {number:g}{unit} is not between {field.low:g}{unit} and {field.high:g}{unit}")
    if numbers[0] > numbers[-1]:
        raise ReplayError(f"{name}: the least value comes first: [{numbers[-1]:g}, {numbers[0]:g}]")
    return Range(numbers[0], numbers[-1])


def _number(value: Any, field: _Field, name: str) -> float:
    if field.percent:
        match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ReplayError(f"{name}: {value!r} is not a percentage of a pod's capacity, such as {_example(field)}")
        return float(match[1])
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (field.whole and value != int(value)):
        kind = "a whole number" if field.whole else "a number"
        raise ReplayError(f"{name}: {value!r} is not {kind}; write {_example(field)}, one value, or {GIVEN}")
    return float(value)


def _example(field: _Field) -> str:
    return "[60%, 90%]" if field.percent else "[2, 10]" if field.whole else "[0, 0.1]"


def _unknown(name: object, known: Any, prefix: str = "") -> ReplayError:
    similar = difflib.get_close_matches(str(name), list(known), 1)
    hint = f": did you mean {similar[0]}?" if similar else f"; there are: {', '.join(known)}"
    return ReplayError(f"{prefix}{name}: unknown field{hint}")
