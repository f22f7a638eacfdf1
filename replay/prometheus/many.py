"""The loads of many HPAs, read at the same time by a few threads. What fails for one HPA does not stop the others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final, TypeVar

from adapter.prometheus import Destination
from kube.process.runtime import run
from replay.hpa_files import HPAFile
from replay.load import Load, ReplayError
from replay.prometheus.cache import ChunkCache
from replay.prometheus.default_rules import complete_rules
from replay.prometheus.ranges import RangeQuery
from replay.prometheus.source import (
    RECENT_SECONDS,
    PrometheusSettings,
    Source,
    check_range,
    close_cache,
    find_source,
    open_clients,
    plan,
)

_T = TypeVar("_T")

_READERS: Final = 6
"""So many queries are sent at the same time."""


def read_loads(
    files: Sequence[HPAFile], settings: PrometheusSettings
) -> Generator[tuple[int, Load | ReplayError], None, None]:
    """Yield the index and the load of each HPA, or why it cannot be read, whichever is read first.

    The series of the rules are listed once for all, in the last hour of the range.

    Raises:
        ReplayError: the range is wrong, or Prometheus cannot be used at all.
    """
    with open_clients(settings) as client:
        check_range(client(Destination()), settings)
    cache = ChunkCache(settings.cache)
    pool = ThreadPoolExecutor(_READERS)
    try:
        # These call msgspec, which is not safe in threads when it sees a type first.
        unusable = [_or_error(functools.partial(_check_rules, file, settings)) for file in files]
        found = list(pool.map(lambda file, error: error or _source(file, settings), files, unusable))
        sources = {index: source for index, source in enumerate(found) if isinstance(source, Source)}
        plans: dict[int, Mapping[str, RangeQuery] | ReplayError] = {}
        if sources:
            recent = [min(RECENT_SECONDS, settings.seconds)]
            with open_clients(settings) as client:
                planned = run(plan(list(sources.values()), settings, client(Destination()), ranges=recent))
            plans = dict(zip(sources, planned, strict=True))
        futures = {}
        for index, source in enumerate(found):
            queries = plans.get(index)
            if isinstance(source, ReplayError):
                yield index, source
            elif isinstance(queries, ReplayError):
                yield index, queries
            elif queries is not None:
                futures[pool.submit(_load, source, queries, cache)] = index
        for future in as_completed(futures):
            yield futures[future], future.result()
        close_cache(cache)
    finally:
        pool.shutdown(cancel_futures=True)


def _check_rules(file: HPAFile, settings: PrometheusSettings) -> None:
    """Raise ReplayError if the rules cannot be completed for the metrics of an HPA."""
    complete_rules(settings.rules, [spec.source for spec in file.hpa.spec.metrics])


def _source(file: HPAFile, settings: PrometheusSettings) -> Source | ReplayError:
    settings = dataclasses.replace(settings, requests=file.requests or {})

    def read() -> Source:
        with open_clients(settings) as client:
            return find_source([file.hpa], settings, client)

    return _or_error(read)


def _load(source: Source, queries: Mapping[str, RangeQuery], cache: ChunkCache) -> Load | ReplayError:
    def read() -> Load:
        with open_clients(source.settings) as client:
            return dataclasses.replace(source, client=client).load(queries, cache)

    return _or_error(read)


def _or_error(read: Callable[[], _T]) -> _T | ReplayError:
    try:
        return read()
    except ReplayError as error:
        return error
