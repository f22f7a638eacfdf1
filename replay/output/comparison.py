"""Specs on the same load, with reality where it was recorded: the figures, and the notes that go with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from autoscaler.core.model import HPA
from kube.values.durations import format_duration
from replay.load import Load
from replay.output.documents import Document
from replay.reality import shown_capacity
from replay.results import Moment, Replayed, Summary, sentence
from replay.simulation import Settings, replay_hpa, replay_reality, sync_period_ms

_UNKNOWN_OVERLOAD: Final = "overload is unknown without --capacity"
_UNEXPLAINED: Final = "; the spec may not be the cause, since no usual settings of a controller explain reality"
_SHOWN_GAPS: Final = 3
_MAX_PERCENT: Final = 1000
_NOTABLE: Final = 0.001
_SAME_LENGTH: Final = 0.01
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_UNITS: Final = (("d", _DAY), ("h", _HOUR), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that the outputs show."""

    load: Load
    settings: Settings
    hpas: Sequence[HPA]
    replays: Sequence[Replayed]
    """One per HPA, in the same order."""
    reality: Replayed | None = None
    plain: Replayed | None = None
    """The first HPA without the forecasts that the others see."""

    @property
    def columns(self) -> list[Replayed]:
        """The HPA without forecasts and reality, if there are any, and the specs; all are compared with the first."""
        return [*(each for each in (self.plain, self.reality) if each is not None), *self.replays]


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of one spec."""

    text: str
    change: str = ""
    """The difference to the first column: `-12%`."""
    better: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of all columns."""

    label: str
    cells: tuple[Cell, ...]


def compare(
    hpas: Mapping[str, HPA],
    load: Load,
    settings: Settings,
    *,
    document: Document | None = None,
    sentences: bool = True,
) -> Comparison:
    """Replay several HPAs, {name in the outputs: HPA}, on the same load. The document is written meanwhile.

    Decisions get their sentences, which take time, only if `sentences` are wanted.

    Raises:
        ReplayError: see `simulate`.
    """
    document, replays = document or Document(), []
    for name, hpa in hpas.items():
        on_step = document.begin(name, hpa)
        replays.append(replay_hpa(hpa, load, settings, name=name, on_step=on_step, sentences=sentences))
        document.end(replays[-1])
    plain = None
    if load.seen:
        name, hpa = next(iter(hpas.items()))
        without = dataclasses.replace(load, seen={}, forecasts=())
        plain = replay_hpa(hpa, without, settings, name=f"{name} without forecast", sentences=False)
    found = Comparison(
        load=load,
        settings=settings,
        hpas=list(hpas.values()),
        replays=replays,
        reality=replay_reality(load, settings),
        plain=plain,
    )
    document.close(found.reality, plain=found.plain, verdict=" ".join(verdicts(found)), notes=notes(found))
    return found


def verdicts(comparison: Comparison) -> list[str]:
    """Return a sentence for each spec but the first, about the difference; of the only one about reality.

    With forecasts, each spec is compared with the first one without them.
    """
    first, *others = comparison.replays
    if comparison.plain is not None:
        return [_verdict(each, comparison.plain) for each in comparison.replays]
    if others:
        return [_verdict(each, first) for each in others]
    summary = first.summary
    if comparison.reality is not None and _is_comparable(summary, comparison.reality.summary):
        return [_verdict(first, comparison.reality, "" if comparison.settings.explains_reality else _UNEXPLAINED)]
    overload = _UNKNOWN_OVERLOAD
    if summary.overload_seconds is not None:
        length = duration(summary.overload_seconds)
        overload = f"{length} of overload{_worst(first)}" if summary.overload_seconds else "no overload"
    return [f"{first.name} needs {summary.pod_hours:,.1f} pod-hours in {duration(summary.seconds)}; {overload}."]


def _verdict(replayed: Replayed, base: Replayed, doubt: str = "") -> str:
    own, other = replayed.summary, base.summary
    percent = 100 * (own.pod_hours / other.pod_hours - 1) if other.pod_hours else 0.0
    shown = f"{abs(percent):.0f}" if abs(percent) >= 9.5 else f"{abs(percent):.1f}"
    hours = (
        "as many pod-hours as" if shown == "0.0" else f"{shown}% {'fewer' if percent < 0 else 'more'} pod-hours than"
    )
    if own.pod_hours and not other.pod_hours:
        hours = f"{own.pod_hours:,.1f} pod-hours instead of 0 of"
    saved = ""
    if own.cost is not None and other.cost is not None and shown != "0.0":
        saved = f" ({'saves' if percent < 0 else 'costs'} {abs(own.cost - other.cost):,.2f} of {other.cost:,.2f})"
    before, after = other.overload_seconds, own.overload_seconds
    if before is None or after is None:
        overload = _UNKNOWN_OVERLOAD
    elif duration(before) == duration(after):
        overload = f"overload stays at {duration(after)}" if after else "no overload"
    else:
        overload = f"overload {'rises' if after > before else 'falls'} from {duration(before)} to {duration(after)}"
    overload += _worst(replayed) + doubt
    return f"{replayed.name} needs {hours} {base.name} in {duration(own.seconds)}{saved}; {overload}."


def _worst(replayed: Replayed) -> str:
    return f", worst on {_day_text(replayed.worst[0].start_ms)}" if replayed.worst else ""


def worst_moments(comparison: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (title, (time and size, sentence of the decision) of the worst overloads) of each replay that has any."""
    with_worst = [each for each in comparison.replays if each.worst]
    return [
        (f"Worst overload of {each.name}:", [(_moment_text(one), sentence(one.decision)) for one in each.worst])
        for each in with_worst
    ]


def _moment_text(moment: Moment) -> str:
    size = f"{moment.missing_pod_seconds / 60:.1f} pod-minutes short"
    return f"{_day_text(moment.start_ms, seconds=True)} for {duration(moment.overload_ms / 1000)}, {size}"


def rows(comparison: Comparison) -> list[Row]:
    """Return the figures of all specs; the less of one, the better, where changes are shown."""
    first, *others = summaries = [each.summary for each in comparison.columns]

    def row(label: str, text: Callable[[Summary], str]) -> Row:
        return Row(label, tuple(Cell(text(each)) for each in summaries))

    def compared(label: str, value: Callable[[Summary], float | None], digits: int = 0) -> Row:
        cells = [_percent_cell(value(each), value(first), digits, each, first) for each in others]
        return Row(label, (Cell(_number(value(first), digits)), *cells))

    def times(label: str, value: Callable[[Summary], float | None]) -> Row:
        return Row(label, tuple(_time_cell(value(each), value(first), each, first) for each in summaries))

    return [
        row("replicas: min", lambda each: str(each.min_replicas)),
        row("replicas: mean", lambda each: f"{each.mean_replicas:.2f}"),
        row("replicas: max", lambda each: str(each.max_replicas)),
        compared("pod-hours", lambda each: each.pod_hours, 1),
        *([compared("cost", lambda each: each.cost, 2)] if comparison.settings.pod_cost is not None else []),
        compared("scale events", lambda each: each.scale_events),
        compared("flaps", lambda each: each.flaps),
        times("time in overload", lambda each: each.overload_seconds),
        row("requests in overload", lambda each: _number(each.overload_requests)),
        row("  of all requests", lambda each: _percent(each.overload_ratio)),
        times("time at maxReplicas", lambda each: each.at_max_seconds),
        row("time without metrics", lambda each: duration(each.no_metrics_seconds)),
    ]


def notes(comparison: Comparison) -> list[str]:
    """Return the time, the gaps and the assumptions of the replays, one sentence each."""
    load, settings = comparison.load, comparison.settings
    periods = dict.fromkeys(sync_period_ms(hpa, settings) for hpa in comparison.hpas)
    every = " or ".join(format_duration(period / 1000) for period in periods)
    rate = f"{len(load.decisions)} kept decisions" if load.decisions else f"a reconciliation every {every}"
    texts = [f"From {time_text(load.start_ms)} to {time_text(load.end_ms)} UTC, {rate}."]
    if load.decisions:
        texts += [_difference_note(replayed, load) for replayed in comparison.replays]
    texts += load.notes
    for hpa, replayed in zip(comparison.hpas, comparison.replays, strict=True):
        texts += [f"{replayed.name}: {problem}." for problem in hpa.overrides.problems]
        if replayed.gaps:
            gaps = [f"{time_text(start)} for {format_duration((end - start) / 1000)}" for start, end in replayed.gaps]
            more = f", and {len(gaps) - _SHOWN_GAPS} more" * (len(gaps) > _SHOWN_GAPS)
            texts.append(f"{replayed.name}: a metric has no value from {', '.join(gaps[:_SHOWN_GAPS])}{more}.")
    texts.append(model_note(load, settings))
    if settings.capacity:
        capacity = ", ".join(f"{value:g} of {name}" for name, value in settings.capacity.items())
        texts.append(f"Assumed: one ready pod can serve {capacity}; load above that is overload.")
    else:
        texts += _capacity_notes(comparison)
    if comparison.reality is not None:
        same = ", with the same capacity" if settings.capacity else ""
        texts.append(f"Reality is the recorded number of replicas{same}.")
        own, real = comparison.replays[0].summary, comparison.reality.summary
        if not _is_comparable(own, real):
            texts.append(
                f"Reality is recorded for {duration(real.seconds)} of {duration(own.seconds)} only, so nothing is "
                "compared with it."
            )
    return texts


def model_note(load: Load, settings: Settings) -> str:
    """Return what is assumed of the pods, as a sentence."""
    measured = "" if load.startup is None else f" ({load.startup.source})"
    return (
        f"Assumed: a new pod is ready after {format_duration(settings.pod_startup_ms / 1000)}{measured}, ready pods "
        "share the load equally, and the load does not depend on the replicas."
    )


def _capacity_notes(comparison: Comparison) -> list[str]:
    """Return that overload is not known, with what reality shows of the capacity."""
    bounds = [
        f"at least {value:.4g} of {key}, which reality carried on {_day_text(at_ms, seconds=True)}"
        for key, (value, at_ms) in shown_capacity(comparison.hpas[0], comparison.load).items()
    ]
    known = f" One ready pod can serve {' and '.join(bounds)}." if bounds else ""
    return [f"Overload is unknown without what one ready pod can serve: give --capacity.{known}"]


def time_text(time_ms: int) -> str:
    """Return a time in UTC for people: `2026-05-04 07:00:15`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _day_text(time_ms: int, *, seconds: bool = False) -> str:
    """Return a time in UTC with the day of the week: `Tue 2026-05-04 07:00`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(f"%a %Y-%m-%d %H:%M{':%S' if seconds else ''}")


def duration(seconds: float | None) -> str:
    """Return a time in its two largest units: `45s`, `2m30s`, `7h41m`, `11d3h`; "-" if there is none."""
    if seconds is None:
        return "-"
    rest = round(seconds) if seconds < _DAY else round(seconds / _HOUR) * _HOUR
    parts: list[str] = []
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0"


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


def _is_comparable(first: Summary, second: Summary) -> bool:
    """Return True if both are of the same time. Reality may be recorded for a part of it."""
    return abs(first.seconds - second.seconds) <= _SAME_LENGTH * max(first.seconds, second.seconds)


def _percent_cell(own: float | None, base: float | None, digits: int, of: Summary, first: Summary) -> Cell:
    text = _number(own, digits)
    if not base or own is None or not _is_comparable(of, first):
        return Cell(text)
    percent = round(100 * (own - base) / base)
    change = f"{percent:+d}%" if abs(percent) < _MAX_PERCENT else f"x{own / base:.0f}"
    return Cell(text, change, percent < 0) if percent else Cell(text, "=")


def _time_cell(own: float | None, base: float | None, of: Summary, first: Summary) -> Cell:
    """Return a time; a change is for the better or worse if it is at least a thousandth of all time."""
    change = own - base if base is not None and own is not None and _is_comparable(of, first) else 0.0
    text = f"{'+' if change > 0 else '-'}{duration(abs(change))}" if round(change) else ""
    return Cell(duration(own), text, None if abs(change) < _NOTABLE * of.seconds else change < 0)


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.3g}%"
