"""The health and metrics endpoint, over real HTTP."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from autoscaler.loop.endpoint import probe_handler, serving
from kube.serving.health import Health
from tests.eventually import eventually


def metrics() -> bytes:
    return b"objects 0.0\n"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    handler = probe_handler(metrics, Health(live={}, ready={"objects": lambda: "not listed yet"}))
    async with (
        serving(handler, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


async def get(http: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with http.get(path) as response:
        return response.status, await response.text()


async def test_the_process_is_alive_before_it_is_ready(http: aiohttp.ClientSession) -> None:
    assert await get(http, "/livez") == (200, "ok")
    assert await get(http, "/readyz") == (500, "[+]ping ok\n[-]objects failed: not listed yet\nreadyz check failed\n")
    assert await get(http, "/livez/objects") == (404, "404: Not Found")
    status, metrics = await get(http, "/metrics/slis")
    assert (status, 'kubernetes_healthcheck{name="objects",type="readyz"} 0.0' in metrics) == (200, True)


async def test_a_note_is_shown_where_one_looks_closely_and_fails_nothing() -> None:
    note: dict[str, str | None] = {"text": None}
    handler = probe_handler(metrics, Health(live={}, ready={}, notes={"foreignWriter": lambda: note["text"]}))
    async with (
        serving(handler, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        assert await get(http, "/readyz?verbose") == (200, "[+]ping ok\nreadyz check passed\n")
        note["text"] = "there is another one"
        assert await get(http, "/readyz?verbose") == (
            200,
            "[+]ping ok\n[!]foreignWriter: there is another one\nreadyz check passed\n",
        )
        assert await get(http, "/readyz") == (200, "ok")
        assert await get(http, "/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")


async def test_metrics_are_in_prometheus_text_format(http: aiohttp.ClientSession) -> None:
    async with http.get("/metrics") as response:
        assert response.content_type == "text/plain"
        assert await response.text() == "objects 0.0\n"
    async with http.post("/metrics", data=b"x") as response:
        assert response.status == 405, "only reading is allowed"


async def test_idle_connections_of_others_do_not_lock_out_the_kubelet() -> None:
    async with serving(probe_handler(metrics, Health(live={}, ready={})), host="127.0.0.1", port=0) as port:
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(150)]
        for _, writer in others:
            writer.write(b"GET /livez HTTP/1.1\r\nHost: a")  # never ends
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            assert await get(http, "/livez") == (200, "ok")

        async def enough_are_closed() -> bool:
            return sum(reader.exception() is not None or reader.at_eof() for reader, _ in others) >= 50

        await eventually(enough_are_closed)
        for _, writer in others:
            writer.close()


async def test_requests_for_metrics_share_one_response_and_too_many_are_refused() -> None:
    made, release = [0], threading.Event()

    def slow_metrics() -> bytes:
        made[0] += 1
        release.wait(10)
        return b"objects 0.0\n"

    handler = probe_handler(slow_metrics, Health(live={}, ready={}))
    async with (
        serving(handler, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        requests = {asyncio.create_task(get(http, "/metrics")) for _ in range(20)}
        refused: set[asyncio.Task[tuple[int, str]]] = set()
        while len(refused) < 4:
            done, requests = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert await get(http, "/livez") == (200, "ok")
        release.set()
        assert [task.result()[0] for task in refused] == [429] * 4
        assert await asyncio.gather(*requests) == [(200, "objects 0.0\n")] * 16
    assert made == [1]


@pytest.mark.looptime
async def test_making_metrics_takes_at_most_a_quarter_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float] = []

    async def slow(make: Callable[[], bytes]) -> bytes:
        started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(5)
        return make()

    monkeypatch.setattr("asyncio.to_thread", slow)
    handler = probe_handler(lambda: b"objects 0.0\n", Health(live={}, ready={}))
    for _ in range(3):
        await handler(make_mocked_request("GET", "/metrics"), None)
    assert [later - earlier for earlier, later in pairwise(started)] == pytest.approx([20.0, 20.0])
