"""The forecast of a metric, made once of its history: for the command `forecast`, and for `explain`."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, Source
from adapter.diagnosis.probe import Probe, Selection
from adapter.forecasts.registry import Forecast, Forecasts
from adapter.metrics.forecasts import forecast_key
from adapter.planning.history import read_history
from adapter.planning.metric_queries import ExternalQuery, ObjectsQuery
from adapter.prometheus import PrometheusServers
from kube.api.mapping import GroupResource

if TYPE_CHECKING:
    from adapter.forecasts.gate import Judgement
    from adapter.forecasts.live import Hour

_PODS = GroupResource("", "pods")


class NoForecastError(Exception):
    """There is no forecast; the message says why."""


class ForecastReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The forecast of a metric, as `-o json` prints it."""

    metric: str
    rule: str
    of: str
    timezone: str
    """That of the times."""
    sentence: str = ""
    """What is expected now, and why; "" if nothing is."""
    reason: str = ""
    """Why nothing is expected; "" if something is."""
    gate: Judgement | None = None
    """None: there is no model."""
    hours: tuple[Hour, ...] = ()
    """The next 24 hours."""


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


async def forecast_sentences(
    probe: Probe, prometheus: PrometheusServers, source: Source, selection: Selection
) -> tuple[str, ...]:
    """Return what is expected now, and why; or why nothing is."""
    forecast = await _forecast(probe, prometheus, source, selection, time.time())
    return (f"no forecast: {forecast}" if isinstance(forecast, str) else forecast.sentence,)


async def forecast_report(
    probe: Probe, prometheus: PrometheusServers, source: Source, selection: Selection
) -> ForecastReport:
    """Return the forecast of a metric; without a name in `selection`, of an object that has a series now."""
    assert source.rule.forecast is not None, "see forecast_source"
    now, timezone = time.time(), source.rule.forecast.options.timezone
    forecast = await _forecast(probe, prometheus, source, selection, now)
    if isinstance(forecast, str):
        return ForecastReport(metric=source.metric, rule=source.rule.key, of="", timezone=timezone, reason=forecast)
    expected = forecast.expectation
    return ForecastReport(
        metric=source.metric,
        rule=source.rule.key,
        of=str(forecast.key),
        timezone=timezone,
        sentence=expected.sentence if expected is not None else "",
        reason=forecast.reason if expected is None else "",
        gate=forecast.judgement,
        hours=await asyncio.to_thread(forecast.live.next_day, now) if forecast.live is not None else (),
    )


async def _forecast(
    probe: Probe, prometheus: PrometheusServers, source: Source, selection: Selection, now: float
) -> Forecast | str:
    """Return a forecast with its state and what it expects now, or why there is none. Of pods it is their workload's.

    The fit takes seconds, after which the history has no value of the present minute any more.
    """
    example = await probe.example(source, selection)
    if not example.values:
        return "; ".join(example.reasons)
    query: ExternalQuery | ObjectsQuery
    of_pods = isinstance(source, CustomSource) and source.info.resource == _PODS
    if isinstance(source, CustomSource):
        namespace = example.of.partition("/")[0] if source.info.namespaced else ""
        names = [value.of.rpartition("/")[2] for value in example.values]
        of = f"pods like {names[0]}" if of_pods else names[0]
        query = ObjectsQuery(source, namespace, names, False, selection.metric_selector)
    else:
        of = str(selection.metric_selector)
        query = ExternalQuery(source, example.of, selection.metric_selector)
    rule = source.rule
    assert rule.forecast is not None, "the source is a forecast"
    read = functools.partial(read_history, prometheus, query, of_pods=of_pods)
    forecast = Forecast(forecast_key(query, of), rule, rule.forecast.options, read, query.namespace)
    await Forecasts(clock=lambda: now).refresh(forecast)
    forecast.state, forecast.reason = forecast.expect(now)
    return forecast
