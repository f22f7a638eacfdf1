"""Measure what forecasts cost the adapter: `make bench-forecast-costs`.

An adapter serves external metrics, each of which is requested every 15 s, with and without `forecast`. Measured are the
time until every forecast has been fitted and judged, and from then on CPU, memory and how late the event loop was.
Prometheus is a server in this process with a load that repeats every day.
"""

from __future__ import annotations

import asyncio
import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click
import msgspec
from aiohttp import web

from bench.figures import Cost, percentile, show, write_lines
from bench.metric_rules import Adapter, Bench, opened, running_adapter
from kube.process.runtime import run

_EXTERNAL: Final = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
_OF_NAMESPACE: Final = 50  # the limit
_PERIOD_SECONDS: Final = 15.0
_READY_SECONDS: Final = 1_800.0
_STATES: Final = re.compile(rb'milliscale_adapter_forecasts\{rule="[^"]*",state="([^"]*)"\} (\d+)')
_DAY_MINUTES: Final = 1440


class Row(msgspec.Struct, kw_only=True):
    """Figures in seconds and MiB; without forecasts there is nothing to wait for.

    `served`: by their gates, which all should be. `ready`: until all forecasts were judged; `cpu_until_ready`: of the
    process, from its start. `cpu_percent`: of one core, from then on. `rss_growth`: from before the first request to
    the end; `peak`: of the process. No lag of the event loop exceeded the bound in milliseconds; `slowest`: the slowest
    request, in milliseconds.
    """

    forecasts: int
    served: int
    ready: float
    cpu_until_ready: float
    rss_start: float
    rss_growth: float
    peak: float
    cpu_percent: float
    lag_ms: float
    slowest_ms: float
    p99_ms: float


def _load(minute: int) -> float:
    """Return the load of a minute since the epoch: a day, a step at 08:00, and noise that is the same every time."""
    of_day = minute % _DAY_MINUTES
    day = 1 + math.sin(2 * math.pi * of_day / _DAY_MINUTES) / 2
    return 1000 * day * (1.5 if 480 <= of_day < 1080 else 1.0) * (1 + 0.03 * math.sin(minute * 12.9898))


async def _prometheus(request: web.Request) -> web.Response:
    """Respond with the load: its present value, or a range of minutes."""
    text = {**request.query, **await request.post()}
    if not request.path.endswith("query_range"):
        sample = {"metric": {}, "value": [time.time(), str(_load(int(time.time() // 60)))]}
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})
    times = range(int(str(text["start"])), int(str(text["end"])) + 1, int(str(text["step"])))
    values = [[at, f"{_load(at // 60):.3f}"] for at in times]
    result = [{"metric": {}, "values": values}]
    return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})


def _rules(count: int, *, forecast: bool) -> str:
    option = ", forecast: {horizon: 5m, timezone: Europe/Berlin}" if forecast else ""
    return "externalRules:\n" + "".join(f"- {{name: load_{n}, query: sum(load_{n}){option}}}\n" for n in range(count))


@asynccontextmanager
async def _requested(adapter: Adapter, count: int) -> AsyncIterator[list[float]]:
    """Request each metric every 15 s until the end of the context; yield the milliseconds that requests took."""
    took: list[float] = []

    async def each(number: int) -> None:
        await asyncio.sleep(_PERIOD_SECONDS * number / count)
        while True:
            begun = time.perf_counter()
            await adapter.get(f"{_EXTERNAL}/team-{number // _OF_NAMESPACE}/load_{number}")
            took.append(1000 * (time.perf_counter() - begun))
            await asyncio.sleep(_PERIOD_SECONDS)

    tasks = [asyncio.create_task(each(number)) for number in range(count)]
    try:
        yield took
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _states(adapter: Adapter) -> Counter[bytes]:
    """Return the number of forecasts by state."""
    _, body = await adapter.get("/metrics")
    states: Counter[bytes] = Counter()
    for found in _STATES.finditer(body):
        states[found[1]] += int(found[2])
    return states


async def _wait_judged(adapter: Adapter, count: int) -> None:
    async with asyncio.timeout(_READY_SECONDS):
        while True:
            states = await _states(adapter)
            if states.total() - states[b"loading"] == count:
                return
            await asyncio.sleep(0.5)


async def _measure(bench: Bench, count: int, seconds: float, *, forecast: bool) -> Row:
    async with running_adapter(bench, f"adapter-{forecast}", _rules(count, forecast=forecast)) as adapter:
        pid = adapter.process.pid
        start, begun = Cost.of(pid), time.monotonic()
        async with _requested(adapter, count) as took:
            if forecast:
                await _wait_judged(adapter, count)
            ready = Cost.of(pid)
            ready_at = time.monotonic()
            await asyncio.sleep(seconds)
            end = Cost.of(pid)
        return Row(
            forecasts=count if forecast else 0,
            served=(await _states(adapter))[b"served"],
            ready=ready_at - begun,
            cpu_until_ready=ready.cpu_seconds,
            rss_start=start.rss,
            rss_growth=end.rss - start.rss,
            peak=end.peak,
            cpu_percent=100 * (end.cpu_seconds - ready.cpu_seconds) / seconds,
            lag_ms=await adapter.lag(),
            slowest_ms=max(took),
            p99_ms=percentile(took, 0.99),
        )


async def _measured(folder: Path, count: int, seconds: float, *, real_time: bool) -> list[Row]:
    async with opened(folder, real_time=real_time, prometheus=_prometheus) as bench:
        return [await _measure(bench, count, seconds, forecast=forecast) for forecast in (False, True)]


@click.command(help=__doc__)
@click.option("--forecasts", type=click.IntRange(1, 200), default=200, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Of the measurement.")
@click.option("--real-time", is_flag=True, help="Give adapters real-time priority; needs root. For busy machines.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("bench-forecast-costs.jsonl"), show_default=True
)
def main(*, forecasts: int, seconds: float, real_time: bool, output: Path) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        rows = run(_measured(Path(folder), forecasts, seconds, real_time=real_time))
    show(f"{forecasts} metrics without and with forecasts", rows)
    write_lines(output, rows)


if __name__ == "__main__":
    main()
