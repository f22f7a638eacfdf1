"""The HTTP server: limits, deadlines, clients that disconnect, malformed requests."""

import asyncio
import contextlib
import gzip
import itertools
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapter.content.encoding import compress
from adapter.serving import server
from kube.security.authorization import AuthorizationOptions
from kube.serving.options import ConnectionLimits, ServerLimits
from playground.certs import KeyPair
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, CannedUsage, ServedAdapter, served_adapter
from tests.eventually import eventually
from tests.kube.access_api import FRONT_PROXY

BIG_PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/big/pods/*/conn_open"

# The event loop's time moves on by itself when there is nothing else to do: no limit runs out because all is slow.
pytestmark = pytest.mark.looptime
# Not for much data: while the kernel passes it on there is nothing to do either.
real_time = pytest.mark.looptime(False)


async def raw_exchange(
    adapter: ServedAdapter, request: bytes, *, certificate: KeyPair | None = None
) -> tuple[str, bytes]:
    """Send bytes over TLS, and read the status line and the body until the connection is closed."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", adapter.port, ssl=adapter.client_context(certificate), server_hostname="127.0.0.1"
    )
    writer.write(request)
    received = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, body = received.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


@pytest.mark.parametrize(
    "headers",
    [
        b"X-Remote-User: b\xff",
        b"X-Remote-User: bob\r\nX-Remote-Group: a\xff",
        b"X-Remote-User: bob\r\nX-Remote-Extra-Scopes: \xff",
        b"Authorization: Bearer b\xff",
    ],
    ids=["user", "group", "extra", "token"],
)
async def test_user_name_that_is_not_utf8_is_unauthenticated(headers: bytes, new_adapter: ServedAdapter) -> None:
    proxy = new_adapter.authorities.front_proxy.issue(FRONT_PROXY, client=True)
    request = f"GET {POD_PATH} HTTP/1.1\r\nHost: adapter\r\nConnection: close\r\n".encode() + headers + b"\r\n\r\n"
    status, _ = await raw_exchange(new_adapter, request, certificate=proxy)
    assert status == "HTTP/1.1 401 Unauthorized"
    assert new_adapter.metrics.requests == []


async def test_request_that_takes_too_long(new_adapter: ServedAdapter) -> None:
    new_adapter.metrics.hold = asyncio.Event()
    reply = await new_adapter.request_as_master(f"{POD_PATH}?timeout=20ms")
    assert reply.status == 504
    assert reply.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout",
        "details": {},
        "code": 504,
    }
    assert new_adapter.metrics.cancelled.is_set()


@pytest.mark.parametrize(("wanted", "given"), [("5s", 5.0), ("90s", 60.0), ("0s", 60.0), ("-1s", 60.0)])
async def test_deadline_is_passed_on(new_adapter: ServedAdapter, wanted: str, given: float) -> None:
    for path in (POD_PATH, EXTERNAL_PATH):
        await new_adapter.request_as_master(f"{path}?timeout={wanted}")
    for arguments in new_adapter.metrics.requests:
        assert given - 1.0 < arguments["seconds"] <= given


async def test_deadline_covers_paths_that_are_open_to_all(tmp_path: Path) -> None:
    everything = AuthorizationOptions(always_allow_paths=("/*",))
    async with served_adapter(tmp_path, authorization=everything) as adapter:
        assert (await adapter.request(POD_PATH)).status == 200
        adapter.metrics.hold = asyncio.Event()
        assert (await adapter.request(f"{POD_PATH}?timeout=20ms")).status == 504
        assert adapter.api.reviews == []


async def test_deadline_covers_authentication_too(new_adapter: ServedAdapter) -> None:
    new_adapter.api.hold = asyncio.Event()
    headers = {"Authorization": "Bearer secret"}
    assert (await new_adapter.request(f"{POD_PATH}?timeout=20ms", headers=headers)).status == 504


async def test_client_that_leaves_takes_its_request_along(new_adapter: ServedAdapter) -> None:
    new_adapter.metrics.hold = asyncio.Event()
    asking = asyncio.create_task(new_adapter.request_as_master(POD_PATH))
    await new_adapter.metrics.held()
    asking.cancel()
    await asyncio.wait_for(new_adapter.metrics.cancelled.wait(), 60)


async def test_request_over_the_limit_gets_retry_after(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=ServerLimits(in_flight=1, shutdown_seconds=1.0)) as adapter:
        adapter.metrics.hold = asyncio.Event()
        first = asyncio.create_task(adapter.request_as_master(POD_PATH))
        await adapter.metrics.held()
        reply = await adapter.request_as_master(POD_PATH)
        assert (reply.status, reply.json["reason"], reply.headers["Retry-After"]) == (429, "TooManyRequests", "1")
        assert (await adapter.request("/livez")).status == 200
        for path in ("/apis", "/apis/custom.metrics.k8s.io", "/apis/custom.metrics.k8s.io/v1beta2"):
            assert (await adapter.request_as_master(path)).status == 200
        adapter.metrics.hold.set()
        assert (await first).status == 200
        assert (await adapter.request_as_master(POD_PATH)).status == 200


async def test_compression_counts_as_work_on_a_request_and_has_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, working, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def held(body: bytes) -> bytes:
        loop.call_soon_threadsafe(working.set)
        go.wait(10)
        return compress(body)

    monkeypatch.setattr(server, "compress", held)
    async with served_adapter(tmp_path, limits=ServerLimits(in_flight=1, shutdown_seconds=1.0)) as adapter:
        adapter.metrics.count = 3_000
        gzipped = {"Accept-Encoding": "gzip"}
        late = asyncio.create_task(adapter.request_as_master(f"{BIG_PATH}?timeout=1s", headers=gzipped))
        await asyncio.wait_for(working.wait(), 60)
        assert (await adapter.request_as_master(POD_PATH)).status == 429
        assert (await late).status == 504
        go.set()
        assert (await adapter.request_as_master(BIG_PATH, headers=gzipped)).headers["Content-Encoding"] == "gzip"


async def test_mistake_of_ours_is_logged_and_shown_to_nobody(
    new_adapter: ServedAdapter, caplog: pytest.LogCaptureFixture
) -> None:
    new_adapter.metrics.error = RuntimeError("a secret")
    with caplog.at_level(logging.ERROR):
        reply = await new_adapter.request_as_master(POD_PATH)
    assert (reply.status, reply.json["kind"], reply.json["reason"]) == (500, "Status", "InternalError")
    assert b"secret" not in reply.body
    (record,) = caplog.records
    assert record.exc_info is not None
    new_adapter.metrics.error = None
    assert (await new_adapter.request_as_master(POD_PATH)).status == 200


@pytest.mark.parametrize(
    ("request_bytes", "code", "message"),
    [
        (b"this is not HTTP\r\n\r\n", 405, b"does not allow this method"),
        (b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n", 405, b"does not allow this method"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, b"it is not HTTP"),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400, b"it is not HTTP"),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, b"it is not HTTP"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, b"URL is longer than 65536 bytes"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
            431,
            b"a header of the request is longer than 32768 bytes",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-Many: a\r\n" * 1000 + b"\r\n",
            431,
            b"the request has more than 512 headers",
        ),
    ],
    ids=["noise", "method", "bad header", "bare line feeds", "two lengths", "long path", "long header", "many headers"],
)
async def test_malformed_request_gets_a_status(
    new_adapter: ServedAdapter, request_bytes: bytes, code: int, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    line, body = await raw_exchange(new_adapter, request_bytes)
    assert line.split()[1] == str(code)
    assert b'"kind":"Status"' in body
    assert message in body
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await new_adapter.request("/livez")).status == 200


async def closed_after(adapter: ServedAdapter, pieces: Iterable[bytes], *, every: float = 0.01) -> bytes:
    """Send pieces one by one until the connection is closed. Return the response."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", adapter.port, ssl=adapter.client_context(), server_hostname="127.0.0.1"
    )
    reading = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            if reading.done():
                break
            writer.write(piece)
            await writer.drain()
            await asyncio.wait([reading], timeout=every)
    received = b""
    with contextlib.suppress(ConnectionError):
        received = await asyncio.wait_for(reading, 60)
    writer.close()
    return received


def impatient(**limits: Any) -> ServerLimits:
    return ServerLimits(shutdown_seconds=1.0, connection=ConnectionLimits(**limits))


async def test_client_that_sends_byte_by_byte_loses_its_connection(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=impatient(idle_seconds=0.2)) as adapter:
        drip = itertools.chain([b"GET /livez HTTP/1.1\r\nX-Slow: "], itertools.repeat(b"a", 500))
        assert await closed_after(adapter, drip) == b""
        assert await closed_after(adapter, []) == b""


@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["first", "second"])
async def test_empty_lines_before_a_head_do_not_lift_its_limits(before: bytes, tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=impatient(idle_seconds=0.2)) as adapter:
        start = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
        drip = itertools.chain([before, b"\r\n\r\n", start], itertools.repeat(b"X-Slow: a\r\n", 400))
        began = asyncio.get_running_loop().time()
        assert (await closed_after(adapter, drip)).count(b" 200 OK") == bool(before)
        assert asyncio.get_running_loop().time() - began < 2.0
        fields = [f"X-Part-{number}: ".encode() + b"a" * 20_000 + b"\r\n" for number in range(7)]
        response = await closed_after(adapter, [before, b"\r\n\r\n", start + b"".join(fields)])
        assert response.count(b" 431 ") == 1
        response = await closed_after(adapter, [before, b"\r\n", b"\r", b"\n" + start, b"Connection: close\r\n\r\n"])
        assert response.count(b" 200 OK") == 1 + bool(before)


async def test_time_for_a_head_begins_anew_with_each_request(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=impatient(idle_seconds=0.4)) as adapter:
        request = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
        received = await closed_after(adapter, [request] * 8 + [request[:10]], every=0.1)
        assert received.count(b" 200 OK") == 8


async def test_idle_connection_is_closed(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=impatient(idle_seconds=0.1)) as adapter:
        received = await closed_after(adapter, [b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"])
        assert received.endswith(b"ok")


async def responded(adapter: ServedAdapter, count: int) -> bool:
    """The number of requests that were served, whether or not the responses were read."""
    in_flight = adapter.telemetry.registry.get_sample_value("apiserver_current_inflight_requests")
    return len(adapter.metrics.requests) == count and not in_flight


async def test_client_that_never_reads_its_response_is_disconnected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="kube.serving.connection")
    async with served_adapter(tmp_path, limits=impatient(read_seconds=0.2, handshake_seconds=2.0)) as adapter:
        adapter.metrics.count = 25_000
        master = adapter.authorities.clients.issue("admin", organizations=["system:masters"], client=True)
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(("127.0.0.1", adapter.port))
        _, writer = await asyncio.open_connection(
            sock=narrow, ssl=adapter.client_context(master), server_hostname="127.0.0.1", limit=1024
        )

        def connections() -> float | None:
            return adapter.telemetry.registry.get_sample_value("milliscale_adapter_connections", {"state": "open"})

        writer.write(f"GET {BIG_PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())

        async def gone() -> bool:
            return len(adapter.metrics.requests) == 1 and connections() == 0.0

        await eventually(gone, within=20.0, every=0.02)
        writer.close()
    assert "closed a connection: its client did not read the response" in caplog.messages


async def test_handshake_that_does_not_come_ends_the_connection(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=impatient(handshake_seconds=0.1)) as adapter:
        reader, writer = await asyncio.open_connection("127.0.0.1", adapter.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


REFUSED = b"POST /livez HTTP/1.1\r\nHost: a\r\n"
ASKED = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the adapter and its HTTP server warned of; the client of these tests is in the same log."""
    ours = ("adapter", "kube", "aiohttp")
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith(ours)]


@contextlib.asynccontextmanager
async def refused(
    adapter: ServedAdapter, header: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a request with a body was refused, before anything of the body was sent."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", adapter.port, ssl=adapter.client_context(), server_hostname="127.0.0.1"
    )
    writer.write(REFUSED + header + b"\r\n\r\n")
    assert b" 405 " in await asyncio.wait_for(reader.readline(), 60)
    await reader.readuntil(b"}\n")
    yield reader, writer
    writer.close()


@real_time
@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"Content-Length: 8000000", b"x" * 8_000_000),
        (b"Content-Length: 8000000\r\nContent-Encoding: gzip", b"x" * 8_000_000),
        (b"Transfer-Encoding: chunked", b"1e8480\r\n" + b"x" * 2_000_000 + b"\r\n0\r\n\r\n"),
    ],
    ids=["length", "not what it says", "chunked"],
)
async def test_connection_ends_in_order_after_a_body(
    tmp_path: Path, header: bytes, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The client may send all of the body, and then sees an end, not an error."""
    async with (
        served_adapter(tmp_path, limits=impatient(body_seconds=0.5)) as adapter,
        refused(adapter, header) as (reader, writer),
    ):
        writer.write(body)
        assert await asyncio.wait_for(reader.read(), 60) == b""
    assert logged_errors(caplog) == []


@real_time
async def test_body_that_does_not_end_ends_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="kube.serving.connection")
    async with served_adapter(tmp_path, limits=impatient(body_bytes=500_000)) as adapter:
        chunk = b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"
        pieces = itertools.chain([REFUSED + b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(chunk, 10_000))
        await closed_after(adapter, pieces, every=0.0)
    assert "closed a connection: the body of its request is too large" in caplog.messages
    assert logged_errors(caplog) == []


async def test_body_that_comes_byte_by_byte_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_adapter(tmp_path, limits=impatient(body_seconds=0.2)) as adapter:
        pieces = itertools.chain([REFUSED + b"Content-Length: 1000\r\n\r\n"], itertools.repeat(b"x", 100))
        assert b" 405 " in await closed_after(adapter, pieces)
    assert logged_errors(caplog) == []


async def test_body_that_is_no_body_ends_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        served_adapter(tmp_path, limits=impatient(body_seconds=0.2)) as adapter,
        refused(adapter, b"Transfer-Encoding: chunked") as (reader, writer),
    ):
        writer.write(b"this is no chunk\r\n" + ASKED)
        assert await asyncio.wait_for(reader.read(), 60) == b""
    assert logged_errors(caplog) == []


@real_time
async def test_large_response_is_compressed_if_the_client_accepts_it(new_adapter: ServedAdapter) -> None:
    new_adapter.metrics.count = 2000
    plain = await new_adapter.request_as_master(BIG_PATH)
    packed = await new_adapter.request_as_master(BIG_PATH, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    new_adapter.metrics.count = 20
    small = await new_adapter.request_as_master(BIG_PATH, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers


@real_time
@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip, deflate", True), ("br;q=1.0, GZIP;q=0.8", True), ("gzip;q=0", False), ("identity", False), ("", False)],
)
async def test_compression_is_as_negotiated(new_adapter: ServedAdapter, accepted: str, packed: bool) -> None:
    new_adapter.metrics.count = 2000
    reply = await new_adapter.request_as_master(BIG_PATH, headers={"Accept-Encoding": accepted})
    assert (reply.headers.get("Content-Encoding") == "gzip") is packed
    assert reply.headers["Vary"] == "Accept-Encoding"


async def test_requests_are_counted_by_the_resources_that_there_are(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, usage=CannedUsage()) as adapter:
        await adapter.request_as_master(POD_PATH)
        await adapter.request_as_master(EXTERNAL_PATH)
        await adapter.request(POD_PATH)
        await adapter.request_as_master("/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/metrics/c")
        await adapter.request_as_master("/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/widgets/b/c")
        await adapter.request_as_master("/apis/metrics.k8s.io/v1beta1/nodes")
        await adapter.request_as_master("/apis/metrics.k8s.io/v1beta1/widgets")
        await adapter.request(POD_PATH.replace("v1beta2", "v9"))
        await adapter.request_as_master("/apis/custom.metrics.k8s.io/v1beta2", method="OPTIONS")
        reply = await adapter.request_as_master("/metrics")
        assert reply.content_type.startswith("text/plain; version=")
    counted = {
        tuple(sample.labels[name] for name in ("verb", "group", "version", "resource", "code")): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
        if sample.name == "apiserver_request_total"
    }
    assert counted == {
        ("GET", "custom.metrics.k8s.io", "v1beta2", "pods", "200"): 1,
        ("GET", "custom.metrics.k8s.io", "v1beta2", "pods", "403"): 1,
        ("LIST", "external.metrics.k8s.io", "v1beta1", "queue_depth", "200"): 1,
        ("GET", "custom.metrics.k8s.io", "v1beta2", "metrics", "200"): 1,
        ("LIST", "metrics.k8s.io", "v1beta1", "nodes", "200"): 1,
        ("LIST", "", "", "unknown", "404"): 1,
        ("GET", "", "", "unknown", "200"): 1,
        ("GET", "", "", "unknown", "403"): 1,
        ("other", "", "", "", "405"): 1,
    }


async def test_metrics_are_for_authorized_users(new_adapter: ServedAdapter) -> None:
    reply = await new_adapter.request("/metrics")
    assert reply.json["message"] == 'forbidden: User "system:anonymous" cannot get path "/metrics"'
    new_adapter.api.tokens["secret"] = {"username": "bob"}
    assert (await new_adapter.request("/metrics", headers={"Authorization": "Bearer secret"})).status == 200


@pytest.mark.parametrize(("enough", "status"), [(-1, 429), (0, 200)])
async def test_request_gets_429_if_those_before_it_took_long_and_many_wait(
    enough: int, status: int, tmp_path: Path
) -> None:
    async with served_adapter(tmp_path, limits=ServerLimits(batch_seconds=-1.0, batch_requests=enough)) as adapter:
        reply = await adapter.request_as_master(POD_PATH)
        assert reply.status == status, reply.body
        assert reply.headers.get("Retry-After") == ("1" if status == 429 else None)
        assert (await adapter.request("/livez")).status == 200
        assert (await adapter.request("/readyz")).status == 200


async def test_stopping_lets_requests_in_flight_end(new_adapter: ServedAdapter) -> None:
    new_adapter.metrics.hold = asyncio.Event()
    asking = asyncio.create_task(new_adapter.request_as_master(POD_PATH))
    await new_adapter.metrics.held()
    stopping = asyncio.create_task(new_adapter.listener.stop())

    async def refuses_connections() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", new_adapter.port)
        except OSError:
            return True
        writer.close()
        return False

    await eventually(refuses_connections, within=5.0, every=0.01)
    assert not stopping.done()
    new_adapter.metrics.hold.set()
    reply = await asking
    assert (reply.status, reply.headers["Connection"]) == (200, "close")
    await stopping


async def test_stopping_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=ServerLimits(shutdown_seconds=0.05)) as adapter:
        adapter.metrics.hold = asyncio.Event()
        asking = asyncio.create_task(adapter.request_as_master(POD_PATH))
        await adapter.metrics.held()
        await asyncio.wait_for(adapter.listener.stop(), 60)
        assert adapter.metrics.cancelled.is_set()
        with pytest.raises(aiohttp.ClientError):
            await asking
