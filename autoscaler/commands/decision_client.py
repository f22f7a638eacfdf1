"""Reading decisions from a running autoscaler's /debug pages."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from autoscaler.commands.debug_client import DebugClientError, fetch_page
from autoscaler.loop.debug import INDEX_PATH
from autoscaler.records.record import VERSION, DecisionRecord


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
        DebugClientError: they cannot be had.
    """
    url = f"{server.rstrip('/')}{INDEX_PATH}/{quote(namespace, safe='')}/{quote(name, safe='')}"
    content = await fetch_page(url, {"last": str(last)})
    try:
        version = msgspec.json.decode(content, type=_Header).version
        if version != VERSION:
            raise DebugClientError(f"{url} answers in version {version}; this program reads version {VERSION}")
        decisions = msgspec.json.decode(content, type=_Page).decisions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DebugClientError(f"{url} is not the page of an autoscaler: {error}") from error
    if not decisions:
        raise DebugClientError(f"{url} has no decisions")
    return decisions
