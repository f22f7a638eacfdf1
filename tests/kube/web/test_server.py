"""Pages on a loopback address: who may connect, what the responses allow, and what errors look like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from yarl import URL

from kube.serving.options import ServerLimits
from tests.kube.web.pages import ScriptedPages
from tests.kube.web.serving import served


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with served(ScriptedPages()) as url:
        yield url


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_everyone_on_loopback_sees_the_pages(url: str, http: aiohttp.ClientSession) -> None:
    async with http.get(url) as response:
        assert (response.status, await response.text()) == (200, "everyone")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8081", "127.0.0.1:80", "127.1.2.3", "[::1]:8081", "a.localhost"]
)
async def test_host_headers_of_loopback_are_allowed(url: str, http: aiohttp.ClientSession, host: str) -> None:
    async with http.get(url, headers={"Host": host}) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "[", "127.0.0.1@evil"]
)
async def test_other_host_headers_are_forbidden(url: str, http: aiohttp.ClientSession, host: str) -> None:
    for path in ("", "static/nothing"):
        async with http.get(url + path, headers={"Host": host}) as response:
            assert response.status == 403
            assert "kubectl port-forward" in await response.text()


async def test_every_response_has_the_headers_that_restrict_it_to_its_origin(
    url: str, http: aiohttp.ClientSession
) -> None:
    for path, status in (("", 200), ("nothing", 404), ("broken", 500)):
        async with http.get(url + path) as response:
            assert response.status == status
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("mode", "status"), [("no-cors", 403), ("cors", 403), ("navigate", 200)])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_other_origins_can_only_link_to_pages(
    url: str, http: aiohttp.ClientSession, site: str, mode: str, status: int
) -> None:
    async with http.get(url, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}) as response:
        assert response.status == status


async def test_static_files_are_cached_and_pages_are_not(url: str, http: aiohttp.ClientSession) -> None:
    css = ScriptedPages().static.url("base.css")
    async with http.get(url.rstrip("/") + css) as response:
        assert response.content_type == "text/css"
        assert "immutable" in response.headers["Cache-Control"]
        assert "--bg" in await response.text()


@pytest.mark.parametrize("path", ["static", "static/", "static/base.css", "static/a/b", "static/..%2fserver.py"])
async def test_other_static_files_are_not_found(url: str, http: aiohttp.ClientSession, path: str) -> None:
    async with http.get(URL(url + path, encoded=True)) as response:
        assert response.status in (400, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_pages_can_only_be_read(url: str, http: aiohttp.ClientSession, method: str) -> None:
    async with http.request(method, url) as response:
        assert response.status == 405


async def test_few_requests_are_handled_at_a_time_and_a_few_more_wait(http: aiohttp.ClientSession) -> None:
    pages = ScriptedPages()

    async def get(url: str) -> int:
        async with http.get(url + "held") as response:
            return response.status

    async with served(pages, limits=ServerLimits(connections=200, in_flight=2, shutdown_seconds=1.0)) as url:
        requests = [asyncio.create_task(get(url)) for _ in range(70)]
        refused, waiting = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        while len(refused) < 4:
            refused, waiting = await asyncio.wait(requests, timeout=0.01)
        pages.held.set()
        assert {await each for each in refused} == {429}
        assert [await each for each in waiting] == [200] * 66


async def test_a_page_that_takes_too_long_is_a_timeout(http: aiohttp.ClientSession) -> None:
    limits = ServerLimits(connections=200, request_seconds=0.01, shutdown_seconds=1.0)
    async with served(ScriptedPages(), limits=limits) as url, http.get(url + "held") as response:
        assert response.status == 504
        assert "did not complete within the allotted timeout" in await response.text()


async def test_head_has_no_body(url: str, http: aiohttp.ClientSession) -> None:
    async with http.head(url) as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_an_error_page_escapes_its_message(url: str, http: aiohttp.ClientSession) -> None:
    async with http.get(url + "nothing") as response:
        text = await response.text()
    assert "<h1>404 Not found</h1>" in text
    assert "there is no page &#34;&lt;i&gt;&#34;" in text


async def test_an_exception_in_a_page_is_logged_and_the_server_goes_on(
    url: str, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with http.get(url + "broken") as response:
        assert response.status == 500
        assert "a bug" not in await response.text()
    assert "could not respond to GET /broken" in caplog.text
    async with http.get(url) as response:
        assert response.status == 200
