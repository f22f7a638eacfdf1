"""The search space: the fields of an HPA that may change, and their values.

A candidate is {field: value} with the fields that differ from the given spec, so `{}` is the given spec. `target` is
in percent of the capacity of a pod; where an HPA has several such targets, it is the first one's, and the others change
in proportion. Values come from short ascending lists: neighbours behave nearly alike, and the numbers of the winner are
round ones.

By default, minReplicas is never searched below the given one, and maxReplicas is not searched at all: both are often
there for reasons that no load shows. Bounds can allow it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, Behavior, MetricSpec, ResourceMetric, ScalingRules, Spec
from replay.load import Load, ReplayError, metric_key, metric_name
from replay.simulation import Settings
from replay.tune.bounds import GIVEN, Bound, Bounds, Given, PolicyRanges, Range

TARGET: Final = "target"
MIN_REPLICAS: Final = "minReplicas"
MAX_REPLICAS: Final = "maxReplicas"
WINDOW: Final = "stabilizationWindowSeconds"
TOLERANCE: Final = "tolerance"
POLICIES: Final = "policies"
DIRECTIONS: Final = ("scaleUp", "scaleDown")

_TARGETS: Final = Range(30, 100)
_WINDOW_BOUNDS: Final = {"scaleUp": Range(0, 300), "scaleDown": Range(0, 3600)}
_TOLERANCE: Final = Range(0, 0.2)
_PERCENT: Final = {"scaleUp": Range(10, 400), "scaleDown": Range(1, 100)}
_PERIOD: Final = Range(15, 300)
_WINDOWS: Final = (0, 15, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1200, 1800, 2700, 3600)
_PERIODS: Final = (15, 30, 60, 90, 120, 180, 300, 600, 900, 1200, 1800)
_SIGNIFICANT: Final = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
_MAX_CHOICES: Final = 60


class Policy(NamedTuple):
    """The one scaling policy of a direction."""

    type: str
    """Percent or Pods."""
    value: int
    period_seconds: int


Value: TypeAlias = float | Policy
"""Of a field: percent of the capacity, seconds, a tolerance or replicas."""
_Values: TypeAlias = Callable[[Range], Iterator[float]]
Candidate: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field that is searched, or set to a fixed value."""

    name: str
    choices: tuple[float, ...]
    """Ascending."""
    given: float
    """The value that it has now; it may be out of bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """A direction's policies: the given ones, or one policy with values from these lists."""

    name: str
    values: Mapping[str, tuple[int, ...]]
    """{Percent or Pods: values}."""
    periods: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All fields of a search."""

    target: Field | None
    """None: it stays as given."""
    fields: tuple[Field, ...]
    """The others."""
    policies: tuple[PolicyField, ...]

    @property
    def is_empty(self) -> bool:
        """True if the given spec is the only candidate."""
        fields = (*self.fields, self.target)
        return not self.policies and all(each is None or each.choices == (each.given,) for each in fields)

    def extremes(self) -> Iterator[Candidate]:
        """Yield candidates with the least or the highest value of one field."""
        for field in (*self.fields, *([self.target] if self.target else [])):
            for value in (field.choices[0], field.choices[-1]):
                yield {field.name: value}
        for policies in self.policies:
            for kind, values in policies.values.items():
                for policy in ((values[0], policies.periods[0]), (values[-1], policies.periods[-1])):
                    yield {policies.name: Policy(kind, *policy)}

    def is_valid(self, candidate: Candidate, spec: Spec) -> bool:
        """Return True if minReplicas is not above maxReplicas."""
        least = number(candidate, MIN_REPLICAS, otherwise=spec.min_replicas)
        return least <= number(candidate, MAX_REPLICAS, otherwise=spec.max_replicas)


def number(candidate: Candidate, name: str, *, otherwise: float) -> float:
    """Return the value of a field that is a number, or another one if the candidate does not have the field."""
    value = candidate.get(name, otherwise)
    assert not isinstance(value, Policy)
    return value


def target_percent(spec: MetricSpec, load: Load, settings: Settings) -> float | None:
    """Return a metric's target per pod in percent of its capacity; None if it has none, or is not a target per pod."""
    capacity = settings.capacity.get(metric_key(spec.source))
    if not capacity:
        return None
    if spec.target.average_value is not None:
        return spec.target.average_value.milli / 10 / capacity
    if isinstance(spec.source, ResourceMetric) and spec.target.average_utilization is not None:
        request = load.requests.get(metric_name(spec.source))
        return None if request is None else spec.target.average_utilization * request / 1000 / capacity
    return None


def target_percents(hpa: HPA, load: Load, settings: Settings) -> dict[int, float]:
    """Return {index of the metric: its target in percent of its capacity} of the targets that can be searched."""
    percents = {index: target_percent(spec, load, settings) for index, spec in enumerate(hpa.spec.metrics)}
    return {index: percent for index, percent in percents.items() if percent}


def make_space(hpa: HPA, load: Load, settings: Settings, bounds: Bounds, *, mean_replicas: float) -> Space:
    """Return the space around an HPA.

    Args:
        hpa: the given one.
        load: the load, for what its pods request.
        settings: for the capacity and the controller's flags.
        bounds: the user's bounds.
        mean_replicas: the mean replicas of the given spec, up to which minReplicas is searched.

    Raises:
        ReplayError: a bound cannot hold.
    """
    spec, config = hpa.spec, hpa.overrides.apply_to(settings.config)
    fields: list[Field | None] = []

    def field(name: str, default: Bound, given: float, values: _Values) -> Field | None:
        return _field(name, _bound(bounds, name) or default, given, values)

    target = None
    if percents := target_percents(hpa, load, settings):
        first = next(iter(percents.values()))
        target = _field(TARGET, _target_bound(_bound(bounds, TARGET), first, max(percents.values())), first, _percents)
    least = spec.min_replicas
    default_min = Range(least, max(least, round(mean_replicas))) if least else Given()
    fields.append(field(MIN_REPLICAS, default_min, least, _counts))
    fields.append(field(MAX_REPLICAS, Given(), spec.max_replicas, _counts))
    policies: list[PolicyField] = []
    for direction in DIRECTIONS:
        rules = _rules(spec.behavior, direction)
        if rules is not None and rules.select_policy == "Disabled":
            # This direction never scales, which the user wants.
            for name, bound in bounds.items():
                if name.startswith(f"{direction}.") and not isinstance(bound, Given):
                    raise ReplayError(
                        f"bounds: {name}: {direction} has selectPolicy Disabled, so it changes nothing: remove the "
                        f"bound, or write {GIVEN}"
                    )
            continue
        window = _given_window(rules, direction, config)
        fields.append(field(f"{direction}.{WINDOW}", _WINDOW_BOUNDS[direction], window, _windows))
        tolerance = rules.tolerance.quantity.as_float() if rules and rules.tolerance else config.tolerance
        fields.append(field(f"{direction}.{TOLERANCE}", _TOLERANCE, tolerance, _tolerances))
        wanted = bounds.get(f"{direction}.{POLICIES}")
        if wanted is None or isinstance(wanted, PolicyRanges):
            policies.append(_policy_field(direction, wanted, mean_replicas))
    found = tuple(field for field in fields if field is not None)
    _check_replicas(found, bounds, spec)
    return Space(target=target, fields=found, policies=tuple(policies))


def _bound(bounds: Bounds, name: str) -> Bound | None:
    """Return the user's bound of a field that is a number."""
    bound = bounds.get(name)
    assert not isinstance(bound, PolicyRanges)
    return bound


def _target_bound(wanted: Bound | None, first: float, highest: float) -> Bound:
    """Return the bound of the first target. Those in proportion to it may not exceed 100 % of their capacity.

    Raises:
        ReplayError: the user's bound is above that.
    """
    if isinstance(wanted, Given):
        return wanted
    bound, most = wanted or _TARGETS, math.floor(100 * first / highest * 100 + 1e-6) / 100
    if wanted is not None and wanted.low > most:
        raise ReplayError(
            f"bounds: target: above {most:.4g}%, a target in proportion to it would exceed what a pod can serve"
        )
    return Range(min(bound.low, most), min(bound.high, most))


def _check_replicas(fields: Sequence[Field], bounds: Bounds, spec: Spec) -> None:
    choices = {field.name: field.choices for field in fields}
    least = choices.get(MIN_REPLICAS, (spec.min_replicas,))[0]
    most = choices.get(MAX_REPLICAS, (spec.max_replicas,))[-1]
    if least > most:
        name, other = (MIN_REPLICAS, MAX_REPLICAS)
        if not isinstance(bounds.get(MIN_REPLICAS), Range):
            name, other, least, most = other, name, most, least
        relation = "above" if name == MIN_REPLICAS else "below"
        raise ReplayError(f"bounds: {name}: {least:g} is {relation} {other}, which is {most:g}")


def _rules(behavior: Behavior | None, direction: str) -> ScalingRules | None:
    if behavior is None:
        return None
    return behavior.scale_up if direction == "scaleUp" else behavior.scale_down


def _given_window(rules: ScalingRules | None, direction: str, config: Config) -> float:
    if rules is not None and rules.stabilization_window_seconds is not None:
        return rules.stabilization_window_seconds
    return 0 if direction == "scaleUp" else config.downscale_stabilization_ms / 1000


# --- values --------------------------------------------------------------------------------------------------------


def _field(name: str, bound: Bound, given: float, values: _Values) -> Field | None:
    """Return a field with the values within its bounds; None if it stays as given."""
    if isinstance(bound, Given):
        return None
    inside = {value for value in values(bound) if bound.low <= value <= bound.high} | {bound.low, bound.high}
    if bound.low <= given <= bound.high:
        inside = {value for value in inside if abs(value - given) > 1e-9} | {given}
    return Field(name=name, choices=tuple(sorted(inside)), given=given)


def _policy_field(direction: str, wanted: PolicyRanges | None, mean_replicas: float) -> PolicyField:
    if wanted is None:
        wanted = PolicyRanges(percent=_PERCENT[direction], pods=Range(1, max(4, round(mean_replicas))))
    period = wanted.period_seconds or _PERIOD
    kinds = {"Percent": wanted.percent, "Pods": wanted.pods}
    values = {
        kind: tuple(sorted({round(value) for value in (bound.low, *_rounds(bound), bound.high)}))
        for kind, bound in kinds.items()
        if bound is not None
    }
    periods = {round(each) for each in (period.low, *_within(_PERIODS, period), period.high)}
    return PolicyField(name=f"{direction}.{POLICIES}", values=values, periods=tuple(sorted(periods)))


def _percents(bound: Range) -> Iterator[float]:
    return (float(value) for value in range(int(bound.low), int(bound.high) + 1))


def _tolerances(bound: Range) -> Iterator[float]:
    return (value / 100 for value in range(int(bound.low * 100), int(bound.high * 100) + 1))


def _windows(bound: Range) -> Iterator[float]:
    return (float(value) for value in _within(_WINDOWS, bound))


def _counts(bound: Range) -> Iterator[float]:
    low, high = round(bound.low), round(bound.high)
    step = -(-(high - low + 1) // _MAX_CHOICES)
    return (float(value) for value in range(low, high + 1, step))


def _rounds(bound: Range) -> Iterator[float]:
    """Yield round numbers, about ten for each power of ten."""
    values = (factor * 10.0**exponent for exponent in range(10) for factor in _SIGNIFICANT)
    for value in itertools.takewhile(lambda value: value <= bound.high, values):
        if value >= bound.low and value == int(value):
            yield value


def _within(values: Iterable[int], bound: Range) -> list[int]:
    return [value for value in values if bound.low <= value <= bound.high]
