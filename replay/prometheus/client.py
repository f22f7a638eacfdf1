"""Queries to one Prometheus with prometheus-api-client, each with one deadline for all its retries."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
from prometheus_api_client import PrometheusConnect

from adapter.prometheus import Destination, PrometheusOptions
from adapter.prometheus.results import HISTOGRAMS, MAX_TIMESTAMP
from kube.api.retries import Backoff
from replay.load import ReplayError
from replay.prometheus.session import PrometheusSession, RetriableError

_T = TypeVar("_T")

# With less time left, a retry would end in a timeout that says less than the error before it.
_SHORTEST_SECONDS = 1.0

_Point = tuple[Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMESTAMP)], str]
"""Seconds since the epoch, and the value's text."""


class ResultSeries(msgspec.Struct, kw_only=True):
    """An entry of a query's result: labels, and `values` of a range or the `value` of a time."""

    metric: dict[str, str]
    values: list[_Point] = []
    value: _Point | None = None
    histogram: object = None
    histograms: object = None


Result = list[ResultSeries]


class RangeClient:
    """Queries one Prometheus. Use as a context manager."""

    def __init__(
        self,
        options: PrometheusOptions,
        destination: Destination,
        *,
        seconds: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        backoff: Callable[[], Backoff] = lambda: Backoff(0.5, 10.0, jitter=0.5),
    ) -> None:
        """Send nothing yet.

        Args:
            options: the server.
            destination: headers of a rule, in addition to the server's.
            seconds: the time for one query with all its retries.
            clock: monotonic, in seconds.
            sleep: waits.
            backoff: returns the delays between retries.
        """
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._backoff = backoff
        self._session = PrometheusSession(options, destination, clock=clock)
        self._prometheus = PrometheusConnect(url=options.base, session=self._session)

    def __enter__(self) -> RangeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def server_time(self) -> float:
        """Return the server's clock, in seconds since the epoch.

        Raises:
            ReplayError: the server cannot be reached, or is no Prometheus. It is not retried.
        """
        self._session.deadline = self._clock() + self._seconds

        def time() -> float:
            found = self._prometheus.custom_query("time()")
            if len(found) == 1:  # VictoriaMetrics has no scalars, but vectors of one series without labels
                found = found[0]["value"]
            seconds, _ = msgspec.convert(found, _Point)  # the value is 30 s older in VictoriaMetrics
            return float(seconds)

        return self._checked(time)

    def instant(self, query: str, *, time_ms: int) -> Result:
        """Evaluate a query at a time.

        Raises:
            ReplayError: there is no result.
        """
        parameters = {"time": _seconds(time_ms)}
        return self._result(lambda: self._prometheus.custom_query(query, params=parameters))

    def range(self, query: str, *, start_ms: int, end_ms: int, step_ms: int) -> Result:
        """Evaluate a query at start, start + step, ... up to the end inclusive.

        Raises:
            TooLargeError: a shorter range may work.
            RefusedError: the query is wrong.
            ReplayError: there is no result.
        """
        # The library rounds the times to seconds, so exact ones replace its parameters. The server gives up before us,
        # since it says then that the query is too slow.
        timeout = f"{0.9 * self._seconds:g}s"
        exact = {"start": _seconds(start_ms), "end": _seconds(end_ms), "timeout": timeout}
        start, end = (datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in (start_ms, end_ms))
        return self._result(
            lambda: self._prometheus.custom_query_range(query, start, end, _seconds(step_ms), params=exact)
        )

    def metric_names(self) -> list[str]:
        """Return the names of all series of the server."""
        return self._retried(lambda: msgspec.convert(self._prometheus.get_label_values("__name__"), list[str]))

    def metric_type(self, metric: str) -> str:
        """Return the type of a metric by the metadata of scrapes, such as "counter"; "" if unknown."""

        def type_of() -> str:
            return next((str(entry["type"]) for entry in self._prometheus.get_metric_metadata(metric)), "")

        try:
            return self._retried(type_of)
        except ReplayError:
            return ""  # not all servers have metadata

    def _result(self, send: Callable[[], object]) -> Result:
        found = self._retried(lambda: msgspec.convert(send(), Result))
        if any(one.histogram is not None or one.histograms is not None for one in found):
            raise ReplayError(f"Prometheus' result has {HISTOGRAMS}")
        return found

    def _retried(self, send: Callable[[], _T]) -> _T:
        """Send until there is a response or a final error, or the time is over."""
        self._session.deadline = self._clock() + self._seconds
        backoff = self._backoff()
        while True:
            try:
                return self._checked(send)
            except RetriableError:
                delay = backoff.next()
                if self._clock() + delay + _SHORTEST_SECONDS >= self._session.deadline:
                    raise
                self._sleep(delay)

    def _checked(self, send: Callable[[], _T]) -> _T:
        try:
            return send()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._session.not_prometheus("its response is not that of Prometheus' API") from error


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"
