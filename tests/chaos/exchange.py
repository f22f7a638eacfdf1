"""A request and its response in the fault proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import aiohttp
from multidict import CIMultiDict
from yarl import URL

_HOP_BY_HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "TE", "Trailer")
_LINGER_ZERO = struct.pack("ii", 1, 0)
"""SO_LINGER: close() sends RST instead of FIN."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `target` is the path with its query, as the client sent it."""

    method: str
    target: str
    headers: CIMultiDict[str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def is_watch(self) -> bool:
        """True for a watch of the API server."""
        return parse_qs(self.target.partition("?")[2]).get("watch") in (["1"], ["true"])

    @property
    def is_write(self) -> bool:
        """True if it can change an object."""
        return self.method not in ("GET", "HEAD", "OPTIONS")

    @property
    def json(self) -> Any:
        """The body; None without one. Raises ValueError."""
        return json.loads(self.body) if self.body else None


class Exchange:
    """A request, the upstream server, and the client's connection.

    Attributes:
        request: the client's.
        upstream_status: the upstream server's status; None if it was not asked, or has not responded.
        keeps_connection: the client may send another request afterwards.
    """

    def __init__(
        self,
        request: Request,
        *,
        session: aiohttp.ClientSession,
        upstream: str,
        writer: asyncio.StreamWriter,
        on_response: Callable[[Exchange], None],
    ) -> None:
        """`on_response` is called when the upstream server has responded, before the client gets anything."""
        self.request = request
        self.upstream_status: int | None = None
        self.keeps_connection = True
        self._session = session
        self._upstream = upstream
        self._writer = writer
        self._on_response = on_response
        self._chunked = False

    @contextlib.asynccontextmanager
    async def forward(self) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send the request to the upstream server; its response is not compressed. Raises aiohttp.ClientError."""
        headers = _end_to_end(self.request.headers)
        for name in ("Host", "Content-Length"):
            headers.popall(name, None)
        headers["Accept-Encoding"] = "identity"
        async with self._session.request(
            self.request.method,
            URL(self._upstream + self.request.target, encoded=True),
            headers=headers,
            data=self.request.body or None,
            allow_redirects=False,
        ) as response:
            self.upstream_status = response.status
            self._on_response(self)
            yield response

    async def send_head(self, status: int, headers: Mapping[str, str], *, length: int | None) -> None:
        """Send status and headers; without `length` the body is chunked."""
        sent = _end_to_end(CIMultiDict(headers))
        sent.popall("Content-Length", None)
        if length is None:
            sent["Transfer-Encoding"] = "chunked"
        else:
            sent["Content-Length"] = str(length)
        self._chunked = length is None
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in sent.items())]
        await self.send_raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def send(self, data: bytes) -> None:
        """Send a part of the body."""
        if data:
            await self.send_raw(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    async def finish(self) -> None:
        """End the body."""
        if self._chunked:
            await self.send_raw(b"0\r\n\r\n")

    async def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """End the connection after what was sent."""
        self.keeps_connection = False

    def reset(self) -> None:
        """End the connection with RST."""
        self.keeps_connection = False
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self._writer.transport.abort()


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    copied = CIMultiDict(headers)
    for name in _HOP_BY_HOP:
        copied.popall(name, None)
    return copied
