"""The fields of a spec as texts: the target of a metric, and the parsers of what users write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import yaml

from autoscaler.core.model import MetricSpec, ResourceMetric
from autoscaler.records.build import metric_record
from kube.values.durations import DurationError, format_duration, parse_duration
from kube.values.quantity import Quantity, QuantityError

_MAX_STARTUP: Final = 3600.0
_MAX_DEPTH: Final = 5
"""Of a behavior: itself, a direction, its policies, one policy."""
_MAX_INTEGER: Final = 2**31 - 1
_INTEGER: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_SHOWN: Final = 40
"""Characters of a text in an error."""
_UNITS: Final = {"cpu": "cores", "memory": "bytes"}


def metric_unit(spec: MetricSpec) -> str:
    """Return the unit of a resource, `cores`; empty if the metric has no known unit."""
    return _UNITS.get(spec.source.name, "") if isinstance(spec.source, ResourceMetric) else ""


def metric_flag(spec: MetricSpec) -> str:
    """Return how `--capacity` names a metric: NAME, RESOURCE or CONTAINER/RESOURCE."""
    metric = metric_record(spec)
    return metric.name if metric.container is None else f"{metric.container}/{metric.name}"


def to_yaml(tree: Mapping[str, Any]) -> str:
    """Return an object, or a part of one, as YAML."""
    return yaml.dump(dict(tree), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def unknown_fields(given: Any, read: Any) -> Iterator[str]:
    """Yield the paths of the fields that are given, and were not read."""
    if isinstance(given, dict):
        for key, value in given.items():
            if isinstance(read, dict) and key in read:
                yield from (f"{key}{'' if path[:1] == '[' else '.'}{path}" for path in unknown_fields(value, read[key]))
            elif value is not None:
                yield key
    elif isinstance(given, list):
        for index, (value, one) in enumerate(zip(given, read, strict=False)):
            yield from (f"[{index}].{path}" for path in unknown_fields(value, one))


# --- parsers of fields: each raises a ValueError with advice -------------------------------------------------------


def parse_integer(text: str) -> int:
    """Parse a whole number of at most 32 bits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("write a whole number")
    if abs(int(text)) > _MAX_INTEGER:
        raise ValueError(f"write a whole number up to {_MAX_INTEGER}")
    return int(text)


def parse_percent(text: str) -> int:
    """Parse a whole number of percent: 80, or 80%."""
    return parse_integer(text.removesuffix("%").rstrip())


def parse_seconds(text: str) -> int:
    """Parse whole seconds: 300, or a duration such as 5m."""
    try:
        seconds = parse_duration(text)
    except DurationError:
        return parse_integer(text)
    if not seconds.is_integer() or seconds > _MAX_INTEGER:
        raise ValueError("write whole seconds, such as 300 or 5m")
    return int(seconds)


def parse_quantity(text: str) -> str:
    """Check a quantity, and return it."""
    try:
        Quantity.parse(text)
    except QuantityError:
        raise ValueError(f"write a quantity such as 100 or 500m, not {text[:_SHOWN]!r}") from None
    return text


def parse_behavior(text: str) -> dict[str, Any]:
    """Parse a mapping in YAML. Aliases could stand for more than memory has, and deep texts end the stack.

    A tolerance may be 10%, and seconds may be 5m: the result has what Kubernetes takes.
    """
    depth = 0
    try:
        for event in yaml.parse(text, yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > _MAX_DEPTH:
                raise ValueError("write it without aliases, and no deeper than a behavior")
    except yaml.YAMLError as error:
        raise ValueError(f"this is not YAML of a behavior: {' '.join(str(error).split())}") from None
    try:
        tree = json.loads(json.dumps(yaml.load(text, yaml.CSafeLoader), allow_nan=False))  # safe
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The constructors of tags, such as that of `!!bool foo`, raise errors of many types.
        why = " ".join(str(error).split())
        raise ValueError(f"this is not YAML of a behavior: a value cannot be read: {why}") from None
    if not isinstance(tree, dict | None):
        raise ValueError("write scaleUp or scaleDown with their fields, such as scaleDown: {selectPolicy: Disabled}")
    for rules in (tree or {}).values():
        if isinstance(rules, dict):
            policies = rules.get("policies")
            for part in (rules, *(policies if isinstance(policies, list) else ())):
                if isinstance(part, dict):
                    _rewrite(part)
    return tree or {}


def _rewrite(rules: dict[str, Any]) -> None:
    """Replace a percentage and durations in scaling rules, or in one of their policies."""
    for key, parse in (
        ("tolerance", _parse_tolerance),
        ("stabilizationWindowSeconds", parse_seconds),
        ("periodSeconds", parse_seconds),
    ):
        if isinstance(text := rules.get(key), str):
            try:
                rules[key] = parse(text.strip())
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None


def _parse_tolerance(text: str) -> str:
    """Parse a quantity such as 0.1, or a percentage."""
    number, percent, rest = text.partition("%")
    if percent and not rest and _NUMBER.fullmatch(number.strip()):
        return str(Decimal(number.strip()) / 100)
    try:
        return parse_quantity(text)
    except ValueError:
        raise ValueError(f"write a number such as 0.1, or 10%, not {text[:_SHOWN]!r}") from None


def parse_startup(text: str) -> float:
    """Parse a duration; return seconds."""
    try:
        seconds = parse_duration(text)
    except DurationError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_STARTUP:
        raise ValueError(f"write a duration from 0s to {format_duration(_MAX_STARTUP)}, such as 30s")
    return seconds


def parse_capacity(text: str) -> float:
    """Parse a quantity above 0."""
    quantity = Quantity.parse(parse_quantity(text))
    if quantity.sign <= 0:
        raise ValueError("write a quantity above 0")
    return quantity.as_float()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A field of a metric's target."""

    field: str
    """Its name in the API."""
    what: str
    """For people: `average per pod`."""
    parse: Callable[[str], Any]
    """Returns the value for the object; raises a ValueError with advice."""


TARGETS: Final = {
    "value": Target(field="value", what="value", parse=parse_quantity),
    "average_value": Target(field="averageValue", what="average per pod", parse=parse_quantity),
    "average_utilization": Target(field="averageUtilization", what="% of requests", parse=parse_percent),
}
"""{the effective field, as of `target_field`: what it is}"""
