"""Read the /debug pages of a running autoscaler.

The time and the size of a response are limited, and every error is one line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import click
import msgspec

from autoscaler.records.decision_log import INDEX_PATH, DecisionsPage, IndexPage
from autoscaler.records.record import VERSION
from kube.aio.http import read_up_to
from kube.process.config_page import CONFIG_PATH, ConfigPage
from kube.process.flags import Parsed

_TIMEOUT_SECONDS: Final = 15.0
_MAX_BYTES: Final = 64 * 2**20
_MAX_ERROR_BYTES: Final = 500
_HINT: Final = (
    "to forward the port, run: kubectl -n milliscale port-forward deployment/milliscale-autoscaler 8080, "
    "and give the same port in --server"
)

_Page = TypeVar("_Page", bound=msgspec.Struct)


class _Header(msgspec.Struct):
    version: int


class _Status(msgspec.Struct):
    """The error of an API server, and of the adapter."""

    message: str


def _server(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"{text!r} must be the autoscaler's URL, such as http://127.0.0.1:8080")
    return text.rstrip("/")


SERVER_URL: Final = Parsed("url", _server)
"""The type of the flag --server."""


async def fetch_decisions(server: str, *, namespace: str, name: str, last: int | None = None) -> DecisionsPage:
    """Return the last decisions on an HPA, oldest first; at least one.

    Args:
        server: the autoscaler's URL, http://HOST:PORT.
        namespace: the HPA's.
        name: the HPA's.
        last: the number of decisions at most; None: all that are kept.

    Raises:
        click.ClickException: the page cannot be read, or has no decisions.
    """
    url = f"{server}{INDEX_PATH}/{quote(namespace, safe='')}/{quote(name, safe='')}"
    content = await get_page(url, None if last is None else {"last": str(last)})
    version = _decode(url, content, _Header).version
    if version != VERSION:
        raise click.ClickException(f"{url} has version {version}; this program reads version {VERSION}")
    page = _decode(url, content, DecisionsPage)
    if not page.decisions:
        raise click.ClickException(f"{url} has no decisions")
    return page


async def fetch_index(server: str, *, namespace: str, last: int) -> IndexPage:
    """Return the HPAs of a namespace ("": of all) with the desired replicas of their last decisions.

    Raises:
        click.ClickException: the page cannot be read.
    """
    return await fetch(f"{server}{INDEX_PATH}", IndexPage, {"namespace": namespace, "last": str(last)})


async def fetch_config(server: str) -> ConfigPage:
    """Return the flags of the autoscaler at a URL. Raises click.ClickException: the page cannot be read."""
    return await fetch(f"{server}{CONFIG_PATH}", ConfigPage)


async def fetch(url: str, page: type[_Page], query: Mapping[str, str] | None = None) -> _Page:
    """Return a page. Raises click.ClickException: it cannot be read."""
    return _decode(url, await get_page(url, query), page)


def _decode(url: str, content: bytes, page: type[_Page]) -> _Page:
    try:
        return msgspec.json.decode(content, type=page)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise click.ClickException(f"{url} is not a page of the autoscaler: {error}") from error


async def get_page(url: str, query: Mapping[str, str] | None = None, *, verified: bool = True) -> bytes:
    """Return the content of a page. No credentials are sent.

    Args:
        url: of the page.
        query: its parameters.
        verified: whether the certificate is verified.

    Raises:
        click.ClickException: the page cannot be read.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)) as http,
            http.get(url, params=query, allow_redirects=False, ssl=verified) as response,
        ):
            content = await read_up_to(response, _MAX_BYTES)
            if len(content) > _MAX_BYTES:
                raise click.ClickException(f"{url}: the response is larger than {_MAX_BYTES} bytes")
            if response.status != 200:
                text = _error_text(content)
                raise click.ClickException(f"{url}: {text or response.reason} ({response.status})")
            return content
    except TimeoutError as error:
        raise click.ClickException(f"{url}: no response within {_TIMEOUT_SECONDS:g}s") from error
    except aiohttp.ClientSSLError as error:
        raise click.ClickException(f"{url} cannot be read: {error}") from error
    except aiohttp.ClientConnectorError as error:
        # The text of aiohttp's error repeats the address; errno has the cause.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise click.ClickException(f"{url} cannot be read: {reason}; {_HINT}") from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise click.ClickException(f"{url} cannot be read: {error}") from error


def _error_text(content: bytes) -> str:
    try:
        text = msgspec.json.decode(content, type=_Status).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = content[:_MAX_ERROR_BYTES].decode(errors="replace")
    return text[:_MAX_ERROR_BYTES].strip()
