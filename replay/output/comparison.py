"""Specs on the same load, with reality where it was recorded: the figures, and the notes that go with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from autoscaler.core.model import HPA
from kube.values.durations import format_duration
from replay.load import Load
from replay.results import Replayed, Summary
from replay.simulation import Settings

_SHOWN_GAPS: Final = 3
_MAX_PERCENT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that the outputs show."""

    load: Load
    settings: Settings
    hpas: Sequence[HPA]
    replays: Sequence[Replayed]
    """One per HPA, in the same order."""
    reality: Replayed | None = None

    @property
    def columns(self) -> list[Replayed]:
        """Reality, if there is one, and the specs; the others are compared with the first."""
        return [*([self.reality] if self.reality is not None else []), *self.replays]


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of one spec."""

    text: str
    change: str = ""
    """The difference to the first column: `-12%`."""
    better: bool | None = None
    """Whether the change is one for the better."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of all columns."""

    label: str
    cells: tuple[Cell, ...]


def rows(comparison: Comparison) -> list[Row]:
    """Return the figures of all specs; the less of one, the better, where changes are shown."""
    summaries = [each.summary for each in comparison.columns]
    return [
        Row("replicas: min", _plain(summaries, lambda each: str(each.min_replicas))),
        Row("replicas: mean", _plain(summaries, lambda each: f"{each.mean_replicas:.2f}")),
        Row("replicas: max", _plain(summaries, lambda each: str(each.max_replicas))),
        Row("pod-hours", _compared(summaries, lambda each: each.pod_hours, digits=1)),
        Row("scale events", _compared(summaries, lambda each: each.scale_events)),
        Row("flaps", _compared(summaries, lambda each: each.flaps)),
        Row("seconds in overload", _compared(summaries, lambda each: each.overload_seconds)),
        Row("requests in overload", _compared(summaries, lambda each: each.overload_requests)),
        Row("  of all requests", _plain(summaries, lambda each: _percent(each.overload_ratio))),
        Row("seconds at maxReplicas", _compared(summaries, lambda each: each.at_max_seconds)),
        Row("seconds without metrics", _plain(summaries, lambda each: _number(each.no_metrics_seconds))),
    ]


def notes(comparison: Comparison) -> list[str]:
    """Return the time, the gaps and the assumptions of the replays, one sentence each."""
    load, settings = comparison.load, comparison.settings
    every = format_duration(settings.step_ms / 1000)
    rate = f"{len(load.decisions)} kept decisions" if load.decisions else f"a reconciliation every {every}"
    texts = [f"From {time_text(load.start_ms)} to {time_text(load.end_ms)} UTC, {rate}."]
    if load.decisions:
        texts += [_difference_note(replayed, load) for replayed in comparison.replays]
    texts += load.notes
    for replayed in comparison.replays:
        texts += _gap_notes(replayed)
    texts += counter_notes(load)
    texts.append(
        f"Assumed: a new pod is ready after {format_duration(settings.pod_startup_ms / 1000)}, ready pods share the "
        "load equally, and the load does not depend on the replicas."
    )
    if settings.capacity:
        capacity = ", ".join(f"{value:g} of {name}" for name, value in settings.capacity.items())
        texts.append(f"Assumed: one ready pod can serve {capacity}; load above that is overload.")
    else:
        texts.append("No metric has a target per pod, so overload is not known without a capacity (--capacity).")
    if comparison.reality is not None:
        texts.append("Reality is the recorded number of replicas, with the same capacity.")
    return texts


def counter_notes(load: Load) -> list[str]:
    """Return a note for each metric that is not called a counter, but grows like one."""
    return [
        f"{name} only grows: if it is a counter, record its rate instead, such as rate({name}[2m])."
        for name, series in load.series.items()
        if series.only_grows()
    ]


def time_text(time_ms: int) -> str:
    """Return a time in UTC for people: `2026-05-04 07:00:15`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _difference_note(replayed: Replayed, load: Load) -> str:
    """Return when the decisions of a replay begin to differ from the autoscaler's, as a sentence."""
    changes = {scale.time_ms: scale.desired_replicas for scale in replayed.scales}
    replicas = replayed.initial_replicas
    used = [each for each in load.decisions if replayed.start_ms <= each.time_ms < replayed.end_ms]
    for recorded in used:
        when = f"{replayed.name}: from {time_text(recorded.time_ms)} on"
        if recorded.replicas != replicas:
            return (
                f"{when}, the real replicas differ, {recorded.replicas} instead of {replicas}, for another reason than "
                "decisions: a decision was not written, or something else scaled the workload."
            )
        decided = recorded.replicas_after
        replicas = changes.get(recorded.time_ms, replicas)
        if replicas != decided:
            return f"{when}, the decisions differ from the autoscaler's: {replicas} replicas instead of {decided}."
    return f"{replayed.name}: all {len(used)} decisions are the same as the autoscaler's."


def _gap_notes(replayed: Replayed) -> list[str]:
    if not replayed.gaps:
        return []
    shown = ", ".join(
        f"{time_text(start)} for {format_duration((end - start) / 1000)}" for start, end in replayed.gaps[:_SHOWN_GAPS]
    )
    more = "" if len(replayed.gaps) <= _SHOWN_GAPS else f", and {len(replayed.gaps) - _SHOWN_GAPS} more"
    return [f"{replayed.name}: a metric has no value from {shown}{more}."]


def _plain(summaries: Sequence[Summary], text: Callable[[Summary], str]) -> tuple[Cell, ...]:
    return tuple(Cell(text(each)) for each in summaries)


def _compared(
    summaries: Sequence[Summary], value: Callable[[Summary], float | None], *, digits: int = 0
) -> tuple[Cell, ...]:
    base = value(summaries[0])
    cells = []
    for index, summary in enumerate(summaries):
        own = value(summary)
        cell = Cell(_number(own, digits))
        if index and base and own is not None:
            percent = round(100 * (own - base) / base)
            change = f"{percent:+d}%" if abs(percent) < _MAX_PERCENT else f"x{own / base:.0f}"
            cell = Cell(cell.text, "=" if percent == 0 else change, None if percent == 0 else percent < 0)
        cells.append(cell)
    return tuple(cells)


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.3g}%"
