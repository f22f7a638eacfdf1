"""The report of a tuning: verdict, trade-off, the days, how sure it is, and the recommended HPA as YAML to apply.

All of the text but the YAML is comments, so that the output can be piped to `kubectl apply -f -`; without a recommended
HPA it is comments only.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from autoscaler.core.status import rfc3339
from autoscaler.objects.hpa import parse_hpa
from kube.values.printable import printable
from replay.output.comparison import duration, model_note
from replay.output.documents import printable_json
from replay.output.names import changed_fields
from replay.output.table import console_of
from replay.results import Figures, total
from replay.tune.candidates import TARGET, target_percents, to_yaml
from replay.tune.evaluation import LEAST_DAYS
from replay.tune.goal import (
    LEAST_DAYS_OF_INTERVAL,
    LEAST_GAIN,
    LEAST_OVERLOAD,
    Objective,
    pod_hours_of,
    saved,
    saved_interval,
)
from replay.tune.tuning import Tuned, TunedSpec, Verdict

_FEW_DAYS: Final = 14


def text(tuned: Tuned) -> str:
    """Return the report with the recommended HPA, as YAML."""
    lines = [*verdict(tuned), "", "All days together:", *_drawn(trade_off(tuned)), ""]
    if tuned.winner is not None:
        lines += [f"{by_day_title(tuned)}:", *_drawn(by_day(tuned)), ""]
    lines += [f"- {note}" for note in notes(tuned)]
    comment = "\n".join(printable(f"# {line}".rstrip()) for line in lines)
    if tuned.recommended is not None:
        return f"{comment}\n{to_yaml(tuned.recommended.document)}"
    return f"{comment}\n"


def json(tuned: Tuned, **more: object) -> str:
    """Return the report as JSON; `more`: further fields."""
    days, pairs = tuned.days, tuned.pairs()
    saving = None
    if pairs:
        low, high = saved_pod_hours_interval(tuned) or (None, None)
        saving = {"share": saved(*pod_hours_of(pairs)), "low": low, "high": high}
    times = {"start": rfc3339(days.starts_ms[0]), "end": rfc3339(days.end_ms), "parts": len(days)}
    document = {
        "version": 1,
        "hpa": tuned.name,
        "verdict": tuned.verdict.value,
        "recommended": tuned.recommended.document if tuned.recommended else None,
        "savedPodHours": saving,
        "train": times,
        "unseen": times,
        "specs": [
            {
                "name": spec.name,
                "changes": spec.candidate,
                "train": json_figures(spec.days),
                "unseen": json_figures(spec.unseen),
                "object": spec.document,
            }
            for spec in tuned.specs
        ],
        **more,
    }
    return printable_json(msgspec.json.format(msgspec.json.encode(document), indent=2)) + "\n"


def saved_pod_hours_interval(tuned: Tuned) -> tuple[float, float] | None:
    """Return the interval of the share of pod-hours saved; None if the days are too few for one that is true."""
    pairs = tuned.pairs()
    if not tuned.days.are_days or len(pairs) < LEAST_DAYS_OF_INTERVAL:
        return None
    return saved_interval(*pod_hours_of(pairs))


# --- sentences -------------------------------------------------------------------------------------------------------


def verdict(tuned: Tuned) -> list[str]:
    """Return the verdict in a few sentences, with what gets worse."""
    goal, winner = tuned.options.goal, tuned.winner
    none = f"No better spec for {tuned.name}"
    if winner is None:
        if goal.value(tuned.given.days) <= 0:
            what = "overload" if goal.objective is Objective.OVERLOAD else "pods"
            return [f"{none}: the given spec has no {what}, so there is nothing to gain."]
        worth = f"by {LEAST_GAIN:.0%} or more, within the limits"
        found = [f"{none}: none of {tuned.replays - 1} candidates was better {worth}."]
        targets = target_percents(tuned.file.hpa, tuned.load, tuned.settings).values()
        if (highest := max(targets, default=0.0)) > tuned.options.max_target:
            found.append(
                f"Its target is {highest:.3g}% of the capacity, above --max-target, which is "
                f"{tuned.options.max_target:g}%: no higher one was tried."
            )
        whole, least = total(tuned.given.days), tuned.file.hpa.spec.min_replicas
        if whole.pod_hours * 3_600_000 <= least * whole.milliseconds:
            found.append(f"It has {least} replicas all the time, its minReplicas, which is never lowered.")
        elif goal.max_overload is None and goal.objective is Objective.POD_HOURS:
            most = "it" if whole.overload_ratio > LEAST_OVERLOAD else _percent(LEAST_OVERLOAD)
            found.append(f"None may have more overload than {most}. To allow more, give --max-overload, such as 0.1%.")
        return found
    pairs = tuned.pairs()
    effect = changes_of(tuned, pairs)
    change, unseen = _changes(tuned, winner), tuned.days.count(len(pairs))
    length = unseen if tuned.days.are_days else duration((tuned.days.end_ms - tuned.days.starts_ms[0]) / 1000)
    match tuned.verdict:
        case Verdict.BETTER:
            return [
                f"Recommended for {tuned.name}: {change}.",
                f"It needs {effect}.",
                f"That is on {unseen}, each by a choice from the others.",
            ]
        case Verdict.TOO_FEW_DAYS:
            return [
                f"Too few days to recommend anything for {tuned.name}: {length} of load.",
                f"At least {LEAST_DAYS} days are needed, better two weeks.",
                f"The best one: {change}. It needs {effect}.",
            ]
        case Verdict.KEEPS_LIMIT:
            return [
                f"{none}: none has fewer pod-hours and keeps --max-overload.",
                f"The given spec exceeds it. This one keeps it: {change}.",
                f"It needs {effect}.",
                "If you want that, apply it from -o json.",
            ]
    tried = ["Targets nearer to the given one were tried, too: none of them is surely better."]
    return [
        f"{none}.",
        f"The best one is not surely better: {change}.",
        f"On {unseen}, each by a choice from the others, it needs {effect}.",
        _why_rejected(tuned),
        *(tried if tuned.steps_back else []),
    ]


def _changes(tuned: Tuned, winner: TunedSpec) -> str:
    """Return the changed fields, `target 14800 (now 14k), minReplicas 33 (now 1)`, and the target's margin."""
    given, found = (parse_hpa(spec.document) for spec in (tuned.given, winner))
    text = ", ".join(
        f"{name} {after} (now {before or 'not set'})" for name, before, after in changed_fields(given, found)
    )
    if TARGET not in winner.candidate:
        return text
    first, *others = target_percents(found, tuned.load, tuned.settings).values()
    return f"{text}; the {'first ' * bool(others)}target is {first:.3g}% of the capacity"


def _why_rejected(tuned: Tuned) -> str:
    goal, pairs = tuned.options.goal, tuned.pairs()
    found, given = [each for each, _ in pairs], [each for _, each in pairs]
    if exceeded := goal.exceeded(found, given):
        return f"That is not recommended, because {exceeded} is above the limit on these days."
    if not goal.gains(found, given):
        return f"That is not recommended, because the gain is less than {LEAST_GAIN:.0%} on these days."
    low, _ = saved_interval(goal.costs(found), goal.costs(given))
    return f"That is not recommended, because the gain is not sure: it may be as low as {low:.1%}."


def changes_of(tuned: Tuned, pairs: Sequence[tuple[Figures, Figures]]) -> str:
    """Return what changes from the second to the first of the pairs, better or worse, in one sentence's end."""
    found, given = total(each for each, _ in pairs), total(each for _, each in pairs)
    share = found.pod_hours / given.pod_hours - 1 if given.pod_hours else 0.0
    goal = tuned.options.goal
    limited = goal.objective is Objective.POD_HOURS and goal.max_overload is not None
    allowed = f" ({_percent(goal.max_overload or 0.0)} allowed)" if limited else ""
    cost, saved_cost = tuned.settings.pod_cost, ""
    if cost is not None:
        worth, verb = cost * (given.pod_hours - found.pod_hours), "saves" if share <= 0 else "costs"
        saved_cost = f" ({verb} {abs(worth):,.2f} of {cost * given.pod_hours:,.2f})"
    return (
        f"{abs(share):.1%} {'fewer' if share <= 0 else 'more'} pod-hours{saved_cost}; "
        f"{_moves('overload', given.overload_ratio, found.overload_ratio, _percent)} of requests{allowed}, "
        f"{_moves('scale events', given.scale_events, found.scale_events)}, {_moves('flaps', given.flaps, found.flaps)}"
    )


def _moves(what: str, before: float, after: float, text: Callable[[float], str] = "{:,}".format) -> str:
    verb = "stay" if text(before) == text(after) else "rise" if after > before else "fall"
    span = f"at {text(before)}" if verb == "stay" else f"from {text(before)} to {text(after)}"
    return f"{what} {verb}{'' if what.endswith('s') else 's'} {span}"


def notes(tuned: Tuned) -> list[str]:
    """Return notes on the confidence of the result, and on its data."""
    return [*_confidence(tuned), *_method(tuned)]


def _confidence(tuned: Tuned) -> Iterator[str]:
    days, pairs = tuned.days, tuned.pairs()
    if tuned.winner is not None:
        fewer = sum(ours.pod_hours < given.pod_hours for ours, given in pairs)
        more = sum(ours.overload_ratio > given.overload_ratio for ours, given in pairs)
        if len(pairs) < len(days):
            yield f"{days.count(len(days) - len(pairs))} of {days.count(len(days))} had no load, and do not count."
        if interval := saved_pod_hours_interval(tuned):
            low, high = interval
            share = f"saved: {low:.1%} to {high:.1%}" if high > 0 else f"more: {-high:.1%} to {-low:.1%}"
            yield (
                f"Pod-hours {share} (90% interval, if days like these go on); fewer on {fewer} of "
                f"{days.count(len(pairs))}."
            )
        else:
            yield f"Fewer pod-hours on {fewer} of {days.count(len(pairs))}. For an interval, a week is needed."
        if left_out := _left_out(tuned, tuned.winner):
            what = "less overload" if tuned.options.goal.objective is Objective.OVERLOAD else "fewer pod-hours"
            yield (
                f"Left out: {', '.join(left_out)}. All days together have {what} with these, within the limits, but "
                f"such choices exceed a limit on an unseen {days.unit}, or with reconciliations at other times."
            )
        worst = max((ours.overload_ratio for ours, _ in pairs), default=0.0)
        yield (
            f"Overload: {_percent(worst)} on the worst of {days.count(len(pairs))}; more than with the given spec on "
            f"{more} of them."
        )
    if not days.are_days or len(days) < _FEW_DAYS:
        yield (
            f"A surge of a kind that {days.count(len(days))} do not have is not accounted for. Tune again with more "
            "history, two weeks at least."
        )


def _left_out(tuned: Tuned, winner: TunedSpec) -> list[str]:
    """Return the names of the targets that are better by all days together: see `Phases` and `Search.step_back`."""
    goal, given = tuned.options.goal, tuned.given
    return [
        spec.name
        for spec in tuned.specs
        if spec is not given
        and goal.value(spec.days) < goal.value(winner.days)
        and goal.keeps_limits_with_margin(spec.days, given.days)
    ]


def _method(tuned: Tuned) -> Iterator[str]:
    days, goal = tuned.days, tuned.options.goal
    warm_up = duration((days.counted_from_ms - days.starts_ms[0]) / 1000)
    yield (
        f"{tuned.replays} specs were replayed on {days.count(len(days))} from {rfc3339(days.starts_ms[0])}, without "
        f"the first {warm_up}."
    )
    churn = (
        f"at most {goal.max_scale_events:.0%} of the given spec's scale events and {goal.max_flaps:.0%} of its flaps"
    )
    if goal.objective is Objective.POD_HOURS:
        limit = _percent(LEAST_OVERLOAD if goal.max_overload is None else goal.max_overload)
        if goal.max_overload is None:
            limit = f"as much as the given spec's, or {limit} if that is more"
        yield (
            f"Limits: overload {limit}, also on the worst fifth of the days; {churn}; a target of at most "
            f"{tuned.options.max_target:g}% of the capacity."
        )
    else:
        yield f"Limits: no more pod-hours than the given spec; {churn}."
    yield from tuned.load.notes
    yield model_note(tuned.load, tuned.settings)
    if tuned.winner is not None and any(name.endswith(".tolerance") for name in tuned.winner.candidate):
        yield (
            "tolerance needs Kubernetes 1.35 (the feature HPAConfigurableTolerance is on by default from there on), or "
            "Milliscale's controller."
        )
    if tuned.is_interrupted:
        yield "The search was interrupted: this is the best spec so far."


# --- tables ----------------------------------------------------------------------------------------------------------


def trade_off(tuned: Tuned) -> list[list[str]]:
    """Return the rows of the trade-off over all days, the header first."""
    given = total(tuned.given.days)
    rows = [["", "pod-hours", "overload", "on the worst days", "scale events", "flaps"]]
    for spec in tuned.specs:
        figures = total(spec.days)
        worst = total(each for each, _ in tuned.options.goal.worst_days(spec.days, tuned.given.days))
        pods = _compared(figures, None if spec is tuned.given else given)
        overload = _percent(figures.overload_ratio), _percent(worst.overload_ratio)
        rows.append([spec.name, pods, *overload, f"{figures.scale_events:,}", f"{figures.flaps:,}"])
    return rows


def by_day_title(tuned: Tuned) -> str:
    """Return the title of `by_day`."""
    return f"Each {tuned.days.unit}, by the choice from the other {tuned.days.unit}s"


def by_day(tuned: Tuned) -> list[list[str]]:
    """Return the rows of the days, with the given spec and the choice from the other days; the header first."""
    rows = [["from", "pod-hours: given", "tuned", "overload: given", "tuned", "scale events: given", "tuned"]]
    assert tuned.winner is not None
    for start_ms, given, ours in zip(tuned.days.starts_ms, tuned.given.days, tuned.winner.unseen, strict=True):
        start = rfc3339(start_ms)[: 10 if tuned.days.are_days else 16]
        overload = _percent(given.overload_ratio), _percent(ours.overload_ratio)
        scales = f"{given.scale_events:,}", f"{ours.scale_events:,}"
        rows.append([start, f"{given.pod_hours:,.1f}", _compared(ours, given), *overload, *scales])
    return rows


def _drawn(rows: Sequence[Sequence[str]]) -> list[str]:
    header, *others = rows
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for number, title in enumerate(header):
        drawn.add_column(title, justify="right" if number else "left")
    for row in others:
        drawn.add_row(*row)
    file = io.StringIO()
    console_of(file).print(drawn)
    return [line for line in file.getvalue().splitlines() if line.strip()]


def _compared(figures: Figures, given: Figures | None) -> str:
    pods = f"{figures.pod_hours:,.1f}"
    return pods if not given or not given.pod_hours else f"{pods} ({figures.pod_hours / given.pod_hours - 1:+.1%})"


def _percent(ratio: float) -> str:
    return f"{float(f'{ratio * 100:.3g}'):g}%" if ratio * 100 >= 1e-4 or ratio == 0 else "<0.0001%"


# --- JSON ------------------------------------------------------------------------------------------------------------


def json_figures(days: Sequence[Figures]) -> dict[str, Any]:
    """Return the figures of all days, and of each."""

    def figures(each: Figures) -> dict[str, Any]:
        return {
            "podHours": each.pod_hours,
            "overloadRatio": each.overload_ratio,
            "overloadRequests": each.overload_requests,
            "scaleEvents": each.scale_events,
            "flaps": each.flaps,
        }

    return {**figures(total(days)), "parts": [figures(each) for each in days]}
