"""Reading decisions from a running autoscaler's /debug pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp
import msgspec

from autoscaler.debug import INDEX_PATH
from autoscaler.record import VERSION, DecisionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DecisionClientError", "fetch_decisions"]

_SECONDS: Final = 15.0
_MOST_BYTES: Final = 64 * 2**20
_MOST_SAID: Final = 500


class DecisionClientError(Exception):
    """The decisions cannot be had; the text says why."""


class _Header(msgspec.Struct):
    version: int


class _Page(msgspec.Struct):
    decisions: list[DecisionRecord]


async def fetch_decisions(server: str, *, namespace: str, name: str, last: int) -> Sequence[DecisionRecord]:
    """The last decisions on an HPA, oldest first; at least one.

    Args:
        server: the autoscaler's endpoint, as http://HOST:PORT.
        namespace: the HPA's.
        name: the HPA's.
        last: how many at most.

    Raises:
        DecisionClientError: they cannot be had.
    """
    url = f"{server.rstrip('/')}{INDEX_PATH}/{quote(namespace, safe='')}/{quote(name, safe='')}"
    content = await _get(url, last)
    try:
        version = msgspec.json.decode(content, type=_Header).version
        if version != VERSION:
            raise DecisionClientError(f"{url} answers in version {version}; this program reads version {VERSION}")
        decisions = msgspec.json.decode(content, type=_Page).decisions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecisionClientError(f"{url} is not the page of an autoscaler: {error}") from error
    if not decisions:
        raise DecisionClientError(f"{url} has no decisions")
    return decisions


async def _get(url: str, last: int) -> bytes:
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(url, params={"last": str(last)}, allow_redirects=False) as response,
        ):
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > _MOST_BYTES:
                    raise DecisionClientError(f"{url} answers with more than {_MOST_BYTES} bytes")
            if response.status != 200:
                said = bytes(content[:_MOST_SAID]).decode(errors="replace").strip()
                raise DecisionClientError(f"{url}: {said or response.reason} ({response.status})")
            return bytes(content)
    except TimeoutError as error:
        raise DecisionClientError(f"{url} does not answer within {_SECONDS:g}s") from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise DecisionClientError(f"{url} cannot be read: {error}") from error
