"""The playground's Prometheus is real: it takes samples, scrapes its targets, survives an outage, leaves nothing."""

import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from playground.prometheus import PrometheusError, PrometheusServer, Series, Target, openmetrics
from tests.eventually import eventually
from tests.web_servers import served

pytestmark = pytest.mark.e2e


async def query(server: PrometheusServer, expression: str, **parameters: str) -> list[dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/api/v1/query", params={"query": expression, **parameters}) as response,
    ):
        body = await response.json()
        assert body["status"] == "success", body
        result: list[dict[str, Any]] = body["data"]["result"]
        return result


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_loaded_samples_can_be_queried(tmp_path: Path) -> None:
    start = 1_700_000_000
    series = [
        Series(
            "packets_total", {"pod": f"web-{pod}", "odd": 'a"\\b'}, [(start + t, float(rate * t)) for t in range(61)]
        )
        for pod, rate in enumerate([10, 20])
    ]
    async with PrometheusServer(tmp_path, samples=openmetrics(series)) as server:
        result = await query(server, "rate(packets_total[30s])", time=str(start + 60))
        assert {one["metric"]["pod"]: float(one["value"][1]) for one in result} == {"web-0": 10.0, "web-1": 20.0}
        assert result[0]["metric"]["odd"] == 'a"\\b'


async def test_targets_are_scraped_and_an_outage_keeps_address_and_data(tmp_path: Path) -> None:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text="requests_total 7\n")

    async with served(metrics) as url, PrometheusServer(tmp_path, scrape_interval=0.2) as server:
        await server.set_targets([Target(address=url.removeprefix("http://"), labels={"pod": "web-0"})])
        result = await eventually(lambda: query(server, "requests_total"), within=30)
        assert result[0]["metric"]["pod"] == "web-0"
        assert result[0]["value"][1] == "7"

        url, first = server.url, server.process.pid
        await server.stop()
        assert not running(first)
        with pytest.raises(aiohttp.ClientConnectionError):
            await query(server, "requests_total")
        await server.start()
        assert server.url == url
        # Also where the last scrape timed out, after which the newest value is a staleness marker.
        assert await query(server, "count_over_time(requests_total[5m])")
        second = server.process.pid
    assert not running(second)


async def test_error_of_malformed_samples_quotes_promtool(tmp_path: Path) -> None:
    with pytest.raises(PrometheusError, match=r"promtool refused the samples: .*"):
        async with PrometheusServer(tmp_path, samples="up{ 1\n# EOF\n"):
            pass


async def test_error_of_a_failed_start_has_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(PrometheusError, match=r"ended while starting(.|\n)*data"):
        async with PrometheusServer(tmp_path):
            pass
