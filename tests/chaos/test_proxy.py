"""The fault proxy: what passes without a fault, and what a client sees of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from playground.apiserver.pki import KeyPairFiles, client_tls
from playground.certs import CertificateAuthority
from playground.ports import LOOPBACK
from tests.chaos.faults import CloseAfter, Fault, RawBytes, Reply, Reset, Rewrite, Silence, Truncate, path_has
from tests.chaos.proxy import FaultProxy
from tests.eventually import eventually
from tests.kube.scripted import scripted_server

BODY = {"text": "x" * 1000}


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[FaultProxy, aiohttp.ClientSession]]:
    """A proxy before a server with a document, a place for writes, and a watch of one line that does not end."""

    async def document(_: web.Request) -> web.Response:
        return web.json_response(BODY)

    async def written(request: web.Request) -> web.Response:
        return web.json_response(await request.json(), status=201)

    async def watched(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.Event().wait()
        return response

    async with scripted_server() as server:
        server.handlers |= {"/document": document, "/written": written, "/watched": watched}
        async with FaultProxy(server.url) as proxy, aiohttp.ClientSession(proxy.url) as client:
            yield proxy, client


async def get(client: aiohttp.ClientSession) -> object:
    async with client.get("/document") as response:
        return await response.json()


async def test_requests_pass_and_writes_are_recorded() -> None:
    async with proxied() as (proxy, client):
        assert await get(client) == BODY
        async with client.put("/written?dry=no", json={"replicas": 3}) as response:
            assert response.status == 201
            assert await response.json() == {"replicas": 3}
        (write,) = proxy.writes
        assert (write.method, write.path, write.json, write.succeeded) == ("PUT", "/written", {"replicas": 3}, True)
        assert (proxy.requests, proxy.faulty.total()) == (2, 0)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (RawBytes(data=b"no HTTP"), aiohttp.ClientResponseError),
        (Truncate(), aiohttp.ClientPayloadError),
        (Truncate(reset=True), aiohttp.ClientError),
        (Reset(), aiohttp.ClientOSError),
        (Silence(), TimeoutError),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Fault) else "",
)
async def test_fault_reaches_the_client_and_ends(fault: Fault, error: type[Exception]) -> None:
    async with proxied() as (proxy, client):
        async with proxy.inject(fault):
            with pytest.raises(error):
                async with asyncio.timeout(0.2 if error is TimeoutError else 60):
                    await get(client)
        assert await get(client) == BODY
        assert proxy.faulty.total(), "the client may have sent it twice"


async def test_fault_applies_to_matching_requests_only() -> None:
    async with (
        proxied() as (proxy, client),
        proxy.inject(Reply(match=path_has("written"), status=429, headers={"Retry-After": "7"})),
    ):
        assert await get(client) == BODY
        async with client.put("/written", json={}) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "7")

        async def recorded() -> bool:
            return [write.succeeded for write in proxy.writes] == [False]

        assert await eventually(recorded, every=0.01), "the server has not got it"


async def test_rewrite_changes_the_body() -> None:
    async with proxied() as (proxy, client), proxy.inject(Rewrite(change=lambda _, body: body.replace(b"xx", b"yy"))):
        assert await get(client) == {"text": "y" * 1000}


async def test_stopped_proxy_refuses_and_listens_again_on_its_port() -> None:
    async with proxied() as (proxy, client):
        url = proxy.url
        async with proxy.stopped():
            with pytest.raises(aiohttp.ClientConnectorError):
                await get(client)
        assert await get(client) == BODY
        assert proxy.url == url


async def test_handshake_that_was_in_progress_when_the_proxy_stopped_gives_no_connection(tmp_path: Path) -> None:
    pair, serving = CertificateAuthority.create("CA").issue("proxy"), KeyPairFiles(tmp_path / "crt", tmp_path / "key")
    serving.certificate.write_bytes(pair.cert_pem)
    serving.key.write_bytes(pair.key_pem)
    async with scripted_server() as server, FaultProxy(server.url, serving=serving) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, URL(proxy.url).port)
        async with proxy.stopped():
            with contextlib.suppress(OSError):
                await writer.start_tls(client_tls())
                writer.write(b"GET /document HTTP/1.1\r\nHost: x\r\n\r\n")
                assert await reader.read(1) == b""
        writer.close()


async def test_connection_whose_task_has_not_begun_is_closed() -> None:
    closing: list[asyncio.Task[None]] = []

    def create(loop: asyncio.AbstractEventLoop, coroutine: Any) -> asyncio.Task[Any]:
        if coroutine.__qualname__ == "FaultProxy._serve":
            closing.append(asyncio.Task(proxy.close_connections(), loop=loop))  # runs before that one
        return asyncio.Task(coroutine, loop=loop)

    async with proxied() as (proxy, _):
        asyncio.get_running_loop().set_task_factory(create)
        reader, writer = await asyncio.open_connection(LOOPBACK, URL(proxy.url).port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        await asyncio.gather(*closing)
        writer.close()


async def test_stream_in_progress_falls_silent_and_stays_so() -> None:
    async with proxied() as (proxy, client), client.get("/watched?watch=1") as watch:
        assert await watch.content.readline() == b"first\n"
        async with proxy.inject(Silence()):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await watch.content.readline()
        assert proxy.connections == 1
        assert await get(client) == BODY, "other connections are not silent any more"


async def test_watch_is_cut_off() -> None:
    async with (
        proxied() as (proxy, client),
        proxy.inject(CloseAfter(seconds=0.05)),
        client.get("/watched?watch=1") as watch,
    ):
        assert await watch.content.readline() == b"first\n"
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.read()


async def test_client_that_closes_leaves_no_connection() -> None:
    async with proxied() as (proxy, client):
        async with client.get("/watched?watch=1") as watch:
            assert await watch.content.readline() == b"first\n"
            watch.close()

        async def closed() -> bool:
            return proxy.connections == 0

        assert await eventually(closed, every=0.01)
