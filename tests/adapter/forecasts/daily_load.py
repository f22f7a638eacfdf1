"""A metric with a load that rises at 08:00 every day, and its forecast with a clock of the test."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest

from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.registry import ForecastKey, Forecasts, HistoryError, State
from adapter.settings import DEFAULTS, ForecastSettings

DAY = 86_400
EIGHT = 1_760_000_400 - 1_760_000_400 % DAY + DAY + 8 * 3600
"""08:00 UTC."""
OPTIONS = ForecastOptions(horizon=300, history=4 * DAY, gate=0)
KEY = ForecastKey("externalRules[0]", "orders", "shop", "")


def load(time: float) -> float:
    """100, and 300 from 08:00 to 18:00; the minutes differ a little."""
    hour = time % DAY / 3600
    return (300.0 if 8 <= hour < 18 else 100.0) + math.sin(time)


@dataclass
class Past:
    """A history that is read, from `begin` on; `error` is raised instead."""

    begin: float = 0.0
    factor: float = 1.0
    constant: float | None = None
    error: str = ""
    reads: list[tuple[int, int]] = field(default_factory=list)

    async def read(self, start: int, end: int) -> list[tuple[float, float]]:
        self.reads.append((start, end))
        if self.error:
            raise HistoryError(self.error)
        times = [time for time in range(start, end + 1, 60) if time >= self.begin]
        return [(time, self.factor * load(time) if self.constant is None else self.constant) for time in times]


@dataclass
class Served:
    """Forecasts with a clock of the test, and one metric."""

    past: Past = field(default_factory=Past)
    options: ForecastOptions = OPTIONS
    now: float = EIGHT - 200.0
    settings: ForecastSettings = DEFAULTS.forecasts

    def __post_init__(self) -> None:
        self.forecasts = Forecasts(self.settings, clock=lambda: self.now)

    def value(self, value: float | None = None, key: ForecastKey = KEY, definition: str = "rule") -> float:
        """Request the metric."""
        plain = load(self.now) if value is None else value
        served = self.forecasts.serve(
            key, plain, definition=definition, options=self.options, read=self.past.read, owner=key.namespace
        )
        assert served >= plain
        return served

    async def ready(self) -> None:
        """Request the metric, and wait until its forecast has been fitted."""
        self.value()
        await self.refresh()

    async def refresh(self) -> None:
        """Read the new part of the history, and fit if that is due."""
        [one] = self.forecasts.of_rule(KEY.rule)
        await self.forecasts.refresh(one)

    def state(self) -> tuple[State, str]:
        """The metric's state, and why."""
        [one] = self.forecasts.of_rule(KEY.rule)
        return one.state, one.reason

    def metrics(self) -> str:
        """The lines of /metrics."""
        registry = CollectorRegistry()
        registry.register(self.forecasts)
        return generate_latest(registry).decode()
