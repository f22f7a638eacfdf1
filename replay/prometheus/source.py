"""The load of some HPAs from Prometheus."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import click
from promql_parser import Call

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.commands.builtin_resources import builtin_resources
from adapter.diagnosis.probe import Probe
from adapter.forecasts.options import ForecastOptions
from adapter.prometheus import Destination, PrometheusConfigError, PrometheusOptions, PrometheusServers
from adapter.promql import PromqlError, matchers, parse, selectors, walk
from adapter.rules import RulesFile
from autoscaler.core.model import HPA, MetricSource, ResourceMetric
from autoscaler.core.status import rfc3339
from kube.api.client import KubeClient, KubeError
from kube.api.mapping import ResourceInfo, ResourceLookup, RestMapper
from kube.api.status import StatusError
from kube.process.runtime import run
from kube.values.durations import format_duration
from kube.values.selectors import LabelSelector
from replay.load import Load, ReplayError, Series, check_length, check_not_counter, metric_key, metric_name
from replay.prometheus.cache import ChunkCache, default_folder
from replay.prometheus.client import MAX_BYTES, RangeClient, Result
from replay.prometheus.default_rules import complete_rules
from replay.prometheus.errors import RefusedError, TooLargeError, shown
from replay.prometheus.ranges import RangeQuery, RangeReader, chunks, progress
from replay.prometheus.rules import RuleQueries
from replay.prometheus.workload import (
    pods_pattern,
    replica_sets_query,
    replicas_query,
    requests_of,
    requests_query,
    startup_of,
    startup_query,
)

_MINUTE_MS: Final = 60_000
_CLOCK_SKEW_SECONDS: Final = 30.0
RECENT_SECONDS: Final = 3600.0
_STARTUP_SECONDS: Final = 24 * 3600
_RATES: Final = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})


Clients: TypeAlias = Callable[[Destination], RangeClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """Where and how to read the load.

    Attributes:
        options: the server, with its credentials.
        rules: the adapter's rules; None: series have the names of the metrics.
        start_ms: the time of the first reconciliation, before `offset_ms`; rounded down to a multiple of the step.
        end_ms: after the last one.
        step_ms: the time between two reconciliations.
        offset_ms: their phase.
        pods: a regular expression of the names of the target's pods; None: by the kind and name of the target.
        forecasts: {`metric_key`: options} of metrics whose history is read, too. So is that of metrics whose rules have
            a forecast; None: no history is.
        requests: {resource or CONTAINER/RESOURCE: milli-values} where known; else Prometheus has them.
        cache: the folder of cached chunks.
        connect: returns a connection to the cluster, which knows kinds that are not Kubernetes' own; None: no cluster.
        show_progress: whether stderr is a terminal.
        query_seconds: the time for one query with all its retries.
        response_bytes: the limit of the size of a response.
        clock: returns the seconds since the epoch.
    """

    options: PrometheusOptions
    rules: RulesFile | None = None
    start_ms: int
    end_ms: int
    step_ms: int = 15_000
    offset_ms: int = 0
    pods: str | None = None
    forecasts: Mapping[str, ForecastOptions] | None = None
    requests: Mapping[str, int] = field(default_factory=dict)
    cache: Path = field(default_factory=default_folder)
    connect: Callable[[], contextlib.AbstractAsyncContextManager[KubeClient]] | None = None
    show_progress: bool = False
    query_seconds: float = 120.0
    response_bytes: int = MAX_BYTES
    clock: Callable[[], float] = time.time

    @property
    def seconds(self) -> float:
        """The length of the range."""
        return (self.end_ms - self.start_ms) / 1000

    @property
    def between(self) -> str:
        """The range for errors."""
        return f"between {rfc3339(self.start_ms)} and {rfc3339(self.end_ms)}"

    @property
    def times(self) -> range:
        """The times of the reconciliations. With the same step they are the same in each replay, as the cache needs."""
        first = self.start_ms // self.step_ms * self.step_ms + self.offset_ms
        return range(first, self.end_ms, self.step_ms)


def read_prometheus(hpas: Sequence[HPA], settings: PrometheusSettings) -> Load:
    """Return the load of HPAs of the same target.

    Raises:
        ReplayError: a metric is missing or cannot be read, or the range is wrong.
    """
    with open_clients(settings) as client:
        check_range(client(Destination()), settings)
        source = find_source(hpas, settings, client)
        # Lists of all series in a long range are large, and the series at its end usually suffice.
        ranges = sorted({min(settings.seconds, RECENT_SECONDS), settings.seconds})
        [queries] = run(plan([source], settings, client(Destination()), ranges=ranges))
        if isinstance(queries, ReplayError):
            raise queries
        cache = ChunkCache(settings.cache)
        load = source.load(queries, cache)
        close_cache(cache)
        return load


def find_source(hpas: Sequence[HPA], settings: PrometheusSettings, client: Clients) -> Source:
    """Return the source of the load of HPAs of the same target. Raises ReplayError."""
    return Source(
        hpa=hpas[0],
        metrics={metric_key(spec.source): spec.source for each in hpas for spec in each.spec.metrics},
        pods=settings.pods or _pods(hpas[0], settings, client(Destination())),
        settings=settings,
        client=client,
    )


def _pods(hpa: HPA, settings: PrometheusSettings, client: RangeClient) -> str:
    """Return a regular expression of the names of the target's pods, of its ReplicaSets where they are recorded."""
    query = replica_sets_query(hpa, range_seconds=math.ceil(settings.seconds))
    return pods_pattern(hpa, _recorded(query, settings, client))


def _recorded(query: str, settings: PrometheusSettings, client: RangeClient) -> Result:
    """Return the result of a query that replays can do without; nothing if the server refuses it."""
    with contextlib.suppress(RefusedError, TooLargeError):
        return client.instant(query, time_ms=settings.end_ms)
    return []


@contextlib.contextmanager
def open_clients(settings: PrometheusSettings) -> Iterator[Clients]:
    """Yield a function that returns the client for a destination. They are for one thread."""
    opened: dict[Destination, RangeClient] = {}
    with contextlib.ExitStack() as stack:

        def client(destination: Destination) -> RangeClient:
            if destination not in opened:
                options = destination.server or settings.options
                client = RangeClient(
                    options, destination, seconds=settings.query_seconds, max_bytes=settings.response_bytes
                )
                opened[destination] = stack.enter_context(client)
            return opened[destination]

        yield client


def check_range(client: RangeClient, settings: PrometheusSettings) -> None:
    """Check that the range is not empty, nor too long, and in the past, also by the server's clock.

    Raises:
        ReplayError: it is not, or the server does not respond.
    """
    if not settings.times:
        raise ReplayError("the range is empty; give a --from that is before --to")
    now, end = settings.clock(), settings.end_ms / 1000
    if end > now + _CLOCK_SKEW_SECONDS:
        raise ReplayError(
            f"the range ends in the future, at {rfc3339(settings.end_ms)}; give a --to that is not after now"
        )
    behind = end - client.server_time()
    if behind > _CLOCK_SKEW_SECONDS:
        raise ReplayError(
            f"the range ends {format_duration(round(behind))} after the time of Prometheus' clock; correct the clocks,"
            " or give an earlier --to"
        )
    check_length(settings.times.start, settings.end_ms, settings.step_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The load of one target.

    Attributes:
        hpa: an HPA of the target.
        metrics: the metrics of all of its HPAs, by `metric_key`.
        pods: a regular expression of the names of the target's pods.
        settings: where to read from.
        client: returns the client for a destination.
    """

    hpa: HPA
    metrics: Mapping[str, MetricSource]
    pods: str
    settings: PrometheusSettings
    client: Clients

    def load(self, queries: Mapping[str, RangeQuery], cache: ChunkCache) -> Load:
        """Read the values of queries, and the real replicas."""
        settings, times = self.settings, self.settings.times
        reality = [query for ready in (False, True) if (query := replicas_query(self.hpa, ready=ready)).query]
        wanted: dict[str, ForecastOptions] = {}
        if settings.forecasts is not None:
            wanted = {key: query.forecast for key, query in queries.items() if query.forecast is not None}
            wanted.update(settings.forecasts)
        histories = {key: _history(times, options) for key, options in wanted.items()}
        total = (len(queries) + len(reality)) * len(chunks(times))
        total += sum(len(chunks(each)) for each in histories.values())
        with progress(total, shown_on_terminal=settings.show_progress) as advance:
            reader = RangeReader(
                self.client,
                cache=cache,
                cache_key=lambda destination: _cache_key(destination, settings.options),
                now_ms=round(settings.clock() * 1000),
                on_chunk=advance,
            )
            times_ms = array("q", times)

            def series(query: RangeQuery, history: range = range(0)) -> Series:
                before = reader.read(query, history) if history else array("d")
                values = before + reader.read(query, times)
                return Series(times_ms=array("q", history) + times_ms, values=values, hold_ms=settings.step_ms)

            values = {key: series(query, histories.get(key, range(0))) for key, query in queries.items()}
            replicas = [found if _has_values(found) else None for found in map(series, reality)]
        for key, query in queries.items():
            _check_values(query, values[key], settings, self.client(query.destination))
        startup_seconds = min(math.ceil(settings.seconds), _STARTUP_SECONDS)
        query_of_startup = startup_query(self.hpa, self.pods, range_seconds=startup_seconds)
        return Load(
            start_ms=times.start - settings.offset_ms,
            end_ms=settings.end_ms,
            series=values,
            forecast_options=wanted,
            requests=self._requests(),
            replicas=replicas[0],
            ready_replicas=replicas[1] if len(replicas) > 1 else None,
            startup=startup_of(_recorded(query_of_startup, settings, self.client(Destination()))),
        )

    def _requests(self) -> dict[str, int]:
        """Return what the target's pods request, if a metric is of a resource."""
        given = self.settings.requests
        needed = {metric_name(metric) for metric in self.metrics.values() if isinstance(metric, ResourceMetric)}
        if needed <= given.keys():
            return dict(given)
        query = requests_query(self.hpa, self.pods, range_seconds=math.ceil(self.settings.seconds))
        result = self.client(Destination()).instant(query, time_ms=self.settings.end_ms)
        return {**requests_of(result), **given}


async def plan(
    sources: Sequence[Source], settings: PrometheusSettings, client: RangeClient, *, ranges: Sequence[float]
) -> list[Mapping[str, RangeQuery] | ReplayError]:
    """Return the queries of each source, by the keys of its metrics, or why there are none.

    The series of all rules are listed once for all sources: in the first of `ranges`, which are the last seconds of the
    settings' range, and in the next one for sources that lack a metric then.

    Raises:
        ReplayError: Prometheus or the API server cannot be used.
    """
    found: dict[int, Mapping[str, RangeQuery] | ReplayError] = {}
    rules = complete_rules(settings.rules, [metric for source in sources for metric in source.metrics.values()])
    end = settings.end_ms / 1000
    try:
        async with contextlib.AsyncExitStack() as stack:
            servers = await stack.enter_async_context(PrometheusServers(settings.options))
            lookup: ResourceLookup = builtin_resources()
            if settings.connect is not None:
                lookup = RestMapper(await stack.enter_async_context(settings.connect()))
            for seconds in ranges:
                missing = [index for index in range(len(sources)) if not isinstance(found.get(index), Mapping)]
                if not missing:
                    break
                catalog = Catalog(rules, Listings(servers, lookup, max_age=seconds, clock=lambda: end), lookup)
                await catalog.relist()
                for index in missing:
                    queries = RuleQueries(
                        catalog=catalog,
                        lookup=lookup,
                        probe=Probe(catalog, servers, _NoObjects(), lookup),
                        series_names=functools.cache(client.metric_names) if settings.rules is None else None,
                        pods=sources[index].pods,
                        between=settings.between,
                    )
                    found[index] = await _queries(sources[index], queries)
    except PrometheusConfigError as error:
        raise ReplayError(str(error)) from error
    except (KubeError, StatusError) as error:
        raise ReplayError(f"the API server does not list its resources: {error}; check --kubeconfig") from error
    return [found[index] for index in range(len(sources))]


async def _queries(source: Source, queries: RuleQueries) -> Mapping[str, RangeQuery] | ReplayError:
    try:
        return {key: await queries.query(source.hpa, metric) for key, metric in source.metrics.items()}
    except ReplayError as error:
        return error


def close_cache(cache: ChunkCache) -> None:
    """Remove the oldest chunks beyond the cache's limit, and print a note if it could not be written."""
    cache.prune()
    if cache.problem:
        click.echo(f"note: responses are not cached, because {cache.problem}: give another --cache-dir", err=True)


class _NoObjects:
    """Finds no objects: a replay selects pods by the names that they had."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Return no names."""
        del info, namespace, selector
        return []


def _history(times: range, options: ForecastOptions) -> range:
    """Return the minutes before the first of some times that a forecast learns from."""
    first = times.start // _MINUTE_MS * _MINUTE_MS
    return range(first - round(options.history) * 1000 // _MINUTE_MS * _MINUTE_MS, times.start, _MINUTE_MS)


def _cache_key(destination: Destination, default: PrometheusOptions) -> tuple[object, ...]:
    """Return a key for a server and its tenant, if any. It excludes credentials, since they change."""
    options = destination.server or default
    headers = {**dict(options.headers), **dict(destination.headers)}
    others = sorted((name, value) for name, value in headers.items() if name.lower() != "authorization")
    return options.base, others, options.partial_responses


def _check_values(query: RangeQuery, series: Series, settings: PrometheusSettings, client: RangeClient) -> None:
    """Raise ReplayError if there is no value at all, or they are those of a counter."""
    if not _has_values(series):
        raise ReplayError(
            f"{query.name} has no value {settings.between}; give another --from and --to, or check the query:"
            f" {shown(query.rule_query)}"
        )
    name = _counter_name(query)
    if name:
        try:
            check_not_counter(name, series, is_counter=client.metric_type(name) == "counter")
        except ReplayError as error:
            raise ReplayError(
                f"{query.name}: {name} is a counter, which only grows; give a rule that takes its rate with --config,"
                " such as metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
            ) from error


def _has_values(series: Series) -> bool:
    return not all(map(math.isnan, series.values))


def _counter_name(query: RangeQuery) -> str:
    """Return the name of the series whose values a query has; "" if it has several, or takes a rate."""
    try:
        tree = parse(query.query)
    except PromqlError:
        return ""
    if any(isinstance(one, Call) and one.func.name in _RATES for one in walk(tree)):
        return ""
    names = {matcher.value for one in selectors(tree) for matcher in matchers(one) if matcher.name == "__name__"}
    return names.pop() if len(names) == 1 else ""
