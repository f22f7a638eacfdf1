"""The figure of the page, as plain JSON for plotly.js.

Plotly shows texts as a small part of HTML, so names are escaped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from autoscaler.ui.figures import escaped
from replay.output import charts
from replay.output.charts import Line, LoadChart
from replay.output.comparison import Comparison, time_text
from replay.results import Replayed

_LOAD_HEIGHT: Final = 220
_REPLICAS_HEIGHT: Final = 280
_ROW_HEIGHT: Final = 26
_GAP: Final = 40
"""Pixels between charts."""
_SENTENCE_WIDTH: Final = 100
"""Characters."""


def comparison_figure(comparison: Comparison) -> dict[str, Any]:
    """Return the charts as a figure of plotly.js: {data, layout}.

    From top to bottom: one chart of load for each metric, one of replicas, and a row for each column of the table with
    its overload and gaps.
    """
    load_charts = charts.load_charts(comparison)
    columns = comparison.columns
    heights = [*([_LOAD_HEIGHT] * len(load_charts)), _REPLICAS_HEIGHT, _ROW_HEIGHT * len(columns)]
    titles = [
        *(f"{escaped(chart.title)}: load, target x replicas, and overload" for chart in load_charts),
        "replicas; a triangle is a decision that scales, point at it for the reasons",
        "overload, and times without metrics",
    ]
    axes = [{"domain": domain, "automargin": True, "rangemode": "tozero"} for domain in _domains(heights)]
    axes[-1] |= {
        "tickvals": list(range(len(columns))),
        "ticktext": [escaped(charts.shortened(each.name)) for each in columns],
        "range": [len(columns) - 0.5, -0.5],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }
    traces: list[dict[str, Any]] = []
    for number, chart in enumerate(load_charts, start=1):
        axes.append({"overlaying": _axis(number), "range": [0, 1], "visible": False, "fixedrange": True})
        traces += _shades(comparison, axis=_axis(len(axes)))
        traces += _load_traces(chart, comparison, axis=_axis(number))
    first = len(columns) - len(comparison.replays)
    for index, replayed in enumerate(columns):
        traces += _replicas_traces(replayed, index - first, axis=_axis(len(heights) - 1))
    traces += _row_traces(comparison, axis=_axis(len(heights)))
    layout = {
        **{_axis(number).replace("y", "yaxis"): axis for number, axis in enumerate(axes, start=1)},
        "xaxis": {
            "type": "date",
            "anchor": _axis(len(heights)),
            "title": {"text": "time (UTC)"},
            "range": [comparison.load.start_ms, comparison.load.end_ms],
        },
        "annotations": [
            {
                "text": title,
                "xref": "paper",
                "x": 0,
                "xanchor": "left",
                "yref": f"{_axis(number)} domain",
                "y": 1,
                "yanchor": "bottom",
                "showarrow": False,
            }
            for number, title in enumerate(titles, start=1)
        ],
        "height": sum(heights) + _GAP * len(heights) + 120,
        "margin": {"l": 90, "r": 20, "t": 60, "b": 50},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "legend": {"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0, "xanchor": "left"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    return {"data": traces, "layout": layout}


def _axis(number: int) -> str:
    """Return plotly's name of the y axis of a chart; the first is 1."""
    return "y" if number == 1 else f"y{number}"


def _domains(heights: Sequence[int]) -> list[tuple[float, float]]:
    """Return the part of the figure of each chart, from top to bottom."""
    total = top = float(sum(heights) + _GAP * (len(heights) - 1))
    domains = []
    for height in heights:
        domains.append((max(top - height, 0.0) / total, top / total))
        top -= height + _GAP
    return domains


def _load_traces(chart: LoadChart, comparison: Comparison, *, axis: str) -> list[dict[str, Any]]:
    traces = [_steps(chart.load, axis=axis, name="load", color=charts.LOAD_COLOR, width=1.2, legend=axis == "y")]
    for target in chart.targets:
        name = f"{comparison.replays[target.replay].name}: target x replicas"
        trace = _steps(target.line, axis=axis, name=name, color=charts.color(target.replay), width=1)
        traces.append({**trace, "legendgroup": f"{target.replay}"})
    return traces


def _replicas_traces(replayed: Replayed, index: int, *, axis: str) -> list[dict[str, Any]]:
    """Return the line of the replicas and, of a spec, the marks of its decisions; index -1: reality."""
    color = charts.color(index) if index >= 0 else charts.REALITY_COLOR
    line = _steps(charts.replicas_line(replayed), axis=axis, name=replayed.name, color=color, width=1.6, legend=True)
    line["legendgroup"] = f"{index}"
    if index < 0:
        line["line"]["dash"] = "dot"
        return [line]
    line["hoverinfo"] = "skip"  # its corners are the decisions, and plotly.js would prefer them to the marks
    decisions = {
        "type": "scatter",
        "mode": "markers",
        "x": [scale.time_ms for scale in replayed.scales],
        "y": [scale.desired_replicas for scale in replayed.scales],
        "yaxis": axis,
        "marker": {
            "color": color,
            "size": 7,
            "symbol": [
                "triangle-up" if scale.desired_replicas > scale.replicas else "triangle-down"
                for scale in replayed.scales
            ],
        },
        "text": [_hover(replayed.name, scale.time_ms, scale.sentence) for scale in replayed.scales],
        "hoverinfo": "text",
        "legendgroup": f"{index}",
        "showlegend": False,
    }
    return [line, decisions]


def _shades(comparison: Comparison, *, axis: str) -> list[dict[str, Any]]:
    """Return the overload of each spec, over the height of a chart."""
    return [
        {
            **_rectangles([(0, 1, charts.visible(replayed.overloads, comparison.load))], axis=axis),
            "name": f"overload of {escaped(replayed.name)}",
            "fillcolor": charts.OVERLOAD_COLOR,
            "opacity": 0.15,
            "line": {"width": 0},
            "hoverinfo": "skip",
            "legendgroup": f"{index}",
            "showlegend": False,
        }
        for index, replayed in enumerate(comparison.replays)
    ]


def _row_traces(comparison: Comparison, *, axis: str) -> list[dict[str, Any]]:
    """Return the overload and the gaps in a row for each column. Their outline shows short ones, too."""
    columns = comparison.columns
    kinds = (
        ("overload", charts.OVERLOAD_COLOR, [each.overloads for each in columns]),
        ("no metrics", charts.GAP_COLOR, [each.gaps for each in columns]),
    )
    return [
        {
            **_rectangles(
                [(row - 0.4, row + 0.4, charts.visible(each, comparison.load)) for row, each in enumerate(times)],
                axis=axis,
            ),
            "name": name,
            "fillcolor": color,
            "line": {"color": color, "width": 1},
            "hoverinfo": "x+name",
            "showlegend": any(times),
        }
        for name, color, times in kinds
    ]


def _rectangles(rows: Iterable[tuple[float, float, Sequence[tuple[int, int]]]], *, axis: str) -> dict[str, Any]:
    """Return a trace of rectangles, from (bottom, top, times)."""
    x: list[int | None] = []
    y: list[float | None] = []
    for bottom, top, times in rows:
        for start, end in times:
            x += [start, end, end, start, start, None]
            y += [bottom, bottom, top, top, bottom, None]
    return {"type": "scatter", "mode": "lines", "fill": "toself", "x": x, "y": y, "yaxis": axis}


def _steps(line: Line, *, axis: str, name: str, color: str, width: float, legend: bool = False) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": line.times_ms,
        "y": [None if math.isnan(value) else float(f"{value:.6g}") for value in line.values],
        "yaxis": axis,
        "name": escaped(name),
        "line": {"color": color, "width": width, "shape": "hv"},
        "hoverinfo": "x+y+name",
        "showlegend": legend,
    }


def _hover(name: str, time_ms: int, sentence: str) -> str:
    lines = textwrap.wrap(sentence, _SENTENCE_WIDTH)
    return "<br>".join([f"<b>{escaped(name)}</b> {time_text(time_ms)} UTC", *map(escaped, lines)])
