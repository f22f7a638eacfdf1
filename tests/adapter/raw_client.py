"""A client that sends raw bytes over one TLS connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from playground.certs import KeyPair
from tests.adapter.serving import ServedAdapter

_SECONDS = 60.0


class RawClient:
    """One connection over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(
        cls, adapter: ServedAdapter, certificate: KeyPair | None = None, *, narrow: bool = False
    ) -> RawClient:
        """Connect. `narrow`: hardly anything that is not read fits into the client's buffers."""
        connection = socket.socket()
        if narrow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", adapter.port))
        context = adapter.client_context(certificate)
        return cls(
            *await asyncio.open_connection(
                sock=connection, ssl=context, server_hostname="127.0.0.1", limit=1024 if narrow else 2**16
            )
        )

    async def request(self, path: str, headers: str = "") -> bytes:
        """Send a GET and return the status line of the response, which must have a length."""
        self.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode())
        return await self.status()

    async def status(self) -> bytes:
        """Read the next response, which must have a length, and return its status line."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), _SECONDS)
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        await self._reader.readexactly(int(length.removeprefix(b"Content-Length: ")))
        return head.split(b"\r\n")[0]

    def send(self, data: bytes) -> None:
        """Send the data; the transport buffers what does not fit."""
        self._writer.write(data)

    async def rest(self) -> bytes:
        """Return everything received until the server closes the connection."""
        response = bytearray()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(_SECONDS):
                while piece := await self._reader.read(65536):
                    response += piece
        return bytes(response)

    async def ended(self) -> bool:
        """Wait until the other side has ended it."""
        assert await self.rest() == b""
        return True

    def close(self) -> None:
        """End it, whatever is still to be sent."""
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def raw_client(adapter: ServedAdapter, certificate: KeyPair | None = None) -> AsyncIterator[RawClient]:
    """A connection that is closed in the end."""
    client = await RawClient.connect(adapter, certificate)
    try:
        yield client
    finally:
        client.close()
