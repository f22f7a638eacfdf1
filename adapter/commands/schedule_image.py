"""`schedule --png`: the course of schedules as a picture, drawn by matplotlib without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from adapter.rules import ScheduleRule
from adapter.schedules.schedule import Change

_INCHES = (11.0, 2.4)
_DAY_SECONDS = 86_400
_MILLI = 1000

Line = tuple[ScheduleRule, Sequence[Change]]
"""A schedule, and its values: the first at the start of the period, the last at its end."""


def write_image(path: Path, lines: Sequence[Line]) -> None:
    """Draw each schedule in a chart of its own.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(_INCHES[0], _INCHES[1] * len(lines)), layout="constrained")
    for axes, (rule, values) in zip(figure.subplots(len(lines), squeeze=False)[:, 0], lines, strict=True):
        axes.step(
            [value.at / _DAY_SECONDS for value in values],  # matplotlib counts days since the epoch
            [value.milli / _MILLI for value in values],
            where="post",
        )
        axes.xaxis_date(rule.schedule.zone)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{rule.metric} ({rule.schedule.zone.key})", loc="left")
    figure.savefig(path, format="png")
