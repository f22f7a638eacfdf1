"""The fields of a spec as texts: the target of a metric, policies, and the parsers of what users write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from autoscaler.core.model import InvalidMetric, MetricSpec, ObjectMetric, ResourceMetric, ScalingRules
from kube.values.durations import DurationError, format_duration, parse_duration
from kube.values.quantity import Quantity, QuantityError

_MAX_STARTUP: Final = 3600.0
_MAX_POLICIES: Final = 100
_MAX_INTEGER: Final = 2**31 - 1
_INTEGER: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_POLICY: Final = re.compile(
    r"(\d{1,10}) ?(%|percent|pods?) ?(?:(?:per|in|/) ?)?(\d{1,10}) ?(?:s|seconds)?", re.ASCII | re.IGNORECASE
)
_UNITS: Final = {"cpu": "cores", "memory": "bytes"}


class Target(Struct, frozen=True, kw_only=True):
    """The effective target of a metric."""

    field: str
    """Of the API: value, averageValue or averageUtilization."""
    present: str
    what: str
    """For people: `average per pod`."""
    parse: Callable[[str], Any]
    """Returns the value for the object; raises a ValueError with advice."""


def target_of(spec: MetricSpec) -> Target | None:
    """Return the target of a metric; None if its type is not known."""
    target, source = spec.target, spec.source
    if isinstance(source, InvalidMetric):
        return None
    if target.average_value is not None and not (isinstance(source, ObjectMetric) and target.type == "Value"):
        return Target(
            field="averageValue", present=str(target.average_value), what="average per pod", parse=parse_quantity
        )
    if isinstance(source, ResourceMetric):
        percent = "" if target.average_utilization is None else str(target.average_utilization)
        return Target(field="averageUtilization", present=percent, what="% of requests", parse=parse_integer)
    return Target(field="value", present=str(target.value or ""), what="value", parse=parse_quantity)


def metric_unit(spec: MetricSpec) -> str:
    """Return the unit of a resource, `cores`; empty if the metric has no known unit."""
    return _UNITS.get(spec.source.name, "") if isinstance(spec.source, ResourceMetric) else ""


def metric_flag(spec: MetricSpec) -> str:
    """Return how `--capacity` names a metric: NAME, RESOURCE or CONTAINER/RESOURCE."""
    match spec.source:
        case ResourceMetric(name=name, container=container):
            return name if container is None else f"{container}/{name}"
        case InvalidMetric(type_):
            return type_
        case source:
            return source.metric.name


def describe(spec: MetricSpec) -> str:
    """Return a metric's name for people: `requests of Service front`, `cpu of container app`."""
    match spec.source:
        case ResourceMetric(name=name, container=None):
            return name
        case ResourceMetric(name=name, container=container):
            return f"{name} of container {container}"
        case ObjectMetric(metric, described):
            return f"{metric.name} of {described.kind} {described.name}"
        case InvalidMetric(type_):
            return type_
        case source:
            return source.metric.name


def policies_text(rules: ScalingRules) -> str:
    """Return the policies, one per line: `4 pods per 15s`."""
    return "\n".join(
        f"{each.value}{'%' if each.type == 'Percent' else ' pod' if each.value == 1 else ' pods'} "
        f"per {each.period_seconds}s"
        for each in rules.policies
    )


# --- parsers of fields: each raises a ValueError with advice -------------------------------------------------------


def parse_integer(text: str) -> int:
    """Parse a whole number of at most 32 bits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("write a whole number")
    if abs(int(text)) > _MAX_INTEGER:
        raise ValueError(f"write a whole number up to {_MAX_INTEGER}")
    return int(text)


def parse_quantity(text: str) -> str:
    """Check a quantity, and return it."""
    try:
        Quantity.parse(text)
    except QuantityError as error:
        raise ValueError(f"write a quantity such as 100 or 500m: {error}") from None
    return text


def parse_policies(text: str) -> list[dict[str, Any]]:
    """Parse policies, one per line or separated by commas."""
    found = []
    lines = [line for line in map(str.strip, re.split(r"[\n,;]", text)) if line]
    if len(lines) > _MAX_POLICIES:
        raise ValueError(f"write at most {_MAX_POLICIES} policies")
    for line in lines:
        match = _POLICY.fullmatch(" ".join(line.split()))
        if match is None:
            raise ValueError(f"{line!r}: write 4 pods per 15s, or 100% per 60s")
        type_ = "Pods" if match[2].lower().startswith("pod") else "Percent"
        found.append({"type": type_, "value": parse_integer(match[1]), "periodSeconds": parse_integer(match[3])})
    return found


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
