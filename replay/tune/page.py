"""The page of a tuning: that of a replay of the given HPA and the winner, with the trade-off and both by day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from autoscaler.objects.hpa import parse_hpa
from autoscaler.ui.figures import escaped
from replay.output.comparison import compare
from replay.output.figure import COLORS, OVERLOAD_COLOR
from replay.output.names import named
from replay.output.page import Section, comparison_page
from replay.results import total
from replay.tune.report import by_day, by_day_title, notes, trade_off, verdict
from replay.tune.tuning import GIVEN_NAME, TUNED_NAME, Tuned, TunedSpec

_COLOR_OF: Final = {GIVEN_NAME: COLORS[0], TUNED_NAME: COLORS[1]}


def tuning_page(tuned: Tuned) -> str:
    """Return the page. The given HPA and the winner are replayed again, for the sentences of their decisions."""
    hpas = [tuned.file.hpa, *([parse_hpa(tuned.winner.document)] if tuned.winner is not None else [])]
    comparison = compare(named(hpas), tuned.load, tuned.settings)
    header, *rows = trade_off(tuned)
    sections = [
        Section(title="Result", notes=[*filter(None, verdict(tuned)), *notes(tuned)]),
        Section(title="Trade-off", header=header, rows=rows, figure=trade_off_figure(tuned)),
    ]
    if tuned.winner is not None:
        header, *rows = by_day(tuned)
        sections.append(Section(title=by_day_title(tuned), header=header, rows=rows))
    return comparison_page(comparison, title=f"Tuning of {tuned.name}", sections=sections)


def trade_off_figure(tuned: Tuned) -> dict[str, Any]:
    """Return a figure of plotly.js, {data, layout}: the trade-off, pod-hours by day, overload by day."""
    others = (spec for spec in tuned.specs if spec is not tuned.winner)
    curve = sorted(others, key=lambda spec: total(spec.days).pod_hours)
    traces = [_curve(curve, GIVEN_NAME), *_bars(tuned, tuned.given)]
    if tuned.winner is not None:
        traces += [_curve([tuned.winner], TUNED_NAME), *_bars(tuned, tuned.winner)]
    return {"data": traces, "layout": _layout(tuned)}


def _curve(curve: Sequence[TunedSpec], name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [100 * total(spec.days).overload_ratio for spec in curve],
        "y": [total(spec.days).pod_hours for spec in curve],
        "text": [escaped(spec.name) for spec in curve],
        "hovertemplate": "%{text}<br>%{y:.1f} pod-hours, %{x:.4f} % overload<extra></extra>",
        "name": f"{name}, other targets" if len(curve) > 1 else name,
        "line": {"color": _COLOR_OF[name]},
        "marker": {"size": [12 if spec.name == name else 6 for spec in curve]},
    }


def _bars(tuned: Tuned, spec: TunedSpec) -> list[dict[str, Any]]:
    common = {
        "type": "bar",
        "x": list(tuned.days.starts_ms),
        "marker": {"color": _COLOR_OF[spec.name]},
        "name": spec.name,
        "legendgroup": spec.name,
        "xaxis": "x2",
    }
    return [
        {**common, "y": [day.pod_hours for day in spec.unseen], "yaxis": "y2"},
        {**common, "y": [100 * day.overload_ratio for day in spec.unseen], "yaxis": "y3", "showlegend": False},
    ]


def _layout(tuned: Tuned) -> dict[str, Any]:
    allowed = tuned.options.goal.max_overload
    shapes = []
    if allowed is not None:
        ends = {"x0": 100 * allowed, "x1": 100 * allowed, "y0": 0, "y1": 1}
        line = {"color": OVERLOAD_COLOR, "dash": "dash"}
        shapes.append({"type": "line", "xref": "x", "yref": "y domain", **ends, "line": line})
    return {
        "height": 900,
        "barmode": "group",
        "shapes": shapes,
        "xaxis": {"title": {"text": "overload, % of requests"}, "rangemode": "tozero", "anchor": "y"},
        "yaxis": {"title": {"text": "pod-hours"}, "domain": [0.66, 1], "automargin": True},
        "xaxis2": {"type": "date", "anchor": "y3", "title": {"text": f"each {tuned.days.unit} (UTC)"}},
        "yaxis2": {"title": {"text": "pod-hours"}, "domain": [0.3, 0.55], "anchor": "x2", "automargin": True},
        "yaxis3": {"title": {"text": "overload, %"}, "domain": [0, 0.25], "anchor": "x2", "automargin": True},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
