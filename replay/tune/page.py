"""The page of a tuning: the trade-off of pod-hours against overload, and both by day; with plotly.js inside."""

from __future__ import annotations

import html
from typing import Any, Final

import msgspec

from replay.load import ReplayError
from replay.output.charts import COLORS, LOAD_COLOR, OVERLOAD_COLOR
from replay.tune.evaluation import total
from replay.tune.report import text
from replay.tune.specs import describe
from replay.tune.tuning import GIVEN_NAME, TUNED_NAME, Tuned, TunedSpec

_COLOR_OF: Final = {GIVEN_NAME: COLORS[0], TUNED_NAME: COLORS[2]}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="color-scheme" content="light">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:">
<style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; color: #1f2328; background: #fff }}
pre {{ overflow-x: auto }}</style></head>
<body><h1>{title}</h1><div id="chart"></div><pre>{report}</pre>
<script>{plotly}</script>
<script type="application/json" id="figure">{figure}</script>
<script>const figure = JSON.parse(document.getElementById("figure").textContent);
Plotly.newPlot("chart", figure.data, figure.layout, {{ responsive: true, displaylogo: false }})
  .then((chart) => {{ chart.dataset.drawn = "true"; }});</script>
</body></html>
"""


def page(tuned: Tuned) -> str:
    """Return the page.

    Raises:
        ReplayError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReplayError("--html needs plotly: pip install 'milliscale[replay]'") from error
    return _PAGE.format(
        title=html.escape(f"Tuning of {tuned.name}"),
        report=html.escape(text(tuned)),
        plotly=get_plotlyjs(),
        figure=msgspec.json.encode(figure(tuned)).decode().replace("<", "\\u003c"),
    )


def figure(tuned: Tuned) -> dict[str, Any]:
    """Return a figure of plotly.js, {data, layout}: the trade-off, pod-hours by part, overload by part."""
    traces: list[dict[str, Any]] = []
    for name in (GIVEN_NAME, TUNED_NAME):
        curve = [spec for spec in tuned.specs if spec.name.partition(",")[0] == name]
        if curve:
            traces += [_curve(curve, name, unseen=True), _curve(curve, name, unseen=False)]
            traces += _bars(tuned, curve[0])
    allowed = tuned.options.goal.max_overload
    return {"data": traces, "layout": _layout(tuned, allowed)}


def _curve(curve: list[TunedSpec], name: str, *, unseen: bool) -> dict[str, Any]:
    parts = [(total(spec.unseen if unseen else spec.train), spec) for spec in curve]
    parts.sort(key=lambda each: each[0].pod_hours)
    hours = len(curve[0].unseen if unseen else curve[0].train)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [100 * figures.overload_ratio for figures, _ in parts],
        "y": [figures.pod_hours / hours for figures, _ in parts],
        "text": [html.escape(f"{spec.name}: {describe(spec.candidate)}") for _, spec in parts],
        "hovertemplate": "%{text}<br>%{y:.1f} pod-hours, %{x:.4f} % overload<extra></extra>",
        "name": f"{name}, {'unseen' if unseen else 'searched'}",
        "line": {"color": _COLOR_OF[name], "dash": "solid" if unseen else "dot"},
        "marker": {"size": [12 if spec.name == name else 6 for _, spec in parts]},
    }


def _bars(tuned: Tuned, spec: TunedSpec) -> list[dict[str, Any]]:
    parts = [*spec.train, *spec.unseen]
    common = {"type": "bar", "x": list(tuned.split.boundaries_ms[:-1]), "marker": {"color": _COLOR_OF[spec.name]}}
    common |= {"name": spec.name, "legendgroup": spec.name, "xaxis": "x2"}
    return [
        {**common, "y": [part.pod_hours for part in parts], "yaxis": "y2"},
        {**common, "y": [100 * part.overload_ratio for part in parts], "yaxis": "y3", "showlegend": False},
    ]


def _layout(tuned: Tuned, allowed: float | None) -> dict[str, Any]:
    unit, split = tuned.split.unit, tuned.split
    unseen = {
        "type": "rect",
        "xref": "x2",
        "yref": "paper",
        "x0": split.split_ms - split.part_ms // 2,
        "x1": split.boundaries_ms[-2] + split.part_ms // 2,
        "y0": 0,
        "y1": 0.55,
        "fillcolor": LOAD_COLOR,
        "opacity": 0.12,
        "line": {"width": 0},
    }
    shapes = [unseen]
    if allowed is not None:
        line = {"color": OVERLOAD_COLOR, "dash": "dash"}
        limit = {"type": "line", "xref": "x", "yref": "y domain", "x0": 100 * allowed, "x1": 100 * allowed}
        shapes.append({**limit, "y0": 0, "y1": 1, "line": line})
    return {
        "height": 900,
        "barmode": "group",
        "shapes": shapes,
        "xaxis": {"title": {"text": "overload, % of requests"}, "rangemode": "tozero", "anchor": "y"},
        "yaxis": {"title": {"text": f"pod-hours per {unit}"}, "domain": [0.66, 1]},
        "xaxis2": {"type": "date", "anchor": "y3", "title": {"text": f"each {unit} (UTC); shaded: unseen"}},
        "yaxis2": {"title": {"text": "pod-hours"}, "domain": [0.3, 0.55], "anchor": "x2"},
        "yaxis3": {"title": {"text": "overload, %"}, "domain": [0, 0.25], "anchor": "x2"},
    }
