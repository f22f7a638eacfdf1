"""The forecast of a metric, made once of its history: for the command `forecast`, and for `explain`."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, Source
from adapter.diagnosis.probe import Probe, Selection
from adapter.forecasts.registry import ForecastKey, HistoryError, new_forecast
from adapter.forecasts.sentence import gate_text, sentence
from adapter.planning.history import HistoryReader, namespace_of
from adapter.planning.metric_queries import ExternalQuery, MetricQuery, ObjectsQuery
from adapter.prometheus import PrometheusServers
from kube.api.mapping import GroupResource

if TYPE_CHECKING:
    from adapter.forecasts.gate import Accuracy
    from adapter.forecasts.live import Hour, LiveForecast

_PODS = GroupResource("", "pods")


class NoForecastError(Exception):
    """No metric has a forecast; the message says why."""


class GateReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the gate says; see adapter.forecasts.gate.Judgement."""

    holds: bool
    text: str
    saved: float | None = None
    days: float = 0.0
    overload: float = 0.0
    overload_with: float = 0.0


class ForecastReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The forecast of a metric, as `-o json` prints it.

    Attributes:
        metric, rule, of: what it is of.
        timezone: that of the times.
        sentence: what is expected now, and why; "" if nothing is.
        reason: why nothing is expected; "" if something is.
        gate: None: there is no model.
        accuracy: likewise.
        hours: the next 24 hours.
    """

    metric: str
    rule: str
    of: str
    timezone: str
    sentence: str = ""
    reason: str = ""
    gate: GateReport | None = None
    accuracy: Accuracy | None = None
    hours: tuple[Hour, ...] = ()


def forecast_source(catalog: Catalog, name: str) -> Source:
    """Return the source of a metric that has a forecast, by its name, or as in `explain`.

    Raises:
        NoForecastError: there is none.
    """
    sources = [source for part in catalog.snapshot.parts for source in part if source.rule.forecast is not None]
    wanted = name.removeprefix("external/")
    found = [source for source in sources if wanted in (str(source), source.metric)]
    if not found:
        known = ", ".join(sorted({source.metric for source in sources if source.is_forecast})) or "none"
        raise NoForecastError(f"no rule with `forecast` makes {name}; metrics with a forecast: {known}")
    return max(found, key=lambda source: isinstance(source, CustomSource) and source.info.resource == _PODS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastReader:
    """Makes forecasts of the history of metrics.

    Attributes:
        probe: finds an object that has the metric.
        prometheus: has the history.
        clock: returns seconds since the epoch.
    """

    probe: Probe
    prometheus: PrometheusServers
    clock: Callable[[], float]

    async def sentences(self, source: Source, selection: Selection) -> tuple[str, ...]:
        """Return what is expected now, and why; or why nothing is."""
        report = await self.report(source, selection, judges=False)
        return (report.sentence or f"no forecast: {report.reason}",)

    async def report(self, source: Source, selection: Selection, *, judges: bool = True) -> ForecastReport:
        """Return the forecast of a metric; without a name in `selection`, of an object that has a series now.

        `judges`: replay the last days, and preview the next.
        """
        rule = source.rule
        assert rule.forecast is not None, "the rule has one"
        options = rule.forecast.options
        made = functools.partial(ForecastReport, metric=source.metric, rule=rule.key, timezone=options.timezone)
        example = await self.probe.example(source, selection)
        if not example.values:
            return made(of="", reason="; ".join(example.reasons))
        query, of_pods = _query_of(source, example.of, [value.of for value in example.values], selection)
        key, now = _key_of(query, of_pods), self.clock()
        made = functools.partial(made, of=str(key))
        live = await new_forecast(options, now, Counter())
        try:
            reader = HistoryReader(self.prometheus, query, of_pods, query.namespace)
            live.extend(await reader.read(live.history_start(now), int(now // 60) * 60), now)
        except HistoryError as error:
            return made(reason=f"its history cannot be read: {error}")
        return await asyncio.to_thread(_completed, made, live, now, key.day_start(now), judges=judges)


def _completed(
    made: Callable[..., ForecastReport], live: LiveForecast, now: float, fitted_until: int, *, judges: bool
) -> ForecastReport:
    """Fit a model, and return the report with what it expects. Takes some seconds: call it in a worker thread."""
    history = live.history(fitted_until)
    model = live.fitted(history)
    if isinstance(model, str):
        return made(reason=model)
    live.model = model
    found = live.expect(now)
    result = {"reason": found} if isinstance(found, str) else {"sentence": sentence(found, live.options)}
    if not judges:
        return made(**result)
    judgement, is_served = live.judged(history)
    gate = GateReport(
        holds=is_served,
        text=gate_text(judgement, live.options),
        saved=judgement.saved,
        days=judgement.days,
        overload=judgement.overload,
        overload_with=judgement.overload_with,
    )
    return made(**result, gate=gate, accuracy=judgement.accuracy, hours=live.next_day(now))


def _query_of(source: Source, of: str, values: list[str], selection: Selection) -> tuple[MetricQuery, bool]:
    """Return the request that an example is of, and whether it is for all pods of their workloads."""
    if not isinstance(source, CustomSource):
        return ExternalQuery(source, of, selection.metric_selector), False
    namespace = of.partition("/")[0] if source.info.namespaced else ""
    names = [value.rpartition("/")[2] for value in values]
    return ObjectsQuery(source, namespace, names, False, selection.metric_selector), source.info.resource == _PODS


def _key_of(query: MetricQuery, of_pods: bool) -> ForecastKey:
    if isinstance(query, ExternalQuery):
        name = str(query.selector)
    else:
        name = f"pods like {query.names[0]}" if of_pods else query.names[0]
    return ForecastKey(query.source.rule.key, query.source.metric, namespace_of(query), name)
