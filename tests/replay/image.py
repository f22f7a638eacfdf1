"""The charts of a comparison as SVG: the same bytes for the same comparison; its texts are texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replay.output import charts
from replay.output.charts import Line
from replay.output.comparison import Comparison

if TYPE_CHECKING:  # importing it takes a second, in each process that lists the tests
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_POINTS: Final = 1000
_WIDTH: Final = 10.0
"""Inches, as all sizes here."""
_LOAD_HEIGHT: Final = 1.9
_REPLICAS_HEIGHT: Final = 2.2
_ROW_HEIGHT: Final = 0.22
_MS_PER_DAY: Final = 86_400_000
_STYLE: Final[dict[Any, Any]] = {
    "backend": "agg",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "small",
    "axes.xmargin": 0.0,
    "date.converter": "concise",
    "font.size": 9.0,
    "grid.color": "#d8dee4",
    "legend.frameon": False,
    "path.simplify_threshold": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "milliscale",
    "text.parse_math": False,
}


def write_image(comparison: Comparison, path: Path) -> None:
    """Write an SVG."""
    import matplotlib as mpl

    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE}):
        # Without the date, and the version of matplotlib.
        figure(comparison).savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def figure(comparison: Comparison) -> Figure:
    """Return the picture: load, replicas, and a row of overload and gaps for each column of the table."""
    from matplotlib.figure import Figure

    load_charts = charts.load_charts(comparison, max_points=_MAX_POINTS)
    columns = comparison.columns
    heights = [*([_LOAD_HEIGHT] * len(load_charts)), _REPLICAS_HEIGHT, _ROW_HEIGHT * len(columns) + 0.1]
    picture = Figure(figsize=(_WIDTH, sum(heights) + 1.3), layout="constrained")
    axes: list[Axes] = list(picture.subplots(len(heights), 1, sharex=True, height_ratios=heights))
    for chart, each in zip(load_charts, axes, strict=False):
        each.set_title(f"{chart.title}: load (grey), target x replicas, and overload (shaded)")
        for replayed in comparison.replays:
            bars = _bars(charts.visible(replayed.overloads, comparison.load, max_points=_MAX_POINTS))
            each.broken_barh(
                bars, (0, 1), transform=each.get_xaxis_transform(), color=charts.OVERLOAD_COLOR, alpha=0.15
            )
        _step(each, chart.load, color=charts.LOAD_COLOR, linewidth=0.9)
        for target in chart.targets:
            _step(each, target.line, color=charts.color(target.replay), linewidth=0.9)
        each.set_ylim(bottom=0)
    _draw_replicas(axes[-2], comparison)
    _draw_rows(axes[-1], comparison)
    picture.legend(loc="outside upper left", ncols=4, fontsize="small")
    picture.draw_without_rendering()
    picture.set_layout_engine("none")
    for each in axes:  # the last bits of a solved layout depend on the order of sets
        left, bottom, width, height = (round(value, 4) for value in each.get_position().bounds)
        each.set_position((left, bottom, width, height))
    return picture


def _draw_replicas(axes: Axes, comparison: Comparison) -> None:
    axes.set_title("replicas")
    if comparison.reality is not None:
        reality = charts.replicas_line(comparison.reality)
        _step(axes, reality, label="reality", color=charts.REALITY_COLOR, linestyle="dotted")
    for index, replayed in enumerate(comparison.replays):
        line = charts.replicas_line(replayed)
        _step(axes, line, label=replayed.name, color=charts.color(index), linewidth=1.1)
    axes.set_ylim(bottom=0)


def _draw_rows(axes: Axes, comparison: Comparison) -> None:
    axes.set_title("overload (red), and times without metrics (grey)")
    columns = comparison.columns
    for row, replayed in enumerate(columns):
        for times, color in ((replayed.overloads, charts.OVERLOAD_COLOR), (replayed.gaps, charts.GAP_COLOR)):
            bars = _bars(charts.visible(times, comparison.load, max_points=_MAX_POINTS))
            axes.broken_barh(bars, (row - 0.4, 0.8), color=color, linewidth=0.8)
    axes.set_yticks(range(len(columns)), [charts.shortened(each.name) for each in columns])
    axes.set_ylim(len(columns) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.xaxis_date("UTC")
    axes.set_xlim(_day(comparison.load.start_ms), _day(comparison.load.end_ms))
    axes.set_xlabel("time (UTC)")


def _step(axes: Axes, line: Line, **style: Any) -> None:
    axes.step(list(map(_day, line.times_ms)), line.values, where="post", **style)


def _bars(times: list[tuple[int, int]]) -> list[tuple[float, float]]:
    return [(_day(start), (end - start) / _MS_PER_DAY) for start, end in times]


def _day(time_ms: int) -> float:
    """Return a time as matplotlib counts: in days since the Unix epoch."""
    return time_ms / _MS_PER_DAY
