"""The forecasts of the metrics that are requested: which there are, and their values.

A forecast begins with the first request for its metric: its history is read, a model is fitted and the gate judges it,
in the background. Until then, and on any doubt, the value is the plain one. Every hour the new part of the history is
read, once a day a model is fitted and judged. A forecast that nothing requests any more ends.

Clients choose what they request, so the forecasts of a namespace, and all together, are limited in number and memory.
What is over a limit is served without a forecast.

Only `adapter.forecasts.live` imports numpy, and only the first forecast imports that.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import random as _random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.fair_queue import FairQueue
from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.sentence import gate_text, sentence
from adapter.settings import DEFAULTS, ForecastSettings
from kube.api.retries import Backoff

if TYPE_CHECKING:
    from adapter.forecasts.live import LiveForecast
    from adapter.forecasts.model import Expectation

_log = logging.getLogger(__name__)

_DAY_SECONDS: Final = 86_400.0
_JITTER: Final = 0.05
_TICK_SECONDS: Final = 1.0
_WORKERS: Final = 2
_LOGGED_SECONDS: Final = 3600.0
_MINUTE: Final = 60
_DIFFERENCE: Final = 1.25
"""A history that is so many times what was observed at the same minutes is that of something else."""


class HistoryError(Exception):
    """A metric has no history that can be read; the message says why."""


class State(enum.Enum):
    """Whether a forecast is served, or why not."""

    SERVED = "served"
    LOADING = "loading"
    NO_HISTORY = "no-history"
    NO_MODEL = "no-model"
    GATE = "gate"
    DOUBT = "doubt"
    LIMIT = "limit"


class History(Protocol):
    """The past of a metric."""

    async def read(self, start: int, end: int) -> list[tuple[float, float]]:
        """Return (time, value) at each minute from `start` to `end`, without holes. Raises HistoryError."""


@dataclass(frozen=True, slots=True)
class ForecastKey:
    """What a forecast is of.

    Attributes:
        rule: the rule's key.
        metric: the metric's name.
        namespace: of the request; "" if the metric is the same for all.
        of: the object or the selector; "" for neither.
    """

    rule: str
    metric: str
    namespace: str
    of: str

    def __str__(self) -> str:
        return f"{self.metric}{f' in {self.namespace}' * bool(self.namespace)}{f' ({self.of})' * bool(self.of)}"


@dataclass(slots=True, eq=False)
class Forecast:
    """The forecast of one metric.

    Attributes:
        key: what it is of.
        definition: the rule. With another one, the forecast begins again.
        options: the rule's.
        history: reads the past.
        owner: the namespace whose share it is in: that of the first request, also where all get the same values.
        size: the bytes that it counts as.
        state: whether it is served.
        reason: why not, as a clause; "" if it is.
        live: model and minutes; None before the history has been read.
        expectation: the newest one; None: there is none now.
        value: the newest plain value.
        served: the newest value that was served.
        requested: when it was last requested, in seconds since the epoch.
        due, fit_due: when the new part of its history is read, and when it is fitted.
        read_until: how far its history was read; 0: not at all.
        is_waiting: it is in the queue of those whose history is read.
        unread: why the history could not be read the last time; "" if it could.
        verdict: why it is not served until the next fit; None: it is.
        backoff: between two reads after failures.
        logged: when each state was logged.
    """

    key: ForecastKey
    definition: Hashable
    options: ForecastOptions
    history: History
    owner: str
    size: int
    state: State = State.LOADING
    reason: str = ""
    live: LiveForecast | None = None
    expectation: Expectation | None = None
    value: float = 0.0
    served: float = 0.0
    requested: float = 0.0
    due: float = 0.0
    fit_due: float = 0.0
    read_until: int = 0
    is_waiting: bool = False
    unread: str = ""
    verdict: tuple[State, str] | None = (State.LOADING, "its history is being read")
    backoff: Backoff = field(default_factory=lambda: Backoff(_MINUTE, 3600.0))
    logged: dict[State, float] = field(default_factory=dict)

    @property
    def problem(self) -> tuple[State, str] | None:
        """What makes the value plain until the next background work."""
        return (State.NO_HISTORY, f"its history cannot be read: {self.unread}") if self.unread else self.verdict

    @property
    def sentence(self) -> str:
        """What is expected and whether it is served."""
        expects = f"{sentence(self.expectation, self.options)}; " if self.expectation is not None else ""
        return f"{expects}{self.state.value}{f': {self.reason}' if self.reason else ''}"


class Forecasts(Collector):
    """The forecasts of all rules; a collector of metrics about them."""

    def __init__(
        self,
        settings: ForecastSettings = DEFAULTS.forecasts,
        *,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """`clock` returns the seconds since the epoch; `random` numbers in [0, 1)."""
        self._settings = settings
        self._clock = clock
        self._random = random
        self._forecasts: dict[ForecastKey, Forecast] = {}
        self._of_namespaces: Counter[str] = Counter()
        self._refused: dict[str, tuple[float, str]] = {}  # by the rule's key
        self._size = 0
        self._queue: FairQueue[ForecastKey] = FairQueue()
        self._has_some = asyncio.Event()
        # One thread: each has its own part of the heap, in which some megabytes of freed matrices stay.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="forecasts")
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._failures: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Forecast]:
        """Yield all forecasts."""
        return iter(self._forecasts.values())

    def of_rule(self, rule: str) -> list[Forecast]:
        """Return the forecasts of a rule's metrics, by its key."""
        return [one for one in self._forecasts.values() if one.key.rule == rule]

    def summary(self, rule: str) -> str:
        """Return the states of a rule's forecasts, with the reason of one that is not served."""
        found = self.of_rule(rule)
        states = Counter(one.state for one in found)
        refused = self.refusal(rule)
        if not found:
            return f"{State.LIMIT.value}: {refused}" if refused else "not requested: forecasts begin with a request"
        if len(found) == 1:
            shown = found[0].state.value
        else:
            shown = ", ".join(f"{count} {state.value}" for state, count in states.most_common())
        why = next((f"{one.reason}{f' ({one.key})' * (len(found) > 1)}" for one in found if one.reason), refused)
        return f"{shown}: {why}" if why else shown

    def settled(self, rule: str) -> bool:
        """Return whether the states of a rule's forecasts probably stay."""
        found = self.of_rule(rule)
        return all(one.state is not State.LOADING for one in found) and bool(found or self.refusal(rule))

    def refusal(self, rule: str) -> str:
        """Return which limit kept a metric of a rule from having a forecast in the last hour; "" if none did."""
        at, why = self._refused.get(rule, (0.0, ""))
        return why if self._clock() - at < _LOGGED_SECONDS else ""

    def serve(
        self,
        key: ForecastKey,
        value: float,
        *,
        definition: Hashable,
        options: ForecastOptions,
        history: History,
        owner: str,
    ) -> float:
        """Return the value to serve now: the expected one if it is higher than the plain one. It does not raise.

        Args:
            key: the metric.
            value: its plain value.
            definition: the rule.
            options: the rule's.
            history: reads the metric's past.
            owner: the namespace of the request; "" for an object in none.
        """
        now = self._clock()
        forecast = self._forecasts.get(key)
        if forecast is not None and forecast.definition is not definition and forecast.definition == definition:
            forecast.definition = definition  # of the reloaded file
        if forecast is not None:
            was_ahead = now < forecast.requested - self._settings.idle_seconds  # the clock, and so its minutes
            if was_ahead or forecast.definition is not definition:
                self._end(forecast)
                forecast = None
        if forecast is None:
            forecast = self._begin(key, definition, options, history, owner)
            if forecast is None:
                return value
        forecast.requested, forecast.value, forecast.history = now, value, history
        try:
            forecast.served = served = self._served(forecast, now, value)
        except Exception:  # noqa: BLE001  (no doubt about a forecast is an error of the metric)
            _log.exception("%s: forecast of %s", key.rule, key)
            forecast.verdict, forecast.fit_due = (State.NO_MODEL, "the model failed"), now + _DAY_SECONDS
            forecast.expectation, forecast.served = None, value
            self._set(forecast, *forecast.verdict)
            return value
        return served

    def _served(self, forecast: Forecast, now: float, value: float) -> float:
        forecast.expectation = None
        if forecast.live is not None:
            forecast.live.observe(now, value)
        problem = forecast.problem
        if problem is not None and problem[0] is not State.GATE:
            self._set(forecast, *problem)
            return value
        assert forecast.live is not None, "without it there is a problem"
        found = forecast.live.expect(now)
        if isinstance(found, str):
            self._set(forecast, State.DOUBT, found)
            return value
        forecast.expectation = found
        if problem is not None:
            self._set(forecast, *problem)
            return value
        self._set(forecast, State.SERVED, "")
        return max(value, value * found.growth)  # the model's values are rounded to 32 bits

    async def run(self) -> None:
        """Read histories and fit models, until cancelled."""
        await self._has_some.wait()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_WORKERS):
                tasks.create_task(self._queue.serve(self.refresh), name="forecasts")
            while True:
                self._add_due()
                await asyncio.sleep(_TICK_SECONDS)

    def _begin(
        self, key: ForecastKey, definition: Hashable, options: ForecastOptions, history: History, owner: str
    ) -> Forecast | None:
        """Begin a forecast; None: it is over a limit."""
        settings = self._settings
        size = settings.bytes_of(options.history)
        why = ""
        if owner and self._of_namespaces[owner] >= settings.of_namespace:
            why = f"namespace {owner} has {settings.of_namespace} forecasts, as many as it can have"
        elif not self._has_room(owner, size):
            why = f"there are {len(self._forecasts)} forecasts, and no room for more"
        if why:
            if not self.refusal(key.rule):
                _log.warning("%s: no forecast of %s: %s", key.rule, key, why)
            self._refused[key.rule] = (self._clock(), why)
            return None
        forecast = self._forecasts[key] = Forecast(key, definition, options, history, owner, size)
        self._of_namespaces[owner] += 1
        self._size += size
        self._has_some.set()
        return forecast

    def _has_room(self, namespace: str, size: int) -> bool:
        """Return whether there is room for a forecast, for which the newest ones of larger namespaces end."""
        settings, counts = self._settings, self._of_namespaces
        while len(self._forecasts) >= settings.total or self._size + size > settings.history_bytes:
            largest = max((name for name in counts if name), key=counts.__getitem__, default="")
            if counts[largest] <= (counts[namespace] + 1 if namespace else 0) or not largest:
                return False
            self._end([one for one in self._forecasts.values() if one.owner == largest][-1])
        return True

    def _end(self, forecast: Forecast) -> None:
        del self._forecasts[forecast.key]
        self._of_namespaces[forecast.owner] -= 1
        if not self._of_namespaces[forecast.owner]:
            del self._of_namespaces[forecast.owner]
        self._size -= forecast.size
        self._count(forecast)

    def _add_due(self) -> None:
        """Add forecasts whose history is due, and end those that nothing requests."""
        now = self._clock()
        for forecast in list(self._forecasts.values()):
            if now - forecast.requested > self._settings.idle_seconds:
                self._end(forecast)
            elif now >= forecast.due and not forecast.is_waiting:
                forecast.is_waiting = True
                self._queue.add(forecast.owner, forecast.key, urgent=forecast.live is None)
        for rule in [rule for rule in self._refused if not self.refusal(rule)]:
            del self._refused[rule]

    async def refresh(self, key: ForecastKey) -> None:
        """Read the new part of a history; fit a model and judge it if that is due. It does not raise."""
        forecast = self._forecasts.get(key)
        if forecast is None:
            return
        try:
            await self._read(forecast)
            if forecast.live is not None and self._clock() >= forecast.fit_due:
                await self._fit(forecast, forecast.live)
        except HistoryError as error:
            forecast.unread = str(error)
            self._failed(forecast)
        except Exception:  # noqa: BLE001  (a history that triggers a bug must not end the process)
            _log.exception("%s: forecast of %s", key.rule, key)
            forecast.verdict = (State.NO_MODEL, "the fit failed")
            self._failed(forecast)
        else:
            forecast.backoff.reset()
            forecast.due = self._clock() + self._settings.read_seconds * (1 + _JITTER * self._random())
        finally:
            forecast.is_waiting = False

    def _failed(self, forecast: Forecast) -> None:
        self._failures[forecast.key.rule] += 1
        forecast.due = self._clock() + min(forecast.backoff.next(), self._settings.read_seconds)
        if forecast.problem is not None:
            self._set(forecast, *forecast.problem)

    async def _read(self, forecast: Forecast) -> None:
        live = forecast.live
        if live is None:
            module = await asyncio.to_thread(live_module)
            live = module.LiveForecast(forecast.options, self._clock())
        now = self._clock()
        start = max(forecast.read_until + _MINUTE, live.history_start(now))
        end = int(now // _MINUTE) * _MINUTE
        points = await forecast.history.read(start, end)
        live = forecast.live or live
        ratio = live.extend(points, self._clock())
        forecast.read_until, forecast.live = end, live
        if ratio is not None and not 1 / _DIFFERENCE <= ratio <= _DIFFERENCE:
            why = f"its history is {ratio:.2g} times what is served: are the labels of the query's result the same?"
            raise HistoryError(why)
        forecast.unread = ""

    async def _fit(self, forecast: Forecast, live: LiveForecast) -> None:
        """Fit a model and judge it."""
        now, run = self._clock(), asyncio.get_running_loop().run_in_executor
        history, holds = live.history(now), True
        model = await run(self._worker, live.fitted, history)
        if not isinstance(model, str) and forecast.options.gate:
            live.judgement = await run(self._worker, live.judged, history)
            holds = live.judgement.holds(forecast.options, before=forecast.verdict is None)
        forecast.fit_due = now + _DAY_SECONDS * (1 - _JITTER * self._random())
        if isinstance(model, str):
            live.model = None
            forecast.fit_due = now + self._settings.read_seconds  # the history grows
            forecast.verdict = (State.NO_MODEL, model)
        else:
            live.model = model
            forecast.verdict = None if holds else (State.GATE, gate_text(live.judgement, forecast.options))
        if forecast.problem is not None:
            self._set(forecast, *forecast.problem)

    def _set(self, forecast: Forecast, state: State, reason: str) -> None:
        """Set the state, and log it if it changed: each one at most once an hour."""
        changed, forecast.state, forecast.reason = state is not forecast.state, state, reason
        now = self._clock()
        if changed and now - forecast.logged.get(state, 0.0) > _LOGGED_SECONDS:
            forecast.logged[state] = now
            why = f": {reason}" if reason else ""
            _log.info("%s: forecast of %s: %s%s", forecast.key.rule, forecast.key, state.value, why)

    def _count(self, forecast: Forecast) -> None:
        """Count the outcomes of a forecast that ends."""
        for outcome, count in outcomes_of(forecast).items():
            self._outcomes[forecast.key.rule, outcome] += count

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; a rule has series only once one of its metrics was requested."""
        models = GaugeMetricFamily(
            "milliscale_adapter_forecasts",
            "Forecasts of a rule's metrics by state: served, or why they are not.",
            labels=("rule", "state"),
        )
        states = Counter((one.key.rule, one.state.value) for one in self._forecasts.values())
        states.update((rule, State.LIMIT.value) for rule in self._refused if self.refusal(rule))
        for labels, count in sorted(states.items()):
            models.add_metric(labels, count)
        yield models
        growth = GaugeMetricFamily(
            "milliscale_adapter_forecast_growth",
            "How many times the value of a forecast is the plain one, at the last request.",
            labels=("rule", "metric", "namespace", "of"),
        )
        for one in self._forecasts.values():
            growth.add_metric(
                (one.key.rule, one.key.metric, one.key.namespace, one.key.of),
                one.served / one.value if one.value else 1.0,
            )
        yield growth
        outcomes = CounterMetricFamily(
            "milliscale_adapter_forecast_minutes",
            "Minutes of a rule's forecasts, by how the highest value within the horizon compared with what was"
            " expected: within 10 %, above or below that.",
            labels=("rule", "outcome"),
        )
        totals = self._outcomes.copy()
        for one in self._forecasts.values():
            totals.update({(one.key.rule, outcome): count for outcome, count in outcomes_of(one).items()})
        for labels, count in sorted(totals.items()):
            outcomes.add_metric(labels, count)
        yield outcomes
        failures = CounterMetricFamily(
            "milliscale_adapter_forecast_failures",
            "Reads of a history and fits of a model that failed.",
            labels=("rule",),
        )
        for rule, count in sorted(self._failures.items()):
            failures.add_metric((rule,), count)
        yield failures

    def forget(self, rules: Iterable[str]) -> None:
        """Remove the forecasts and the metrics of rules that are gone."""
        gone = frozenset(rules)
        for forecast in [one for one in self._forecasts.values() if one.key.rule in gone]:
            self._end(forecast)
        for counts in (self._outcomes, self._failures):
            for key in [key for key in counts if (key if isinstance(key, str) else key[0]) in gone]:
                del counts[key]


def live_module() -> ModuleType:
    """Return `adapter.forecasts.live`. The first call imports numpy in a tenth of a second: make it in a thread."""
    # The matrices are small: with several threads a fit takes twice the CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return import_module("adapter.forecasts.live")


def outcomes_of(forecast: Forecast) -> dict[str, int]:
    """Return the minutes of a forecast by outcome; none before it has a model."""
    live = forecast.live
    if live is None or live.model is None:
        return {}
    outcomes = live.outcomes
    return {"within": outcomes.within, "above": outcomes.above, "below": outcomes.below}
