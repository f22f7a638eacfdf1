"""Forecasts in a replay: what the adapter would have served instead of a metric, from what was known at each moment.

The models are fitted on the load before the beginning of the replay and, each day, on what has come since; the gate
judges as it does in the adapter. numpy is imported only where a forecast is wanted.
"""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapter.forecasts.options import ForecastOptions, read_options
from autoscaler.core.model import HPA, InvalidMetric, ResourceMetric
from replay.load import Load, ReplayError, Series, metric_key, named_metric

if TYPE_CHECKING:
    from adapter.forecasts.gate import Judgement

_MINUTE_MS: Final = 60_000
WARM_UP_DAYS: Final = 5
"""With less history no forecast is served: three days to fit a model, and two for the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What was served of one metric."""

    key: str
    """The `metric_key`."""
    options: ForecastOptions
    judgements: Sequence[Judgement]
    """Of the gate, at the beginning of the replay and each day after it."""

    @property
    def note(self) -> str:
        """What was forecast, in a sentence."""
        text = (
            f"HPAs see the forecast of {self.key} ({self.options.text}): the highest value expected within the horizon,"
            " never less than the present one."
        )
        if not self.options.gate:
            return text
        savings = [each.saved for each in self.judgements if each.saved is not None]
        found = f"; before these days it would have saved {min(savings):.0%} to {max(savings):.0%}" if savings else ""
        unknown = next((f"; {each.text}" for each in self.judgements if each.saved is None), "")
        count = f"{sum(each.holds for each in self.judgements)} of {len(self.judgements)} days"
        return f"{text} The gate of {self.options.gate:.1%} let it be served on {count}{found}{unknown}."


def parse_forecast(text: str) -> tuple[str, ForecastOptions]:
    """Parse `METRIC=HORIZON[,history=2w,timezone=Europe/Berlin,ceiling=1.1,gate=3%]`; the metric may be absent.

    Raises:
        ValueError: it is invalid.
    """
    first, *others = text.split(",")
    name, _, horizon = first.rpartition("=")
    entries = dict(each.partition("=")[::2] for each in others)
    return name, read_options({"horizon": horizon, **{key.strip(): value for key, value in entries.items()}})


def forecast_keys(hpas: Sequence[HPA], given: Sequence[tuple[str, ForecastOptions]]) -> Mapping[str, ForecastOptions]:
    """Return {`metric_key`: options} of the flags; a name of "" is that of the first metric.

    Raises:
        ReplayError: there is no such metric, or it cannot have a forecast.
    """
    sources = [spec.source for hpa in hpas for spec in hpa.spec.metrics]
    found: dict[str, ForecastOptions] = {}
    for name, options in given:
        source = named_metric("--forecast", name, sources)
        if isinstance(source, ResourceMetric | InvalidMetric):
            raise ReplayError(f"--forecast names {metric_key(source)}: only Pods, Object and External metrics have one")
        found[metric_key(source)] = options
    return found


def with_forecasts(load: Load, wanted: Mapping[str, ForecastOptions]) -> Load:
    """Return the load with what HPAs see of the wanted metrics; what these have before the load's start is history."""
    forecasts, seen = [], {}
    for key, options in wanted.items():
        forecast, seen[key] = _forecast(key, load.series[key], options, load.start_ms, load.end_ms)
        forecasts.append(forecast)
    return dataclasses.replace(load, forecasts=forecasts, seen=seen, notes=[*load.notes, *(f.note for f in forecasts)])


def _forecast(
    key: str, series: Series, options: ForecastOptions, start_ms: int, end_ms: int
) -> tuple[Forecast, Series]:
    import numpy as np

    from adapter.forecasts.gate import served
    from adapter.forecasts.model import MinuteSeries

    known_ms = max(series.times_ms[0], start_ms - round(options.history * 1000))
    first_ms = -(-known_ms // _MINUTE_MS) * _MINUTE_MS
    minutes_ms = np.arange(first_ms, end_ms, _MINUTE_MS)
    times_ms = np.frombuffer(series.times_ms, dtype=np.int64)
    index = np.searchsorted(times_ms, minutes_ms, side="right") - 1
    values = np.frombuffer(series.values, dtype=np.float64)[index]
    values = np.where(minutes_ms < times_ms[index] + series.hold_ms, values, np.nan)
    first = max((start_ms - first_ms) // _MINUTE_MS, 0)
    expected, judgements = served(MinuteSeries(first_ms // 1000, values), options, first)

    by_minute = dict(zip(minutes_ms[first:].tolist(), expected[first:].tolist(), strict=True))
    own = times_ms[(times_ms >= start_ms) & (times_ms < end_ms)].tolist()
    seen = Series(times_ms=array("q"), values=array("d"), hold_ms=_MINUTE_MS)
    for time_ms in sorted({start_ms, *own, *(each for each in by_minute if each >= start_ms)}):
        load, ahead = series.at(time_ms), by_minute.get(time_ms // _MINUTE_MS * _MINUTE_MS, math.nan)
        seen.times_ms.append(time_ms)
        seen.values.append(ahead if ahead > load else load)
    return Forecast(key=key, options=options, judgements=judgements), seen
