"""The figure of the page, as plain JSON for plotly.js: load and targets, replicas, overload and gaps.

A line of load has few points however long it is, and its peaks. Plotly shows texts as a small part of HTML, so names
are escaped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from autoscaler.core.model import MetricSpec, ResourceMetric
from autoscaler.ui.figures import escaped
from replay.load import Load, Series, metric_key
from replay.output.comparison import Comparison, time_text
from replay.results import Replayed
from replay.simulation import target_per_pod

MAX_POINTS: Final = 4000
COLORS: Final = ("#3b82f6", "#e69f00", "#10a37f", "#c864a8", "#8b6cf0", "#56b4e9", "#a3a322")
"""Of the specs, in turn; visible on light and dark ground, and to people who do not see all colors."""
OVERLOAD_COLOR: Final = "#dc2626"
_REALITY_COLOR: Final = "#808080"
_LOAD_COLOR: Final = "#7d8590"
_GAP_COLOR: Final = "#9ca3af"
_UNITS: Final = {"cpu": "cores", "memory": "bytes"}
_MAX_NAME: Final = 26
_LOAD_HEIGHT: Final = 220
_REPLICAS_HEIGHT: Final = 280
_ROW_HEIGHT: Final = 26
_GAP: Final = 40
"""Pixels between charts."""
_SENTENCE_WIDTH: Final = 100
"""Characters."""

Points: TypeAlias = Iterable[tuple[int, float]]
"""(time in milliseconds, value until the next point); NaN: nothing is drawn."""


def comparison_figure(comparison: Comparison) -> dict[str, Any]:
    """Return the charts as a figure of plotly.js: {data, layout}.

    From top to bottom: one chart of load for each metric, one of replicas, and a row for each column of the table with
    its overload and gaps.
    """
    specs: dict[str, list[tuple[int, MetricSpec]]] = {}
    for index, hpa in enumerate(comparison.hpas):
        for spec in hpa.spec.metrics:
            specs.setdefault(metric_key(spec.source), []).append((index, spec))
    columns = comparison.columns
    heights = [*([_LOAD_HEIGHT] * len(specs)), _REPLICAS_HEIGHT, _ROW_HEIGHT * len(columns)]
    titles = [
        *(f"{escaped(_title(key, used))}: load, target x replicas, and overload" for key, used in specs.items()),
        "replicas; a triangle is a decision that scales, point at it for the reasons",
        "overload, and times without metrics",
    ]
    axes = [{"domain": domain, "automargin": True, "rangemode": "tozero"} for domain in _domains(heights)]
    axes[-1] |= {
        "tickvals": list(range(len(columns))),
        "ticktext": [escaped(_shortened(each.name)) for each in columns],
        "range": [len(columns) - 0.5, -0.5],
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }
    traces: list[dict[str, Any]] = []
    for number, (key, used) in enumerate(specs.items(), start=1):
        axes.append({"overlaying": _axis(number), "range": [0, 1], "visible": False, "fixedrange": True})
        traces += _shades(comparison, axis=_axis(len(axes)))
        traces += _load_traces(key, used, comparison, axis=_axis(number))
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


def _title(key: str, used: Sequence[tuple[int, MetricSpec]]) -> str:
    source = used[0][1].source
    return f"{key} ({_UNITS.get(source.name, 'total')})" if isinstance(source, ResourceMetric) else key


def _shortened(name: str) -> str:
    """Return a name that fits beside a chart; where several have the same beginning, their ends differ."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME // 3]}…{name[-(_MAX_NAME - _MAX_NAME // 3 - 1) :]}"


def _load_traces(
    key: str, used: Sequence[tuple[int, MetricSpec]], comparison: Comparison, *, axis: str
) -> list[dict[str, Any]]:
    """Return the load of a metric, and what the replicas of each spec were meant to serve."""
    load = comparison.load
    points = downsample(load.series[key], load.start_ms, load.end_ms)
    traces = [_steps(points, axis=axis, name="load", color=_LOAD_COLOR, width=1.2, legend=axis == "y")]
    for index, spec in used:
        replayed, per_pod = comparison.replays[index], target_per_pod(spec, load.requests)
        if per_pod is not None:
            points = [(time, per_pod * replicas) for time, replicas in replicas_line(replayed)]
        elif spec.target.value is not None:
            points = [(time, spec.target.value.milli / 1000) for time in (replayed.start_ms, replayed.end_ms)]
        else:
            continue
        name = f"{replayed.name}: target x replicas"
        trace = _steps(points, axis=axis, name=name, color=_color(index), width=1)
        traces.append({**trace, "legendgroup": f"{index}"})
    return traces


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def replicas_line(replayed: Replayed) -> list[tuple[int, float]]:
    """Return the replicas: a point for each change, and one at the end."""
    points = [(start_ms, float(replicas)) for start_ms, _, replicas in replayed.replicas]
    return [*points, (replayed.end_ms, points[-1][1])]


def _replicas_traces(replayed: Replayed, index: int, *, axis: str) -> list[dict[str, Any]]:
    """Return the line of the replicas and, of a spec, the marks of its decisions; index -1: reality."""
    color = _color(index) if index >= 0 else _REALITY_COLOR
    line = _steps(replicas_line(replayed), axis=axis, name=replayed.name, color=color, width=1.6, legend=True)
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
            **_rectangles([(0, 1, _visible(replayed.overloads, comparison.load))], axis=axis),
            "name": f"overload of {escaped(replayed.name)}",
            "fillcolor": OVERLOAD_COLOR,
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
        ("overload", OVERLOAD_COLOR, [each.overloads for each in columns]),
        ("no metrics", _GAP_COLOR, [each.gaps for each in columns]),
    )
    return [
        {
            **_rectangles(
                [(row - 0.4, row + 0.4, _visible(each, comparison.load)) for row, each in enumerate(times)],
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


def _visible(times: Sequence[tuple[int, int]], load: Load) -> list[tuple[int, int]]:
    """Return times, joined where one could not see them apart."""
    distance = (load.end_ms - load.start_ms) / MAX_POINTS
    joined: list[tuple[int, int]] = []
    for start, end in times:
        if joined and start - joined[-1][1] < distance:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def _rectangles(rows: Iterable[tuple[float, float, Sequence[tuple[int, int]]]], *, axis: str) -> dict[str, Any]:
    """Return a trace of rectangles, from (bottom, top, times)."""
    x: list[int | None] = []
    y: list[float | None] = []
    for bottom, top, times in rows:
        for start, end in times:
            x += [start, end, end, start, start, None]
            y += [bottom, bottom, top, top, bottom, None]
    return {"type": "scatter", "mode": "lines", "fill": "toself", "x": x, "y": y, "yaxis": axis}


def _steps(points: Points, *, axis: str, name: str, color: str, width: float, legend: bool = False) -> dict[str, Any]:
    times, values = zip(*points, strict=True)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": times,
        "y": [None if math.isnan(value) else float(f"{value:.6g}") for value in values],
        "yaxis": axis,
        "name": escaped(name),
        "line": {"color": color, "width": width, "shape": "hv"},
        "hoverinfo": "x+y+name",
        "showlegend": legend,
    }


def _hover(name: str, time_ms: int, sentence: str) -> str:
    lines = textwrap.wrap(sentence, _SENTENCE_WIDTH)
    return "<br>".join([f"<b>{escaped(name)}</b> {time_text(time_ms)} UTC", *map(escaped, lines)])


def downsample(series: Series, start_ms: int, end_ms: int, *, max_points: int = MAX_POINTS) -> list[tuple[int, float]]:
    """Return a series in at most `max_points` points: the least and the highest value of each interval."""
    points = [(start, value) for start, _, value in series.segments(start_ms, end_ms)]
    if len(points) >= max_points:
        # One point is the end's.
        points = list(_extremes(points, start_ms, (end_ms - start_ms) / ((max_points - 1) // 2)))
    return [*points, (end_ms, points[-1][1] if points else math.nan)]


def _extremes(points: Points, start_ms: int, width: float) -> Points:
    """Yield the least and the highest value of each interval in the order of time; NaN if it has no value."""
    intervals: dict[int, list[tuple[int, float]]] = {}
    for time, value in points:
        intervals.setdefault(int((time - start_ms) / width), []).append((time, value))
    for interval in intervals.values():
        values = [point for point in interval if not math.isnan(point[1])]
        if values:
            yield from sorted({min(values, key=lambda point: point[1]), max(values, key=lambda point: point[1])})
        else:
            yield interval[0]
