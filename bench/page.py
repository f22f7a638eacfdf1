"""Measure the page of all HPAs: `python -m bench.page`.

A process serves the autoscaler's pages for 10,000 HPAs, whose statuses change as often as if each were reconciled every
15 s. Nothing else runs in it, so what a viewer costs is the difference of its CPU time with and without one. For each
query of the page's URL a viewer gets the page, and follows its events. If Chromium is found, it opens the page, too.

The exit status is 1 if the first view takes more than a second, or a viewer costs more than 3 % of a core.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import aiohttp
import click
import msgspec
from playwright.async_api import async_playwright
from prometheus_client import CollectorRegistry

from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.pages import UIPages
from bench.figures import cpu_seconds, rss_mib, show, write_lines
from bench.page_hpas import ChangingHPAs
from bench.processes import LinesProcess, lines_process
from kube.process.runtime import freeze_gc, run
from kube.web.options import UIAddress
from kube.web.server import PageServer
from playground.binaries import MissingBinaryError
from playground.chromium import find_chromium

_QUERIES: Final = ("", "show=scaling", "sort=-metrics", "sort=-scaled&q=bench-0+deployment")
_VIEWS: Final = 10
_SYNC_PERIOD: Final = 15.0
_LOOK_SECONDS: Final = 0.005
_MAX_FIRST_VIEW_MS: Final = 1000.0
_MAX_VIEWER_PERCENT: Final = 3.0


class Started(msgspec.Struct):
    """The server listens."""

    url: str


class Blocked(msgspec.Struct):
    """The longest time that the event loop was blocked since the last request for it."""

    milliseconds: float


class Figures(msgspec.Struct, kw_only=True):
    """One query."""

    query: str
    hpas: int
    first_view_ms: float
    """The first response of the process for this query."""
    view_ms: float
    """The median of further ones."""
    page_kib: float
    idle_percent: float
    """CPU time of the process without a viewer, percent of a core."""
    viewer_percent: float
    """The increase with a viewer."""
    blocked_ms: float
    """The longest time that the event loop was blocked with a viewer, in CPU time."""
    events_per_second: float
    kib_per_second: float
    rss_mib: float


async def cores(pid: int, seconds: float) -> float:
    """Return the CPU seconds per second of a process."""
    cpu, started = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - started)


class Viewer:
    """Follows the events of a page."""

    def __init__(self) -> None:
        self.events = self.bytes = 0

    async def run(self, session: aiohttp.ClientSession, url: str) -> None:
        """Follow until cancelled."""
        async with session.get(url, timeout=aiohttp.ClientTimeout(None)) as response:
            async for line in response.content:
                self.events += line.startswith(b"event:")
                self.bytes += len(line)


def start_server(hpas: int) -> AbstractAsyncContextManager[LinesProcess]:
    """Run a process with a number of HPAs. It sends Started, and Blocked for each order."""
    return lines_process("bench.page", f"--hpas={hpas}", "--serve")


async def _serve(hpas: int) -> None:
    """Serve until standard input ends; each line of it is a request for the longest block of the event loop."""
    changing = ChangingHPAs(hpas)
    freeze_gc()
    pages = UIPages(changing.sources(), NamespaceAccess(None))
    server = PageServer(
        pages, UIAddress.parse("127.0.0.1:0"), auth=None, registry=CollectorRegistry(), metrics_prefix="bench"
    )
    listening = server.bind()
    await server.start(listening)
    print(msgspec.json.encode(Started(server.url(listening))).decode(), flush=True)
    blocks = [0.0]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(changing.run(hpas / _SYNC_PERIOD)),
            tasks.create_task(_watch(blocks)),
        ]
        async for _ in reader:
            print(msgspec.json.encode(Blocked(max(blocks) * 1000)).decode(), flush=True)
            blocks[:] = [0.0]
        for each in running:
            each.cancel()
    await server.stop()


async def _watch(blocks: list[float]) -> None:
    """Append the CPU time between two looks. Other processes do not change it, as they do the lag of the event loop."""
    while True:
        before = time.thread_time()
        await asyncio.sleep(_LOOK_SECONDS)
        blocks.append(time.thread_time() - before)


async def _measure(server: LinesProcess, url: str, query: str, hpas: int, seconds: float) -> Figures:
    page = f"{url}?{query}"
    async with aiohttp.ClientSession(raise_for_status=True) as session:

        async def view() -> tuple[float, int]:
            started = time.monotonic()
            async with session.get(page) as response:
                body = await response.read()
            return (time.monotonic() - started) * 1000, len(body)

        first_ms, size = await view()
        view_ms = statistics.median([(await view())[0] for _ in range(_VIEWS)])
        idle = await cores(server.pid, seconds)
        await server.send(None, Blocked)
        viewer = Viewer()
        watching = asyncio.create_task(viewer.run(session, f"{url}events?{query}"))
        used = await cores(server.pid, seconds)
        watching.cancel()
    return Figures(
        query=query,
        hpas=hpas,
        first_view_ms=round(first_ms, 1),
        view_ms=round(view_ms, 1),
        page_kib=round(size / 1024, 1),
        idle_percent=round(idle * 100, 2),
        viewer_percent=round((used - idle) * 100, 2),
        blocked_ms=round((await server.send(None, Blocked)).milliseconds, 1),
        events_per_second=round(viewer.events / seconds, 1),
        kib_per_second=round(viewer.bytes / 1024 / seconds, 1),
        rss_mib=round(rss_mib(server.pid), 1),
    )


_TIMES: Final = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  return {
    "response complete": page.responseEnd,
    "first contentful paint": paint?.startTime ?? -1,
    "loaded": page.loadEventEnd,
  };
}"""


async def _in_chromium(url: str) -> float | None:
    """Print how long Chromium takes to show the page, for the first time and again.

    Return the milliseconds of the first time; None without Chromium.
    """
    first = None
    try:
        chromium = await asyncio.to_thread(find_chromium)
    except MissingBinaryError as error:
        print(f"Chromium: not measured, {error}")
        return None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium.path, env={**os.environ, **chromium.environment}
        )
        for _ in range(3):
            page = await browser.new_page()
            await page.goto(url)
            milliseconds = await page.evaluate(_TIMES)
            first = first or milliseconds["first contentful paint"]
            print("Chromium: " + ", ".join(f"{name} {value:.0f} ms" for name, value in milliseconds.items()))
            await page.close()
        await browser.close()
    return first


async def _run(hpas: int, seconds: float) -> tuple[float | None, list[Figures]]:
    async with start_server(hpas) as server:
        painted_ms = await _in_chromium((await server.read(Started)).url)
    async with start_server(hpas) as server:
        url = (await server.read(Started)).url
        return painted_ms, [await _measure(server, url, query, hpas, seconds) for query in _QUERIES]


@click.command(help=__doc__)
@click.option("--hpas", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=20, show_default=True, help="Seconds for each figure.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-page.jsonl"), show_default=True)
@click.option("--serve", is_flag=True, hidden=True)
def main(*, hpas: int, seconds: float, output: Path, serve: bool) -> None:
    """Measure and print."""
    if serve:
        run(_serve(hpas))
        return
    painted_ms, rows = run(_run(hpas, seconds))
    show(f"The list of {hpas} HPAs", rows)
    write_lines(output, rows)
    if max(painted_ms or 0.0, *(each.first_view_ms for each in rows)) > _MAX_FIRST_VIEW_MS:
        raise click.ClickException("the first view takes more than a second")
    if max(each.viewer_percent for each in rows) > _MAX_VIEWER_PERCENT:
        raise click.ClickException(f"a viewer costs more than {_MAX_VIEWER_PERCENT:g} % of a core")


if __name__ == "__main__":
    main()
