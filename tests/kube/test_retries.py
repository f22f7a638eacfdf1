"""Retries and Backoff."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from kube.api.client import ClientSettings, KubeClient, KubeError, KubeUnreachable
from kube.api.retries import Backoff, Response, Retries, RetryMetrics
from kube.api.status import StatusError
from kube.controller.election import ElectionSettings, LeaderElector
from tests.kube.scripted import Handler, ScriptedServer, connected, respond, scripted_server

BUSY = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "busy"}
GOOD = respond({"fine": True})


@dataclass
class Time:
    """A clock that only `sleep` advances."""

    now: float = 0.0
    waits: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@contextlib.asynccontextmanager
async def environment(
    folder: Path, *, random: float = 0.0, timeout: float = 30.0
) -> AsyncIterator[tuple[ScriptedServer, KubeClient, Time]]:
    time = Time()
    retries = Retries(clock=time.clock, sleep=time.sleep, random=lambda: random)
    settings = ClientSettings(request_seconds=timeout)
    async with scripted_server() as server, connected(server, folder, retries=retries, settings=settings) as client:
        yield server, client, time


def failing(times: int, handler: Handler, then: Handler = GOOD) -> Handler:
    """Respond so often with the first handler, and then with the next."""
    left = times

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal left
        left -= 1
        return await (handler if left >= 0 else then)(request)

    return handle


def busy(status: int = 429, after: str | None = "1") -> Handler:
    return respond(BUSY | {"code": status}, status=status, headers={} if after is None else {"Retry-After": after})


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    connection = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()
    return web.Response()


async def break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 100
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.close()
    return response


async def called(client: KubeClient, method: str) -> dict[str, Any]:
    """Send one request to /x."""
    match method:
        case "POST":
            return await client.post("/x", {})
        case "PUT":
            return await client.put("/x", {})
        case "PATCH":
            return await client.patch("/x", {})
        case "DELETE":
            return await client.delete("/x")
        case _:
            return await client.get("/x")


@pytest.mark.parametrize(
    ("method", "status"),
    [("GET", 429), ("GET", 500), ("POST", 429), ("PUT", 503), ("PATCH", 504), ("DELETE", 500)],
)
async def test_any_method_is_retried_after_retry_after(method: str, status: int, tmp_path: Path) -> None:
    async with environment(tmp_path) as (server, client, time):
        server.handlers["/x"] = failing(2, busy(status, "3"))
        assert await called(client, method) == {"fine": True}
        assert time.waits == [3, 3]
        assert server.requests == [f"{method} /x"] * 3
        assert client.retries.counts == Counter({(method, str(status)): 2})


@pytest.mark.parametrize(
    ("status", "after"),
    [(429, None), (503, None), (429, "soon"), (503, "-1"), (429, "1.5"), (409, "1"), (404, "1")],
)
async def test_response_without_valid_retry_after_is_final(status: int, after: str | None, tmp_path: Path) -> None:
    async with environment(tmp_path) as (server, client, time):
        server.handlers["/x"] = busy(status, after)
        with pytest.raises(StatusError) as raised:
            await client.get("/x")
        assert raised.value.code == status
        assert (len(server.requests), time.waits, client.retries.counts) == (1, [], Counter())


async def test_request_is_retried_ten_times_at_most(tmp_path: Path) -> None:
    async with environment(tmp_path) as (server, client, time):
        server.handlers["/x"] = busy()
        with pytest.raises(StatusError, match="busy"):
            await client.get("/x")
        assert (len(server.requests), time.waits) == (11, [1.0] * 10)
        server.handlers["/x"] = failing(10, busy())
        assert await client.get("/x") == {"fine": True}


async def test_jitter_makes_waits_up_to_a_fifth_longer(tmp_path: Path) -> None:
    async with environment(tmp_path, random=0.5) as (server, client, time):
        server.handlers["/x"] = failing(1, busy(after="10"))
        await client.get("/x")
        assert time.waits == [11.0]


@pytest.mark.parametrize(("after", "tries"), [("4", 3), ("5", 2), ("10", 1), ("86400", 1)])
async def test_no_retry_begins_after_the_timeout(after: str, tries: int, tmp_path: Path) -> None:
    async with environment(tmp_path) as (server, client, time):
        server.handlers["/x"] = busy(after=after)
        with pytest.raises(StatusError, match="busy"):
            await client.put("/x", {}, timeout=10)
        assert len(server.requests) == tries
        assert time.now < 10


@pytest.mark.parametrize("lost", [hang_up, reset, break_off])
async def test_lost_connection_is_retried_for_get(lost: Handler, tmp_path: Path) -> None:
    async with environment(tmp_path) as (server, client, time):
        server.handlers["/x"] = failing(3, lost)
        assert await client.get("/x") == {"fine": True}
        # aiohttp itself repeats GET, PUT and DELETE once, as the connection may have been closed while it was idle.
        assert set(time.waits) == {1.0}
        assert client.retries.counts == Counter({("GET", "<error>"): len(time.waits)})


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("lost", [hang_up, reset, break_off])
async def test_lost_connection_is_not_retried_for_writes(lost: Handler, method: str, tmp_path: Path) -> None:
    async with environment(tmp_path) as (server, client, time):
        server.handlers["/x"] = failing(1, lost)
        with pytest.raises(KubeUnreachable):
            await called(client, method)
        assert (server.requests, time.waits) == ([f"{method} /x"], [])


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (aiohttp.ClientOSError(errno.ECONNRESET, "reset"), True),
        (aiohttp.ClientOSError(errno.EPIPE, "broken pipe"), True),
        (aiohttp.ClientConnectionResetError("Cannot write to closing transport"), True),
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientPayloadError("not all data"), True),
        (aiohttp.ClientOSError(errno.ECONNREFUSED, "refused"), False),
        (aiohttp.ClientOSError(errno.ETIMEDOUT, "timed out"), False),
        (aiohttp.InvalidURL("x"), False),
    ],
)
async def test_only_open_connections_count_as_lost(error: Exception, repeated: bool) -> None:
    time = Time()
    retries = Retries(clock=time.clock, sleep=time.sleep, random=lambda: 0.0)

    async def send() -> Response:
        raise error

    with pytest.raises(type(error)):
        await retries.run("GET", send, timeout=30)
    assert len(time.waits) == (10 if repeated else 0)


class NotNow(KubeError):
    pass


async def test_before_retry_is_awaited_and_can_end_the_request(tmp_path: Path) -> None:
    requests: list[float] = []
    async with environment(tmp_path) as (server, client, time):

        async def before_retry() -> None:
            requests.append(time.now)
            if len(requests) == 2:
                raise NotNow

        server.handlers["/x"] = busy()
        with pytest.raises(NotNow):
            await client.put("/x", {}, before_retry=before_retry)
        # After the wait, so that what was true before it need not be true any more.
        assert requests == [1.0, 2.0]
        assert len(server.requests) == 2


async def test_lease_renewal_is_not_retried_after_its_timeout(tmp_path: Path) -> None:
    """A request has half of the renew deadline, retries included."""
    settings = ElectionSettings(namespace="default", name="lock", renew_deadline=0.2, retry_period=0.01)
    leading: asyncio.Queue[bool] = asyncio.Queue()
    collection = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    async with environment(tmp_path) as (server, client, time):
        server.handlers[collection] = respond({"spec": {"holderIdentity": "one"}})
        server.handlers[f"{collection}/lock"] = failing(1, respond({"kind": "Status", "code": 404}, status=404), busy())
        elector = LeaderElector(client, settings, identity="one", on_change=leading.put_nowait)
        stop = asyncio.Event()

        async def work() -> None:
            await stop.wait()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(elector.run(work, stop=stop))
            assert await asyncio.wait_for(leading.get(), 60)
            assert not await asyncio.wait_for(leading.get(), 60)
            retried = list(time.waits), Counter(client.retries.counts)  # before the Lease is released
            stop.set()
    puts = [requests for requests in server.requests if requests.startswith("PUT")]
    assert puts, "it did try"
    assert retried == ([], Counter())


def test_backoff_grows_to_its_maximum_and_resets() -> None:
    backoff = Backoff(1, 12, jitter=0.5, random=lambda: 0.5)
    assert [backoff.next() for _ in range(5)] == [1.25, 2.5, 5.0, 10.0, 10.0]
    backoff.reset()
    assert backoff.next() == 1.25


@pytest.mark.parametrize(("random", "delay"), [(0.0, 8.0), (0.5, 10.0), (1.0, 12.0)])
def test_the_longest_delays_differ_too_and_none_is_above_the_maximum(random: float, delay: float) -> None:
    backoff = Backoff(1, 12, jitter=0.5, random=lambda: random)
    assert [backoff.next() for _ in range(9)][-2:] == [delay, delay]


def test_retries_are_counted_by_code_verb_and_host() -> None:
    registry = CollectorRegistry()
    one = Retries(counts=Counter({("GET", "429"): 2, ("PUT", "<error>"): 1}))
    registry.register(RetryMetrics([("k8s:6443", one), ("k8s:6443", Retries(counts=Counter({("GET", "429"): 3})))]))
    series = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert series == [
        'rest_client_request_retries_total{code="429",host="k8s:6443",verb="GET"} 5.0',
        'rest_client_request_retries_total{code="<error>",host="k8s:6443",verb="PUT"} 1.0',
    ]
