"""Asking a running autoscaler for one of its /debug pages: the flag that says where it is, and the request.

Who answers may be anything, so the time and the size of an answer are bounded, and every failure is one line of text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import click

_SECONDS: Final = 15.0
_MOST_BYTES: Final = 64 * 2**20
_MOST_SAID: Final = 500
_ADVICE: Final = (
    "is its port forwarded? kubectl -n milliscale port-forward deployment/milliscale-autoscaler 8080, "
    "with a --server that says the same port"
)


class DebugClientError(Exception):
    """The page cannot be had; the text says why."""


class _Server(click.ParamType[str]):
    """http://HOST:PORT."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text."""
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            self.fail(f"{value!r}: write the autoscaler's endpoint, such as http://127.0.0.1:8080", param, ctx)
        return value


SERVER = _Server()
"""The type of a flag that names a running autoscaler's endpoint."""


async def fetch_page(url: str, query: Mapping[str, str] | None = None) -> bytes:
    """The content of a page.

    Raises:
        DebugClientError: it cannot be had.
    """
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(url, params=query, allow_redirects=False) as response,
        ):
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > _MOST_BYTES:
                    raise DebugClientError(f"{url} answers with more than {_MOST_BYTES} bytes")
            if response.status != 200:
                said = bytes(content[:_MOST_SAID]).decode(errors="replace").strip()
                raise DebugClientError(f"{url}: {said or response.reason} ({response.status})")
            return bytes(content)
    except TimeoutError as error:
        raise DebugClientError(f"{url} does not answer within {_SECONDS:g}s") from error
    except aiohttp.ClientSSLError as error:
        raise DebugClientError(f"{url} cannot be read: {error}") from error
    except aiohttp.ClientConnectorError as error:
        # The library's text has the address and asyncio's words for it; what went wrong is in the error's number.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise DebugClientError(f"{url} cannot be read: {reason}; {_ADVICE}") from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise DebugClientError(f"{url} cannot be read: {error}") from error
