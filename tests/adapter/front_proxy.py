"""A connection of the front proxy's to a served adapter, kept open: requests of several users, one after another."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.adapter.serving import ServedAdapter
from tests.kube.access_api import FRONT_PROXY


@dataclass
class Connection:
    """One connection of the front proxy's, kept open."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(
        self, path: str, user: str = "bob", *, method: str = "GET", **headers: str
    ) -> tuple[int, str, bytes]:
        """Status, head without Date, and body."""
        lines = {"Host": "adapter", "X-Remote-User": user, **{k.replace("_", "-"): v for k, v in headers.items()}}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())

    async def send(self, request: bytes) -> tuple[int, str, bytes]:
        """Send the bytes of a request; otherwise like `request`."""
        self.writer.write(request)
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"Content-Length: (\d+)", head)
            assert length is not None
            body = await self.reader.readexactly(int(length[1]))
        lines = sorted(line for line in head.split("\r\n") if not line.startswith("Date: "))
        return int(head[9:12]), "\n".join(lines), body


@asynccontextmanager
async def front_proxy(adapter: ServedAdapter, *, name: str = FRONT_PROXY) -> AsyncIterator[Connection]:
    """Connect with a certificate of the front proxy's CA."""
    certificate = adapter.authorities.front_proxy.issue(name, client=True)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", adapter.port, ssl=adapter.client_context(certificate), server_hostname="127.0.0.1"
    )
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
