"""The pages about decisions, over real HTTP: content and access."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from autoscaler.core.config import Config
from autoscaler.loop.endpoint import DebugAccess, debug_page, probe_handler, serving
from autoscaler.loop.telemetry import Telemetry
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.shadow import ShadowComparer
from kube.serving.health import Health
from tests.autoscaler.test_decision_log import record

SHADOW = ShadowComparer(sync_period=15, config=Config())

FLAGS = {"horizontal-pod-autoscaler-tolerance": "0.2"}


@pytest.fixture
def log() -> DecisionLog:
    log = DecisionLog(5)
    for number in range(3):
        log.add(record(number))
    return log


@asynccontextmanager
async def endpoint(
    log: DecisionLog, access: DebugAccess = DebugAccess.LOCAL, *, remote: str | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """The endpoint with the pages; `remote`: from where requests seem to come."""
    handler = probe_handler(
        Telemetry().render, Health(live={}, ready={}), page=debug_page(log, SHADOW, access, flags=FLAGS)
    )

    async def from_remote(request: web.BaseRequest, certificate: bytes | None) -> web.StreamResponse:
        return await handler(request if remote is None else request.clone(remote=remote), certificate)

    async with (
        serving(from_remote, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        yield http


@pytest.mark.parametrize(("query", "shown"), [("", [0, 1, 2]), ("?last=1", [2])])
async def test_last_decisions_of_an_hpa_are_oldest_first(query: str, shown: list[int], log: DecisionLog) -> None:
    async with endpoint(log) as http, http.get(f"/debug/decisions/default/web{query}") as response:
        page = await response.json()
    assert (response.status, response.content_type) == (200, "application/json")
    assert {key: page[key] for key in ("version", "namespace", "name")} == {
        "version": 1,
        "namespace": "default",
        "name": "web",
    }
    assert [each["desiredReplicas"] for each in page["decisions"]] == shown


@pytest.mark.parametrize("last", ["0", "-1", "two", "", "1.5", "²"])
async def test_invalid_last_is_a_bad_request(last: str, log: DecisionLog) -> None:
    async with endpoint(log) as http, http.get("/debug/decisions/default/web", params={"last": last}) as response:
        assert response.status == 400
        assert "a whole number from 1 on" in await response.text()


async def test_index_has_the_last_desired_replicas(log: DecisionLog) -> None:
    async with endpoint(log) as http:
        async with http.get("/debug/decisions?namespace=default&last=2") as response:
            assert (await response.json())["hpas"][0]["desiredReplicas"] == [1, 2]
        async with http.get("/debug/decisions?namespace=other&last=2") as response:
            assert (await response.json())["hpas"] == []
        async with http.get("/debug/decisions?last=some") as response:
            assert response.status == 400


async def test_hpa_without_decisions_is_not_found(log: DecisionLog) -> None:
    async with endpoint(log) as http, http.get("/debug/decisions/default/other") as response:
        assert response.status == 404
        assert "there are no decisions on default/other" in await response.text()


async def test_configuration_has_the_given_flags(log: DecisionLog) -> None:
    async with endpoint(log) as http, http.get("/debug/config") as response:
        assert await response.json() == {"version": 1, "flags": FLAGS, "rules": None}


PAGES = ("/debug/decisions", "/debug/decisions/default/web", "/debug/shadow", "/debug/config")


async def statuses(http: aiohttp.ClientSession) -> set[int]:
    """The statuses of all pages."""
    found = set()
    for page in PAGES:
        async with http.get(page) as response:
            found.add(response.status)
    return found


@pytest.mark.parametrize("remote", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_local_access_allows_loopback(remote: str, log: DecisionLog) -> None:
    async with endpoint(log, remote=remote) as http:
        assert await statuses(http) == {200}


@pytest.mark.parametrize("remote", ["10.0.0.7", "127.0.0.6", "::ffff:10.0.0.7", ""])
async def test_local_access_refuses_other_addresses(remote: str, log: DecisionLog) -> None:
    async with endpoint(log, remote=remote) as http:
        assert await statuses(http) == {403}
        async with http.get(PAGES[0]) as response:
            assert "kubectl port-forward" in await response.text()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", ""])
async def test_local_access_refuses_a_name_that_was_given_a_loopback_address(host: str, log: DecisionLog) -> None:
    async with endpoint(log) as http, http.get(PAGES[0], headers={"Host": host}) as response:
        assert response.status == 403


async def test_forwarded_header_does_not_make_a_connection_local(log: DecisionLog) -> None:
    claims = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "127.0.0.1"}
    async with endpoint(log, remote="10.0.0.7") as http, http.get(PAGES[0], headers=claims) as response:
        assert response.status == 403


@pytest.mark.parametrize(("access", "status"), [(DebugAccess.ALL, 200), (DebugAccess.OFF, 404)])
async def test_access_can_be_the_same_for_every_address(access: DebugAccess, status: int, log: DecisionLog) -> None:
    for remote in (None, "10.0.0.7"):
        async with endpoint(log, access, remote=remote) as http:
            assert await statuses(http) == {status}
