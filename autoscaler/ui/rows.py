"""One row of the list: an HPA's metrics, replicas and conditions, from the object as the API server has it.

So a row is right for HPAs of other shards, of other controllers, and of a process that is not the leader. Levels are
the CSS classes of kube.web: "ok", "warn", "bad", or "" for neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from autoscaler.core.config import Config, Mode, Pause
from autoscaler.core.model import HPA, KUBERNETES, Condition, HPAKey, InvalidMetric, MetricSpec, MetricTarget
from autoscaler.core.replica_calculator import Tolerances
from autoscaler.core.status import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED
from autoscaler.records.build import metric_record, target_field
from autoscaler.records.record import Measure, MetricRecord
from autoscaler.records.sentence import measure_text, metric_name, target_text

Level: TypeAlias = Literal["ok", "warn", "bad", ""]
State: TypeAlias = Literal["failing", "limited", "paused", "scaling"]

STATES: Final[tuple[State, ...]] = ("failing", "limited", "paused", "scaling")
_SCALING_DISABLED: Final = "ScalingDisabled"
"""Reason of the ScalingActive condition of a target that its users have scaled to 0."""
_MODES: Final = {
    Mode.ACT: "decisions are applied: the scale and the status are written",
    Mode.DRY_RUN: "decisions are only recorded: neither the scale nor the status is written",
    Mode.SHADOW: "decisions are only compared with those of the built-in controller: nothing is written",
}
_BAR_RATIO: Final = 1.5
"""The ratio of value and target at the end of a metric's bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A word about an HPA, with an explanation, which may be empty."""

    text: str
    level: Level = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBar:
    """A metric's current value against its target; lengths are percent of the bar."""

    name: str
    current: str
    target: str
    level: Level
    length: float
    target_at: float = 100 / _BAR_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasBar:
    """The current replicas between minReplicas (0 %) and maxReplicas (100 %)."""

    current: int
    desired: int
    minimum: int
    maximum: int
    level: Level
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One HPA, and what is computed from it."""

    hpa: HPA
    """The HPA."""
    modes: tuple[Badge, ...]
    """The mode, and what keeps this process from acting."""
    metrics: tuple[MetricBar, ...]
    """One for each metric of the spec; none if it is not valid."""
    replicas: ReplicasBar | None
    """None if the spec is not valid."""
    conditions: tuple[tuple[Condition, Level], ...]
    """Those of the status with their levels."""
    notes: tuple[str, ...]
    """What is out of date, or ignored."""

    @property
    def id(self) -> str:
        """Of the row's element."""
        return f"hpa/{self.hpa.key.group}/{self.hpa.namespace}/{self.hpa.name}"

    @property
    def url(self) -> str:
        """Of the HPA's page."""
        return hpa_url(self.hpa.key)

    @property
    def target(self) -> str:
        """KIND/NAME of the scale target; empty if the spec is not valid."""
        ref = self.hpa.spec.scale_target_ref
        return "" if self.hpa.problem else f"{ref.kind}/{ref.name}"


def row(hpa: HPA, mode: Mode, config: Config, *, is_foreign: bool, is_owned: bool) -> Row:
    """Return the row of an HPA.

    Args:
        hpa: the HPA.
        mode: its effective mode.
        config: the controller's flags.
        is_foreign: whether another controller writes its status.
        is_owned: whether it belongs to the shard of this process.
    """
    return Row(
        hpa=hpa,
        modes=tuple(_modes(hpa, mode, is_foreign=is_foreign, is_owned=is_owned)),
        metrics=() if hpa.problem else tuple(_metric_bars(hpa, config)),
        replicas=None if hpa.problem else _replicas_bar(hpa),
        conditions=tuple((each, condition_level(each)) for each in hpa.status.conditions),
        notes=tuple(_notes(hpa)),
    )


def hpa_url(key: HPAKey, *segments: str, **query: str) -> str:
    """Return the URL of an HPA's page, or of one below it; parameters that are empty are left out."""
    path = "/".join(quote(each, safe="") for each in (key.namespace, key.name, *segments))
    group = "" if key.group == KUBERNETES.group else key.group
    parameters = urlencode({name: value for name, value in {"group": group, **query}.items() if value})
    return f"/hpas/{path}?{parameters}" if parameters else f"/hpas/{path}"


def states_of(hpa: HPA) -> frozenset[State]:
    """Return the states by which the list is filtered.

    failing   the spec is not valid, or AbleToScale or ScalingActive is False, unless users have scaled the target to 0
    limited   ScalingLimited is True
    paused    an annotation pauses one or both directions
    scaling   the status desires other replicas than the current ones, and the HPA is not failing
    """
    failing, limited = bool(hpa.problem), False
    for each in hpa.status.conditions:
        if each.type == SCALING_LIMITED:
            limited = each.status == "True"
        elif condition_level(each) == "bad":
            failing = True
    paused = hpa.overrides.paused is not Pause.NONE
    scaling = hpa.status.desired_replicas != hpa.status.current_replicas and not failing
    held = {"failing": failing, "limited": limited, "paused": paused, "scaling": scaling}
    return frozenset(state for state in STATES if held[state])


def condition_level(condition: Condition) -> Level:
    """Return "bad" if nothing is scaled because of the condition, "warn" if less or more than the metrics propose."""
    if condition.type in (ABLE_TO_SCALE, SCALING_ACTIVE):
        if condition.status == "True":
            return "ok"
        return "warn" if condition.reason == _SCALING_DISABLED else "bad"
    if condition.type == SCALING_LIMITED:
        return "ok" if condition.status == "False" else "warn"
    return ""


def highest_ratio(hpa: HPA) -> float:
    """Return the highest ratio of a metric's current value and its target; -1 if none is known."""
    if hpa.problem:
        return -1.0
    ratios = (_ratio(metric, _current(hpa, index)) for index, metric in enumerate(hpa.spec.metrics))
    return max((ratio for ratio in ratios if ratio is not None), default=-1.0)


def search_text(hpa: HPA) -> str:
    """Return what a search finds, in lower case: namespace/name, the target, and the names of the metrics."""
    texts = [f"{hpa.namespace}/{hpa.name}"]
    if not hpa.problem:
        texts.append(f"{hpa.spec.scale_target_ref.kind}/{hpa.spec.scale_target_ref.name}")
        texts += (metric_name(metric_record(metric)) for metric in hpa.spec.metrics)
    return "\n".join(texts).lower()


# --- the cells -----------------------------------------------------------------------------------------------------


def _modes(hpa: HPA, mode: Mode, *, is_foreign: bool, is_owned: bool) -> Iterator[Badge]:
    yield Badge(text=mode.value, title=_MODES[mode])
    if is_foreign:
        title = "another controller writes the status of this HPA, so this process does not act on it"
        yield Badge(text="foreign controller", level="warn", title=title)
    if not is_owned:
        yield Badge(text="other shard", title="another process reconciles this HPA")
    paused = hpa.overrides.paused
    if paused is not Pause.NONE:
        directions = "" if paused is Pause.ALL else f" {paused.value}"
        yield Badge(text=f"paused{directions}", level="warn", title=f"annotation milliscale.io/paused: {paused.value}")


def _metric_bars(hpa: HPA, config: Config) -> Iterator[MetricBar]:
    tolerances = Tolerances.of(hpa.spec.behavior, hpa.overrides.apply_to(config).tolerance)
    for index, metric in enumerate(hpa.spec.metrics):
        current = _current(hpa, index)
        record, ratio = metric_record(metric, current), _ratio(metric, current)
        level: Level = ""
        if ratio is not None:
            level = "ok" if ratio <= 1.0 + tolerances.scale_up else "warn"
        yield MetricBar(
            name=metric_name(record),
            current=_current_text(metric, record),
            target=target_text(record),
            level=level,
            length=0.0 if ratio is None else round(max(0.0, min(1.0, ratio / _BAR_RATIO)) * 100, 1),
        )


def _current_text(metric: MetricSpec, record: MetricRecord) -> str:
    """Return the value that the target is for; a status may have several."""
    field = target_field(metric)
    value = getattr(record.current, field, None)
    return "unknown" if value is None else measure_text(Measure(**{field: value}))


def _current(hpa: HPA, index: int) -> MetricTarget | None:
    """Return the current value of a metric of the spec; None: there is none, or the spec was changed since."""
    metric, currents = hpa.spec.metrics[index], hpa.status.current_metrics
    current = currents[index] if index < len(currents) else MetricSpec()
    if isinstance(current.source, InvalidMetric) or current.with_target(metric.target) != metric:
        return None
    return current.target


def _ratio(metric: MetricSpec, current: MetricTarget | None) -> float | None:
    """Return the current value divided by the target."""
    field = target_field(metric)
    value, target = getattr(current, field, None), getattr(metric.target, field)
    if value is None or target is None:
        return None
    if field == "average_utilization":
        return value / target if target else None
    return value.milli / target.milli if target.milli else None


def _replicas_bar(hpa: HPA) -> ReplicasBar:
    low, high, current = hpa.spec.min_replicas, hpa.spec.max_replicas, hpa.status.current_replicas
    # 0 below the minimum: none was found yet.
    desired = hpa.status.desired_replicas or (current if low else 0)
    length = (current - low) / (high - low) if high > low else float(current >= high)
    return ReplicasBar(
        current=current,
        desired=desired,
        minimum=low,
        maximum=high,
        level="warn" if current >= high else "",
        length=round(max(0.0, min(1.0, length)) * 100, 1),
    )


def _notes(hpa: HPA) -> Iterator[str]:
    status = hpa.status
    if not status.conditions:
        yield "not reconciled yet"
    elif status.observed_generation is not None and status.observed_generation < hpa.generation:
        yield "the spec was changed, and is not reconciled yet"
    yield from hpa.overrides.problems
