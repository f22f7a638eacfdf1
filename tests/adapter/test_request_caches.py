"""Caches of parts of requests: an entry is only used for its own user and target, and sizes are bounded.

Users are read once for each way in which the front proxy names them, decisions about access are kept for their time,
and targets are read once.
"""

from __future__ import annotations

import datetime
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapter.serving.server import RequestLines
from bench.recorded_heads import RecordedRequest, recorded_requests
from kube.api.status import StatusError
from kube.security.authentication import Authenticator, FrontProxyUsers, RawHeaders, TokenReviewer, User
from kube.security.authorization import AuthorizationOptions, Authorizer
from kube.security.request_info import RequestInfo, Target
from tests.adapter.front_proxy import front_proxy
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, ServedAdapter, served_adapter
from tests.adapter.test_authentication import der, trusting
from tests.adapter.test_recorded_heads import publish_uid_header, specs
from tests.kube.access_api import FRONT_PROXY, Authorities
from tests.kube.scripted import connected, scripted_server

MIB = 1024 * 1024
INFO = RequestInfo.of("GET", Target.parse(POD_PATH))


def named(user: str, *more: tuple[str, str]) -> RecordedRequest:
    """The recorded request of the HPA controller for a pod's metric, for another user."""
    recorded = next(request for request in recorded_requests() if request.client == "kcm")
    headers = [(name, user if name == "X-Remote-User" else value) for name, value in recorded.headers]
    return RecordedRequest("kcm", "GET", POD_PATH, "1.1", (*headers, *more))


async def test_users_that_alternate_on_one_connection_are_distinguished(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, front_proxy(adapter) as connection:
        for _ in range(3):
            for user, code in (("bob", 200), ("mallory", 403), ("Bob", 403), ("bob ", 200), ("bob\u00a0", 403)):
                assert (await connection.send(named(user).head()))[0] == code, user
    assert [spec["user"] for spec in specs(adapter)] == ["bob", "mallory", "Bob", "bob\u00a0"]


@pytest.mark.parametrize(
    "more",
    [("X-Remote-Group", "readers"), ("X-Remote-Uid", "7"), ("X-Remote-Extra-Scopes", "metrics")],
    ids=["groups", "uid", "extra"],
)
async def test_two_users_of_one_name_are_not_the_same(new_adapter: ServedAdapter, more: tuple[str, str]) -> None:
    """A right may hang on everything that is known of a user."""
    new_adapter.api.allowed = lambda spec: (
        "readers" in spec["groups"] or "uid" in spec or "scopes" in spec.get("extra", {})
    )
    await publish_uid_header(new_adapter)
    async with front_proxy(new_adapter) as connection:
        for _ in range(2):
            assert (await connection.send(named("ann", more).head()))[0] == 200
            assert (await connection.send(named("ann").head()))[0] == 403


@pytest.mark.parametrize("name", ["Impersonate-User", "impersonate-group", "IMPERSONATE-EXTRA-x", "iMPERSONATE-Uid"])
async def test_impersonation_is_refused_for_a_cached_user_too(tmp_path: Path, name: str) -> None:
    async with served_adapter(tmp_path) as adapter, front_proxy(adapter) as connection:
        for more, code in (((), 200), (((name, "admin"),), 403), ((), 200)):
            assert (await connection.send(named("bob", *more).head()))[0] == code


async def test_spaces_around_raw_header_values_do_not_count(tmp_path: Path) -> None:
    """Those at the end are left by aiohttp 3.14.1."""
    authorities = Authorities()
    certificate = der(authorities.front_proxy.issue(FRONT_PROXY, client=True))
    async with scripted_server() as server, connected(server, tmp_path) as client:
        authenticator = Authenticator(lambda: trusting(authorities), TokenReviewer(client, ttl=10.0))
        user = await authenticator.authenticate(
            certificate, ((b"X-Remote-User", b"bob \t"), (b"X-Remote-Group", b"readers "))
        )
        assert (user.name, user.groups[0]) == ("bob", "readers")


async def test_front_proxys_certificate_is_verified_again_when_the_cas_change(tmp_path: Path) -> None:
    """At once, of a user and a certificate that were known a moment ago."""
    before, after = Authorities(), Authorities()
    certificate = der(before.front_proxy.issue(FRONT_PROXY, client=True))
    headers = ((b"X-Remote-User", b"bob"),)
    trust = [trusting(before)]
    now = datetime.datetime.now(datetime.UTC)
    async with scripted_server() as server, connected(server, tmp_path) as client:
        authenticator = Authenticator(lambda: trust[0], TokenReviewer(client, ttl=10.0), clock=lambda: now.timestamp())
        assert (await authenticator.authenticate(certificate, headers)).name == "bob"
        trust[0] = trusting(after)
        with pytest.raises(StatusError, match="Unauthorized"):
            await authenticator.authenticate(certificate, headers)


async def test_targets_that_look_alike_are_not_the_same(tmp_path: Path) -> None:
    paths = {
        POD_PATH: ("ns-1", "pod-1-0"),
        POD_PATH.replace("pod-1-0", "POD-1-0"): ("ns-1", "POD-1-0"),
        POD_PATH.replace("ns-1", "NS-1"): ("NS-1", "pod-1-0"),
        POD_PATH.replace("pod-1-0", "pod%2D1-0"): ("ns-1", "pod-1-0"),
        POD_PATH.replace("pod-1-0", "pod%252D1-0"): ("ns-1", "pod%2D1-0"),
        POD_PATH + "?metricLabelSelector=a%3Db": ("ns-1", "pod-1-0"),
    }
    async with served_adapter(tmp_path) as adapter:
        for _ in range(2):
            adapter.metrics.requests.clear()
            for path in paths:
                assert (await adapter.request_as_master(path)).status == 200
            asked = [(one["namespace"], one["name"]) for one in adapter.metrics.requests]
            assert asked == list(paths.values())
            assert [str(one["metric_selector"]) for one in adapter.metrics.requests] == [*[""] * 5, "a=b"]


@pytest.mark.parametrize("path", [POD_PATH, EXTERNAL_PATH])
async def test_cached_target_is_validated_again(new_adapter: ServedAdapter, path: str) -> None:
    """The method, the media type and the parameters are validated although the target is cached."""
    for _ in range(2):
        assert (await new_adapter.request_as_master(path)).status == 200
        assert (await new_adapter.request_as_master(path, method="POST")).status == 405
        assert (await new_adapter.request_as_master(path, headers={"Accept": "text/html"})).status == 406
        assert (await new_adapter.request_as_master(f"{path}?metricLabelSelector=%3D&labelSelector=%3D")).status == 400
        assert (await new_adapter.request_as_master(f"{path}?limit=x")).status == 400
        assert (await new_adapter.request_as_master(f"{path}?timeout=x")).status == 400


def grown(fill: Callable[[], object]) -> int:
    """The bytes that are in use after filling something."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = fill()
        after = tracemalloc.get_traced_memory()[0]
        assert kept is not None
        return after - before
    finally:
        tracemalloc.stop()


def test_cached_request_lines_are_bounded_in_bytes() -> None:
    def fill() -> RequestLines:
        lines = RequestLines(lambda _: False, 2 * MIB)
        for number in range(30):
            line = lines.parse("GET", f"/apis/x/y/z{number}?" + "&".join(["a=%62%63"] * 900))
            assert line.target.query.get("a") == "bc"
            assert line.target.segments[-1] == f"z{number}"
        return lines

    assert grown(fill) < 3 * MIB


def test_cached_users_are_bounded_in_bytes() -> None:
    proxy = trusting(Authorities()).front_proxy
    assert proxy is not None

    def fill() -> FrontProxyUsers:
        users = FrontProxyUsers(proxy)
        for number in range(1_500):
            headers: RawHeaders = ((b"X-Remote-User", b"bob"), (b"X-Remote-Extra-A", b"%d" % number + b"a" * 10_000))
            user = users.user(headers)
            assert user is not None
            assert users.user(headers) is user
        return users

    assert grown(fill) < 8 * MIB


async def test_cached_decisions_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        authorizer = Authorizer(client, AuthorizationOptions(authorized_ttl=1e9))

        async def post(*_: Any, **__: Any) -> dict[str, Any]:
            return {"status": {"allowed": True}}

        monkeypatch.setattr(client, "post", post)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(800):
                info = RequestInfo.of("GET", Target.parse(f"{POD_PATH}{number}-" + "a" * 30_000))
                await authorizer.authorize(User("bob"), info)
            assert tracemalloc.get_traced_memory()[0] - before < 24 * MIB
        finally:
            tracemalloc.stop()
