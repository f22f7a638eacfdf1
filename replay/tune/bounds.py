"""The bounds of the search: which fields of an HPA may change, and how far.

A bounds file is YAML. A field has a range, `minReplicas: [2, 10]`, or one value, `scaleUp.tolerance: 0`, which is set
and not searched, or `given`, which leaves it as the HPA has it. Fields that the file does not name have the default
ranges of `replay.tune.space`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from replay.load import ReplayError
from replay.yaml_files import read_yaml, unknown_field

GIVEN: Final = "given"

_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_MAX_REPLICAS: Final = 2**31 - 1


class Given(msgspec.Struct, frozen=True):
    """The field stays as the HPA has it."""


class Range(msgspec.Struct, frozen=True):
    """From the least to the highest value, both included; equal: a fixed value. Targets are in percent."""

    low: float
    high: float


class PolicyRanges(msgspec.Struct, frozen=True):
    """The scaling policies of a direction that are searched as alternatives to the given ones, one at a time."""

    percent: Range | None = None
    pods: Range | None = None
    period_seconds: Range | None = None
    """None: the default range."""


Bound: TypeAlias = Range | Given

Bounds: TypeAlias = Mapping[str, Bound | PolicyRanges]
"""{field of the file: its bound}. A field that is absent has its default range; targets are in percent."""


@dataclass(frozen=True, slots=True)
class _Field:
    low: float
    high: float
    whole: bool = True
    percent: bool = False


_FIELDS: Final = {
    "target": _Field(1, 100, whole=False, percent=True),
    "minReplicas": _Field(0, _MAX_REPLICAS),
    "maxReplicas": _Field(1, _MAX_REPLICAS),
    "scaleUp.stabilizationWindowSeconds": _Field(0, 3600),
    "scaleDown.stabilizationWindowSeconds": _Field(0, 3600),
    "scaleUp.tolerance": _Field(0, 1, whole=False),
    "scaleDown.tolerance": _Field(0, 1, whole=False),
}
_POLICIES: Final = ("scaleUp.policies", "scaleDown.policies")
_POLICY_FIELDS: Final = {
    "Percent": _Field(1, 1000),
    "Pods": _Field(1, _MAX_REPLICAS),
    "periodSeconds": _Field(1, 1800),
}


def read_bounds(path: Path) -> Bounds:
    """Read a bounds file.

    Raises:
        ReplayError: it cannot be read, or a field of it is wrong; the message names file and field.
    """
    documents = read_yaml(path, what="bounds file")
    if len(documents) > 1:
        raise ReplayError(f"{path}: write one YAML document, not {len(documents)}")
    try:
        return parse_bounds(documents[0] if documents else None)
    except ReplayError as error:
        raise ReplayError(f"{path}: {error}") from None


def parse_bounds(document: Any) -> Bounds:
    """Parse the content of a bounds file.

    Raises:
        ReplayError: a field is wrong; the message names it.
    """
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ReplayError("write fields and their ranges, such as minReplicas: [2, 10]")
    bounds: dict[str, Bound | PolicyRanges] = {}
    for name, value in document.items():
        if name in _FIELDS:
            bounds[name] = _bound(value, _FIELDS[name], name)
        elif name in _POLICIES:
            bounds[name] = _policies(value, name)
        else:
            raise unknown_field(name, [*_FIELDS, *_POLICIES])
    least, most = bounds.get("minReplicas"), bounds.get("maxReplicas")
    if isinstance(least, Range) and isinstance(most, Range) and least.high > most.low:
        raise ReplayError("minReplicas: its highest value must not be above the least maxReplicas")
    return bounds


def _policies(value: Any, name: str) -> PolicyRanges | Given:
    if value == GIVEN:
        return Given()
    if not isinstance(value, dict):
        raise ReplayError(f"{name}: write {GIVEN}, or ranges of Percent, Pods and periodSeconds")
    ranges: dict[str, Range] = {}
    for key, inner in value.items():
        if key not in _POLICY_FIELDS:
            raise unknown_field(key, _POLICY_FIELDS, prefix=f"{name}.")
        bound = _bound(inner, _POLICY_FIELDS[key], f"{name}.{key}")
        if isinstance(bound, Given):
            raise ReplayError(f"{name}.{key}: write a range, or {name}: {GIVEN}")
        ranges[key] = bound
    policies = PolicyRanges(ranges.get("Percent"), ranges.get("Pods"), ranges.get("periodSeconds"))
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
