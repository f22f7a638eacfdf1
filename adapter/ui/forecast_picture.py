"""A picture of a forecast: the last day with what was expected, and the next day. Paths of SVG, in its units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from adapter.forecasts.registry import Forecast
from adapter.forecasts.sentence import number_text

if TYPE_CHECKING:
    from adapter.forecasts.live import Hour

WIDTH: Final = 720
HEIGHT: Final = 160
_HALF: Final = WIDTH / 2
_STEP_MINUTES: Final = 5
_DAY_SECONDS: Final = 86_400
_TICK_HOURS: Final = 6


@dataclass(frozen=True, slots=True)
class ForecastPicture:
    """A forecast on a page.

    Attributes:
        title: what it is of.
        sentence: what is expected, and whether it is served.
        value, expected, band: of the last day: the lines, and the area between them.
        usual, next: of the next day: the median of the last 7 days, and the forecast if the load is like that.
        highest: the value at the upper edge, as text.
        ticks: (position, time) of lines of time.
        hours: the next 24 hours.
    """

    title: str
    sentence: str
    value: str = ""
    expected: str = ""
    band: str = ""
    usual: str = ""
    next: str = ""
    highest: str = ""
    ticks: tuple[tuple[float, str], ...] = ()
    hours: tuple[Hour, ...] = ()


def picture_of(forecast: Forecast, now: float) -> ForecastPicture:
    """Return the picture of a forecast. Takes some hundredths of a second: call it in a worker thread."""
    live = forecast.live
    if live is None:
        return ForecastPicture(str(forecast.key), forecast.sentence)
    day = live.day(now)
    parts = [day[start : start + _STEP_MINUTES] for start in range(0, len(day), _STEP_MINUTES)]
    times = [part[0][0] for part in parts]
    value = [_highest(each[1] for each in part) for part in parts]
    expected = [_highest(each[2] for each in part) for part in parts]
    hours = live.next_day(now)
    ahead = [hour.start.timestamp() for hour in hours]
    usual, coming = [hour.usual for hour in hours], [hour.expected for hour in hours]
    top = _highest([*value, *expected, *usual, *coming]) or 1.0

    def points(at: Sequence[float], values: Sequence[float | None]) -> list[tuple[float, float] | None]:
        x = [_HALF + (time - now) / _DAY_SECONDS * _HALF for time in at]
        return [
            None if each is None else (round(px, 1), round(HEIGHT - each / top * HEIGHT * 0.95, 1))
            for px, each in zip(x, values, strict=True)
        ]

    low, high = points(times, value), points(times, expected)
    both = [(a, b) for a, b in zip(low, high, strict=True) if a is not None and b is not None]
    zone = live.options.zone
    first = math.ceil((now - _DAY_SECONDS) / 3600) * 3600
    marks = (at for at in range(first, int(now) + _DAY_SECONDS, 3600))
    ticks = [(at, datetime.fromtimestamp(at, zone)) for at in marks]
    return ForecastPicture(
        title=str(forecast.key),
        sentence=forecast.sentence,
        value=_path(low),
        expected=_path(high),
        band=f"{_path([b for _, b in both])}L{'L'.join(f'{a[0]} {a[1]}' for a, _ in reversed(both))}Z" if both else "",
        usual=_path(points(ahead, usual)),
        next=_path(points(ahead, coming)),
        highest=number_text(top / 0.95),
        ticks=tuple(
            (round(_HALF + (at - now) / _DAY_SECONDS * _HALF, 1), f"{local:%H:%M}")
            for at, local in ticks
            if local.hour % _TICK_HOURS == 0
        ),
        hours=hours,
    )


def _path(points: Iterable[tuple[float, float] | None]) -> str:
    """Return the commands of a line; None is a gap."""
    commands, is_gap = [], True
    for point in points:
        if point is not None:
            commands.append(f"{'M' if is_gap else 'L'}{point[0]} {point[1]}")
        is_gap = point is None
    return "".join(commands)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None and math.isfinite(each)), default=None)
