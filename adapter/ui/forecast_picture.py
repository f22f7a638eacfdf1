"""A picture of a forecast: the last day with what was expected, and the next day. Paths of SVG, in its units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from adapter.forecasts.options import number_text
from adapter.forecasts.registry import Forecast

WIDTH: Final = 720
HEIGHT: Final = 160
_STEP_MINUTES: Final = 5
_DAY_SECONDS: Final = 86_400
_TICK_HOURS: Final = 6
_FULL: Final = 0.95
"""The share of the height that the highest value takes."""


def picture_of(forecast: Forecast, now: float) -> Mapping[str, object]:
    """Return what a page shows of a forecast. Takes some hundredths of a second: call it in a worker thread.

    `value` and `expected` are lines of the last day, "" if its history has not been read; `usual` and `next` are lines
    of the next day: the median of the last 7 days, and the forecast if the load is like that. `highest` is the value at
    the upper edge, `ticks` are (position, time) every 6 hours on the clocks of the rule's time zone, and `hours` the
    next 24 hours.
    """
    live = forecast.live
    shown = {"title": str(forecast.key), "sentence": forecast.sentence, "judgement": forecast.judgement}
    if live is None:
        return shown
    day, hours = live.day(now), live.next_day(now)
    steps = [day[start : start + _STEP_MINUTES] for start in range(0, len(day), _STEP_MINUTES)]
    lines: dict[str, list[tuple[float, float | None]]] = {
        "value": [(step[0][0], _highest(value for _, value, _ in step)) for step in steps],
        "expected": [(step[0][0], _highest(expected for *_, expected in step)) for step in steps],
        "usual": [(hour.start.timestamp(), hour.usual) for hour in hours],
        "next": [(hour.start.timestamp(), hour.expected) for hour in hours],
    }
    top = _highest(value for line in lines.values() for _, value in line) or 1.0
    begin = datetime.fromtimestamp(now - _DAY_SECONDS, live.options.zone).replace(minute=0, second=0, microsecond=0)
    times = (datetime.fromtimestamp(begin.timestamp() + 3600 * hour, begin.tzinfo) for hour in range(1, 49))
    ticks = [time for time in times if not time.hour % _TICK_HOURS]
    return {
        **shown,
        **{name: _path(line, now, top) for name, line in lines.items()},
        "highest": number_text(top / _FULL),
        "ticks": [(round(_x(tick.timestamp(), now), 1), f"{tick:%H:%M}") for tick in ticks],
        "hours": hours,
    }


def _x(at: float, now: float) -> float:
    """Return the position of a time; that of now is the middle."""
    return WIDTH / 2 * (1 + (at - now) / _DAY_SECONDS)


def _path(line: Iterable[tuple[float, float | None]], now: float, top: float) -> str:
    """Return the commands of a line of (time, value); None is a gap."""
    commands, is_gap = [], True
    for at, value in line:
        if value is not None:
            y = HEIGHT * (1 - _FULL * value / top)
            commands.append(f"{'M' if is_gap else 'L'}{round(_x(at, now), 1)} {round(y, 1)}")
        is_gap = value is None
    return "".join(commands)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None and math.isfinite(each)), default=None)
