"""Pages for tests: a text, an event stream, an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from kube.api.status import not_found
from kube.web.event_stream import EventStream, ServerEvent
from kube.web.pages import PageRequest, StaticFiles, Templates

Events = Callable[[], AsyncIterator[ServerEvent]]


class ScriptedPages:
    """/ shows the user; /events sends `events`; /broken raises an exception; anything else is not found.

    /held is sent when `held` is set.
    """

    def __init__(self, events: Events | None = None) -> None:
        self.static = StaticFiles(["kube.web"])
        self.templates = Templates("kube.web", process="test", static=self.static.url)
        self._events = events
        self.held = asyncio.Event()

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        match request.segments:
            case ():
                return web.Response(text=f"user {request.user.name}" if request.user else "everyone")
            case ("events",) if self._events is not None:
                return EventStream(self._events())
            case ("held",):
                await self.held.wait()
                return web.Response(text="no longer held")
            case ("broken",):
                raise RuntimeError("a bug")
        raise not_found('there is no page "<i>"')
