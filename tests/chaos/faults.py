"""Faults of FaultProxy: what the client gets instead of the upstream server's response.

A fault applies to the requests for which `match` returns True; all others pass unchanged. Faults are values: a scenario
sets one with `FaultProxy.inject`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.chaos.exchange import Exchange, Request

Match = Callable[[Request], bool]


def any_request(_: Request) -> bool:
    """Match all requests."""
    return True


def is_watch(request: Request) -> bool:
    """Match watches of the API server."""
    return request.is_watch


def is_write(request: Request) -> bool:
    """Match requests that can change an object."""
    return request.is_write


def path_has(part: str) -> Match:
    """Match requests with `part` in their path."""
    return lambda request: part in request.path


@dataclass(frozen=True, kw_only=True)
class Fault:
    """No fault yet: the response passes unchanged."""

    match: Match = any_request

    async def respond(self, exchange: Exchange) -> None:
        """Respond to the client."""
        await relay(exchange)


@dataclass(frozen=True, kw_only=True)
class Reply(Fault):
    """A whole response of the proxy; the upstream server gets no request."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    async def respond(self, exchange: Exchange) -> None:
        await exchange.send_head(self.status, self.headers, length=len(self.body))
        await exchange.send(self.body)


@dataclass(frozen=True, kw_only=True)
class RawBytes(Fault):
    """Bytes that need not be HTTP, then FIN; the upstream server gets no request."""

    data: bytes

    async def respond(self, exchange: Exchange) -> None:
        await exchange.send_raw(self.data)
        exchange.close()


@dataclass(frozen=True, kw_only=True)
class Late(Fault):
    """The response begins `seconds` later."""

    seconds: float

    async def respond(self, exchange: Exchange) -> None:
        await asyncio.sleep(self.seconds)
        await relay(exchange)


@dataclass(frozen=True, kw_only=True)
class Drip(Fault):
    """The body arrives in `size` bytes at a time, `interval` seconds apart."""

    size: int = 16
    interval: float = 0.05

    async def respond(self, exchange: Exchange) -> None:
        async with exchange.forward() as response:
            body = await response.read()
            await exchange.send_head(response.status, response.headers, length=len(body))
            for start in range(0, len(body), self.size):
                await exchange.send(body[start : start + self.size])
                await asyncio.sleep(self.interval)


@dataclass(frozen=True, kw_only=True)
class Truncate(Fault):
    """The connection ends in the middle of the body: with FIN, or with RST."""

    share: float = 0.5
    reset: bool = False

    async def respond(self, exchange: Exchange) -> None:
        async with exchange.forward() as response:
            body = await response.read()
        await exchange.send_head(response.status, response.headers, length=len(body))
        await exchange.send(body[: int(len(body) * self.share)])
        if self.reset:
            exchange.reset()
        exchange.close()


@dataclass(frozen=True, kw_only=True)
class Rewrite(Fault):
    """The body of a response is changed; that of a watch line by line."""

    change: Callable[[Request, bytes], bytes]

    async def respond(self, exchange: Exchange) -> None:
        async with exchange.forward() as response:
            if not exchange.request.is_watch:
                body = self.change(exchange.request, await response.read())
                await exchange.send_head(response.status, response.headers, length=len(body))
                await exchange.send(body)
                return
            await exchange.send_head(response.status, response.headers, length=None)
            async for line in response.content:
                await exchange.send(self.change(exchange.request, line))
            await exchange.finish()


@dataclass(frozen=True, kw_only=True)
class Reset(Fault):
    """RST instead of a response. With `after_upstream` the upstream server has executed the request."""

    after_upstream: bool = False

    async def respond(self, exchange: Exchange) -> None:
        if self.after_upstream:
            async with exchange.forward() as response:
                await response.read()
        exchange.reset()


@dataclass(frozen=True, kw_only=True)
class ExecutedReply(Reply):
    """As Reply, but the upstream server has executed the request. If it refuses the request, its response passes."""

    async def respond(self, exchange: Exchange) -> None:
        async with exchange.forward() as response:
            body = await response.read()
        if response.ok:
            await super().respond(exchange)
        else:
            await exchange.send_head(response.status, response.headers, length=len(body))
            await exchange.send(body)


@dataclass(frozen=True, kw_only=True)
class Silence(Fault):
    """Nothing is sent any more, no FIN either, also not on streams in progress.

    A connection that has become silent stays so when the fault ends, like one whose peer has lost its power.
    """

    async def respond(self, exchange: Exchange) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True, kw_only=True)
class CloseAfter(Fault):
    """A response, such as a watch, is cut off with FIN after so many seconds."""

    seconds: float = 1.0

    async def respond(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                await relay(exchange)
        except TimeoutError:
            exchange.close()


async def relay(exchange: Exchange) -> None:
    """Forward the request, and relay the response as it arrives."""
    async with exchange.forward() as response:
        length = response.headers.get("Content-Length")
        has_no_body = exchange.request.method == "HEAD" or response.status in (204, 304)
        await exchange.send_head(
            response.status, response.headers, length=int(length) if length else 0 if has_no_body else None
        )
        async for part in response.content.iter_any():
            await exchange.send(part)
        await exchange.finish()
