"""Serve the forecast of a metric's values: their sum becomes what is expected, and each value its share of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from adapter.content.values import ExternalMetricValue, MetricValue
from adapter.forecasts.registry import Forecast, ForecastKey, Forecasts
from adapter.planning.history import HistoryReader, namespace_of
from adapter.planning.metric_queries import MetricQuery
from adapter.prometheus import PrometheusServers

_V = TypeVar("_V", MetricValue, ExternalMetricValue)


def new_forecast(prometheus: PrometheusServers, query: MetricQuery, *, of: str, of_pods: bool = False) -> Forecast:
    """Return a forecast of what a request gets, without a history or a model.

    Args:
        prometheus: has the history.
        query: the request.
        of: the object or the selector, as text.
        of_pods: it is for all pods of their workloads.
    """
    source, rule = query.source, query.source.rule
    assert rule.forecast is not None, "the source is a forecast"
    return Forecast(
        key=ForecastKey(rule.key, source.metric, namespace_of(query), of),
        definition=rule,
        options=rule.forecast.options,
        read=HistoryReader(prometheus, query, of_pods, query.namespace).read,
        owner=query.namespace,
    )


@dataclass(frozen=True, slots=True)
class ForecastValues:
    """Replaces values by forecasts.

    Attributes:
        forecasts: the forecasts.
        prometheus: has the history.
    """

    forecasts: Forecasts
    prometheus: PrometheusServers

    def apply(self, query: MetricQuery, values: list[_V], *, of: str, of_pods: bool = False) -> list[_V]:
        """Return the values to serve; the plain ones on any doubt.

        An HPA takes the sum of external values, and of pods' values the average: in both cases, the same factor for all
        values makes that of the expected sum. For `of` and `of_pods` see `new_forecast`.
        """
        total = sum(value.milli for value in values)
        if min(value.milli for value in values) < 0:
            return values
        served = self.forecasts.serve(new_forecast(self.prometheus, query, of=of, of_pods=of_pods), total / 1000)
        # Nothing grows from 0, but the model needs to know that the load is 0.
        if not total or served * 1000 <= total:
            return values
        factor = served * 1000 / total
        return [replace(value, milli=max(round(value.milli * factor), value.milli), encoded=b"") for value in values]
