"""How old the newest sample of a metric is, how often there is one, and which rates have a range longer than needed."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import timedelta

from adapter.deadlines import Deadline
from adapter.planning.sample_times import Selectors, read_ages
from adapter.planning.vectors import InstantQueries
from adapter.prometheus import Destination, PrometheusError
from adapter.promql import duration_text

_RATES = frozenset({"rate", "increase"})
# A range of four scrapes has a rate even if one or two of them fail.
_ENOUGH_SCRAPES = 4
# A range that is less than twice as long is not worth a word.
_LONG = 2
# A rate over a range shows a part of a step after that part of the range.
_SHOWN = 0.8


@dataclass(frozen=True, slots=True)
class SampleAge:
    """The age of the newest sample when the query was evaluated, and the interval between samples, in seconds.

    `interval` is 0 if it is not known. `advice` is on ranges that are longer than the interval needs; "" for none.
    """

    seconds: float
    interval: float
    advice: str = ""

    def __str__(self) -> str:
        every = f", one every {self.interval:g} s" if self.interval else ""
        return f"the newest sample was {self.seconds:.0f} s old{every}"


async def sample_age(
    prometheus: InstantQueries, query: str, destination: Destination, *, deadline: Deadline
) -> SampleAge | None:
    """Query the times of the samples that a query reads; None if Prometheus does not say."""
    selectors = await asyncio.to_thread(Selectors.of, query)
    if selectors is None:
        return None
    try:
        result = await prometheus.instant(selectors.query, deadline=deadline, destination=destination)
    except PrometheusError:
        return None
    _, ages, interval = read_ages(result)
    return SampleAge(max(min(ages), 0.0), interval, _advice(selectors, interval)) if ages else None


def _advice(selectors: Selectors, interval: float) -> str:
    enough = timedelta(seconds=math.ceil(_ENOUGH_SCRAPES * interval))  # PromQL has no fractions of a second
    rates = [one for one in selectors.ranges if one[0] in _RATES and one[1] >= _LONG * enough > timedelta()]
    return "; ".join(
        f"{name}[{duration_text(one)}] needs {_words(_SHOWN * one.total_seconds())} to show 80 % of a step; the scrape"
        f" interval is {interval:g} s: [{duration_text(enough)}] is enough"
        for name, one in dict.fromkeys(rates)
    )


def _words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.0f} s" if rest or not minutes else f"{minutes} minute{'s'[: minutes > 1]}"
