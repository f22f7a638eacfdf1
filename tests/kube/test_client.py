"""KubeClient: requests, watches, timeouts, limits and configuration."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kube.aio.fairness import for_namespace
from kube.api import config as config_module
from kube.api.client import ClientSettings, KubeClient, KubeConfigError, KubeUnreachable, ResponseTooLarge, WatchSilent
from kube.api.listing import list_objects
from kube.api.status import StatusError
from playground.certs import CertificateAuthority
from tests.eventually import eventually, until
from tests.kube.scripted import Handler, ScriptedServer, connected, raw, respond, scripted_server


async def test_get_returns_the_object_and_sends_user_agent(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path, user_agent="milliscale-test") as client:
        server.handlers["/api/v1/pods"] = respond({"kind": "PodList", "items": []})
        assert await client.get("/api/v1/pods", {"limit": 5, "labelSelector": "app in (a,b)", "watch": False}) == {
            "kind": "PodList",
            "items": [],
        }
        assert server.requests == ["GET /api/v1/pods?limit=5&labelSelector=app+in+%28a%2Cb%29&watch=false"]
        assert server.headers[0]["User-Agent"] == "milliscale-test"
        assert server.headers[0]["Accept"] == "application/json"


async def test_patch_is_a_merge_patch_by_default(tmp_path: Path) -> None:
    received: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        received.append((request.headers["Content-Type"], await request.text()))
        return web.json_response({})

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = handler
        await client.patch("/x", {"a": None})
        await client.patch("/x", [{"op": "remove", "path": "/a"}], content_type="application/json-patch+json")
    assert received == [
        ("application/merge-patch+json", '{"a":null}'),
        ("application/json-patch+json", '[{"op":"remove","path":"/a"}]'),
    ]


async def test_environment_proxy_is_used_unless_no_proxy_names_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_server() as proxy, scripted_server() as server:
        proxy.handlers["/x"], server.handlers["/x"] = respond({"by": "the proxy"}), respond({"by": "the server"})
        monkeypatch.setenv("http_proxy", proxy.url)
        async with connected(server, tmp_path) as client:
            assert await client.get("/x") == {"by": "the proxy"}
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with connected(server, tmp_path) as client:
            assert await client.get("/x") == {"by": "the server"}


@pytest.mark.parametrize(("given", "used"), [("", "http://environment:1"), ("http://own:1", "http://own:1")])
async def test_kubeconfig_without_a_proxy_has_that_of_the_environment(
    given: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream: clientcmd.DirectClientConfig.ClientConfig."""
    monkeypatch.setenv("http_proxy", "http://environment:1")
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "http://k", "proxy-url": given}}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    assert (await config_module.load_config(tmp_path / "config")).proxy == used


async def test_status_is_raised_with_all_fields(tmp_path: Path) -> None:
    body = {
        "kind": "Status",
        "code": 409,
        "reason": "Conflict",
        "message": "the object has been modified",
        "details": {"name": "web", "retryAfterSeconds": 3},
    }
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = respond(body, status=409)
        with pytest.raises(StatusError) as raised:
            await client.put("/x", {})
        server.handlers["/x"] = raw(b"<h1>Bad gateway</h1>", status=503)
        with pytest.raises(StatusError, match="Bad gateway"):
            await client.get("/x")
    assert (raised.value.code, raised.value.reason, raised.value.message, raised.value.retry_after) == (
        409,
        "Conflict",
        "the object has been modified",
        3,
    )


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (raw(b"<html>"), "not JSON"),
        (raw(b"[1]"), "not a JSON object"),
        (raw(b'{"a": ' + b"[" * 100_000), "not JSON"),
        (raw(b'"\xff"'), "not JSON"),
    ],
    ids=["html", "a list", "too deep", "not UTF-8"],
)
async def test_response_that_is_no_json_object_is_unreachable(handler: object, message: str, tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = handler  # type: ignore[assignment]
        with pytest.raises(KubeUnreachable, match=message):
            await client.get("/x")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304])
async def test_redirects_are_not_followed(status: int, tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = respond({}, status=status, headers={"Location": f"{server.url}/login"})
        server.handlers["/login"] = respond({"kind": "Scale"})
        with pytest.raises(KubeUnreachable, match=f"redirect, status {status}"):
            await client.get("/x")
        with pytest.raises(KubeUnreachable, match=f"redirect, status {status}"):
            await client.put("/x", {})
        opened = []
        with pytest.raises(KubeUnreachable, match=f"redirect, status {status}"):
            async for _ in client.watch("/x", on_open=lambda: opened.append(1)):
                pass
        assert opened == []
        assert {asked.split("?")[0] for asked in server.requests} == {"GET /x", "PUT /x"}


async def test_refused_connection_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with scripted_server() as server:
            server.url = f"http://127.0.0.1:{free.getsockname()[1]}"
            async with connected(server, tmp_path) as client:
                with pytest.raises(KubeUnreachable, match="cannot be reached"):
                    await client.get("/x")


async def test_timeout_is_unreachable(tmp_path: Path) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = never
        with pytest.raises(KubeUnreachable, match="in time"):
            await client.get("/x", timeout=0.05)


@pytest.mark.looptime
async def test_response_in_drops_ends_at_the_deadline(tmp_path: Path) -> None:
    """Each byte would extend a timeout of the connection."""

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(1)

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = drip
        began = asyncio.get_running_loop().time()
        with pytest.raises(ResponseTooLarge, match="the API server's response is too large to be read in time: 20 "):
            await client.get("/x", timeout=19.5)
        assert asyncio.get_running_loop().time() - began == pytest.approx(19.5)


async def test_token_file_of_a_kubeconfig_is_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    async with scripted_server() as server:
        server.handlers["/x"] = respond({})
        # Relative to the kubeconfig, as for kubectl.
        async with await KubeClient.connect(server.kubeconfig(tmp_path, tokenFile=token.name)) as client:
            await client.get("/x")
            token.write_text("second")
            await client.get("/x")
            monkeypatch.setattr(config_module, "_CREDENTIAL_SECONDS", 0.0)
            await client.get("/x")
        assert [headers["Authorization"] for headers in server.headers] == [
            "Bearer first",
            "Bearer first",
            "Bearer second",
        ]


async def test_refused_token_is_reloaded_before_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    async with scripted_server() as server:
        server.handlers["/x"] = respond({"kind": "Status"}, status=401)
        async with await KubeClient.connect(server.kubeconfig(tmp_path, tokenFile=token.name)) as client:
            token.write_text("second")
            for seconds in (5.0, 0.0, 0.0):
                monkeypatch.setattr(config_module, "_REFUSED_SECONDS", seconds)
                with pytest.raises(StatusError):
                    await client.get("/x")
        sent = [headers["Authorization"] for headers in server.headers]
        assert sent == ["Bearer first", "Bearer second", "Bearer second"]


async def test_service_account_token_is_reloaded_whatever_the_wall_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    certificate.write_bytes(CertificateAuthority.create("ca").cert_pem)
    monkeypatch.setattr(config_module, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    config = await config_module.load_config(None)
    assert await config.authorization() == {"authorization": "Bearer first"}
    monkeypatch.setattr(config_module, "_CREDENTIAL_SECONDS", 0.0)
    for content, expected in (("second", "second"), ("", "second"), ("third", "third")):
        token.write_text(content)
        assert await config.authorization() == {"authorization": f"Bearer {expected}"}


HTTPS = {"server": "https://k:6443/", "certificate-authority": "ca.crt"}
PAIR = {"client-certificate": "client.crt", "client-key": "client.key"}


@pytest.mark.parametrize(
    ("cluster", "user", "plain"),
    [
        (HTTPS, PAIR, True),
        (HTTPS, {"token": "secret"}, True),
        ({**HTTPS, "tls-server-name": "other"}, {**PAIR, "token": "secret"}, True),
        ({"server": "https://k", "insecure-skip-tls-verify": True}, {}, True),
        ({"server": "http://k:8080/", "certificate-authority": "ca.crt"}, PAIR, True),
        ({**HTTPS, "proxy-url": "http://proxy:1"}, PAIR, False),
        (HTTPS, {"tokenFile": "token"}, False),
        (HTTPS, {"username": "jane", "password": "secret"}, False),
        (HTTPS, {"client-certificate": "client.crt"}, False),
        (HTTPS, {"token": ""}, False),
        ({}, {}, False),
    ],
)
async def test_plain_kubeconfigs_are_read_as_the_library_does_but_without_it(
    cluster: dict[str, Any], user: dict[str, Any], plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority.create("ca")
    pair = authority.issue("jane", client=True)
    files = {"ca.crt": authority.cert_pem, "client.crt": pair.cert_pem + pair.key_pem, "client.key": pair.key_pem}
    for name, content in {**files, "token": b"secret"}.items():
        (tmp_path / name).write_bytes(content)
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))

    async def load() -> tuple[object, ...]:
        found = await config_module.load_config(tmp_path / "config")
        fields = found.host, found.server_name, found.verifies, found.proxy, found.identity, found.namespace
        context = found.tls
        cas = [] if context is True else context.get_ca_certs(binary_form=True)
        return *fields, found._files, cas, await found.authorization()

    library = "kubernetes_asyncio.config.kube_config"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, library, None)
        if not plain:
            with pytest.raises(ImportError):
                await load()
            return
        alone = await load()
    monkeypatch.setattr(config_module, "_plain", lambda *_: None)
    assert await load() == alone


@pytest.mark.parametrize("broken", ["clusters: [", "- 1", "{}", None], ids=["half", "a list", "empty", "gone"])
async def test_invalid_kubeconfig_keeps_the_old_credentials(
    broken: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(config_module, "_CREDENTIAL_SECONDS", 0.0)
    async with scripted_server() as server:
        server.handlers["/x"] = respond({})
        config = server.kubeconfig(tmp_path, token="first")
        async with await KubeClient.connect(config) as client:
            if broken is None:
                config.unlink()
            else:
                config.write_text(broken)
            await client.get("/x")
            await client.get("/x")
            server.kubeconfig(tmp_path, token="second")
            await client.get("/x")
        assert [headers["Authorization"] for headers in server.headers] == [
            "Bearer first",
            "Bearer first",
            "Bearer second",
        ]
    assert [record.levelname for record in caplog.records if record.name == "kube.api.config"] == ["WARNING"]


async def test_inline_keys_leave_no_copies_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(config_module, "_CREDENTIAL_SECONDS", 0.0)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    authority = CertificateAuthority.create("test-ca")
    pair = authority.issue("alice", client=True)
    inline = {
        "client-certificate-data": base64.b64encode(pair.cert_pem).decode(),
        "client-key-data": base64.b64encode(pair.key_pem).decode(),
    }
    async with scripted_server() as server:
        server.handlers["/x"] = respond({})
        for _ in range(2):
            async with await KubeClient.connect(server.kubeconfig(tmp_path, **inline)) as client:
                await client.get("/x")
                assert list(temporary.iterdir()) == []
    assert not caplog.records, "the reloads succeed"


async def test_watch_without_bookmarks_is_closed(tmp_path: Path) -> None:
    opened = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with scripted_server() as server, connected(server, tmp_path, bookmark_seconds=0.1) as client:
        server.handlers["/x"] = silent
        # The watch has a timeout of an hour, and the client does not wait for that.
        with pytest.raises(WatchSilent, match=r"silent for 0\.125 seconds"):
            await asyncio.wait_for(anext(client.watch("/x", seconds=3600, on_open=opened.set)), 60)
    assert opened.is_set()


async def test_watch_that_is_not_accepted_times_out_like_a_request(tmp_path: Path) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        scripted_server() as server,
        connected(server, tmp_path, settings=ClientSettings(request_seconds=0.05)) as client,
    ):
        server.handlers["/x"] = never
        with pytest.raises(KubeUnreachable, match="did not respond in time") as raised:
            await asyncio.wait_for(anext(client.watch("/x")), 60)
    assert not isinstance(raised.value, WatchSilent)


async def test_connection_that_is_not_made_in_time_is_unreachable(tmp_path: Path) -> None:
    """Here the TLS handshake never ends, and the limits of requests are hours."""
    settings = ClientSettings(connect_seconds=0.05, request_seconds=3600.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = ScriptedServer()
        server.url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        async with await KubeClient.connect(server.kubeconfig(tmp_path), settings=settings) as client:
            for sent in (client.get("/x"), anext(client.watch("/x"))):
                with pytest.raises(KubeUnreachable):
                    await asyncio.wait_for(sent, 60)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="these are Linux' options")
async def test_tcp_notices_a_vanished_peer_after_45_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    def noted(address: Any) -> socket.socket:
        made.append(config_module.client_socket(address))
        return made[-1]

    monkeypatch.setattr("kube.api.client.client_socket", noted)
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = respond({})
        await client.get("/x")
        names = "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"
        options = [made[0].getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        assert [made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *options] == [1, 30, 5, 3, 45_000]


def endless(sent: list[int], *, status: int) -> Handler:
    """A response that does not end; `sent` counts its bytes."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent[0] += 65536

    return handler


@pytest.mark.parametrize("status", [200, 500])
async def test_too_large_response_is_read_up_to_the_limit_only(status: int, tmp_path: Path) -> None:
    sent = [0]
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = endless(sent, status=status)
        with pytest.raises(ResponseTooLarge, match="too large to be read: more than 16 MiB"):
            await client.get("/x")
    # The rest is what buffers hold.
    assert 16 * 2**20 <= sent[0] < 32 * 2**20


async def test_response_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/x"] = raw(b"{}" + b" " * 98)
        assert len(await client.get_bytes("/x", max_bytes=100)) == 100
        with pytest.raises(ResponseTooLarge, match="over 99 bytes"):
            await client.get_bytes("/x", max_bytes=99)


async def four_at_a_time(client: KubeClient) -> bool:
    return client.large_responses == 4


async def test_four_large_responses_are_read_at_a_time_and_small_ones_do_not_wait(tmp_path: Path) -> None:
    begun = asyncio.Semaphore(0)
    rest = [asyncio.Event() for _ in range(5)]

    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}" + b" " * 2**20)
        begun.release()
        await rest[int(request.query["number"])].wait()
        return response

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers["/large"], server.handlers["/small"] = large, respond({"small": True})
        server.handlers["/list"] = raw(b'{"metadata": {"resourceVersion": "7"}, "items": []}' + b" " * 2**21)
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(client.get("/large", {"number": number})) for number in range(4)]
            for _ in reading:
                await begun.acquire()
            await eventually(partial(four_at_a_time, client), within=10, every=0.001)
            late = tasks.create_task(client.get("/large", {"number": 4}))
            rest[4].set()
            await begun.acquire()
            assert await client.get("/small") == {"small": True}
            assert not late.done(), "it waits, although the server has sent all of it"
            assert not (await list_objects(client, "/list", str)).items, "lists have slots of their own"
            rest[0].set()
            assert await reading[0] == {}
            assert await late == {}
            for event in rest:
                event.set()


async def test_large_response_has_its_slot_until_it_is_decoded_and_namespaces_take_turns(tmp_path: Path) -> None:
    order: list[str] = []
    settings = ClientSettings(large_responses=1)
    async with scripted_server() as server, connected(server, tmp_path, settings=settings) as client:
        server.handlers["/large"] = raw(b"{}" + b" " * 2**20)

        async def get(namespace: str) -> None:
            with for_namespace(namespace):
                await client.get("/large")
            order.append(namespace)

        def is_waiting(number: int) -> bool:
            return client._large.waiting == number

        async with AsyncExitStack() as held:
            assert len(await client.get_bytes("/large", held=held)) > 2**20
            async with asyncio.TaskGroup() as tasks:
                for number, namespace in enumerate(("shop", "shop", "shop", "other"), 1):
                    tasks.create_task(get(namespace))
                    await until(partial(is_waiting, number))
                await held.aclose()
    assert order == ["shop", "other", "shop", "shop"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), ("{}", "current-context"), ("a: [", "kubeconfig"), ("- 1", "kubeconfig")],
    ids=["missing", "empty", "not YAML", "a list"],
)
async def test_error_names_the_invalid_kubeconfig(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KubeConfigError, match=message) as raised:
        await KubeClient.connect(path)
    assert str(path) in str(raised.value)


async def test_kubeconfig_may_be_a_list_of_which_the_first_counts(tmp_path: Path) -> None:
    def written(name: str, server: str, *, current: str = "") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "token").write_text(name)
        config = {
            "clusters": [{"name": each, "cluster": {"server": server}} for each in ("shared", name)],
            "users": [{"name": name, "user": {"tokenFile": "token"}}],
            "contexts": [{"name": name, "context": {"cluster": "shared", "user": name}}],
            **({"current-context": current} if current else {}),
        }
        path = folder / "config"
        path.write_text(yaml.safe_dump(config))
        return path

    first, second = written("first", "http://127.0.0.1:1"), written("second", "http://127.0.0.1:2", current="second")
    several = Path(os.pathsep.join(map(str, (first, tmp_path / "missing", second))))
    config = await config_module.load_config(several)
    assert config.host == "http://127.0.0.1:1"
    assert await config.authorization() == {"authorization": "Bearer second"}
    assert await (await config_module.load_config(several, "first")).authorization() == {
        "authorization": "Bearer first"
    }


async def test_error_outside_a_pod_names_the_kubeconfig_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeConfigError, match="give --kubeconfig"):
        await KubeClient.connect(None)
