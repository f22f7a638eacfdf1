"""Histories are read by range queries: what is sent, and what becomes of responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from aiohttp import web

from adapter.catalog.inventory import ExternalSource
from adapter.forecasts.registry import HistoryError
from adapter.planning.history import pods_pattern, read_history
from adapter.planning.metric_queries import ExternalQuery
from adapter.prometheus import PrometheusClient, PrometheusError, PrometheusOptions, PrometheusServers
from adapter.prometheus.long_responses import MemoryBudget
from adapter.rules import parse_rules
from adapter.settings import PrometheusSettings
from kube.values.selectors import LabelSelector
from tests.adapter.scripted_prometheus import ScriptedPrometheus, never, responds

DAY: Final = 86_400
START: Final = 1_760_000_400


def matrix(*series: dict[str, Any], kind: str = "matrix", **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": list(series)}, **more}


def minutes(limit: int = DAY) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Respond with each minute's number; refuse ranges that are longer than a limit in minutes."""

    async def reply(request: web.Request) -> web.Response:
        start, end, step = (int(request.query[name]) for name in ("start", "end", "step"))
        if (end - start) // step >= limit:
            error = {"status": "error", "errorType": "execution", "error": "query processing would load too many"}
            return web.json_response(error, status=422)
        values = [[at, str(at // 60)] for at in range(start, end + 1, step)]
        return web.json_response(matrix({"metric": {}, "values": values}))

    return reply


async def history(
    prometheus: PrometheusServers,
    start: int,
    end: int,
    *,
    rule: str = "sum(orders)",
    selector: str = "",
    namespace: str = "shop",
    seconds: float = 10.0,
) -> list[tuple[float, float]]:
    [made] = parse_rules(f"externalRules: [{{name: orders, query: {rule}}}]", source="rules.yaml").external
    query = ExternalQuery(ExternalSource("orders", made, "", ""), namespace, LabelSelector.parse(selector))
    return await read_history(prometheus, query, start, end, of_pods=False, seconds=seconds)


async def test_history_is_read_a_day_at_a_time(server: ScriptedPrometheus) -> None:
    server.reply = minutes()
    async with PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        found = await history(prometheus, START, START + 2 * DAY)
    assert found == [(at, at // 60) for at in range(START, START + 2 * DAY + 1, 60)]
    sent = [(path, parameters["start"], parameters["end"]) for _, path, parameters in server.requests]
    assert sent == [
        ("/api/v1/query_range", str(START), str(START + DAY - 60)),
        ("/api/v1/query_range", str(START + DAY), str(START + 2 * DAY - 60)),
        ("/api/v1/query_range", str(START + 2 * DAY), str(START + 2 * DAY)),
    ]
    query = "sum by () ((sum(orders)\n) > -Inf < +Inf) or 0 * count by () ((sum(orders)\n))"
    assert [parameters["query"] for *_, parameters in server.requests] == [query] * 3


async def test_range_that_is_too_much_for_the_server_is_halved(server: ScriptedPrometheus) -> None:
    async with PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        server.reply = minutes(limit=400)
        found = await history(prometheus, START, START + DAY - 60)
        assert len(found) == 1440
        server.reply = minutes(limit=50)
        with pytest.raises(HistoryError, match="would load too many"):
            await history(prometheus, START, START + DAY)


async def test_all_queries_of_a_read_have_a_time_limit_together(server: ScriptedPrometheus) -> None:
    server.reply = never
    async with PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        with pytest.raises(HistoryError, match="reading it takes longer than"):
            await history(prometheus, START, START + 14 * DAY, seconds=0.05)


async def test_selected_series_are_added_and_values_that_are_no_numbers_left_out(server: ScriptedPrometheus) -> None:
    server.reply = responds(
        matrix(
            {"metric": {"queue": "a"}, "values": [[START, "1"], [START + 60, "2"], [START + 120, "NaN"]]},
            {"metric": {"queue": "b"}, "values": [[START + 60, "40"], [START + 180, "+Inf"]]},
            {"metric": {"queue": "c"}, "values": [[START, "500"]]},
        )
    )
    async with PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        found = await history(prometheus, START, START, rule="orders", selector="queue in (a,b)")
    assert found == [(START, 1), (START + 60, 42)]
    assert "by (queue)" in server.requests[0][2]["query"]


async def test_history_of_a_namespace_waits_in_its_queue(server: ScriptedPrometheus) -> None:
    """A full queue of one namespace does not refuse the histories of others."""
    server.reply = never
    options, settings = PrometheusOptions(url=server.url, connections=1), PrometheusSettings(waiting=1)
    async with PrometheusServers(options, settings=settings) as prometheus:

        def read(namespace: str) -> asyncio.Task[list[tuple[float, float]]]:
            return asyncio.create_task(history(prometheus, START, START, namespace=namespace))

        tasks = [read("shop")]
        await server.reached(1)
        tasks += [read("shop"), read("bank")]
        with pytest.raises(HistoryError, match="too many queries of the namespace wait"):
            await read("shop")
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (matrix(kind="vector"), "of type 'vector'"),
        (matrix({"metric": {}, "histograms": [[1, {}]]}), "native histograms"),
        (matrix({"metric": {}, "values": [[1, "x"]]}), "not a sample's value"),
        (matrix({"metric": {}, "values": [[-1, "1"]]}), "not a sample's time"),
        (matrix({"metric": {}, "values": [["1", 1]]}), "cannot be read"),
        (matrix(warnings=["a store is away"]), "partial"),
        (b"[" * 5_000_000, "longer than"),
    ],
)
async def test_responses_that_are_no_history_are_errors(server: ScriptedPrometheus, body: object, why: str) -> None:
    server.reply = responds(body)
    async with PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        with pytest.raises(PrometheusError, match=why):
            await prometheus.range("x", start=0, end=60, step=60)


async def test_memory_of_long_responses_is_in_the_budget_of_all(server: ScriptedPrometheus) -> None:
    server.reply = responds(matrix({"metric": {}, "values": [[at, "1"] for at in range(10_000)]}))
    for limit, fails in ((4, False), (1, True)):
        async with PrometheusClient(PrometheusOptions(url=server.url), budget=MemoryBudget(limit * 2**20)) as client:
            if fails:
                with pytest.raises(PrometheusError, match="takes more than 1 MiB of memory"):
                    await client.range("x", start=0, end=9_999, step=1)
            else:
                [series] = await client.range("x", start=0, end=9_999, step=1)
                assert len(series.points) == 10_000


async def test_reason_does_not_say_why_credentials_are_refused(server: ScriptedPrometheus) -> None:
    server.reply = responds({"error": "account 12345 has no role"}, status=403)
    async with PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        with pytest.raises(HistoryError, match=r"^Prometheus refuses the adapter's credentials$"):
            await history(prometheus, START, START)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["web-99cdfb4d9-x2x2x", "web-54bcd9cb5c-b5b5b"], "web-[456789bcdf]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}"),
        (["db-0", "db-11"], "db-[0-9]+"),
        (["agent-x2x2x"], "agent-[bcdfghjklmnpqrstvwxz2456789]{5}"),
        (["alone.1"], r"alone\.1"),
        (["db-0", "alone"], "db-[0-9]+|alone"),
    ],
)
def test_pods_are_those_of_the_same_workloads(names: list[str], pattern: str) -> None:
    assert pods_pattern(names) == pattern


def test_pods_of_too_many_workloads_have_no_history() -> None:
    with pytest.raises(HistoryError, match="pods of 9 workloads"):
        pods_pattern(f"db{number}-0" for number in range(9))
