"""The forecasts of the metrics that are requested: which there are, and their values.

A forecast begins with the first request for its metric: its history is read, a model is fitted and the gate judges it,
in the background. Until then, and on any doubt, the value is the plain one. Every hour the new part of the history is
read, once a day a model is fitted and judged, at a time that depends on the metric alone; if the history is too short
then, at the first full hour after it at which it is not. So all replicas have the same model and verdict, also after a
restart. A forecast that nothing requests any more ends.

Clients choose what they request, so the forecasts of a namespace, and all together, are limited in number and memory.
What is over a limit is served without a forecast.

Only `adapter.forecasts.live` imports numpy, and only the first forecast imports that.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from cachetools import TTLCache
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.forecasts.options import ForecastOptions
from adapter.settings import DEFAULTS, ForecastSettings
from adapter.telemetry import LiveFamily
from kube.api.retries import Backoff
from kube.controller.workqueue import WorkQueue, run_workers

if TYPE_CHECKING:
    from adapter.forecasts.gate import Judgement
    from adapter.forecasts.live import LiveForecast
    from adapter.forecasts.model import Expectation

_log = logging.getLogger(__name__)

_DAY_SECONDS: Final = 86_400
_HOUR_SECONDS: Final = 3600
_TICK_SECONDS: Final = 1.0
_WORKERS: Final = 2
_LOGGED_SECONDS: Final = 3600.0
_REFUSED_RULES: Final = 1_000
_MINUTE: Final = 60
_SLOT_SECONDS: Final = 14 * _DAY_SECONDS
_DIFFERENCE: Final = 1.25
"""A history that is so many times what was observed at the same minutes is that of something else."""


class HistoryError(Exception):
    """A metric has no history that can be read; the message says why."""


ReadHistory: TypeAlias = Callable[[int, int], Awaitable[list[tuple[float, float]]]]
"""Returns (time, value) at each minute from a time to another, without holes. Raises HistoryError."""


class State(enum.Enum):
    """Whether a forecast is served, or why not."""

    SERVED = "served"
    LOADING = "loading"
    NO_HISTORY = "no-history"
    NO_MODEL = "no-model"
    GATE = "gate"
    DOUBT = "doubt"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class ForecastKey:
    """What a forecast is of."""

    rule: str
    """The rule's key."""
    metric: str
    """The metric's name."""
    namespace: str
    """The namespace of the request; "" if the metric is the same for all."""
    of: str
    """The object or the selector; "" for neither."""

    def __str__(self) -> str:
        return f"{self.metric}{f' in {self.namespace}' * bool(self.namespace)}{f' ({self.of})' * bool(self.of)}"

    def day_start(self, now: float) -> int:
        """Return when the forecast's day began, whose model is that of the history before; a multiple of 60.

        Metrics begin theirs at different times, so that not all models are fitted at once.
        """
        offset = zlib.crc32(f"{self.metric} {self.namespace}".encode()) % (_DAY_SECONDS // _MINUTE) * _MINUTE
        return int(now - offset) // _DAY_SECONDS * _DAY_SECONDS + offset


@dataclass(slots=True, eq=False)
class Forecast:
    """The forecast of one metric."""

    key: ForecastKey
    """What it is of."""
    definition: Hashable
    """The rule. With another one, the forecast begins again."""
    options: ForecastOptions
    """The rule's."""
    read: ReadHistory
    """Reads the past."""
    owner: str
    """The namespace whose share it is in: that of the first request, also where all get the same values."""
    state: State = State.LOADING
    """Whether it is served."""
    reason: str = ""
    """Why not, as a clause; "" if it is."""
    live: LiveForecast | None = None
    """Model and minutes; None before the history has been read."""
    judgement: Judgement | None = None
    """What the gate says; None without a model."""
    expectation: Expectation | None = None
    """The newest one; None: there is none now."""
    requested: float = 0.0
    """When it was last requested, in seconds since the epoch."""
    due: float = 0.0
    """When the new part of its history is read."""
    read_until: int = 0
    """How far its history was read; 0: not at all."""
    fitted_until: int = 0
    """How far its history was fitted; 0: not at all."""
    unread: str = ""
    """Why the history could not be read the last time; "" if it could."""
    failure: str = ""
    """Why there is no model; "": there is one, or none was fitted yet."""
    backoff: Backoff = field(default_factory=lambda: Backoff(_MINUTE, 3600.0))
    """Between two reads after failures."""
    logged: dict[State, float] = field(default_factory=dict)
    """When each state was logged."""

    @property
    def problem(self) -> tuple[State, str] | None:
        """What makes the value plain until the next background work."""
        if self.unread:
            return State.NO_HISTORY, f"its history cannot be read: {self.unread}"
        if self.failure:
            return State.NO_MODEL, self.failure
        if self.judgement is None:
            return State.LOADING, "its history is being read"
        return None if self.judgement.holds else (State.GATE, self.judgement.text)

    @property
    def growth(self) -> float:
        """How many times the plain value is served."""
        return self.expectation.growth if self.expectation is not None and self.state is State.SERVED else 1.0

    @property
    def slots(self) -> int:
        """How many of the forecasts that there can be it counts as: one for each fortnight of history."""
        return math.ceil(self.options.history / _SLOT_SECONDS)

    @property
    def status(self) -> str:
        """The state, with the reason."""
        return f"{self.state.value}: {self.reason}" if self.reason else self.state.value

    @property
    def sentence(self) -> str:
        """What is expected and whether it is served."""
        return f"{self.expectation.sentence}; {self.status}" if self.expectation is not None else self.status

    def expect(self, now: float) -> tuple[State, str]:
        """Set `expectation`, if there is a model and no doubt; return the state and the reason."""
        self.expectation, problem = None, self.problem
        if problem is None or problem[0] is State.GATE:
            assert self.live is not None, "without it there is a problem"
            found = self.live.expect(now)
            if isinstance(found, str):
                return State.DOUBT, found
            self.expectation = found
        return problem or (State.SERVED, "")


class Forecasts(Collector):
    """The forecasts of all rules; a collector of metrics about them."""

    def __init__(
        self,
        settings: ForecastSettings = DEFAULTS.forecasts,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` returns the seconds since the epoch."""
        self._settings = settings
        self._clock = clock
        self._forecasts: dict[ForecastKey, Forecast] = {}
        self._refused: TTLCache[str, str] = TTLCache(_REFUSED_RULES, _LOGGED_SECONDS, timer=clock)  # by the rule's key
        self._queue: WorkQueue[Forecast] = WorkQueue(
            namespace=lambda forecast: forecast.owner, limit=lambda: 0, spare=_WORKERS
        )
        self._worker: Executor | None = None  # None: that of the event loop
        self._outcomes: dict[str, Counter[str]] = {}  # by the rule's key
        self._failures: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Forecast]:
        """Yield all forecasts."""
        return iter(self._forecasts.values())

    def of_rule(self, rule: str, namespace: str = "") -> list[Forecast]:
        """Return the forecasts of a rule's metrics, by its key; with a namespace, those that requests of it get."""
        found = (one for one in self._forecasts.values() if one.key.rule == rule)
        return [one for one in found if not namespace or one.key.namespace in ("", namespace)]

    def sentences(self, rule: str, namespace: str) -> tuple[str, ...]:
        """Return what the forecasts of a rule expect; without any, their state."""
        found = self.of_rule(rule, namespace)
        return tuple(f"{one.key}: {one.sentence}" for one in found) or (self.summary(rule),)

    def summary(self, rule: str) -> str:
        """Return the states of a rule's forecasts, with the reason of one that is not served."""
        found, refused = self.of_rule(rule), self.refusal(rule)
        if not found:
            return f"{State.LIMIT.value}: {refused}" if refused else "not requested: forecasts begin with a request"
        if len(found) == 1:
            return found[0].status
        states = Counter(one.state for one in found)
        shown = ", ".join(f"{count} {state.value}" for state, count in states.most_common())
        why = next((f"{one.reason} ({one.key})" for one in found if one.reason), refused)
        return f"{shown}: {why}" if why else shown

    def settled(self, rule: str) -> bool:
        """Return whether the states of a rule's forecasts probably stay."""
        found = self.of_rule(rule)
        return all(one.state is not State.LOADING for one in found) and bool(found or self.refusal(rule))

    def refusal(self, rule: str) -> str:
        """Return which limit kept a metric of a rule from having a forecast in the last hour; "" if none did."""
        return self._refused.get(rule, "")

    def serve(
        self,
        key: ForecastKey,
        value: float,
        *,
        definition: Hashable,
        options: ForecastOptions,
        read: ReadHistory,
        owner: str,
    ) -> float:
        """Return the value to serve now: the expected one if it is higher than the plain one. It does not raise.

        `value` is the plain value. The other arguments are those of a Forecast, which begins with the first request.
        """
        now = self._clock()
        forecast = self._forecasts.get(key)
        if forecast is not None:
            was_ahead = now < forecast.requested - self._settings.idle_seconds  # the clock, and so its minutes
            if was_ahead or (forecast.definition is not definition and forecast.definition != definition):
                del self._forecasts[key]
                forecast = None
        if forecast is None:
            forecast = Forecast(key, definition, options, read, owner)
            why = self._make_capacity(forecast.owner, forecast.slots)
            if why:
                if not self.refusal(key.rule):
                    _log.warning("%s: no forecast of %s: %s", key.rule, key, why)
                self._refused[key.rule] = why
                return value
            self._forecasts[key] = forecast
        forecast.requested, forecast.read = now, read
        try:
            if forecast.live is not None:
                forecast.live.observe(now, value)
            state, reason = forecast.expect(now)
        except Exception:  # noqa: BLE001  (no doubt about a forecast is an error of the metric)
            _log.exception("%s: forecast of %s", key.rule, key)
            forecast.judgement, forecast.failure = None, "the model failed"
            state, reason = State.NO_MODEL, forecast.failure
        self._set(forecast, state, reason)
        return value * forecast.growth

    async def run(self) -> None:
        """Read histories and fit models, until cancelled."""
        # One thread: each has its own part of the heap, in which some megabytes of freed matrices stay.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="forecasts")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_workers(self._queue, self._refresh_current), name="forecasts")
                while True:
                    self._add_due()
                    await asyncio.sleep(_TICK_SECONDS)
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)  # a fit that has begun takes a second more

    def _make_capacity(self, owner: str, slots: int) -> str:
        """Return why a namespace can have no further forecast; "": it can.

        While there are too many, the newest forecasts of the namespaces that have the most end, for one with fewer.
        """
        settings, used = self._settings, Counter[str]()
        for one in self:
            used[one.owner] += one.slots
        if owner and used[owner] + slots > settings.of_namespace:
            return f"the forecasts of namespace {owner} count as {used[owner]} of at most {settings.of_namespace}"
        while used.total() + slots > settings.total:
            largest = max(filter(None, used), key=used.__getitem__, default="")
            if not largest or used[largest] <= (used[owner] + slots if owner else 0):
                return f"all forecasts count as {used.total()} of at most {settings.total}"
            ended = [one for one in self if one.owner == largest][-1]
            del self._forecasts[ended.key]
            used[largest] -= ended.slots
        return ""

    def _add_due(self) -> None:
        """Add forecasts whose history is due, and end those that nothing requests."""
        now = self._clock()
        for forecast in list(self):
            if now - forecast.requested > self._settings.idle_seconds:
                del self._forecasts[forecast.key]
            elif now >= forecast.due:
                forecast.due = math.inf  # until it has been read
                (self._queue.add_urgent if forecast.live is None else self._queue.add)(forecast)

    async def _refresh_current(self, forecast: Forecast) -> None:
        """Refresh a forecast, unless it has ended while it was in the queue."""
        if self._forecasts.get(forecast.key) is forecast:
            await self.refresh(forecast)

    async def refresh(self, forecast: Forecast) -> None:
        """Read the new part of a history; fit a model and judge it if that is due. It does not raise."""
        key = forecast.key
        try:
            live = await self._read(forecast)
            await self._fit(forecast, live)
        except Exception as error:  # noqa: BLE001  (a history that triggers a bug must not end the process)
            if isinstance(error, HistoryError):
                forecast.unread = str(error)
            else:
                _log.exception("%s: forecast of %s", key.rule, key)
                forecast.judgement, forecast.failure, forecast.fitted_until = None, "the fit failed", 0
            self._failures[key.rule] += 1
            forecast.due = self._clock() + min(forecast.backoff.next(), self._settings.read_seconds)
        else:
            forecast.backoff.reset()
            now, seconds = self._clock(), self._settings.read_seconds
            # When a day begins, all replicas read at once, and then fit.
            forecast.due = now + seconds - (now - forecast.fitted_until) % seconds
        if forecast.problem is not None:
            self._set(forecast, *forecast.problem)

    async def _read(self, forecast: Forecast) -> LiveForecast:
        live = forecast.live
        if live is None:
            outcomes = self._outcomes.setdefault(forecast.key.rule, Counter())
            # The first one imports numpy, which takes a tenth of a second.
            module = await asyncio.to_thread(import_module, "adapter.forecasts.live")
            live = module.LiveForecast(forecast.options, self._clock(), outcomes)
        now = self._clock()
        start = max(forecast.read_until + _MINUTE, live.history_start(now))
        end = int(now // _MINUTE) * _MINUTE
        ratio = live.extend(await forecast.read(start, end), self._clock())
        forecast.read_until, forecast.live = end, live
        if ratio is not None and not 1 / _DIFFERENCE <= ratio <= _DIFFERENCE:
            why = f"its history is {ratio:.2g} times what is served: are the labels of the query's result the same?"
            raise HistoryError(why)
        forecast.unread = ""
        return live

    async def _fit(self, forecast: Forecast, live: LiveForecast) -> None:
        """Fit a model and judge it, if a day has begun since the last time, or an hour while the history is short."""
        now = self._clock()
        hours = range(forecast.key.day_start(now), int(now) + 1, _HOUR_SECONDS)
        until = next(filter(live.is_long_enough, hours), hours[-1])
        if until > forecast.fitted_until:
            found = asyncio.get_running_loop().run_in_executor(self._worker, live.fitted, live.history(until))
            live.model, forecast.judgement, forecast.failure = await found
            forecast.fitted_until = until

    def _set(self, forecast: Forecast, state: State, reason: str) -> None:
        """Set the state, and log it if it changed: each one at most once an hour."""
        changed, forecast.state, forecast.reason = state is not forecast.state, state, reason
        now = self._clock()
        if changed and now - forecast.logged.get(state, 0.0) > _LOGGED_SECONDS:
            forecast.logged[state] = now
            _log.info("%s: forecast of %s: %s", forecast.key.rule, forecast.key, forecast.status)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; a rule has series only once one of its metrics was requested."""
        states: Counter[tuple[str, ...]] = Counter((one.key.rule, one.state.value) for one in self)
        states.update((rule, State.LIMIT.value) for rule in self._refused)
        yield from LiveFamily(
            "milliscale_adapter_forecasts",
            "Forecasts of a rule's metrics by state: served, or why they are not.",
            ("rule", "state"),
            lambda: states,
        ).collect()
        growth: dict[tuple[str, ...], list[float]] = {}
        for one in self:
            growth.setdefault((one.key.rule, one.key.metric, one.key.namespace), []).append(one.growth)
        yield from LiveFamily(
            "milliscale_adapter_forecast_growth",
            "How many times the value of a forecast is the plain one, at the last request. Only of a metric of which"
            " one object or selector is requested in the namespace: clients choose these.",
            ("rule", "metric", "namespace"),
            lambda: {labels: values[0] for labels, values in growth.items() if len(values) == 1},
        ).collect()
        yield from LiveFamily(
            "milliscale_adapter_forecast_minutes",
            "Minutes of a rule's forecasts, by how the highest value within the horizon compared with what was"
            " expected: within 10 %, above or below that.",
            ("rule", "outcome"),
            lambda: {(rule, outcome): n for rule, counts in self._outcomes.items() for outcome, n in counts.items()},
            family=CounterMetricFamily,
        ).collect()
        yield from LiveFamily(
            "milliscale_adapter_forecast_failures",
            "Reads of a history and fits of a model that failed.",
            ("rule",),
            lambda: {(rule,): count for rule, count in self._failures.items()},
            family=CounterMetricFamily,
        ).collect()

    def forget(self, rules: Iterable[str]) -> None:
        """Remove the forecasts and the metrics of rules that are gone."""
        gone = frozenset(rules)
        for key in [key for key in self._forecasts if key.rule in gone]:
            del self._forecasts[key]
        for rule in gone:
            self._outcomes.pop(rule, None)
            self._failures.pop(rule, None)
