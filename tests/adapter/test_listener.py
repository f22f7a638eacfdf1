"""How many connections there may be, and which one ends for another: the rule, and then over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kube.serving import listener
from kube.serving.connection import Connection, Connections
from kube.serving.listener import within_open_files
from kube.serving.options import ConnectionLimits, ServerLimits
from tests.adapter.raw_client import RawClient
from tests.adapter.serving import POD_PATH, ServedAdapter, served_adapter
from tests.eventually import eventually
from tests.kube.access_api import FRONT_PROXY

DROPPED = "milliscale_adapter_connections_dropped_total"
CONNECTIONS = "milliscale_adapter_connections"


class FakeConnection(Connection):
    """A connection without a client, which notes that it was closed."""

    def __init__(self, name: str, environment: Environment) -> None:
        self.name = name
        self.environment = environment
        self.busy = False
        self.buffered = 0
        self.certificate = None
        self.group = None

    def close(self, reason: str) -> None:
        self.environment.closed.append(self.name)
        self.environment.connections.remove(self)


class Environment:
    """Eight slots, and the names of the connections that were closed."""

    def __init__(self, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.now = 0.0
        self.connections = Connections(
            limit=8, registry=self.registry, metrics_prefix="milliscale_adapter", clock=lambda: self.now, **options
        )
        self.closed: list[str] = []

    def accepted(self, name: str) -> FakeConnection:
        connection = FakeConnection(name, self)
        assert self.connections.add(connection)
        return connection

    def opened(self, name: str, *, verified: bool = False, busy: bool = False) -> FakeConnection:
        connection = self.accepted(name)
        connection.certificate = b"certificate" if verified else None
        connection.busy = busy
        self.connections.opened(connection)
        return connection

    def counted(self, reason: str) -> float | None:
        return self.registry.get_sample_value(DROPPED, {"reason": reason})


def test_a_quarter_of_the_slots_is_for_handshakes_and_the_oldest_is_closed_first() -> None:
    environment = Environment()
    for name in ("a", "b", "c", "d"):
        environment.accepted(name)
    assert environment.closed == ["a", "b"]
    assert len(environment.connections) == 2
    assert environment.counted("handshake") == 2


def test_open_connection_that_was_idle_longest_is_closed() -> None:
    environment = Environment()
    first, *_ = [environment.opened(f"unverified-{number}") for number in range(8)]
    assert first.group is not None
    first.group.move_to_end(first)
    environment.opened("new")
    assert environment.closed == ["unverified-1"]
    assert len(environment.connections) == 8
    assert environment.counted("idle") == 1


def test_unverified_clients_are_closed_first_then_handshakes_then_verified_clients() -> None:
    environment = Environment()
    for number in range(6):
        environment.opened(f"verified-{number}", verified=True)
    environment.opened("unverified")
    environment.accepted("pending")
    environment.opened("verified-6", verified=True)
    assert environment.closed == ["unverified"]
    environment.opened("verified-7", verified=True)
    assert environment.closed == ["unverified", "pending"]
    environment.opened("new")
    assert environment.closed == ["unverified", "pending", "verified-0"]


def test_new_connection_is_refused_only_if_all_others_are_busy() -> None:
    environment = Environment()
    connections = [environment.opened(f"busy-{number}", verified=number % 2 == 0, busy=True) for number in range(8)]
    assert not environment.connections.add(FakeConnection("refused", environment))
    assert environment.closed == []
    assert environment.counted("refused") == 1
    connections[3].busy = False
    environment.accepted("new")
    assert environment.closed == ["busy-3"]


def test_slot_is_released_once() -> None:
    environment = Environment()
    connection = environment.opened("a")
    for _ in range(2):
        environment.connections.remove(connection)
    assert len(environment.connections) == 0
    closed = environment.accepted("b")
    closed.close("")
    environment.connections.opened(closed)
    assert len(environment.connections) == 0


def test_incomplete_heads_have_a_limit_together_and_the_longest_is_closed() -> None:
    environment = Environment(limits=ConnectionLimits(head_bytes=1000))
    first, second, third = (environment.opened(name) for name in ("a", "b", "c"))
    environment.connections.buffer(first, 300)
    environment.connections.buffer(second, 400)
    environment.connections.buffer(third, 300)
    assert environment.closed == []
    environment.connections.buffer(first, 301)
    assert environment.closed == ["b"]
    assert environment.counted("head") == 1
    environment.connections.buffer(third, 699)
    assert environment.closed == ["b"]
    environment.connections.buffer(first, 0)
    environment.connections.remove(third)
    environment.connections.buffer(environment.opened("d"), 1000)
    assert environment.closed == ["b"]


def test_warning_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    environment = Environment()
    for seconds, warnings in ((0.0, 1), (59.0, 1), (60.0, 2)):
        environment.now = seconds
        for _ in range(20):
            environment.accepted("a")
        assert len(caplog.records) == warnings
    assert caplog.messages[0].startswith("too many connections (2, of which 2 in their TLS handshake; ")


@contextlib.contextmanager
def open_files(limit: int) -> Iterator[None]:
    """This process may have no file or connection whose number is `limit` or more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("limit", "wanted", "most"), [(1024, 2000, 768), (1024, 769, 768), (1024, 768, 768), (300, 2000, 150)]
)
def test_no_more_connections_than_open_files(
    limit: int, wanted: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    with open_files(limit):
        assert within_open_files(wanted) == most
    assert len(caplog.records) == (most < wanted)


@contextlib.asynccontextmanager
async def crowded_adapter(
    directory: Path, *, connections: int = 8, limits: ConnectionLimits | None = None
) -> AsyncIterator[ServedAdapter]:
    server = ServerLimits(connections=connections, shutdown_seconds=1.0, connection=limits or ConnectionLimits())
    async with served_adapter(directory, limits=server) as adapter:
        yield adapter


@contextlib.contextmanager
def bare_connections(adapter: ServedAdapter, count: int) -> Iterator[list[socket.socket]]:
    """Connections on which nothing is sent."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", adapter.port))) for _ in range(count)]


def value(adapter: ServedAdapter, name: str, **labels: str) -> float:
    found = adapter.telemetry.registry.get_sample_value(name, labels)
    assert found is not None
    return found


async def test_connections_without_a_handshake_keep_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowded_adapter(tmp_path) as adapter:
        with bare_connections(adapter, 40):
            for _ in range(3):
                assert (await adapter.request("/livez")).status == 200
            assert value(adapter, CONNECTIONS, state="handshake") <= 2
            assert value(adapter, DROPPED, reason="handshake") >= 38

        async def all_gone() -> bool:
            return value(adapter, CONNECTIONS, state="handshake") + value(adapter, CONNECTIONS, state="open") == 0

        await eventually(all_gone, within=10.0, every=0.01)
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


async def test_idle_connections_block_nobody(tmp_path: Path) -> None:
    async with crowded_adapter(tmp_path) as adapter:
        clients = [await RawClient.connect(adapter) for _ in range(20)]
        assert value(adapter, CONNECTIONS, state="open") <= 8
        for client in clients[:12]:
            assert await client.ended()
        assert (await adapter.request("/livez")).status == 200
        assert await clients[-1].request("/livez") == b"HTTP/1.1 200 OK"
        for client in clients:
            client.close()


async def test_connection_that_was_used_last_stays(tmp_path: Path) -> None:
    async with crowded_adapter(tmp_path) as adapter:
        clients = [await RawClient.connect(adapter) for _ in range(8)]
        for client in (*clients, clients[0]):
            assert await client.request("/livez") == b"HTTP/1.1 200 OK"
        assert (await adapter.request("/livez")).status == 200
        assert await clients[1].ended()
        assert await clients[0].request("/livez") == b"HTTP/1.1 200 OK"
        for client in clients:
            client.close()


async def test_long_heads_keep_nobody_out(tmp_path: Path) -> None:
    async with crowded_adapter(tmp_path, limits=ConnectionLimits(head_bytes=100_000)) as adapter:
        clients = [await RawClient.connect(adapter) for _ in range(4)]
        for client in clients:
            client.send(b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 30_000)
        ended = [asyncio.create_task(client.ended()) for client in clients]
        done, others = await asyncio.wait(ended, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        assert value(adapter, DROPPED, reason="head") == 1
        assert (await adapter.request("/livez")).status == 200
        for task in others:
            task.cancel()
        for client in clients:
            client.close()


async def test_request_in_flight_is_not_ended_for_a_new_connection(tmp_path: Path) -> None:
    async with crowded_adapter(tmp_path, connections=1) as adapter:
        adapter.metrics.hold = asyncio.Event()
        first = asyncio.create_task(adapter.request_as_master(POD_PATH))
        await adapter.metrics.held()
        with pytest.raises(aiohttp.ClientConnectionError):
            await adapter.request("/livez")
        assert value(adapter, DROPPED, reason="refused") == 1
        adapter.metrics.hold.set()
        assert (await first).status == 200

        async def has_room() -> bool:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                return (await adapter.request("/livez")).status == 200
            return False

        await eventually(has_room, within=10.0)


async def test_clients_that_do_not_read_keep_nobody_out(tmp_path: Path) -> None:
    """Those that the adapter only writes to go for newcomers, and before the API server's idle connection."""
    async with crowded_adapter(tmp_path, connections=4) as adapter:
        proxy = adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
        aggregator = await RawClient.connect(adapter, proxy)
        assert await aggregator.request(POD_PATH, "X-Remote-User: bob\r\n") == b"HTTP/1.1 200 OK"
        adapter.metrics.count = 25_000
        adapter.api.tokens["secret"] = {"username": "bob"}
        path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/big/pods/*/conn_open"
        request = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n".encode()
        clients = []
        for _ in range(3):
            client = await RawClient.connect(adapter, narrow=True)
            clients.append(client)
            # Its handshake is finished on both sides, so that it does not end for that of the next one.
            assert await client.request("/livez") == b"HTTP/1.1 200 OK"
        for client in clients:
            client.send(request)

        async def has_room() -> bool:
            """None of them reads its response, and yet a new connection gets one."""
            if len(adapter.metrics.requests) < 4 or value(adapter, "apiserver_current_inflight_requests"):
                return False
            with contextlib.suppress(aiohttp.ClientConnectionError):
                return (await adapter.request("/livez")).status == 200
            return False

        await eventually(has_room, within=10.0, every=0.02)
        assert value(adapter, DROPPED, reason="idle") == 1
        assert await aggregator.request(POD_PATH, "X-Remote-User: bob\r\n") == b"HTTP/1.1 200 OK"
        for client in (aggregator, *clients):
            client.close()


async def test_stopping_ends_handshakes_that_are_pending(tmp_path: Path) -> None:
    async with crowded_adapter(tmp_path) as adapter:
        _, writer = await asyncio.open_connection("127.0.0.1", adapter.port)

        async def seen() -> bool:
            return value(adapter, CONNECTIONS, state="handshake") == 1

        await eventually(seen, within=10.0, every=0.01)
        await asyncio.wait_for(adapter.listener.stop(), 60)
        assert value(adapter, CONNECTIONS, state="handshake") == 0
        writer.close()


async def test_connection_that_cannot_be_accepted_is_accepted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowded_adapter(tmp_path) as adapter:
        with socket.socket() as client, open_files(client.fileno() + 1):
            client.connect(("127.0.0.1", adapter.port))

            async def noticed() -> bool:
                return "cannot accept connections: Too many open files" in caplog.messages

            await eventually(noticed, within=10.0, every=0.01)
            assert value(adapter, CONNECTIONS, state="handshake") == 0
        assert (await adapter.request("/livez")).status == 200
    assert len(caplog.records) == 1


class Doorway:
    """accept(2) of one listening socket, which first fails as configured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        self.errors: list[int] = []
        accept = socket.socket.accept

        def failing(listening: socket.socket) -> tuple[socket.socket, Any]:
            if self.errors and listening.getsockname()[1] == port:
                number = self.errors.pop(0)
                raise OSError(number, os.strerror(number))
            return accept(listening)

        monkeypatch.setattr(socket.socket, "accept", failing)


async def test_connection_broken_before_accept_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowded_adapter(tmp_path) as adapter:
        doorway = Doorway(monkeypatch, adapter.port)
        doorway.errors = [errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EPERM, errno.ECONNABORTED]
        assert (await adapter.request("/livez")).status == 200
        assert doorway.errors == []
    assert caplog.messages == []


async def test_other_accept_error_is_logged_once_and_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_RETRY_SECONDS", 0.01)
    async with crowded_adapter(tmp_path) as adapter:
        doorway = Doorway(monkeypatch, adapter.port)
        doorway.errors = [errno.EINVAL]
        assert (await adapter.request("/livez")).status == 200
    assert caplog.messages == ["cannot accept connections: Invalid argument"]
