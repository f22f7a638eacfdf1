"""The report of a tuning: verdict, trade-off, how sure it is, and the recommended HPA as YAML that can be applied.

All of the text but the YAML is comments, so that the output can be piped to `kubectl apply -f -`; without a recommended
HPA it is comments only.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from autoscaler.core.status import rfc3339
from kube.values.durations import format_duration
from replay.tune.evaluation import Figures, total
from replay.tune.goal import LEAST_GAIN, SURE, Objective, gain_interval
from replay.tune.specs import describe, needs_tolerance, to_yaml
from replay.tune.split import DAY_MS
from replay.tune.tuning import Tuned, TunedSpec, Verdict

_FEW_PARTS: Final = 5
_FORTNIGHT_MS: Final = 14 * DAY_MS
_UNLIMITED: Final = 1000


def text(tuned: Tuned) -> str:
    """Return the report with the recommended HPA, as YAML."""
    lines = [*verdict(tuned), "", *_table_lines(tuned), "", *(f"- {note}" for note in notes(tuned))]
    comment = "\n".join(f"# {line}".rstrip() for line in lines)
    if tuned.recommended is not None:
        return f"{comment}\n{to_yaml(tuned.recommended.document)}"
    return f"{comment}\n"


def json(tuned: Tuned) -> bytes:
    """Return the report as JSON."""
    specs = [
        {
            "name": spec.name,
            "changes": {name: _json_value(value) for name, value in spec.candidate.items()},
            "train": _json_figures(spec.train),
            "unseen": _json_figures(spec.unseen),
            "object": spec.document,
        }
        for spec in tuned.specs
    ]
    low, high = _interval(tuned) or (None, None)
    split = tuned.split
    document = {
        "version": 1,
        "hpa": tuned.name,
        "verdict": tuned.verdict.value,
        "recommended": tuned.recommended.document if tuned.recommended else None,
        "savedPodHours": {"low": low, "high": high} if low is not None else None,
        "train": {"start": rfc3339(split.boundaries_ms[0]), "end": rfc3339(split.split_ms), "parts": split.train},
        "unseen": {"start": rfc3339(split.split_ms), "end": rfc3339(split.boundaries_ms[-1]), "parts": split.unseen},
        "specs": specs,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


# --- sentences -------------------------------------------------------------------------------------------------------


def verdict(tuned: Tuned) -> list[str]:
    """Return the verdict in a few sentences."""
    given, winner = total(tuned.given.unseen), total(tuned.winner.unseen) if tuned.winner else Figures()
    unseen, goal = tuned.split.count(tuned.split.unseen), tuned.options.goal
    on_unseen = f"on the {unseen} that the search has not seen"
    figures = (
        f"{_difference(winner, given)} pod-hours, and {_percent(winner.overload_ratio)} of requests above capacity"
    )
    instead = f"{_percent(given.overload_ratio)} with the given spec"
    if goal.max_overload is not None:
        instead += f", {_percent(goal.max_overload)} allowed"
    none = f"No better spec for {tuned.name} within these bounds"
    change = f"The winner of the search: {describe(tuned.winner.candidate)}." if tuned.winner else ""
    match tuned.verdict:
        case Verdict.BETTER:
            recommended = f"Recommended for {tuned.name}: {describe(tuned.winner.candidate) if tuned.winner else ''}."
            return [recommended, f"It has {figures} ({instead}), {on_unseen}."]
        case Verdict.KEEPS_LIMIT:
            return [
                f"{none}: none has fewer pod-hours and keeps --max-overload.",
                f"The given spec exceeds it. The winner of the search keeps it, {on_unseen}:",
                f"{figures} ({instead}).",
                change,
                "If you want that, apply it from -o json.",
            ]
        case Verdict.REJECTED:
            return [f"{none}.", change, f"It looked better in the search, but has {figures} ({instead}), {on_unseen}."]
        case Verdict.NONE:
            if goal.value(tuned.given.train) <= 0:
                what = "overload" if goal.objective is Objective.OVERLOAD else "pods"
                return [f"{none}: the given spec has no {what} on the training part, so there is nothing to gain."]
            worth = f"by {LEAST_GAIN:.0%} or more"
            return [f"{none}: none of {tuned.trials} candidates was better {worth} on the training part."]


def notes(tuned: Tuned) -> list[str]:
    """Return notes on the confidence of the result, and on its data."""
    return [*_confidence(tuned), *_method(tuned)]


def _confidence(tuned: Tuned) -> Iterator[str]:
    split, winner = tuned.split, tuned.winner
    if winner is not None and tuned.options.goal.objective is Objective.POD_HOURS:
        interval = _interval(tuned)
        assert interval is not None
        pairs = _with_load(tuned, winner)
        fewer = sum(ours.pod_hours < given.pod_hours for ours, given in pairs)
        more = sum(ours.overload_ratio > given.overload_ratio for ours, given in pairs)
        worst = max(ours.overload_ratio for ours, _ in pairs)
        if len(pairs) < split.unseen:
            yield f"{split.count(split.unseen - len(pairs))} of the unseen {split.count(split.unseen)} had no load."
        yield (
            f"Pod-hours saved: {interval[0]:.1%} to {interval[1]:.1%} (90 % interval of the unseen parts, resampled); "
            f"fewer on {fewer} of {split.count(len(pairs))}."
        )
        yield (
            f"Overload: {_percent(worst)} on the worst of {split.count(len(pairs))}; more than with the given spec on "
            f"{more} of them."
        )
    length = tuned.load.end_ms - tuned.load.start_ms
    if split.part_ms < DAY_MS:
        yield (
            "The history has no three days, so that the unseen part has other hours of the day than the search: do not "
            "rely on it. Give a week or more."
        )
    elif split.unseen < _FEW_PARTS or length < _FORTNIGHT_MS:
        yield (
            f"{split.count(split.unseen)} {'is' if split.unseen == 1 else 'are'} few: a surge of a kind that "
            f"{split.count(split.parts)} do not have is not accounted for. Tune again with more history."
        )


def _method(tuned: Tuned) -> Iterator[str]:
    split, goal = tuned.split, tuned.options.goal
    yield (
        f"Searched on {split.count(split.train)} from {rfc3339(tuned.load.start_ms)}, without the first "
        f"{format_duration(split.warm_up_ms / 1000)}; unseen: {split.count(split.unseen)} from "
        f"{rfc3339(split.split_ms)}."
    )
    if goal.objective is Objective.POD_HOURS:
        limit = "the given spec's" if goal.max_overload is None else _percent(goal.max_overload)
        yield (
            f"Chosen on the training part only: fewest pod-hours with at most {limit} overload in {SURE:.0%} of random "
            "selections of its parts."
        )
    if tuned.winner is not None and needs_tolerance(tuned.winner.candidate):
        yield (
            "tolerance needs Kubernetes 1.35 (the feature HPAConfigurableTolerance is on by default from there on), or "
            "Milliscale's controller."
        )
    if tuned.targets_at_capacity:
        yield (
            f"What a pod can serve of {', '.join(tuned.targets_at_capacity)} is taken to be the given target, so no "
            "higher one is tried: give --capacity."
        )
    seconds = tuned.cpu_seconds
    fortnight = seconds * _FORTNIGHT_MS / (tuned.load.end_ms - tuned.load.start_ms)
    yield (
        f"{tuned.trials} replays took {_rounded(seconds)} of one core; a fortnight would take {_rounded(fortnight)}."
        + (" The search was interrupted: this is the best spec so far." if tuned.is_interrupted else "")
    )


def _interval(tuned: Tuned) -> tuple[float, float] | None:
    if tuned.winner is None:
        return None
    pairs = _with_load(tuned, tuned.winner)
    return gain_interval([ours for ours, _ in pairs], [given for _, given in pairs], seed=tuned.options.seed)


def _with_load(tuned: Tuned, spec: TunedSpec) -> list[tuple[Figures, Figures]]:
    """Return (figures of the spec, figures of the given spec) of the unseen parts that have load."""
    return [pair for pair in zip(spec.unseen, tuned.given.unseen, strict=True) if pair[1].has_load]


# --- table -----------------------------------------------------------------------------------------------------------


def table(tuned: Tuned) -> list[list[str]]:
    """Return the rows of the trade-off, the header first."""
    header = [""]
    for part in ("searched", "unseen"):
        header += [f"{part}: pod-hours", "overload", "scale events"]
    rows = [
        [spec.name, *_row(spec.train, tuned.given.train), *_row(spec.unseen, tuned.given.unseen)]
        for spec in tuned.specs
    ]
    return [header, *rows]


def _table_lines(tuned: Tuned) -> list[str]:
    header, *rows = table(tuned)
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for number, title in enumerate(header):
        drawn.add_column(title, justify="right" if number else "left")
    for row in rows:
        drawn.add_row(*row)
    file = io.StringIO()
    Console(file=file, width=_UNLIMITED, highlight=False, markup=False, emoji=False).print(drawn)
    return [line for line in file.getvalue().splitlines() if line.strip()]


def _row(parts: Sequence[Figures], given: Sequence[Figures]) -> list[str]:
    figures, reference = total(parts), total(given)
    pods = f"{figures.pod_hours:,.1f}"
    if figures is not reference and reference.pod_hours and parts is not given:
        pods += f" ({figures.pod_hours / reference.pod_hours - 1:+.1%})"
    return [pods, _percent(figures.overload_ratio), f"{figures.scale_events:,}"]


def _difference(figures: Figures, given: Figures) -> str:
    """Return `12.3 % fewer`."""
    share = figures.pod_hours / given.pod_hours - 1 if given.pod_hours else 0.0
    return f"{abs(share) * 100:.1f} % {'fewer' if share <= 0 else 'more'}"


def _percent(ratio: float) -> str:
    return f"{float(f'{ratio * 100:.3g}'):g}%" if ratio * 100 >= 1e-4 or ratio == 0 else "<0.0001%"


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# --- JSON ------------------------------------------------------------------------------------------------------------


def _json_figures(parts: Sequence[Figures]) -> dict[str, Any]:
    def figures(each: Figures) -> dict[str, Any]:
        return {
            "podHours": each.pod_hours,
            "overloadRatio": each.overload_ratio,
            "overloadRequests": each.overload_requests,
            "scaleEvents": each.scale_events,
        }

    return {**figures(total(parts)), "parts": [figures(each) for each in parts]}


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"type": value[0], "value": value[1], "periodSeconds": value[2]}
    return value
