"""Serve the forecast of a metric's values: their sum becomes what is expected, and each value its share of that."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from adapter.content.values import ExternalMetricValue, MetricValue
from adapter.forecasts.registry import ForecastKey, Forecasts
from adapter.planning.history import namespace_of, read_history
from adapter.planning.metric_queries import MetricQuery
from adapter.prometheus import PrometheusServers

_V = TypeVar("_V", MetricValue, ExternalMetricValue)


def forecast_key(query: MetricQuery, of: str) -> ForecastKey:
    """Return the key of the forecast of what a request gets; `of` is the object or the selector, as text."""
    return ForecastKey(query.source.rule.key, query.source.metric, namespace_of(query), of)


@dataclass(frozen=True, slots=True)
class ForecastValues:
    """Replaces values by forecasts."""

    forecasts: Forecasts
    """The forecasts."""
    prometheus: PrometheusServers
    """Has the history."""

    def apply(self, query: MetricQuery, values: list[_V], *, of: str, of_pods: bool = False) -> list[_V]:
        """Return the values to serve; the plain ones on any doubt.

        An HPA takes the sum of external values, and of pods' values the average: in both cases, the same factor for all
        values makes that of the expected sum.

        Args:
            query: the request.
            values: what it gets without a forecast.
            of: the object or the selector, as text.
            of_pods: it is for all pods of their workloads.
        """
        total = sum(value.milli for value in values)
        if min(value.milli for value in values) < 0:
            return values
        rule = query.source.rule
        assert rule.forecast is not None, "the source is a forecast"
        served = self.forecasts.serve(
            forecast_key(query, of),
            total / 1000,
            definition=rule,
            options=rule.forecast.options,
            read=functools.partial(read_history, self.prometheus, query, of_pods=of_pods),
            owner=query.namespace,
        )
        # Nothing grows from 0, but the model needs to know that the load is 0.
        if not total or served * 1000 <= total:
            return values
        factor = served * 1000 / total
        return [replace(value, milli=max(round(value.milli * factor), value.milli), encoded=b"") for value in values]
