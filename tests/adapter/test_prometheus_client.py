"""The Prometheus client against a scripted server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from adapter.prometheus import (
    Destination,
    PrometheusBadResponse,
    PrometheusClient,
    PrometheusConfigError,
    PrometheusError,
    PrometheusOptions,
    PrometheusQueryError,
    PrometheusServers,
    PrometheusTimeout,
    PrometheusUnavailable,
    Sample,
    Series,
    Vector,
    results,
)
from adapter.prometheus import client as client_module
from adapter.prometheus.series import SeriesReader
from kube.certs import CertificateAuthority
from kube.deadlines import Deadline
from tests.eventually import eventually

ONE = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [9, "1"]}]}}


@dataclass
class ScriptedPrometheus:
    """Sends `reply` to every request, and records the requests."""

    url: str = ""
    reply: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reached(self, requests: int) -> None:
        """Wait until so many requests have come."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parameters = {**request.query, **{name: str(value) for name, value in (await request.post()).items()}}
        self.requests.append((request.method, request.raw_path.partition("?")[0], parameters))
        self.headers.append(dict(request.headers))
        async with self.arrived:
            self.arrived.notify_all()
        assert self.reply is not None
        return await self.reply(request)


def responds(body: object, *, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=status)

    return reply


@contextlib.asynccontextmanager
async def scripted(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedPrometheus]:
    server = ScriptedPrometheus(reply=responds(ONE))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.05, max_line_size=64 * 1024)  # 0 would be for ever
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedPrometheus]:
    async with scripted() as running:
        yield running


async def test_get_sends_the_query_in_the_url(server: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=f"{server.url}/prom/")) as client:
        assert await client.instant("sum(a{b='c d'})") == Vector((Sample({"a": "b"}, 9.0, 1.0),))
    method, path, parameters = server.requests[0]
    assert (method, path) == ("GET", "/prom/api/v1/query")
    assert parameters == {"query": "sum(a{b='c d'})", "timeout": "20.000"}


async def test_post_sends_the_query_in_the_body(server: ScriptedPrometheus) -> None:
    query = "sum(a) or " * 20_000
    async with PrometheusClient(PrometheusOptions(url=server.url, verb="POST")) as client:
        await client.instant(query, deadline=Deadline.after(2.5))
    assert server.requests == [("POST", "/api/v1/query", {"query": query, "timeout": "2.500"})]


async def test_only_queries_with_long_responses_are_compressed(server: ScriptedPrometheus) -> None:
    """To compress a short response takes Prometheus longer than to evaluate the query."""
    sample = {"metric": {"pod": "web-6c5d8f7b9c-00000"}, "value": [9, "1"]}
    many = {"status": "success", "data": {"resultType": "vector", "result": [sample] * 1_500}}
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        for query in ("short", "long", "short", "long", "long"):
            server.reply = responds(many if query == "long" else ONE)
            assert isinstance(await client.instant(query), Vector)
    codings = [headers["Accept-Encoding"] for headers in server.headers]
    assert [coding == "identity" for coding in codings] == [True, True, True, False, False]
    assert all("gzip" in coding for coding in codings[3:])


async def test_headers_are_sent_with_queries_and_with_series(server: ScriptedPrometheus) -> None:
    options = PrometheusOptions(url=server.url, headers=(("X-Scope-OrgID", "team-a"),))
    async with PrometheusClient(options) as client:
        await client.instant("a")
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1)
    assert [headers["X-Scope-OrgID"] for headers in server.headers] == ["team-a", "team-a"]


async def test_token_is_reloaded_when_its_file_changes(server: ScriptedPrometheus, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with PrometheusClient(PrometheusOptions(url=server.url, token_file=token)) as client:
        await client.instant("a")
        (tmp_path / "new").write_text("second")
        (tmp_path / "new").rename(token)
        await client.instant("a")
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1)
        token.unlink()
        with pytest.raises(PrometheusUnavailable, match="token file for Prometheus cannot be read: No such file"):
            await client.instant("a")
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first", *["Bearer second"] * 2]


async def test_series_are_merged_in_a_thread(server: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def put_together(reader: SeriesReader) -> tuple[Series, ...]:
        threads.append(threading.current_thread().name)
        return original(reader)

    original = SeriesReader.finish
    monkeypatch.setattr(SeriesReader, "finish", put_together)
    server.reply = responds({"status": "success", "data": [{"__name__": "a", "pod": "x"}]})
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        assert await client.series("a", start=0, end=1) == (Series("a", frozenset({"pod"})),)
    assert threads
    assert threading.main_thread().name not in threads


async def test_series_of_one_name_have_all_labels(server: ScriptedPrometheus) -> None:
    found = [
        {"__name__": "b", "pod": "x"},
        {"__name__": "a", "pod": "x"},
        {"__name__": "a", "node": "y"},
        {"pod": "nameless"},
    ]
    server.reply = responds({"status": "success", "data": found})
    async with PrometheusClient(PrometheusOptions(url=f"{server.url}/prom")) as client:
        series = await client.series('{pod!=""}', start=100.5, end=200)
    assert series == (Series("a", frozenset({"pod", "node"})), Series("b", frozenset({"pod"})))
    assert server.requests == [
        ("GET", "/prom/api/v1/series", {"match[]": '{pod!=""}', "start": "100.5", "end": "200.0"})
    ]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (responds(b"<html>"), PrometheusBadResponse),
        (responds([]), PrometheusBadResponse),
        (responds({"status": "success"}), PrometheusBadResponse),
        (responds({"data": {"a": "b"}}), PrometheusBadResponse),
        (responds({"data": [5]}), PrometheusBadResponse),
        (responds({"data": [{"__name__": 5}]}), PrometheusBadResponse),
        (responds({"status": "error", "errorType": "bad_data", "error": "x"}, status=400), PrometheusQueryError),
        (responds({"status": "error", "errorType": "timeout", "error": "x"}, status=503), PrometheusTimeout),
        (responds(b"no", status=502), PrometheusUnavailable),
        (responds(b"no", status=401), PrometheusUnavailable),
    ],
)
async def test_bad_series_responses_have_distinct_errors(
    server: ScriptedPrometheus,
    reply: Callable[[web.Request], Awaitable[web.StreamResponse]],
    error: type[PrometheusError],
) -> None:
    server.reply = reply
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(error) as refused:
            await client.series("a", start=0, end=1)
    assert type(refused.value) is error
    assert len(server.requests) == 1  # no retries of the library's own


async def test_response_size_is_limited(server: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_MAX_RESPONSE", 1000)
    monkeypatch.setattr(client_module, "_MAX_LISTING", 1000)
    server.reply = responds(b" " * 200_000)
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(PrometheusBadResponse, match="longer than 1000 bytes"):
            await client.instant("a")
        with pytest.raises(PrometheusBadResponse, match="longer than 1000 bytes"):
            await client.series("a", start=0, end=1)


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("reply", [never, drip])
async def test_slow_server_is_a_timeout(
    server: ScriptedPrometheus, reply: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> None:
    server.reply = reply
    async with PrometheusClient(PrometheusOptions(url=server.url, series_timeout=0.2)) as client:
        with pytest.raises(PrometheusTimeout):
            await client.instant("a", deadline=Deadline.after(0.2))
        with pytest.raises(PrometheusTimeout):
            await client.series("a", start=0, end=1)


async def test_slowly_sent_head_is_a_timeout_and_closes_the_connection() -> None:
    open_now: set[asyncio.StreamWriter] = set()

    async def drip_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not writer.is_closing():
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.005)
        open_now.remove(writer)

    async with await asyncio.start_server(drip_head, "127.0.0.1", 0) as listening, asyncio.timeout(60):
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with PrometheusClient(PrometheusOptions(url=url, series_timeout=0.1)) as client:
            # More than there are slots: those that wait get theirs.
            calls = [client.series("a", start=0, end=1) for _ in range(6)]
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, PrometheusTimeout)

            async def ended() -> bool:
                return not open_now

            await eventually(ended, within=5, every=0.01)


async def test_redirect_is_not_followed(server: ScriptedPrometheus) -> None:
    async with scripted() as other:

        async def elsewhere(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": f"{other.url}{request.path_qs}"})

        server.reply = elsewhere
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            for call in (client.instant("a"), client.series("a", start=0, end=1)):
                with pytest.raises(PrometheusUnavailable, match="answered with a redirect, status 302"):
                    await call
        assert other.requests == []


async def test_expired_deadline_sends_nothing(server: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(PrometheusTimeout, match="no time was left"):
            await client.instant("a", deadline=Deadline.after(0))
    assert server.requests == []


async def test_series_use_the_verb_of_queries(server: ScriptedPrometheus) -> None:
    server.reply = responds({"status": "success", "data": [{"__name__": "a", "pod": "x"}]})
    async with PrometheusClient(PrometheusOptions(url=f"{server.url}/prom", verb="POST")) as client:
        series = await client.series('{pod!=""}', start=100.5, end=200)
    assert series == (Series("a", frozenset({"pod"})),)
    assert server.requests == [
        ("POST", "/prom/api/v1/series", {"match[]": '{pod!=""}', "start": "100.5", "end": "200.0"})
    ]
    assert server.headers[0]["Content-Type"] == "application/x-www-form-urlencoded"


async def test_broken_connection_is_retried_once(server: ScriptedPrometheus) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        server.reply = responds(ONE)
        return web.Response()

    server.reply = broken
    async with PrometheusClient(PrometheusOptions(url=server.url, verb="POST")) as client:
        assert isinstance(await client.instant("a"), Vector)
    assert len(server.requests) == 2


async def test_connection_that_always_breaks_is_unavailable(server: ScriptedPrometheus) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.reply = broken
    async with PrometheusClient(PrometheusOptions(url=server.url, verb="POST")) as client:
        with pytest.raises(PrometheusUnavailable):
            await client.instant("a")
        assert len(server.requests) == 2
        with pytest.raises(PrometheusUnavailable):
            await client.series("a", start=0, end=1)


async def test_refused_connection_is_not_retried(unused_tcp_port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="adapter.prometheus")
    async with PrometheusClient(PrometheusOptions(url=f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(PrometheusUnavailable):
            await client.instant("a")
    assert "asking again" not in caplog.text


async def test_refused_connection_is_unavailable_without_the_address(unused_tcp_port: int) -> None:
    async with PrometheusClient(PrometheusOptions(url=f"http://127.0.0.1:{unused_tcp_port}")) as client:
        for call in (client.instant("a"), client.series("a", start=0, end=1)):
            with pytest.raises(PrometheusUnavailable) as refused:
                await call
            assert str(refused.value) == "Prometheus cannot be reached: Connection refused"


async def test_cancelled_series_request_frees_its_slot(server: ScriptedPrometheus) -> None:
    server.reply = never
    options = PrometheusOptions(url=server.url, series_timeout=2.0)
    async with PrometheusClient(options) as client:
        tasks = [asyncio.create_task(client.series("a", start=0, end=1)) for _ in range(8)]
        await server.reached(4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.reply = responds({"status": "success", "data": []})
        assert await client.series("b", start=0, end=1) == ()


async def test_warnings_are_logged_once(server: ScriptedPrometheus, caplog: pytest.LogCaptureFixture) -> None:
    server.reply = responds({**ONE, "warnings": ["a store is away"]})
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with caplog.at_level(logging.WARNING):
            await client.instant("a")
            await client.instant("b")
    assert caplog.text.count("Prometheus warns: a store is away") == 1


async def test_long_queries_go_into_the_body_and_short_ones_do_not(server: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        await client.instant("a" * 11_000)
        await client.instant("a" * 13_000)
    assert [(method, len(parameters["query"])) for method, _, parameters in server.requests] == [
        ("GET", 11_000),
        ("POST", 13_000),
    ]


@pytest.mark.parametrize("status", [414, 431])
async def test_url_that_a_proxy_refused_goes_by_post_from_then_on(server: ScriptedPrometheus, status: int) -> None:
    async def proxy(request: web.Request) -> web.StreamResponse:
        return (
            await responds(b"too long", status=status)(request)
            if len(request.raw_path) > 500
            else await responds(ONE)(request)
        )

    server.reply = proxy
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        for length in (10, 600, 600, 10):
            assert isinstance(await client.instant("a" * length), Vector)
    assert [method for method, _, _ in server.requests] == ["GET", "GET", "POST", "POST", "GET"]


async def test_basic_auth_password_is_reloaded(server: ScriptedPrometheus, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first\n")
    options = PrometheusOptions(url=server.url, username="me", password_file=password)
    async with PrometheusClient(options) as client:
        await client.instant("a")
        password.write_text("second!")
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1)
    shown = [base64.b64decode(headers["Authorization"].removeprefix("Basic ")) for headers in server.headers]
    assert shown == [b"me:first", b"me:second!"]


async def test_headers_of_a_rule_replace_those_of_the_server(server: ScriptedPrometheus) -> None:
    options = PrometheusOptions(url=server.url, headers=(("x-scope-orgid", "all"), ("X-Other", "kept")))
    async with PrometheusClient(options) as client:
        await client.instant("a", headers=(("X-Scope-OrgID", "team"),))
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1, headers=(("X-Scope-OrgID", "team"),))
    assert [(headers["X-Scope-OrgID"], headers["X-Other"]) for headers in server.headers] == [("team", "kept")] * 2


async def test_truncated_response_is_not_retried(server: ScriptedPrometheus) -> None:
    async def torn(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    server.reply = torn
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(PrometheusUnavailable):
            await client.instant("a")
    assert len(server.requests) == 1


async def test_requests_are_timed_by_path_and_server(server: ScriptedPrometheus) -> None:
    seen: list[tuple[str, str]] = []
    default, other = PrometheusOptions(url=server.url), PrometheusOptions(url=server.url, name="other")
    async with PrometheusServers(default, observe=lambda name, path, seconds: seen.append((name, path))) as servers:
        await servers.instant("a")
        server.reply = responds({"status": "success", "data": []})
        await servers.series("a", start=0, end=1, destination=Destination(other))
    assert seen == [("default", "/api/v1/query"), ("other", "/api/v1/series")]


async def test_removed_server_is_closed_after_its_last_request() -> None:
    async with scripted() as first, scripted() as second:
        old = Destination(PrometheusOptions(url=second.url, name="old"))
        answered = asyncio.Event()

        async def slow(request: web.Request) -> web.StreamResponse:
            await answered.wait()
            return await responds(ONE)(request)

        second.reply = slow
        async with PrometheusServers(PrometheusOptions(url=first.url)) as servers:
            asking = asyncio.create_task(servers.instant("a", destination=old))
            await second.reached(1)
            await servers.close_others([])
            answered.set()
            assert isinstance(await asking, Vector)
            # If a rule names it again, it is queried as before.
            assert isinstance(await servers.instant("a", destination=old), Vector)


async def test_server_with_a_bad_file_is_unavailable_alone(server: ScriptedPrometheus, tmp_path: Path) -> None:
    bad = Destination(PrometheusOptions(url="https://x", name="bad", ca_file=tmp_path / "none"))
    async with PrometheusServers(PrometheusOptions(url=server.url)) as servers:
        for _ in range(2):
            with pytest.raises(PrometheusUnavailable, match="CA file for Prometheus"):
                await servers.instant("a", destination=bad)
        assert isinstance(await servers.instant("a"), Vector)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    authority = CertificateAuthority.create("test")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem)
    for name, pair in (
        ("server", authority.issue("prometheus", hosts=("127.0.0.1",), server=True)),
        ("client", authority.issue("adapter", client=True)),
    ):
        (tmp_path / f"{name}.pem").write_bytes(pair.cert_pem)
        (tmp_path / f"{name}.key").write_bytes(pair.key_pem)
    return authority


async def test_ca_and_client_certificate_are_used(authority: CertificateAuthority, tmp_path: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    async with scripted(tls=tls) as server:
        options = PrometheusOptions(
            url=server.url,
            ca_file=tmp_path / "ca.pem",
            cert_file=tmp_path / "client.pem",
            key_file=tmp_path / "client.key",
        )
        async with PrometheusClient(options) as client:
            assert isinstance(await client.instant("a"), Vector)
            server.reply = responds({"status": "success", "data": []})
            assert await client.series("a", start=0, end=1) == ()
        async with PrometheusClient(PrometheusOptions(url=server.url)) as other_client:
            for call in (other_client.instant("a"), other_client.series("a", start=0, end=1)):
                with pytest.raises(PrometheusUnavailable, match="certificate"):
                    await call


async def test_series_use_the_tls_of_queries(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with scripted(tls=tls) as server:
        server.reply = responds({"status": "success", "data": []})
        async with PrometheusClient(PrometheusOptions(url=server.url, ca_file=tmp_path / "ca.pem")) as client:
            (tmp_path / "ca.pem").write_text("half")  # the old one stays
            assert await client.series("a", start=0, end=1) == ()
        (tmp_path / "store.pem").write_bytes(authority.cert_pem)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "store.pem"))  # the system's store
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            assert await client.series("a", start=0, end=1) == ()


async def test_certificate_verification_can_be_skipped(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with scripted(tls=tls) as server:
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            with pytest.raises(PrometheusUnavailable):
                await client.series("a", start=0, end=1)
        assert "is not verified" not in caplog.text
        unverified = PrometheusOptions(url=server.url, insecure_skip_tls_verify=True)
        async with PrometheusClient(unverified) as client:
            assert isinstance(await client.instant("a"), Vector)
            server.reply = responds({"status": "success", "data": []})
            assert await client.series("a", start=0, end=1) == ()
    assert f"the certificate of Prometheus at {server.url.removeprefix('https://')} is not verified" in caplog.text


async def test_tls_files_are_reloaded_when_they_change(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    names: list[str] = []

    async def name_of_client(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        names.append(dict(pair[0] for pair in certificate["subject"])["commonName"])
        return await responds(ONE)(request)

    async with scripted(tls=tls) as server:
        server.reply = name_of_client
        options = PrometheusOptions(
            url=server.url,
            ca_file=tmp_path / "ca.pem",
            cert_file=tmp_path / "client.pem",
            key_file=tmp_path / "client.key",
        )
        async with PrometheusClient(options) as client:
            await client.instant("a")
            renewed = authority.issue("renewed", client=True)
            (tmp_path / "client.pem").write_bytes(renewed.cert_pem)
            with caplog.at_level(logging.WARNING):
                await client.instant("a")  # the key of before does not fit
            (tmp_path / "client.key").write_bytes(renewed.key_pem)
            await client.instant("a")
    assert names == ["adapter", "adapter", "renewed"]
    assert "a TLS file has changed and cannot be used; the old one stays" in caplog.text


@pytest.mark.parametrize(
    ("options", "says_what"),
    [
        ({"url": "localhost:9090"}, "not a URL of a Prometheus"),
        ({"url": "ftp://a"}, "not a URL of a Prometheus"),
        ({"url": "http://"}, "not a URL of a Prometheus"),
        ({"url": "http://a:0"}, "not a URL of a Prometheus"),
        ({"url": "http://a:99999"}, "not a URL of a Prometheus"),
        ({"url": "http://[a"}, "not a URL of a Prometheus"),
        ({"url": "http://a b"}, "not a URL of a Prometheus"),
        ({"url": "http://a?b=c"}, "no ? and no #"),
        (
            {"url": "http://a", "verb": "PUT"},
            'unsupported Prometheus HTTP verb "PUT"; supported verbs: "GET" and "POST"',
        ),
        ({"url": "http://a", "cert_file": Path("a")}, "needs both"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], says_what: str) -> None:
    with pytest.raises(PrometheusConfigError) as refused:
        PrometheusOptions(**options)  # type: ignore[arg-type]
    assert says_what in str(refused.value)


async def test_tls_files_that_cannot_be_used_are_named(authority: CertificateAuthority, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    for name in ("bad.pem", "nowhere.pem"):
        options = PrometheusOptions(url="https://a", ca_file=tmp_path / name)
        with pytest.raises(PrometheusConfigError, match=f"CA file for Prometheus .*{name}"):
            await PrometheusClient(options).__aenter__()
        options = PrometheusOptions(
            url="https://a", ca_file=tmp_path / "ca.pem", cert_file=tmp_path / name, key_file=tmp_path / "client.key"
        )
        with pytest.raises(PrometheusConfigError, match=f"client certificate for Prometheus .*{name}"):
            await PrometheusClient(options).__aenter__()


async def test_only_short_responses_are_decoded_at_once(
    server: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one is decoded in pieces and within the memory budget, also where it has arrived whole."""
    monkeypatch.setattr(client_module, "read_up_to", lambda response, _: response.read())
    at_once: list[int] = []
    from_results = results.decode

    def note(status: int, body: bytes) -> object:
        at_once.append(len(body))
        return from_results(status, body)

    monkeypatch.setattr(client_module, "decode", note)
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        for count in (10, 10_000):
            result = [{"metric": {"pod": f"web-{n:05}"}, "value": [1, str(n)]} for n in range(count)]
            server.reply = responds({"status": "success", "data": {"resultType": "vector", "result": result}})
            found = await client.instant("a")
            assert isinstance(found, Vector)
            assert [sample.value for sample in found.samples] == list(range(count))
    assert len(at_once) == 1
    assert at_once[0] < 64 * 1024
