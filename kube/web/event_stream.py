"""Server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from kube.api.status import StatusError, service_unavailable
from kube.controller.flowcontrol import TokenBucket
from kube.web.options import DEFAULTS, PageSettings

_log = logging.getLogger(__name__)

_RETRY_AFTER_SECONDS: Final = 10
_KNOWN: Final = ("replace", "reload")
_LINE_END: Final = re.compile("\r\n|\r|\n")
_GONE: Final = (401, 403, 404)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `static/live.js` knows these names, whose data is HTML unless stated otherwise.

    replace   the elements of the HTML replace those of the page with the same id
    reload    data is empty: the page loads itself again
    NAME      any other name becomes a CustomEvent of that name on `document`, with the data as its `detail`
    """

    event: str
    data: str

    def encode(self) -> bytes:
        """Return the event as it is sent. Browsers know names only of listeners, so live.js gets others as data."""
        name, data = (self.event, self.data) if self.event in _KNOWN else ("custom", f"{self.event}\n{self.data}")
        lines = "".join(f"data: {line}\n" for line in _LINE_END.split(data))
        return f"event: {name}\n{lines}\n".encode()


_HEARTBEAT: Final = b"event: heartbeat\ndata:\n\n"


class EventStream(web.StreamResponse):
    """The response with events, which the server sends until the client disconnects, the server stops, or they end.

    Args:
        events: begins with the present state of what the page shows, because browsers reconnect. It is closed in every
            case, so an async generator may hold a subscription.
    """

    def __init__(self, events: AsyncIterator[ServerEvent]) -> None:
        super().__init__(headers={hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"})
        self.events = events
        self.user: str | None = None
        """The name of the authenticated user, if there is one; set by the server."""


class EventStreams:
    """Sends event streams.

    Args:
        settings: see PageSettings; the events of all streams are sent one after another.
        clock: monotonic, in seconds.
    """

    def __init__(self, settings: PageSettings = DEFAULTS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._events = TokenBucket(qps=settings.events_per_second, burst=1, clock=clock)
        self._clock = clock
        self._stopping = asyncio.Event()
        self._open: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def stop(self) -> None:
        """End all streams, and refuse new ones."""
        self._stopping.set()

    async def send(self, request: web.BaseRequest, stream: EventStream) -> None:
        """Send the events of a stream until it ends; returns at once for a HEAD request.

        If the iterator raises a StatusError that says that there is no such page, or none for this user, the page loads
        itself again, and shows it. After other errors the client connects again.

        Raises:
            StatusError: 503, there are too many streams, or the process is stopping.
        """
        if request.method == hdrs.METH_HEAD:
            await _close(stream.events)
            return
        user = stream.user
        settings = self.settings
        is_full = len(self) >= settings.streams or (user is not None and self._open[user] >= settings.streams_per_user)
        if is_full or self._stopping.is_set():
            await _close(stream.events)
            raise service_unavailable("too many pages are open", retry_after=_RETRY_AFTER_SECONDS)
        self._open[user] += 1
        ends_at = self._clock() + settings.stream_seconds
        stopping = asyncio.create_task(self._stopping.wait())
        following: asyncio.Task[ServerEvent] | None = None
        try:
            await stream.prepare(request)
            while True:
                # Not cancelled by a timeout: that would end a generator.
                following = following or asyncio.create_task(self._next(stream.events))
                both, heartbeat = (following, stopping), settings.heartbeat_seconds
                await asyncio.wait(both, timeout=heartbeat, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done() or self._clock() >= ends_at:
                    return
                if not following.done():
                    await stream.write(_HEARTBEAT)
                    continue
                try:
                    event = following.result()
                except StopAsyncIteration:
                    return
                except StatusError as error:
                    if error.code in _GONE:
                        await stream.write(ServerEvent("reload", "").encode())
                    return
                except Exception:  # noqa: BLE001  # a bug in a page: the process has other work
                    _log.exception("the event stream %s failed", request.raw_path)
                    return
                following = None
                await stream.write(event.encode())
        except ConnectionResetError:  # before this task is cancelled for it
            return
        finally:
            self._open -= Counter([user])
            stopping.cancel()
            if following is not None:
                following.cancel()
                await asyncio.wait((following,))
            await _close(stream.events)

    async def _next(self, events: AsyncIterator[ServerEvent]) -> ServerEvent:
        await self._events.take()
        return await anext(events)


async def _close(events: AsyncIterator[ServerEvent]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        with contextlib.suppress(Exception):
            await close()
