"""Server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import hdrs, web

from kube.web.requests import PageRequest


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `static/live.js` knows these names, whose data is HTML unless stated otherwise.

    replace   the elements of the HTML replace those of the page with the same id
    reload    data is empty: the page loads itself again
    NAME      any other name becomes a CustomEvent of that name on `document`, with the data as its `detail`
    """

    event: str
    data: str


async def respond_with_events(request: PageRequest, events: AsyncIterator[ServerEvent]) -> web.StreamResponse:
    """Send events until the client disconnects, or the iterator ends."""
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", hdrs.CACHE_CONTROL: "no-store"})
    await response.prepare(request.raw)
    async for event in events:
        lines = "".join(f"data: {line}\n" for line in event.data.split("\n"))
        await response.write(f"event: {event.event}\n{lines}\n".encode())
    return response
