"""Connections of the HTTPS server: which are waiting, and when they are freed."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

from aiohttp import web
from prometheus_client import CollectorRegistry

from kube.serving.connection import Connection, Connections, HttpServer, connection_of
from tests.eventually import eventually

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Server:
    """An HttpServer whose connections are made by hand; its requests are handled when `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.connections = Connections(limit=100, registry=CollectorRegistry(), metrics_prefix="test")
        self.exceeded: list[bool] = []
        self.http = HttpServer(self._handle, self.connections, error_response=lambda _: web.Response())

    async def connect(self) -> tuple[weakref.ref[Connection], socket.socket]:
        """Return a connection, and the client's end of it."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = Connection(self.http, ours)
        self.connections.add(connection)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, ours)
        return weakref.ref(connection), theirs

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.begin_request(request)
        self.exceeded.append(connection.exceeds_batch(seconds=-1, requests=1))
        await self.go.wait()
        connection.end_request()
        return web.Response()


async def test_closed_connection_is_freed_without_the_garbage_collector() -> None:
    server = Server()
    server.go.set()
    connection, client = await server.connect()
    loop = asyncio.get_running_loop()
    gc.collect()
    gc.disable()
    try:
        await loop.sock_sendall(client, REQUEST)
        assert (await loop.sock_recv(client, 4096)).startswith(b"HTTP/1.1 200")
        client.close()

        async def freed() -> bool:
            return connection() is None

        assert await eventually(freed, every=0.01)
    finally:
        gc.enable()
    assert len(server.connections) == 0


async def test_batch_is_exceeded_only_above_the_limit_of_waiting_requests() -> None:
    server = Server()
    clients = [(await server.connect())[1] for _ in range(4)]
    for client in clients:
        client.send(REQUEST)  # all are read before the first is handled

    async def all_handled() -> bool:
        return len(server.exceeded) == len(clients)

    assert await eventually(all_handled, every=0.01)
    assert server.exceeded == [True, True, False, False]
    assert server.connections.waiting == 0
    client, began = (await server.connect())[1], server.connections.batch_began
    client.send(REQUEST)

    async def next_batch_began() -> bool:
        return server.connections.batch_began not in (None, began)

    assert await eventually(next_batch_began, every=0.01)
    client.close()
    server.go.set()
    for client in clients:
        client.close()
