"""Send a long body in pieces, each when the client has read most of what was sent before.

A body that is written at once is encrypted at once, and OpenSSL's buffer of the connection keeps that size until the
connection ends. So with a list of 3 MiB, 150 connections that stay open would take the memory of the whole process.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

_PIECE: Final = 64 * 1024


class _Pieces(Payload):
    """A body in pieces. It is not copied, so that slow clients of one document share its memory."""

    _value: bytes

    @property
    def size(self) -> int:
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        body = memoryview(self._value)
        for start in range(0, len(body), _PIECE):
            await writer.write(body[start : start + _PIECE])


def send_in_pieces(response: web.StreamResponse) -> None:
    """Change a response with a long body; others stay as they are."""
    if isinstance(response, web.Response) and isinstance(response.body, bytes) and len(response.body) > _PIECE:
        response.body = _Pieces(response.body)
