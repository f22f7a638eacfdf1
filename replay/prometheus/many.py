"""The loads of many HPAs, read at the same time by a few threads. What fails for one HPA does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final, TypeVar

from kube.process.runtime import run
from replay.hpa_files import HPAFile
from replay.load import Load, ReplayError
from replay.prometheus.rules import complete_rules
from replay.prometheus.source import RECENT_SECONDS, PrometheusReader, PrometheusSettings, Target

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
    with PrometheusReader(settings) as reader:
        reader.check_range()
        pool = ThreadPoolExecutor(_READERS)

        def target(file: HPAFile) -> Target:
            return reader.target([file.hpa], file.requests or {})

        try:
            # These call msgspec, which is not safe in threads when it sees a type first.
            unusable = [_or_error(_check_rules, file, settings) for file in files]
            found = list(pool.map(lambda file, error: error or _or_error(target, file), files, unusable))
            targets = {index: each for index, each in enumerate(found) if isinstance(each, Target)}
            planned = run(reader.plan(list(targets.values()), ranges=[min(RECENT_SECONDS, settings.seconds)]))
            plans, futures = dict(zip(targets, planned, strict=True)), {}
            for index, each in enumerate(found):
                if isinstance(each, ReplayError):
                    yield index, each
                elif isinstance(queries := plans[index], ReplayError):
                    yield index, queries
                else:
                    futures[pool.submit(_or_error, reader.load, each, queries)] = index
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _check_rules(file: HPAFile, settings: PrometheusSettings) -> None:
    """Raise ReplayError if the rules cannot be completed for the metrics of an HPA."""
    complete_rules(settings.rules, [spec.source for spec in file.hpa.spec.metrics])


def _or_error(call: Callable[..., _T], *arguments: object) -> _T | ReplayError:
    try:
        return call(*arguments)
    except ReplayError as error:
        return error
