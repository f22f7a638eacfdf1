"""Load on the node: packets for the router, and clients of the metrics API that count what fails."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp

_BATCHES: Final = 10
"""Requests to the router in a second."""


@dataclass
class Packets:
    """What the router gets, a second."""

    rate: int = 0


@asynccontextmanager
async def packets(address: str) -> AsyncIterator[Packets]:
    """Send packets to the router's Service, each time over a new connection, so that its pods share them."""
    load = Packets()

    async def send() -> None:
        timeout = aiohttp.ClientTimeout(total=1)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # a pod that ends
                    async with session.get(f"http://{address}/packets?n={load.rate // _BATCHES}"):
                        pass
                await asyncio.sleep(1 / _BATCHES)

    async with _running(send()):
        yield load


@dataclass
class Requests:
    """What the clients have counted: all requests, and those that failed, by their errors."""

    sent: int = 0
    failed: collections.Counter[str] = field(default_factory=collections.Counter)
    slowest: float = 0.0

    def __str__(self) -> str:
        failed = "".join(f"; {count} times {error}" for error, count in self.failed.most_common(3))
        return f"{self.failed.total()} of {self.sent} requests failed, the slowest took {self.slowest:.2f} s{failed}"


@asynccontextmanager
async def requests(url: str, *, tls: ssl.SSLContext, clients: int, rate: float) -> AsyncIterator[Requests]:
    """Send requests for a list of metrics from several clients, each over one connection, and retry nothing.

    Args:
        url: of the list; one without items is a failure.
        tls: with the clients' certificate.
        clients: how many.
        rate: requests a second of each of them.
    """
    counts = Requests()
    loop = asyncio.get_running_loop()

    async def error_of(session: aiohttp.ClientSession) -> str | None:
        try:
            async with session.get(url) as response:
                if response.status != 200:
                    return f"{response.status} {(await response.text())[:200]}"
                return None if (await response.json())["items"] else "no items"
        except (aiohttp.ClientError, TimeoutError) as error:
            return repr(error)

    async def client(number: int) -> None:
        connector = aiohttp.TCPConnector(limit=1, ssl=tls)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
            due = loop.time() + number / clients / rate
            while True:
                await asyncio.sleep(due - loop.time())
                started = loop.time()
                error = await error_of(session)
                counts.sent += 1
                counts.slowest = max(counts.slowest, loop.time() - started)
                if error is not None:
                    counts.failed[error] += 1
                due = max(due + 1 / rate, loop.time())

    async with contextlib.AsyncExitStack() as stack:
        for number in range(clients):
            await stack.enter_async_context(_running(client(number)))
        yield counts


@asynccontextmanager
async def _running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
