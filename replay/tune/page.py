"""The page of a tuning: that of a replay of the given HPA and the winner, with the trade-off and both by day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from replay.hpa_files import HPAFile, parse_hpa_document
from replay.output.charts import COLORS, LOAD_COLOR, OVERLOAD_COLOR
from replay.output.comparison import compare
from replay.output.figure import escaped
from replay.output.names import named
from replay.output.page import Section, comparison_page
from replay.tune.evaluation import total
from replay.tune.report import notes, table, verdict
from replay.tune.specs import describe
from replay.tune.tuning import GIVEN_NAME, TUNED_NAME, Tuned, TunedSpec

_COLOR_OF: Final = {GIVEN_NAME: COLORS[0], TUNED_NAME: COLORS[1]}


def tuning_page(tuned: Tuned, file: HPAFile) -> str:
    """Return the page. The given HPA and the winner are replayed again, for the sentences of their decisions."""
    files = [file]
    if tuned.winner is not None:
        files.append(parse_hpa_document(tuned.winner.document, TUNED_NAME))
    comparison = compare(named([file.hpa for file in files]), tuned.load, tuned.settings)
    header, *rows = table(tuned)
    sections = [
        Section(title="Result", notes=[*filter(None, verdict(tuned)), *notes(tuned)]),
        Section(title="Trade-off", header=header, rows=rows, figure=trade_off_figure(tuned)),
    ]
    return comparison_page(comparison, title=f"Tuning of {tuned.name}", sections=sections)


def trade_off_figure(tuned: Tuned) -> dict[str, Any]:
    """Return a figure of plotly.js, {data, layout}: the trade-off, pod-hours by part, overload by part."""
    traces: list[dict[str, Any]] = []
    for name in (GIVEN_NAME, TUNED_NAME):
        curve = [spec for spec in tuned.specs if spec.name.partition(",")[0] == name]
        if curve:
            traces += [_curve(curve, name, unseen=True), _curve(curve, name, unseen=False)]
            traces += _bars(tuned, curve[0])
    return {"data": traces, "layout": _layout(tuned)}


def _curve(curve: Sequence[TunedSpec], name: str, *, unseen: bool) -> dict[str, Any]:
    parts = sorted(((total(spec.unseen if unseen else spec.train), spec) for spec in curve), key=_pod_hours)
    count = len(curve[0].unseen if unseen else curve[0].train)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [100 * figures.overload_ratio for figures, _ in parts],
        "y": [figures.pod_hours / count for figures, _ in parts],
        "text": [escaped(f"{spec.name}: {describe(spec.candidate)}") for _, spec in parts],
        "hovertemplate": "%{text}<br>%{y:.1f} pod-hours, %{x:.4f} % overload<extra></extra>",
        "name": f"{name}, {'unseen' if unseen else 'searched'}",
        "line": {"color": _COLOR_OF[name], "dash": "solid" if unseen else "dot"},
        "marker": {"size": [12 if spec.name == name else 6 for _, spec in parts]},
    }


def _pod_hours(figures_and_spec: tuple[Any, TunedSpec]) -> float:
    return float(figures_and_spec[0].pod_hours)


def _bars(tuned: Tuned, spec: TunedSpec) -> list[dict[str, Any]]:
    parts = [*spec.train, *spec.unseen]
    common = {
        "type": "bar",
        "x": list(tuned.split.boundaries_ms[:-1]),
        "marker": {"color": _COLOR_OF[spec.name]},
        "name": spec.name,
        "legendgroup": spec.name,
        "xaxis": "x2",
    }
    return [
        {**common, "y": [part.pod_hours for part in parts], "yaxis": "y2"},
        {**common, "y": [100 * part.overload_ratio for part in parts], "yaxis": "y3", "showlegend": False},
    ]


def _layout(tuned: Tuned) -> dict[str, Any]:
    unit, split, allowed = tuned.split.unit, tuned.split, tuned.options.goal.max_overload
    half = split.part_ms // 2
    unseen = {
        "type": "rect",
        "xref": "x2",
        "yref": "paper",
        "x0": split.split_ms - half,
        "x1": split.boundaries_ms[-2] + half,
        "y0": 0,
        "y1": 0.55,
        "fillcolor": LOAD_COLOR,
        "opacity": 0.12,
        "line": {"width": 0},
    }
    shapes = [unseen]
    if allowed is not None:
        ends = {"x0": 100 * allowed, "x1": 100 * allowed, "y0": 0, "y1": 1}
        line = {"color": OVERLOAD_COLOR, "dash": "dash"}
        shapes.append({"type": "line", "xref": "x", "yref": "y domain", **ends, "line": line})
    return {
        "height": 900,
        "barmode": "group",
        "shapes": shapes,
        "xaxis": {"title": {"text": "overload, % of requests"}, "rangemode": "tozero", "anchor": "y"},
        "yaxis": {"title": {"text": f"pod-hours per {unit}"}, "domain": [0.66, 1], "automargin": True},
        "xaxis2": {"type": "date", "anchor": "y3", "title": {"text": f"each {unit} (UTC); shaded: unseen"}},
        "yaxis2": {"title": {"text": "pod-hours"}, "domain": [0.3, 0.55], "anchor": "x2", "automargin": True},
        "yaxis3": {"title": {"text": "overload, %"}, "domain": [0, 0.25], "anchor": "x2", "automargin": True},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
