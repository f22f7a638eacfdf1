"""Server-sent events: their form, and how a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kube.api.status import StatusError, forbidden, not_found, service_unavailable
from kube.serving.options import ConnectionLimits, ServerLimits
from kube.web.event_stream import EventStream, EventStreams, ServerEvent
from kube.web.options import PageSettings
from tests.kube.web.pages import ScriptedPages
from tests.kube.web.serving import served


class Events:
    """Sends what is put into the queue; `closed` is set when the iterator is closed."""

    def __init__(self, *events: ServerEvent | Exception) -> None:
        self.queue: asyncio.Queue[ServerEvent | Exception] = asyncio.Queue()
        for event in events:
            self.queue.put_nowait(event)
        self.closed = asyncio.Event()

    async def __call__(self) -> AsyncIterator[ServerEvent]:
        try:
            while True:
                event = await self.queue.get()
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed.set()


async def read_event(response: aiohttp.ClientResponse) -> str:
    """Return the lines of the next event; "" at the end of the stream."""
    return (await response.content.readuntil(b"\n\n")).decode() if not response.content.at_eof() else ""


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize(
    ("event", "encoded"),
    [
        (ServerEvent("replace", "<p>a</p>\n<p>b</p>"), "event: replace\ndata: <p>a</p>\ndata: <p>b</p>\n\n"),
        (ServerEvent("reload", ""), "event: reload\ndata: \n\n"),
        (ServerEvent("chart", "{}"), "event: custom\ndata: chart\ndata: {}\n\n"),
        # Lines end in CR, too; other line separators are text.
        (ServerEvent("replace", "a\r\nb\rc\u2028d"), "event: replace\ndata: a\ndata: b\ndata: c\u2028d\n\n"),
    ],
)
def test_an_event_is_encoded_line_by_line(event: ServerEvent, encoded: str) -> None:
    assert event.encode().decode() == encoded


async def test_events_are_sent_as_they_come_until_the_server_stops(http: aiohttp.ClientSession) -> None:
    events = Events(ServerEvent("replace", "one"))
    async with served(ScriptedPages(events)) as url:
        response = await http.get(url + "events")
        assert response.content_type == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        assert await read_event(response) == "event: replace\ndata: one\n\n"
        events.queue.put_nowait(ServerEvent("replace", "two"))
        assert await read_event(response) == "event: replace\ndata: two\n\n"
    assert events.closed.is_set()
    assert (
        await response.content.read() == b""
    )  # the stream ends with the server, as HTTP wants it: no connection error


async def test_a_stream_without_events_has_heartbeats(http: aiohttp.ClientSession) -> None:
    events = Events()
    async with (
        served(ScriptedPages(events), streams=EventStreams(PageSettings(heartbeat_seconds=0.001))) as url,
        http.get(url + "events") as response,
    ):
        for _ in range(3):
            assert await read_event(response) == "event: heartbeat\ndata:\n\n"
        events.queue.put_nowait(ServerEvent("replace", "one"))
        while (event := await read_event(response)).startswith("event: heartbeat"):
            pass
        assert event == "event: replace\ndata: one\n\n"


async def test_a_stream_ends_when_the_client_disconnects(http: aiohttp.ClientSession) -> None:
    events, streams = Events(ServerEvent("replace", "one")), EventStreams()
    async with served(ScriptedPages(events), streams=streams) as url:
        async with http.get(url + "events") as response:
            await read_event(response)
            assert len(streams) == 1
        await events.closed.wait()
        assert len(streams) == 0


async def test_more_streams_than_the_limit_are_refused_with_503(http: aiohttp.ClientSession) -> None:
    events = Events(ServerEvent("replace", "one"))
    async with served(ScriptedPages(events), streams=EventStreams(PageSettings(streams=1))) as url:
        async with http.get(url + "events") as first:
            await read_event(first)
            async with http.get(url + "events") as second:
                assert (second.status, second.headers["Retry-After"]) == (503, "10")
            async with http.get(url) as page:
                assert page.status == 200
        await events.closed.wait()
        events.queue.put_nowait(ServerEvent("replace", "two"))
        async with http.get(url + "events") as again:
            assert await read_event(again) == "event: replace\ndata: two\n\n"


@pytest.mark.parametrize("error", [forbidden("the Role is gone"), not_found("the rules were loaded again")])
async def test_a_page_that_may_no_longer_be_seen_or_is_gone_is_loaded_again(
    http: aiohttp.ClientSession, error: StatusError
) -> None:
    events = Events(ServerEvent("replace", "one"), error)
    async with served(ScriptedPages(events)) as url, http.get(url + "events") as response:
        assert "one" in await read_event(response)
        assert await response.text() == "event: reload\ndata: \n\n"


@pytest.mark.parametrize("error", [service_unavailable("access cannot be checked now"), RuntimeError("a bug")])
async def test_after_another_error_the_client_has_to_connect_again(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    events = Events(ServerEvent("replace", "one"), error)
    async with served(ScriptedPages(events)) as url, http.get(url + "events") as response:
        assert "one" in await read_event(response)
        assert await response.text() == ""
    assert ("the event stream /events failed" in caplog.text) is not isinstance(error, StatusError)


async def test_a_stream_ends_after_its_lifetime_so_that_the_user_is_authenticated_again(
    http: aiohttp.ClientSession,
) -> None:
    events = Events()
    async with (
        served(
            ScriptedPages(events), streams=EventStreams(PageSettings(heartbeat_seconds=0.001, stream_seconds=0.01))
        ) as url,
        http.get(url + "events") as response,
    ):
        assert (await response.text()).replace("event: heartbeat\ndata:\n\n", "") == ""
        assert events.closed.is_set()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    events = Events(*[ServerEvent("replace", "x" * 2**20) for _ in range(20)])
    limits = ServerLimits(connections=200, shutdown_seconds=1.0, connection=ConnectionLimits(read_seconds=0.01))
    async with served(ScriptedPages(events), limits=limits) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        _, writer = await asyncio.open_connection(host, port, limit=1024)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await events.closed.wait()
        assert events.queue.qsize() > 0
        writer.close()


class RecordedStream(EventStream):
    """Always has another event, and records when each was sent."""

    def __init__(self, sent: list[float]) -> None:
        super().__init__(self._endless())
        self._sent = sent

    async def _endless(self) -> AsyncIterator[ServerEvent]:
        while True:
            yield ServerEvent("replace", "again")

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send nothing."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self._sent.append(asyncio.get_running_loop().time())


@pytest.mark.looptime
@pytest.mark.parametrize("number", [1, 50])
async def test_all_streams_together_send_twenty_events_a_second(number: int) -> None:
    streams, sent = EventStreams(clock=asyncio.get_running_loop().time), list[float]()
    request = make_mocked_request("GET", "/events")
    async with asyncio.TaskGroup() as tasks:
        for _ in range(number):
            tasks.create_task(streams.send(request, RecordedStream(sent)))
        await asyncio.sleep(30)
        streams.stop()
    assert len(sent) == pytest.approx(30 * 20, abs=number)


async def test_head_of_a_stream_sends_no_events(http: aiohttp.ClientSession) -> None:
    events = Events(ServerEvent("replace", "one"))
    async with served(ScriptedPages(events)) as url, http.head(url + "events") as response:
        assert response.content_type == "text/event-stream"
    assert events.queue.qsize() == 1


async def test_a_stream_ends_with_its_events(http: aiohttp.ClientSession) -> None:
    async def one() -> AsyncIterator[ServerEvent]:
        yield ServerEvent("replace", "one")

    async with served(ScriptedPages(one)) as url, http.get(url + "events") as response:
        assert await response.text() == "event: replace\ndata: one\n\n"
