"""One client's connection: no request becomes a part of another one, and the limits that close it."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from kube.serving.options import ConnectionLimits, ServerLimits
from playground.certs import KeyPair
from tests.adapter.raw_client import raw_client
from tests.adapter.serving import POD_PATH, ServedAdapter, served_adapter
from tests.kube.access_api import FRONT_PROXY

CHUNKED = b"Transfer-Encoding: chunked\r\n"
TRAILERS = b"0\r\nX-Remote-User: bob\r\nX-Remote-Group: system:masters\r\n\r\n"
# The end of a body is not looked for, so that a connection with one ends after this time.
IMPATIENT = ServerLimits(shutdown_seconds=1.0, connection=ConnectionLimits(body_seconds=0.1))
ONE_TRAILER = b"0\r\nX-Remote-User: bob\r\n\r\n"


def front_proxy(adapter: ServedAdapter) -> KeyPair:
    return adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)


def asked_by(user: str, path: str = POD_PATH, more: bytes = b"", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\nX-Remote-User: {user}\r\n".encode() + more + b"\r\n"


def statuses(answers: bytes) -> list[bytes]:
    """The status codes of the responses, in order."""
    return re.findall(rb"HTTP/1\.[01] (\d+)", answers)


@pytest.mark.parametrize("trailers", [TRAILERS, ONE_TRAILER], ids=["two", "one"])
@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "/livez", b"200"), ("POST", "/apis", b"403"), ("GET", POD_PATH, b"403")]
)
async def test_trailers_are_never_headers_of_the_next_request(
    method: str, path: str, code: bytes, trailers: bytes, tmp_path: Path
) -> None:
    async with served_adapter(tmp_path, limits=IMPATIENT) as adapter:
        proxy = front_proxy(adapter)
        request = asked_by("mallory", path, CHUNKED, method)
        async with raw_client(adapter, proxy) as client:
            client.send(request + trailers + asked_by("mallory"))
            assert statuses(await client.rest()) == [code]
        async with raw_client(adapter, proxy) as client:
            client.send(request)
            assert (await client.status()).split()[1] == code
            client.send(trailers)
            client.send(asked_by("mallory"))
            assert await client.ended()
        assert adapter.metrics.requests == []


@pytest.mark.parametrize("while_answering", [False, True], ids=["after the answer", "during the answer"])
async def test_trailers_are_not_collected(
    while_answering: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="kube.serving.connection")
    many = b"0\r\n" + b"".join(f"X-Part-{number}: ".encode() + b"a" * 20_000 + b"\r\n" for number in range(10))
    limits = ServerLimits(shutdown_seconds=1.0, connection=ConnectionLimits(body_bytes=128 * 1024))
    async with served_adapter(tmp_path, limits=limits) as adapter, raw_client(adapter, front_proxy(adapter)) as client:
        if while_answering:
            adapter.metrics.hold = asyncio.Event()
            client.send(asked_by("bob", POD_PATH, CHUNKED))
            await adapter.metrics.held()
        else:
            client.send(asked_by("bob", "/livez", CHUNKED))
            assert await client.status() == b"HTTP/1.1 200 OK"
        client.send(many)
        assert await client.ended()
    assert "closed a connection: the body of its request is too large" in caplog.messages


async def test_only_the_first_pipelined_request_is_served(new_adapter: ServedAdapter) -> None:
    """Only the first one is; its response says that the connection ends, so the client repeats the others elsewhere."""
    for between in (asked_by("bob"), asked_by("bob", more=CHUNKED) + TRAILERS):
        async with raw_client(new_adapter, front_proxy(new_adapter)) as client:
            client.send(asked_by("bob") + between + asked_by("mallory"))
            response = await client.rest()
            assert statuses(response) == [b"200"]
            assert response.count(b"Connection: close") == 1


@pytest.mark.parametrize("size", [1, 50])
async def test_head_may_come_in_pieces(size: int, tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, raw_client(adapter, front_proxy(adapter)) as client:
        for _ in range(2):
            head = asked_by("bob")
            for start in range(0, len(head), size):
                client.send(head[start : start + size])
                await asyncio.sleep(0)
            assert await client.status() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
    ],
    ids=["upgrade", "websocket", "connect"],
)
async def test_nothing_is_sent_after_a_request_for_another_protocol(
    request_bytes: bytes, new_adapter: ServedAdapter
) -> None:
    async with raw_client(new_adapter) as client:
        client.send(request_bytes + b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert len(statuses(await client.rest())) == 1
    async with raw_client(new_adapter) as client:
        client.send(request_bytes)
        await client.status()
        client.send(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await client.ended()


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", b"505", b"HTTP/1.1"),
        (b"GET /livez HTTP/0.9\r\nHost: a\r\n\r\n", b"505", b"HTTP/1.1"),
        (b"GET /livez\r\n\r\n", b"505", b"HTTP/1.1"),
    ],
    ids=["2.0", "0.9", "none"],
)
async def test_other_versions_of_http_are_refused(
    line: bytes, code: bytes, message: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_adapter(tmp_path) as adapter, raw_client(adapter) as client:
        client.send(line)
        received = await client.rest()
        assert received.split()[1] == code
        assert b'"kind":"Status"' in received
        assert message in received
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_too_large_head_gets_431(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, raw_client(adapter) as client:
        fields = [f"X-Part-{number}: ".encode() + b"a" * 20_000 + b"\r\n" for number in range(7)]
        client.send(b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"".join(fields))
        received = await client.rest()
        assert statuses(received) == [b"431"]
        assert b"the head of the request is longer than 131072 bytes" in received
