"""Recorded load: the values of HPAs' metrics over time, from any source.

Values are floats in the metric's unit (cores and bytes for resources), NaN in gaps; times are milliseconds
since the Unix epoch.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from autoscaler.core.history import History
from autoscaler.core.model import InvalidMetric, MetricSource, ObjectMetric, ResourceMetric
from autoscaler.core.status import rfc3339
from autoscaler.records.record import DecisionRecord, MetricRecord
from kube.values.selectors import SelectorError

if TYPE_CHECKING:
    from adapter.forecasts.options import ForecastOptions
    from replay.forecast import Forecast

_HOLD: Final = 1.5
_MIN_HOLD_MS: Final = 30_000
"""Two sync periods: samples of a frequent recording may be late."""
_COUNTER_SUFFIXES: Final = ("_total", "_count", "_sum", "_bucket")
_MIN_INCREASES: Final = 3
_MAX_RECONCILIATIONS: Final = 5_000_000
_RESETS_PER_INCREASE: Final = 0.05


class ReplayError(Exception):
    """A replay cannot be computed; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric: the total over all pods, an object's value, or the sum of an external metric's series."""

    times_ms: array[int]
    """Ascending."""
    values: array[float]
    """NaN: a gap begins here."""
    hold_ms: int
    """How long a sample counts, if no other follows."""

    def at(self, time_ms: int) -> float:
        """Return the value at a time; NaN if there is none."""
        index = bisect_right(self.times_ms, time_ms) - 1
        if index < 0 or time_ms >= self.times_ms[index] + self.hold_ms:
            return math.nan
        return self.values[index]

    def next_ms(self, time_ms: int) -> int:
        """Return when the value of a time may change: at the next sample, or when this one has counted long enough."""
        index = bisect_right(self.times_ms, time_ms)
        held_until = self.times_ms[index - 1] + self.hold_ms
        return min(held_until, self.times_ms[index]) if index < len(self.times_ms) else held_until

    def segments(self, start_ms: int, end_ms: int) -> Iterator[tuple[int, int, float]]:
        """Yield (start, end, value) of the parts of a time in which the value is constant; NaN in gaps."""
        times = self.times_ms
        index = bisect_right(times, start_ms) - 1
        while start_ms < end_ms:
            following = times[index + 1] if index + 1 < len(times) else end_ms
            until = min(following, end_ms)
            held_until = times[index] + self.hold_ms if index >= 0 else start_ms
            if start_ms < held_until:
                yield start_ms, min(until, held_until), self.values[index]
            if max(start_ms, held_until) < until:
                yield max(start_ms, held_until), until, math.nan
            start_ms = until
            index += 1

    def has_values(self, start_ms: int, end_ms: int) -> bool:
        """Return True if there is a value at any time from `start_ms` to before `end_ms`."""
        first = max(bisect_right(self.times_ms, start_ms) - 1, 0)
        samples = range(first, bisect_left(self.times_ms, end_ms))
        return any(not math.isnan(self.values[i]) and self.times_ms[i] + self.hold_ms > start_ms for i in samples)

    def exceeds(self, most: float, start_ms: int, end_ms: int) -> bool:
        """Return True if a value from `start_ms` to before `end_ms` is higher."""
        first = max(bisect_right(self.times_ms, start_ms) - 1, 0)
        return any(value > most for value in self.values[first : bisect_left(self.times_ms, end_ms)])


def hold_ms(distance_ms: float) -> int:
    """Return how long a sample counts, if no other follows, where they usually are so far apart."""
    return max(math.ceil(distance_ms * _HOLD), _MIN_HOLD_MS)


@dataclass(frozen=True, slots=True)
class Startup:
    """How long a new pod takes to become ready, and how that is known, for people."""

    milliseconds: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The recorded metrics of the HPAs that are replayed. `dataclasses.replace` of start and end gives a part of it."""

    start_ms: int
    end_ms: int
    """After the last reconciliation."""
    series: Mapping[str, Series]
    """{`metric_key` of a metric: its values}."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """{resource: what one pod requests, in milli-values}, where known; a container's is CONTAINER/RESOURCE."""
    replicas: Series | None = None
    """The real replicas, if recorded."""
    ready_replicas: Series | None = None
    startup: Startup | None = None
    """Of the real pods, if the source of the load knows it."""
    decisions: Sequence[RecordedDecision] = ()
    """The real decisions, if recorded; then these are replayed, at their times."""
    history: History = field(default_factory=History)
    """Of the HPA, at the first of the decisions."""
    seen: Mapping[str, Series] = field(default_factory=dict)
    """{`metric_key`: what HPAs see of a metric}, where that is not its load but a forecast of it."""
    forecast_options: Mapping[str, ForecastOptions] = field(default_factory=dict)
    """{`metric_key`: options} of metrics with a forecast, whose history is in `series`, before `start_ms`."""
    forecasts: Sequence[Forecast] = ()
    notes: Sequence[str] = ()
    """What the source of the load assumes, one sentence each."""


class RecordedDecision(Struct, frozen=True, kw_only=True):
    """A decision of the running autoscaler, for which it had read the target's scale."""

    time_ms: int
    record: DecisionRecord
    metrics: Mapping[str, MetricRecord]
    """{`metric_key`: the metric}; empty if the metrics were not evaluated."""
    totals: Mapping[str, int]
    """{`metric_key`: milli-value}, of a metric of pods the sum over the ready pods; one that failed has none."""

    @property
    def replicas(self) -> int:
        """The replicas before the decision."""
        return self.record.current_replicas or 0

    @property
    def replicas_after(self) -> int:
        """The replicas that the decision led to."""
        desired = self.record.desired_replicas
        return self.replicas if desired is None or self.scale_error else desired

    @property
    def scale_error(self) -> str | None:
        """Why the scale could not be written."""
        return None if self.record.written is None else self.record.written.scale_error

    @property
    def ready(self) -> int | None:
        """The number of ready pods; None: no metric shows it. To metrics of cpu, pods are ready later."""
        return max((each.pods.ready.count for each in self.metrics.values() if each.pods is not None), default=None)


def metric_key(source: MetricSource) -> str:
    """Return the name of a metric in `Load.series`.

    NAME or NAME{SELECTOR} of a Pods or an External metric, KIND/OBJECT/NAME of an Object metric, RESOURCE, and
    CONTAINER/RESOURCE.

    Raises:
        ReplayError: the metric has an invalid selector, or a type that is not known.
    """
    if isinstance(source, InvalidMetric):
        raise ReplayError(f"metric type {source.type!r} is not known: use Resource, Pods, Object or External")
    if isinstance(source, ResourceMetric):
        return metric_name(source)
    try:
        selector = str(source.metric.label_selector)
    except SelectorError as error:
        raise ReplayError(f"the selector of metric {source.metric.name} is invalid: {error}") from error
    name = source.metric.name + (f"{{{selector}}}" if selector else "")
    if isinstance(source, ObjectMetric):
        return f"{source.described_object.kind}/{source.described_object.name}/{name}"
    return name


def metric_name(source: MetricSource) -> str:
    """Return the name of a metric for outputs: NAME, RESOURCE or CONTAINER/RESOURCE."""
    match source:
        case ResourceMetric(name=resource, container=None):
            return resource
        case ResourceMetric(name=resource, container=container):
            return f"{container}/{resource}"
        case InvalidMetric(type_):
            return type_
        case _:
            return source.metric.name


def named_metric(flag: str, name: str, sources: Sequence[MetricSource]) -> MetricSource:
    """Return the metric with a `metric_key` or `metric_name`; the first one for "".

    Raises:
        ReplayError: there is none; the message names the flag.
    """
    for matches in (metric_key, metric_name):
        for source in sources:
            if name in ("", matches(source)):
                return source
    keys = ", ".join(dict.fromkeys(map(metric_key, sources)))
    raise ReplayError(f"{flag} names {name}, which is not a metric of the HPAs: {keys}")


def check_length(start_ms: int, end_ms: int, step_ms: int) -> None:
    """Check that a range can be replayed within minutes.

    Raises:
        ReplayError: it is too long.
    """
    count = (end_ms - start_ms) // step_ms
    if count > _MAX_RECONCILIATIONS:
        raise ReplayError(
            f"the range from {rfc3339(start_ms)} to {rfc3339(end_ms)} has {count:,} reconciliations, and at most "
            f"{_MAX_RECONCILIATIONS:,} are replayed: give --from and --to, or a longer --step"
        )


def check_not_counter(name: str, series: Series, *, is_counter: Callable[[str], bool] = lambda _: False) -> None:
    """Check that a metric, named "" if it has no name, is not a counter, whose value says nothing about the load.

    Values of a counter grow, and fall only when a process restarts. `is_counter` returns whether the source knows a
    name without a suffix of counters as one.

    Raises:
        ReplayError: it is a counter.
    """
    if not name:
        return
    values = [value for value in series.values if not math.isnan(value)]
    changes = [after - before for before, after in itertools.pairwise(values) if after != before]
    falls = sum(change < 0 for change in changes)
    rises = len(changes) - falls
    if rises < _MIN_INCREASES or falls > _RESETS_PER_INCREASE * rises:
        return
    if name.endswith(_COUNTER_SUFFIXES) or is_counter(name):
        text = f"use its rate, such as rate({name}[2m]), in the file or by a rule of --config"
        raise ReplayError(f"metric {name} is a counter, which only grows: {text}")
