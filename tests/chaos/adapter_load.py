"""Requests to the adapter as the API server sends them, each over a new connection, while a fault is injected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from playground.apiserver.pki import client_tls
from playground.bundle import METRIC_PATHS
from tests.chaos.environment import ADMIN_HEADERS, Environment

_WORKERS = 4
_TIMEOUT = aiohttp.ClientTimeout(total=10)


@dataclass
class AdapterLoad:
    """What the requests got. `broken` are responses that ended early, and requests without a response in time."""

    statuses: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def all_served(self) -> bool:
        """True if every request got 200."""
        return set(self.statuses) == {200} and not self.refused and not self.broken

    def __str__(self) -> str:
        return f"{dict(self.statuses)}, {self.refused} refused, {self.broken[:3]}"


@asynccontextmanager
async def adapter_load(environment: Environment) -> AsyncIterator[AdapterLoad]:
    """Send requests until the end of the context; each worker waits for its response."""
    load = AdapterLoad()
    tls = client_tls(environment.cluster.pki.front_proxy)

    async def send(path: str, session: aiohttp.ClientSession) -> None:
        try:
            async with session.get(environment.adapter.url + path, ssl=tls, headers=ADMIN_HEADERS) as response:
                await response.read()
                load.statuses[response.status] += 1
        except aiohttp.ClientConnectorError:
            load.refused += 1
            await asyncio.sleep(0.02)
        except (aiohttp.ClientError, TimeoutError) as error:
            load.broken.append(repr(error))

    async def work(number: int) -> None:
        path = METRIC_PATHS[number % len(METRIC_PATHS)]
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
            while not ended.is_set():
                await send(path, session)
                await asyncio.sleep(0)

    ended = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(_WORKERS):
            tasks.create_task(work(number))
        try:
            yield load
        finally:
            ended.set()
