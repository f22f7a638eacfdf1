"""The load of some HPAs from Prometheus."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeVar

import click
from promql_parser import Call

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.commands.builtin_resources import builtin_resources
from adapter.diagnosis.probe import Probe
from adapter.forecasts.options import ForecastOptions
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusConfigError,
    PrometheusOptions,
    PrometheusServers,
)
from adapter.promql import PromqlError, matchers, parse, selectors, walk
from adapter.rules import RulesFile
from autoscaler.core.model import HPA, MetricSource, PodsMetric, ResourceMetric
from autoscaler.core.status import rfc3339
from kube.api.client import KubeClient, KubeError
from kube.api.mapping import ResourceInfo, ResourceLookup, RestMapper
from kube.api.status import StatusError
from kube.process.runtime import run
from kube.values.durations import format_duration
from kube.values.selectors import LabelSelector
from replay.hpa_files import HPAFile
from replay.load import Load, ReplayError, Series, check_length, check_not_counter, metric_key, metric_name
from replay.prometheus.client import MAX_BYTES, RangeClient, RefusedError, Result, TooLargeError, shown
from replay.prometheus.ranges import ChunkCache, RangeQuery, RangeReader, chunks, default_folder, progress
from replay.prometheus.rules import RuleQueries, complete_rules
from replay.prometheus.workload import (
    pods_pattern,
    replica_sets_query,
    replicas_query,
    requests_of,
    requests_query,
    startup_of,
    startup_query,
)

_T = TypeVar("_T")

_MINUTE_MS: Final = 60_000
_CLOCK_SKEW_SECONDS: Final = 30.0
_RECENT_SECONDS: Final = 3600.0
_READERS: Final = 6
"""So many HPAs' queries are sent at the same time."""
_STARTUP_SECONDS: Final = 24 * 3600
"""Before the end of the range, in which pods that were created show how long they took; also if it is shorter."""
_RATES: Final = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """Where and how to read the load."""

    options: PrometheusOptions
    rules: RulesFile | None = None
    """The adapter's rules; None: series have the names of the metrics."""
    start_ms: int
    """The time of the first reconciliation, before `offset_ms`; rounded down to a multiple of the step."""
    end_ms: int
    """After the last one."""
    step_ms: int = 15_000
    """The time between two reconciliations."""
    offset_ms: int = 0
    """Their phase."""
    pods: str | None = None
    """A regular expression of the names of the target's pods; None: by the kind and name of the target."""
    forecasts: Mapping[str, ForecastOptions] | None = None
    """{`metric_key`: options} of metrics whose history is read, too. So is that of metrics whose rules have a forecast;
    None: no history is."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """{resource or CONTAINER/RESOURCE: milli-values} where known; else Prometheus has them."""
    cache: Path | None = None
    """The folder of cached chunks; None: `default_folder`."""
    connect: Callable[[], contextlib.AbstractAsyncContextManager[KubeClient]] | None = None
    """Returns a connection to the cluster, which knows kinds that are not Kubernetes' own; None: no cluster."""
    show_progress: bool = False
    """Whether stderr is a terminal."""
    query_seconds: float = 120.0
    """The time for one query with all its retries."""
    response_bytes: int = MAX_BYTES
    clock: Callable[[], float] = time.time
    """Returns the seconds since the epoch."""

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
    with PrometheusReader(settings) as reader:
        reader.check_range()
        target = reader.target(hpas, settings.requests)
        # Lists of all series in a long range are large, and the series at its end usually suffice.
        ranges = sorted({min(settings.seconds, _RECENT_SECONDS), settings.seconds})
        [queries] = run(reader.plan([target], ranges=ranges))
        if isinstance(queries, ReplayError):
            raise queries
        return reader.load(target, queries)


def read_loads(
    files: Sequence[HPAFile], settings: PrometheusSettings
) -> Generator[tuple[int, Load | ReplayError], None, None]:
    """Yield the index and the load of each HPA, or why it cannot be read, whichever is read first, by a few threads.

    The series of the rules are listed once for all, in the last hour of the range.

    Raises:
        ReplayError: the range is wrong, or Prometheus cannot be used at all.
    """
    with PrometheusReader(settings) as reader:
        reader.check_range()
        pool = ThreadPoolExecutor(_READERS)

        def target(file: HPAFile) -> Target:
            return reader.target([file.hpa], file.requests or {})

        try:
            # This calls msgspec, which is not safe in threads when it sees a type first.
            metrics = [[spec.source for spec in file.hpa.spec.metrics] for file in files]
            unusable = [_or_error(complete_rules, settings.rules, each) for each in metrics]
            wrong = {index: each for index, each in enumerate(unusable) if isinstance(each, ReplayError)}
            good = [index for index in range(len(files)) if index not in wrong]
            found = zip(good, pool.map(lambda index: _or_error(target, files[index]), good), strict=True)
            targets: dict[int, Target] = {}
            for index, each in (*wrong.items(), *found):
                if isinstance(each, Target):
                    targets[index] = each
                else:
                    yield index, each
            planned = run(reader.plan(list(targets.values()), ranges=[min(_RECENT_SECONDS, settings.seconds)]))
            futures = {}
            for index, queries in zip(targets, planned, strict=True):
                if isinstance(queries, ReplayError):
                    yield index, queries
                else:
                    futures[pool.submit(_or_error, reader.load, targets[index], queries)] = index
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _or_error(call: Callable[..., _T], *arguments: object) -> _T | ReplayError:
    try:
        return call(*arguments)
    except ReplayError as error:
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A scale target whose load is read."""

    hpa: HPA
    metrics: Mapping[str, MetricSource]
    """The metrics of all of its HPAs, by `metric_key`."""
    pods: str
    """A regular expression of the names of the target's pods."""
    requests: Mapping[str, int]
    """What they request, where it is known; see PrometheusSettings."""


class PrometheusReader:
    """Reads the loads of targets. Use as a context manager. Each thread has connections of its own, until the end."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._cache = ChunkCache(settings.cache or default_folder())
        self._opened = contextlib.ExitStack()
        self._of_thread = threading.local()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self._cache.prune()
        if self._cache.problem:
            why = f"responses are not cached, because {self._cache.problem}"
            click.echo(f"note: {why}: give another --cache-dir", err=True)

    def _client(self, destination: Destination = DEFAULT_DESTINATION) -> RangeClient:
        settings, clients = self._settings, self._of_thread.__dict__.setdefault("clients", {})
        if destination not in clients:
            options = destination.server or settings.options
            client = RangeClient(
                options, destination, seconds=settings.query_seconds, max_bytes=settings.response_bytes
            )
            clients[destination] = self._opened.enter_context(client)
        found: RangeClient = clients[destination]
        return found

    def check_range(self) -> None:
        """Check that the range is not empty, nor too long, and in the past, also by the server's clock.

        Raises:
            ReplayError: it is not, or the server does not respond.
        """
        settings = self._settings
        if not settings.times:
            raise ReplayError("the range is empty; give a --from that is before --to")
        now, end = settings.clock(), settings.end_ms / 1000
        if end > now + _CLOCK_SKEW_SECONDS:
            raise ReplayError(
                f"the range ends in the future, at {rfc3339(settings.end_ms)}; give a --to that is not after now"
            )
        behind = end - self._client().server_time()
        if behind > _CLOCK_SKEW_SECONDS:
            raise ReplayError(
                f"the range ends {format_duration(round(behind))} after the time of Prometheus' clock; correct the"
                " clocks, or give an earlier --to"
            )
        check_length(settings.times.start, settings.end_ms, settings.step_ms)

    def target(self, hpas: Sequence[HPA], requests: Mapping[str, int]) -> Target:
        """Return the target of HPAs, with the pods of its ReplicaSets where these are recorded. Raises ReplayError."""
        hpa, pods = hpas[0], self._settings.pods
        if pods is None:
            query = replica_sets_query(hpa, range_seconds=math.ceil(self._settings.seconds))
            pods = pods_pattern(hpa, self._recorded(query))
        metrics = {metric_key(spec.source): spec.source for each in hpas for spec in each.spec.metrics}
        return Target(hpa=hpa, metrics=metrics, pods=pods, requests=requests)

    async def plan(
        self, targets: Sequence[Target], *, ranges: Sequence[float]
    ) -> list[Mapping[str, RangeQuery] | ReplayError]:
        """Return the queries of each target, by the keys of its metrics, or why there are none.

        The series of all rules are listed once for all targets: in the first of `ranges`, which are the last seconds of
        the settings' range, and in the next one for targets that lack a metric then.

        Raises:
            ReplayError: Prometheus or the API server cannot be used.
        """
        settings = self._settings
        found: dict[int, Mapping[str, RangeQuery] | ReplayError] = {}
        rules = complete_rules(settings.rules, [metric for target in targets for metric in target.metrics.values()])
        end, series_names = settings.end_ms / 1000, functools.cache(self._client().metric_names)
        try:
            async with contextlib.AsyncExitStack() as stack:
                servers = await stack.enter_async_context(PrometheusServers(settings.options))
                lookup: ResourceLookup = builtin_resources()
                if settings.connect is not None:
                    lookup = RestMapper(await stack.enter_async_context(settings.connect()))
                for seconds in ranges:
                    missing = [index for index in range(len(targets)) if not isinstance(found.get(index), Mapping)]
                    if not missing:
                        break
                    catalog = Catalog(rules, Listings(servers, lookup, max_age=seconds, clock=lambda: end), lookup)
                    await catalog.relist()
                    for index in missing:
                        queries = RuleQueries(
                            catalog=catalog,
                            lookup=lookup,
                            probe=Probe(catalog, servers, _NoObjects(), lookup),
                            series_names=series_names if settings.rules is None else None,
                            pods=targets[index].pods,
                            between=settings.between,
                        )
                        try:
                            hpa, metrics = targets[index].hpa, targets[index].metrics.items()
                            found[index] = {key: await queries.query(hpa, metric) for key, metric in metrics}
                        except ReplayError as error:
                            found[index] = error
        except PrometheusConfigError as error:
            raise ReplayError(str(error)) from error
        except (KubeError, StatusError) as error:
            raise ReplayError(f"the API server does not list its resources: {error}; check --kubeconfig") from error
        return [found[index] for index in range(len(targets))]

    def load(self, target: Target, queries: Mapping[str, RangeQuery]) -> Load:
        """Read the values of queries, and the real replicas."""
        settings, times = self._settings, self._settings.times
        reality = [query for ready in (False, True) if (query := replicas_query(target.hpa, ready=ready)).query]
        wanted: dict[str, ForecastOptions] = {}
        if settings.forecasts is not None:
            wanted = {key: query.forecast for key, query in queries.items() if query.forecast is not None}
            wanted.update(settings.forecasts)
        histories = {key: _history(times, options) for key, options in wanted.items()}
        total = (len(queries) + len(reality)) * len(chunks(times))
        total += sum(len(chunks(each)) for each in histories.values())
        with progress(total, shown_on_terminal=settings.show_progress) as advance:
            reader = RangeReader(
                client=self._client,
                cache=self._cache,
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
            pods = target.pods if isinstance(target.metrics[key], PodsMetric | ResourceMetric) else ""
            _check_values(query, values[key], settings, self._client(query.destination).is_counter, pods=pods)
        return Load(
            start_ms=times.start - settings.offset_ms,
            end_ms=settings.end_ms,
            series=values,
            forecast_options=wanted,
            requests=self._requests(target),
            replicas=replicas[0],
            ready_replicas=replicas[1] if len(replicas) > 1 else None,
            startup=startup_of(self._recorded(startup_query(target.hpa, target.pods, range_seconds=_STARTUP_SECONDS))),
        )

    def _recorded(self, query: str) -> Result:
        """Return the result of a query that replays can do without; nothing if the server refuses it."""
        with contextlib.suppress(RefusedError, TooLargeError):
            return self._client().instant(query, time_ms=self._settings.end_ms)
        return []

    def _requests(self, target: Target) -> dict[str, int]:
        """Return what the target's pods request, if a metric is of a resource."""
        needed = {metric_name(metric) for metric in target.metrics.values() if isinstance(metric, ResourceMetric)}
        if needed <= target.requests.keys():
            return dict(target.requests)
        query = requests_query(target.hpa, target.pods, range_seconds=math.ceil(self._settings.seconds))
        result = self._client().instant(query, time_ms=self._settings.end_ms)
        return {**requests_of(result), **target.requests}


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


def _check_values(
    query: RangeQuery, series: Series, settings: PrometheusSettings, is_counter: Callable[[str], bool], *, pods: str
) -> None:
    """Raise ReplayError if there is no value at all, or they are those of a counter. Only `pods` count, if not ""."""
    if not _has_values(series):
        of_pods, give = (f" of pods that match {shown(pods)}", "--pods, ") if pods else ("", "")
        raise ReplayError(
            f"{query.name} has no value{of_pods} {settings.between}; give {give}another --from and --to, or check the"
            f" query: {shown(query.rule_query)}"
        )
    check_not_counter(_counter_name(query), series, is_counter=is_counter)


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
