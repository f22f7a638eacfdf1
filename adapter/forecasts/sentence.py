"""What a forecast expects, and why, in a sentence."""

from __future__ import annotations

import statistics
from datetime import datetime
from typing import TYPE_CHECKING, Final

from adapter.forecasts.options import ForecastOptions

if TYPE_CHECKING:
    from adapter.forecasts.gate import Judgement
    from adapter.forecasts.model import Expectation

_LEAST_GROWTH: Final = 1.02
_LEAST_PART: Final = 1.05


def sentence(found: Expectation, options: ForecastOptions) -> str:
    """Return "expects 9,100 within 5 minutes (now 5,200): between 06:55 and 07:00 it grew 1.7 times on 6 of 7 days"."""
    minutes = round(found.horizon / 60)
    within = f"{minutes} minute{'s' * (minutes != 1)}"
    if found.growth < _LEAST_GROWTH:
        return f"expects no growth within {within} (now {number_text(found.now)})"
    text = f"expects {number_text(found.value)} within {within} (now {number_text(found.now)})"
    grown = [each for each in found.grew if each >= (1 + found.growth) / 2]
    if found.grew:
        begin, end = (datetime.fromtimestamp(at, options.zone) for at in (found.time, found.time + found.horizon))
        times = f" {statistics.median(grown):.2g} times" if grown else ""
        text += f": between {begin:%H:%M} and {end:%H:%M} it grew{times} on {len(grown)} of {len(found.grew)} days"
    parts = [f"{name} (x {part:.2f})" for name, part in found.parts if not 1 / _LEAST_PART < part < _LEAST_PART]
    if parts:
        text += f"; by {', '.join(parts)}"
    if found.is_limited:
        text += f"; limited to {options.ceiling:g} times the highest of the last 7 days at this time"
    return text


def gate_text(judgement: Judgement, options: ForecastOptions) -> str:
    """Return what the gate says."""
    if not options.gate:
        return "the gate is off"
    if judgement.saved is None:
        return f"whether it saves is not known: {judgement.reason}"
    return (
        f"in the last {judgement.days:.0f} days it would have saved {judgement.saved:.1%} of pod-hours,"
        f" and {options.gate:.1%} is required"
    )


def number_text(value: float) -> str:
    """Return a number with three digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
