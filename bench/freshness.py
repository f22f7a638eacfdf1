"""Measure how old samples are when they are served, and the queries that takes: `python -m bench.freshness`.

A real Prometheus scrapes targets every 2, 5, 15, 30 and 60 s. The value of each sample is the time of its scrape, so
its age in a result is known. A client requests each metric every second from the adapter's cache of results. `known`
are metrics whose next sample is known in advance; `usual` are the same with `+ 0 * time()`, which are refreshed nine
tenths of --metrics-freshness after the query before, as all metrics were once.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import click
import msgspec
from aiohttp import web

from adapter.planning.vectors import VectorCache
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusOptions,
    PrometheusServers,
    Vector,
)
from bench.figures import percentile, show
from bench.processes import served
from kube.process.runtime import run
from playground.prometheus import PrometheusServer, Target

_INTERVALS: Final = (2, 5, 15, 30, 60)
_LEARN_SECONDS: Final = 200.0
"""Intervals are learned from a minute of samples, and must have been the same for a minute."""


class Row(msgspec.Struct):
    """A metric with one scrape interval and one number of targets; ages in seconds."""

    scrape: int
    targets: int
    refresh: str
    queries_an_interval: float
    age_mean: float
    age_p99: float
    age_worst: float


class _Counted:
    """Counts queries by their text, without what a refresh adds."""

    def __init__(self, servers: PrometheusServers) -> None:
        self._servers = servers
        self.counts: Counter[str] = Counter()

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        self.counts[query.removeprefix("(").partition("\n")[0]] += 1
        return await self._servers.instant(query, deadline=deadline, destination=destination)


async def _scraped_at(_: web.Request) -> web.Response:
    return web.Response(text=f"scraped_at {time.time()!r}\n")


def _queries() -> dict[str, tuple[int, int, str]]:
    """Return the queries, each with its scrape interval, its number of targets and how it is refreshed."""
    found = {}
    for interval, targets in itertools.product(_INTERVALS, (1, 10)):
        selector = f'scraped_at{{every="{interval}",targets="{targets}"}}'
        found[f"max by (target) ({selector})"] = (interval, targets, "known")
        found[f"max by (target) ({selector}) + 0 * time()"] = (interval, targets, "usual")
    return found


async def _measure(folder: Path, seconds: float, freshness: float) -> list[Row]:
    queries, ages, before = _queries(), defaultdict[str, list[float]](list), Counter[str]()
    async with AsyncExitStack() as stack:
        prometheus = await stack.enter_async_context(PrometheusServer(folder, scrape_interval=_INTERVALS[0]))
        exporters = {
            (interval, targets, number): await stack.enter_async_context(served(_scraped_at))
            for interval, targets in itertools.product(_INTERVALS, (1, 10))
            for number in range(targets)
        }
        await prometheus.set_targets(
            Target(
                address=address,
                labels={
                    "every": str(interval),
                    "targets": str(targets),
                    "target": str(number),
                    "__scrape_interval__": f"{interval}s",
                    "__scrape_timeout__": "1s",
                },
            )
            for (interval, targets, number), address in exporters.items()
        )
        servers = await stack.enter_async_context(PrometheusServers(PrometheusOptions(url=prometheus.url)))
        counted = _Counted(servers)
        cache = await stack.enter_async_context(VectorCache(counted, ttl=freshness))

        async def client(query: str, *, until: float) -> None:
            while time.monotonic() < until:
                result = await cache.instant(query)
                if isinstance(result, Vector):
                    ages[query] += [time.time() - one.value for one in result.samples]
                await asyncio.sleep(1.0)

        for duration in (_LEARN_SECONDS, seconds):  # what was before the last one does not count
            ages.clear()
            before = Counter(counted.counts)
            until = time.monotonic() + duration
            await asyncio.gather(*(client(query, until=until) for query in queries))
    return [
        Row(
            scrape=interval,
            targets=targets,
            refresh=refresh,
            queries_an_interval=round((counted.counts[query] - before[query]) * interval / seconds, 2),
            age_mean=round(statistics.mean(ages[query]), 2),
            age_p99=round(percentile(ages[query], 0.99), 2),
            age_worst=round(max(ages[query]), 2),
        )
        for query, (interval, targets, refresh) in queries.items()
    ]


@click.command(help=__doc__)
@click.option("--seconds", type=click.FloatRange(1), default=240.0, show_default=True, help="Seconds to measure.")
@click.option("--freshness", type=click.FloatRange(0), default=5.0, show_default=True, help="--metrics-freshness.")
def main(seconds: float, freshness: float) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:

        async def measured() -> None:
            rows = await _measure(Path(folder), seconds, freshness)
            show("samples in results", rows)

        run(measured())


if __name__ == "__main__":
    main()
