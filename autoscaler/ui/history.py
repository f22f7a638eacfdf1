"""The history of an HPA in Prometheus, by kube-state-metrics: replicas, bounds, and metrics with their targets.

Of metrics with a forecast of the adapter's, its own metrics tell what the value would have been without it.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import aiohttp
import msgspec
from cachetools import LRUCache, TTLCache

from autoscaler.core.model import KUBERNETES, HPAKey
from autoscaler.ui.figures import MetricKey, MetricPoint, Point, figure
from kube.aio.http import read_up_to
from kube.aio.tasks import SingleFlight
from kube.values.fields import quote

RANGES: Final[Mapping[str, tuple[str, int]]] = {
    "1h": ("1 h", 3600),
    "6h": ("6 h", 6 * 3600),
    "1d": ("1 d", 24 * 3600),
    "1w": ("1 w", 7 * 24 * 3600),
}
"""{value of the parameter `range`: (its name, its length in seconds)}"""
_POINTS: Final = 240
_TIMEOUT_SECONDS: Final = 10.0
_MAX_BYTES: Final = 2 * 2**20
"""A series of 240 points has 5 KiB."""
_CACHED: Final = 16
_FAILED_SECONDS: Final = 15.0
_CONCURRENT: Final = 2
_MAX_ERROR: Final = 300
_PREFIX: Final = "kube_horizontalpodautoscaler_"
_REPLICAS: Final = ("status_current_replicas", "status_desired_replicas", "spec_min_replicas", "spec_max_replicas")
_METRICS: Final = ("spec_target_metric", "status_target_metric")
_GROWTH: Final = "milliscale_adapter_forecast_growth"
_UNITS: Final = {"utilization": "% of requests", "average": "per pod"}
"""{metric_target_type of kube-state-metrics: the unit}"""

_Labels = tuple[str, str, str]
"""The end of the series' name, metric_name and metric_target_type."""
_Range = tuple[HPAKey, str, int]
"""An HPA, a key of RANGES, and the end, in seconds since the epoch."""
_Values = Mapping[_Labels, Mapping[int, float]]
"""{labels: {Unix time: value}}"""


class HistoryError(Exception):
    """There is no history; the message is a sentence that says why."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    result: list[_Series] = []


class _Response(msgspec.Struct):
    data: _Data = msgspec.field(default_factory=_Data)
    error: str = ""


class PrometheusHistory:
    """Draws the history of HPAs; `url` is that of a Prometheus, `clock` in seconds since the epoch.

    A range of an HPA is queried at most once per point of its charts, for all users together.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._url = f"{url}/api/v1/query_range"
        self._clock = clock
        self._cached: LRUCache[_Range, str] = LRUCache(_CACHED)
        self._failed: TTLCache[_Range, str] = TTLCache(_CACHED, _FAILED_SECONDS)
        self._flights: SingleFlight[_Range, str] = SingleFlight()
        self._running = asyncio.Semaphore(_CONCURRENT)

    async def charts(self, key: HPAKey, name: str) -> str:
        """Return the charts of one of RANGES, as JSON for plotly.js.

        Raises:
            HistoryError: Prometheus cannot be read, or has no series.
        """
        step = RANGES[name][1] // _POINTS
        end = int(self._clock()) // step * step
        of = (key, name, end)
        if (problem := self._failed.get(of)) is not None:
            raise HistoryError(problem)
        if (drawn := self._cached.get(of)) is None:
            try:
                drawn = self._cached[of] = await self._flights.do(of, lambda: self._drawn(key, end, step))
            except HistoryError as error:
                self._failed[of] = str(error)
                raise
        return drawn

    async def _drawn(self, key: HPAKey, end: int, step: int) -> str:
        if key.group != KUBERNETES.group:
            raise HistoryError(f"kube-state-metrics has no series of HPAs of {key.group}")
        selected = f"namespace={quote(key.namespace)},horizontalpodautoscaler={quote(key.name)}"
        query = f'{{__name__=~"{_PREFIX}({"|".join((*_REPLICAS, *_METRICS))})",{selected}}}'
        # The adapter's forecasts, of a metric of the namespace or of one that all have; its replicas' are the same.
        forecasts = f"max by (metric) ({_GROWTH}{{namespace=~{quote(f'{key.namespace}|')}}})"
        times = {"start": str(end - _POINTS * step), "end": str(end), "step": str(step)}
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._running:
                found = await self._result({"query": f"{query} or {forecasts}", **times})
                if all("metric" in each.metric for each in found):
                    raise HistoryError(f"Prometheus has no series of kube-state-metrics about it: {query}")
                return await asyncio.to_thread(_figure_json, found, range(end - _POINTS * step, end + 1, step))
        except TimeoutError:
            raise HistoryError(f"Prometheus did not answer within {_TIMEOUT_SECONDS:g} s") from None
        except (ValueError, OverflowError) as error:
            raise HistoryError(f"the response has a value that is no number: {str(error)[:_MAX_ERROR]}") from error

    async def _result(self, parameters: Mapping[str, str]) -> list[_Series]:
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.post(self._url, data=parameters, allow_redirects=False) as response,
            ):
                content = await read_up_to(response, _MAX_BYTES)
            if len(content) > _MAX_BYTES:
                raise HistoryError(f"Prometheus' response is larger than {_MAX_BYTES >> 20} MiB")
            decoded = msgspec.json.decode(content, type=_Response)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else type(error).__name__
            raise HistoryError(f"Prometheus cannot be reached: {reason}; check --prometheus-url") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise HistoryError(
                f"the response, status {response.status}, is not Prometheus'; check --prometheus-url"
            ) from error
        if response.status != 200:
            raise HistoryError(f"Prometheus answered with status {response.status}: {decoded.error[:_MAX_ERROR]}")
        return decoded.data.result


def _figure_json(series: Iterable[_Series], times: Iterable[int]) -> str:
    values: dict[_Labels, dict[int, float]] = {}
    for each in series:
        of = each.metric
        if "metric" in of:
            values[_GROWTH, of["metric"], ""] = {round(at): float(text) for at, text in each.values}
            continue
        name = of.get("__name__", "").removeprefix(_PREFIX)
        # Several replicas of kube-state-metrics have the same values.
        known = values.setdefault((name, of.get("metric_name", ""), of.get("metric_target_type", "")), {})
        known.update((round(at), number) for at, text in each.values if math.isfinite(number := float(text)))
    return msgspec.json.encode(figure([_point(values, at) for at in times])).decode()


def _point(values: _Values, at: int) -> Point:
    """Return the values of a time; None where there are none."""

    def value(name: str, metric: str = "", unit: str = "") -> float | None:
        return values.get((name, metric, unit), {}).get(at)

    def plain(served: float | None, growth: float | None) -> float | None:
        return None if served is None or not growth else served / growth

    replicas = [value(name) for name in _REPLICAS]
    current, desired, minimum, maximum = (None if each is None else round(each) for each in replicas)
    return Point(
        time_ms=at * 1000,
        current=current,
        desired=desired,
        minimum=minimum,
        maximum=maximum,
        tolerance=None,
        metrics={
            MetricKey(metric, _UNITS.get(unit, "value")): MetricPoint(
                value("status_target_metric", metric, unit),
                value("spec_target_metric", metric, unit),
                plain(value("status_target_metric", metric, unit), value(_GROWTH, metric)),
            )
            for name, metric, unit in values
            if name == "spec_target_metric"
        },
        sentence="",
    )
