"""The charts of one HPA over its kept decisions, as plain JSON for plotly.js.

From top to bottom: the replicas with their bounds, and a chart for each metric with its target. They share the time
axis. Plotly shows texts as a small part of HTML, so names are escaped.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.core.quantities import milli_value
from autoscaler.objects.decoding import time_ms
from autoscaler.records.record import DecisionRecord, Measure, MetricRecord
from autoscaler.records.sentence import metric_name, with_sentence

_REPLICAS_HEIGHT: Final = 190
_METRIC_HEIGHT: Final = 140
_MARGIN_TOP: Final = 64
_MARGIN_BOTTOM: Final = 40
_LINE_HEIGHT: Final = 17
_GAP: Final = 22
"""Pixels between a chart and the title of the next."""
_SPARKLINE_LEAST: Final = 2
"""Decisions."""
_TITLE_WIDTH: Final = 44
_SENTENCE_WIDTH: Final = 60
"""Characters; wide enough for a phone, and for a hover label beside it."""

# Visible on a light and a dark ground, and to people who do not see all colors; the lines differ in their dashes, too.
_CURRENT: Final = "#3b82f6"
_DESIRED: Final = "#e69f00"
_TARGET: Final = "#10a37f"
_TOLERANCE: Final = "rgba(16, 163, 127, 0.15)"
_BOUNDS: Final = "#808080"
_FORECAST: Final = "rgba(230, 159, 0, 0.2)"


@dataclass(frozen=True, slots=True)
class MetricKey:
    """One metric, as long as the unit of its target is the same."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A metric's value and target at a decision; None: there was none."""

    value: float | None
    target: float | None
    plain: float | None = None
    """What the value would have been without a forecast of the adapter's; None: it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What the charts show of a decision."""

    time_ms: int
    """Since the Unix epoch."""
    current: int | None
    """Replicas; None: no count was found."""
    desired: int | None
    """Replicas; None: no count was found."""
    minimum: int | None
    """The HPA's bounds; None: not known."""
    maximum: int | None
    """The HPA's bounds; None: not known."""
    tolerance: tuple[float, float] | None
    """How far a ratio may be (below, above) 1; None: the metrics were not evaluated."""
    metrics: Mapping[MetricKey, MetricPoint]
    """The values."""
    sentence: str
    """Empty unless the decision scales."""

    @classmethod
    def of(cls, record: DecisionRecord) -> Point:
        """Return the point of a record."""
        tolerance = record.tolerance
        return cls(
            time_ms=time_ms(record.time, "time"),
            current=record.current_replicas,
            desired=record.desired_replicas,
            minimum=record.bounds.min_replicas,
            maximum=record.bounds.max_replicas,
            tolerance=None if tolerance is None else (tolerance.scale_down, tolerance.scale_up),
            metrics={_key(metric): _point(metric) for metric in record.metrics},
            sentence=with_sentence(record).sentence if scales(record) else "",
        )


def scales(record: DecisionRecord) -> bool:
    """Return True if a decision changes the replicas."""
    return record.desired_replicas not in (None, record.current_replicas)


def _key(metric: MetricRecord) -> MetricKey:
    target = metric.target
    if target.average_utilization is not None:
        return MetricKey(metric_name(metric), "% of requests")
    return MetricKey(metric_name(metric), "value" if target.average_value is None else "per pod")


def _point(metric: MetricRecord) -> MetricPoint:
    field = next((each for each in Measure.__struct_fields__ if getattr(metric.target, each) is not None), "value")
    return MetricPoint(_number(metric.current, field), _number(metric.target, field))


def _number(measure: Measure | None, field: str) -> float | None:
    value = None if measure is None else getattr(measure, field)
    return milli_value(value) / 1000 if isinstance(value, str) else value


def figure(points: Sequence[Point]) -> dict[str, Any]:
    """Return the charts of the decisions, oldest first, as a figure of plotly.js: {data, layout}."""
    # The metrics of the latest decision first; those that the spec no longer has after them.
    keys = list(dict.fromkeys(key for point in reversed(points) for key in point.metrics))
    titles = [["replicas"], *(_title(key) for key in keys)]
    heights = [_REPLICAS_HEIGHT, *([_METRIC_HEIGHT] * len(keys))]
    times = [point.time_ms for point in points]
    data = _replicas_traces(points, times)
    for number, key in enumerate(keys, start=2):
        data += _metric_traces(points, times, key, axis=f"y{number}", in_legend=number == 2)
    gaps = [_GAP + _LINE_HEIGHT * len(title) for title in titles[1:]]
    total = sum(heights) + sum(gaps)
    layout: dict[str, Any] = {
        "height": total + _MARGIN_TOP + _MARGIN_BOTTOM,
        "margin": {"l": 12, "r": 12, "t": _MARGIN_TOP, "b": _MARGIN_BOTTOM},
        "xaxis": {"type": "date", "anchor": f"y{len(titles)}" if keys else "y", "title": {"text": "time (UTC)"}},
        "annotations": [
            {
                "text": "<br>".join(map(escaped, title)),
                "align": "left",
                "font": {"size": 13},
                "showarrow": False,
                "x": 0,
                "xanchor": "left",
                "xref": "paper",
                "y": 1,
                "yanchor": "bottom",
                "yref": "y domain" if number == 1 else f"y{number} domain",
            }
            for number, title in enumerate(titles, start=1)
        ],
        "hovermode": "x",
        "hoversubplots": "axis",
        "hoverdistance": 10,
        "hoverlabel": {"align": "left", "namelength": -1},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        # The reader's zoom stays when the figure is drawn again with more decisions.
        "uirevision": "kept",
    }
    top = float(total)
    for number, (height, gap) in enumerate(zip(heights, [*gaps, 0], strict=True), start=1):
        domain = [max(top - height, 0.0) / total, top / total]
        layout["yaxis" if number == 1 else f"yaxis{number}"] = {
            "domain": domain,
            "automargin": True,
            "rangemode": "tozero",
            "fixedrange": True,
            "nticks": 5,
        }
        top -= height + gap
    return {"data": data, "layout": layout}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A line of replicas, 12 units high, for a path of SVG."""

    path: str
    """Its commands; a gap is a decision without a replica count."""
    width: int
    """Units; one for each decision."""
    minimum: int
    """The minimum of the replicas."""
    maximum: int
    """The maximum of the replicas."""


def sparkline(replicas: Sequence[int | None]) -> Sparkline | None:
    """Return the line of the replicas of decisions, oldest first; None if there is none to draw."""
    known = [each for each in replicas if each is not None]
    if len(replicas) < _SPARKLINE_LEAST or not known:
        return None
    low, high = min(known), max(known)
    commands: list[str] = []
    is_gap = True
    for number, each in enumerate(replicas):
        if each is not None:
            y = f"{11 - 10 * (each - low) / (high - low):.4g}" if high > low else "6"
            commands.append(f"M{number} {y}h1" if is_gap else f"V{y}h1")
        is_gap = each is None
    return Sparkline(path="".join(commands), width=len(replicas), minimum=low, maximum=high)


def _title(key: MetricKey) -> list[str]:
    unit = "" if key.unit == "value" else f", {key.unit}"
    return textwrap.wrap(key.name + unit, _TITLE_WIDTH)


def _replicas_traces(points: Sequence[Point], times: Sequence[int]) -> list[dict[str, Any]]:
    bounds = {"line": {"color": _BOUNDS, "dash": "dash", "width": 1, "shape": "hv"}, "legendgroup": "bounds"}
    scaling = [point for point in points if point.sentence]
    return [
        {**_level(times, (point.maximum for point in points), name="min, max"), **bounds},
        {**_level(times, (point.minimum for point in points), name="min"), **bounds, "showlegend": False},
        {
            **_line(times, (point.desired for point in points), name="desired"),
            "line": {"color": _DESIRED, "width": 2, "dash": "dot", "shape": "hv"},
        },
        {
            **_line(times, (point.current for point in points), name="current"),
            "line": {"color": _CURRENT, "width": 2, "shape": "hv"},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "scales",
            "x": [point.time_ms for point in scaling],
            "y": [point.desired for point in scaling],
            "marker": {
                "color": _DESIRED,
                "size": 9,
                "symbol": ["triangle-up" if _is_up(point) else "triangle-down" for point in scaling],
            },
            "text": ["<br>".join(map(escaped, textwrap.wrap(point.sentence, _SENTENCE_WIDTH))) for point in scaling],
            "hoverinfo": "text",
        },
    ]


def _is_up(point: Point) -> bool:
    return (point.desired or 0) > (point.current or 0)


def _metric_traces(
    points: Sequence[Point], times: Sequence[int], key: MetricKey, *, axis: str, in_legend: bool
) -> list[dict[str, Any]]:
    nothing = MetricPoint(None, None)
    metrics = [point.metrics.get(key, nothing) for point in points]
    low: list[float | None] = []
    high: list[float | None] = []
    for point, metric in zip(points, metrics, strict=True):
        known = metric.target is not None and point.tolerance is not None
        below, above = point.tolerance or (0.0, 0.0)
        low.append((metric.target or 0.0) * (1 - below) if known else None)
        high.append((metric.target or 0.0) * (1 + above) if known else None)
    band = {"line": {"width": 0, "shape": "hv"}, "legendgroup": "tolerance"}
    traces = [
        {**_level(times, low, name="tolerance, from"), **band, "showlegend": False},
        {**_level(times, high, name="tolerance"), **band, "fill": "tonexty", "fillcolor": _TOLERANCE},
        {
            **_level(times, (metric.target for metric in metrics), name="target"),
            "line": {"color": _TARGET, "width": 1.5, "dash": "dash", "shape": "hv"},
            "legendgroup": "target",
        },
        {
            **_line(times, (metric.value for metric in metrics), name="value"),
            "mode": "lines+markers",
            "line": {"color": _CURRENT, "width": 1.5},
            "marker": {"size": 3},
            "legendgroup": "value",
        },
    ]
    if any(metric.plain is not None for metric in metrics):
        plain = _line(times, (metric.plain for metric in metrics), name="value now")
        value = _line(times, (metric.value for metric in metrics), name="forecast")
        area = {"line": {"width": 0}, "fill": "tonexty", "fillcolor": _FORECAST, "legendgroup": "forecast"}
        traces += [{**plain, "line": {"color": _CURRENT, "width": 1, "dash": "dot"}}, {**value, **area}]
    return [{**trace, "yaxis": axis, "showlegend": in_legend and trace.get("showlegend", True)} for trace in traces]


def _line(times: Sequence[int], values: Iterable[float | None], *, name: str) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "name": name, "x": times, "y": list(values), "hoverinfo": "y+name"}


def _level(times: Sequence[int], values: Iterable[float | None], *, name: str) -> dict[str, Any]:
    """Return a line that rarely changes, with the points at which it does, and the last one."""
    known = list(values)
    kept = [i for i, each in enumerate(known) if i in (0, len(known) - 1) or each != known[i - 1]]
    line = _line([times[i] for i in kept], [known[i] for i in kept], name=name)
    return {**line, "hoverinfo": "skip"}


def escaped(text: str) -> str:
    """Return a text for plotly.js, which knows a few tags and entities."""
    return html.escape(text, quote=False)
