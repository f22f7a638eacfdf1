"""What PrometheusServers sends and accepts for the rules of a namespace."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
from aiohttp import web

from adapter.planning.vectors import VectorCache
from adapter.prometheus import (
    Destination,
    PrometheusBusy,
    PrometheusOptions,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusServers,
    PrometheusTimeout,
    Tenant,
    Vector,
)
from adapter.prometheus import servers as prometheus_servers
from adapter.promql import restrict_query, restrict_selector
from adapter.rules import RulesError, parse_rules
from adapter.rules.objects import Tenancy, read_object
from adapter.settings import PrometheusSettings
from tests.adapter.promql_queries import REFUSED, RESTRICTED
from tests.adapter.scripted_prometheus import ScriptedPrometheus, never, responds
from tests.deadlines import after

RANGE: Final = {"start": 0, "end": 60, "step": 60}
SHOP = Tenant(namespace="shop", label="namespace")
BANK = Tenant(namespace="bank", label="namespace")


@pytest.fixture
async def servers(server: ScriptedPrometheus) -> AsyncIterator[PrometheusServers]:
    async with PrometheusServers(PrometheusOptions(url=server.url)) as running:
        yield running


def vector(samples: int) -> dict[str, Any]:
    result = [{"metric": {"pod": f"web-{n:05}"}, "value": [1, str(n)]} for n in range(samples)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def matrix(series: int) -> dict[str, Any]:
    result = [{"metric": {"pod": f"web-{n:05}"}, "values": [[1, str(n)]]} for n in range(series)]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def listing(series: int) -> dict[str, Any]:
    return {"status": "success", "data": [{"__name__": "x", "pod": f"web-{n:05}"} for n in range(series)]}


def requests(servers: PrometheusServers, destination: Destination) -> tuple[Awaitable[object], ...]:
    """A query, a query over a range and a list of series."""
    return (
        servers.instant("x", destination=destination),
        servers.range("x", **RANGE, destination=destination),
        servers.series("x", start=0, end=1, destination=destination),
    )


async def test_every_hostile_query_is_sent_restricted_or_not_at_all(
    servers: PrometheusServers, server: ScriptedPrometheus
) -> None:
    for query in RESTRICTED:
        await servers.instant(query, destination=Destination(tenant=SHOP))
    for query in REFUSED:
        with pytest.raises(PrometheusQueryError, match="cannot be restricted to namespace='shop': "):
            await servers.instant(query, destination=Destination(tenant=SHOP))
        with pytest.raises(PrometheusQueryError):
            await servers.series(query, start=0, end=1, destination=Destination(tenant=SHOP))
        with pytest.raises(PrometheusQueryError, match="cannot be restricted to namespace='shop': "):
            await servers.range(query, **RANGE, destination=Destination(tenant=SHOP))
    server.reply = responds(matrix(1))
    for query in RESTRICTED:
        await servers.range(query, **RANGE, destination=Destination(tenant=SHOP))
    sent = [parameters["query"] for _, _, parameters in server.requests]
    assert sent == [restrict_query(query, label="namespace", value="shop") for query in (*RESTRICTED, *RESTRICTED)]


async def test_each_namespace_gets_its_own_label(servers: PrometheusServers, server: ScriptedPrometheus) -> None:
    """Also for the same query, which the caches of restricted queries and of results keep apart."""
    async with VectorCache(servers, ttl=60) as cache:
        for namespace in ("shop", "bank", "shop", "bank"):
            tenant = Tenant(namespace=namespace, label="namespace")
            await cache.instant("x", deadline=after(10), destination=Destination(tenant=tenant))
    sent = [parameters["query"] for _, _, parameters in server.requests]
    assert sent == ['x{namespace="shop"}', 'x{namespace="bank"}']


async def test_text_that_is_valid_as_a_query_is_not_sent_as_a_selector(
    servers: PrometheusServers, server: ScriptedPrometheus
) -> None:
    """The results of one are not taken for the other."""
    for text in ("sum(x)", "x offset 5m"):
        await servers.instant(text, destination=Destination(tenant=SHOP))
        with pytest.raises(PrometheusQueryError, match="not a selector"):
            await servers.series(text, start=0, end=1, destination=Destination(tenant=SHOP))
        await servers.instant(text, destination=Destination(tenant=SHOP))
    assert [path for path, *_ in server.requests].count("/api/v1/series") == 0
    assert len(server.requests) == 4


async def test_without_a_label_queries_are_sent_unchanged(
    servers: PrometheusServers, server: ScriptedPrometheus
) -> None:
    await servers.instant("x default 0", destination=Destination(tenant=Tenant(namespace="shop")))
    assert server.requests[0][2]["query"] == "x default 0"


async def test_headers_are_refused(servers: PrometheusServers, server: ScriptedPrometheus) -> None:
    destination = Destination(headers=(("X-Scope-OrgID", "bank"),), tenant=SHOP)
    for request in requests(servers, destination):
        with pytest.raises(PrometheusQueryError, match="cannot set headers"):
            await request
    assert not server.requests


async def test_other_servers_need_permission(servers: PrometheusServers, server: ScriptedPrometheus) -> None:
    closed = Destination(PrometheusOptions(url=server.url, name="billing"), tenant=SHOP)
    for request in requests(servers, closed):
        with pytest.raises(PrometheusQueryError, match=r"prometheusServers\.billing has no `tenants: true`"):
            await request
    assert not server.requests
    open_to_all = Destination(PrometheusOptions(url=server.url, name="apps", tenants=True), tenant=SHOP)
    assert isinstance(await servers.instant("x", destination=open_to_all), Vector)


def test_the_rules_file_opens_a_server_to_tenants() -> None:
    text = "prometheusServers: {apps: {url: http://a, tenants: true}, billing: {url: http://b}}"
    read = parse_rules(text, source="rules.yaml").prometheus_servers
    assert (read["apps"].tenants, read["billing"].tenants) == (True, False)
    with pytest.raises(RulesError, match="tenants"):
        parse_rules("prometheusServers: {apps: {url: http://a, tenants: all}}", source="rules.yaml")


@pytest.mark.parametrize(("namespace", "valid"), [("shop", False), ("", True)])
def test_a_metric_rule_that_names_a_server_without_permission_is_invalid(namespace: str, valid: bool) -> None:
    servers = {"billing": PrometheusOptions(url="http://b", name="billing")}
    spec = {"type": "External", "metric": "queue", "query": "sum(queue)", "prometheus": "billing"}
    obj = {
        "kind": "MetricRule" if namespace else "ClusterMetricRule",
        "metadata": {"name": "queue", "namespace": namespace},
        "spec": spec,
    }
    read = read_object(obj, servers=servers, tenancy=Tenancy())
    assert bool(read.rules) == valid
    # The message is that of a server that does not exist: names of servers may tell about others.
    why = "spec.prometheus: there is no server 'billing' in prometheusServers; there are default"
    assert read.error == ("" if valid else why)


@pytest.mark.parametrize("samples", [3, 10_000])
async def test_a_result_of_too_many_samples_is_an_error(
    servers: PrometheusServers, server: ScriptedPrometheus, samples: int
) -> None:
    """Short results are decoded at once, long ones in pieces."""
    server.reply = responds(vector(samples))
    enough = Destination(tenant=Tenant(namespace="shop", max_samples=samples))
    assert isinstance(await servers.instant("x", destination=enough), Vector)
    too_few = Destination(tenant=Tenant(namespace="shop", max_samples=samples - 1))
    with pytest.raises(PrometheusResultError, match=f"more than {samples - 1} samples.*aggregate more"):
        await servers.instant("x", destination=too_few)
    server.reply = responds(matrix(samples))
    assert len(await servers.range("x", **RANGE, destination=enough)) == samples
    with pytest.raises(PrometheusResultError, match=f"more than {samples - 1} samples.*aggregate more"):
        await servers.range("x", **RANGE, destination=too_few)


@pytest.mark.parametrize("series", [3, 10_000])
async def test_a_list_of_too_many_series_is_an_error(
    servers: PrometheusServers, server: ScriptedPrometheus, series: int
) -> None:
    server.reply = responds(listing(series))
    enough = Destination(tenant=Tenant(namespace="shop", max_samples=series))
    assert await servers.series("x", start=0, end=1, destination=enough)
    too_few = Destination(tenant=Tenant(namespace="shop", max_samples=series - 1))
    with pytest.raises(PrometheusResultError, match=f"more than {series - 1} series.*select fewer"):
        await servers.series("x", start=0, end=1, destination=too_few)


async def test_a_result_is_read_only_up_to_the_limit(servers: PrometheusServers, server: ScriptedPrometheus) -> None:
    def begins(body: dict[str, Any]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def reply(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(json.dumps(body).encode())
            return await never(request)

        return reply

    destination = Destination(tenant=Tenant(namespace="shop", max_samples=100))
    server.reply = begins(vector(10_000))
    with pytest.raises(PrometheusResultError):
        await servers.instant("x", destination=destination)
    server.reply = begins(listing(10_000))
    with pytest.raises(PrometheusResultError):
        await servers.series("x", start=0, end=1, destination=destination)


async def test_prometheus_gets_the_time_of_the_tenant(servers: PrometheusServers, server: ScriptedPrometheus) -> None:
    destination = Destination(tenant=Tenant(namespace="shop", query_seconds=3))
    await servers.instant("x", destination=destination)
    await servers.instant("x", destination=destination, deadline=after(0.9))
    await servers.instant("x", destination=Destination(tenant=Tenant(namespace="shop", query_seconds=99)))
    first, second, third = (float(parameters["timeout"]) for _, _, parameters in server.requests)
    assert first == 3
    assert second <= 0.9
    assert third == 20  # the server's own


async def test_queries_end_after_the_time_of_the_tenant(servers: PrometheusServers, server: ScriptedPrometheus) -> None:
    server.reply = never
    destination = Destination(tenant=Tenant(namespace="shop", query_seconds=0.02))
    for request in requests(servers, destination):
        with pytest.raises(PrometheusTimeout):
            await request


async def test_queries_wait_in_the_queue_of_the_tenants_namespace(server: ScriptedPrometheus) -> None:
    """Also those that no request causes, such as checks; a full queue of one namespace does not refuse others."""
    server.reply = never
    options, settings = PrometheusOptions(url=server.url, connections=1), PrometheusSettings(waiting=1)
    async with PrometheusServers(options, settings=settings) as servers, VectorCache(servers, ttl=60) as cache:

        def query(text: str, namespace: str) -> asyncio.Task[Vector]:
            destination = Destination(tenant=Tenant(namespace=namespace))
            return asyncio.create_task(cache.instant(text, deadline=after(10), destination=destination))

        tasks = [query("a", "shop")]
        await server.reached(1)
        tasks += [query("b", "shop"), query("c", "bank")]
        with pytest.raises(PrometheusBusy) as caught:
            await query("d", "shop")
        assert caught.value.namespace == "shop"
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_long_lists_of_names_are_restricted() -> None:
    names = "|".join(f"web-7d9f8b6c5d-{number:05}" for number in range(2000))
    restricted = restrict_selector(f'x{{pod=~"{names}"}}', label="namespace", value="shop")
    assert restricted == f'x{{namespace="shop",pod=~"{names}"}}'


async def test_queries_are_restricted_in_a_thread_unless_they_are_short(
    servers: PrometheusServers, server: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one takes up to 40 ms. Each is restricted once, however many queries another namespace has."""
    threads: dict[str, list[int]] = {}

    def noted(query: str, *, label: str, value: str) -> str:
        threads.setdefault(query, []).append(threading.get_ident())
        return restrict_query(query, label=label, value=value)

    monkeypatch.setattr(prometheus_servers, "restrict_query", noted)
    monkeypatch.setattr(prometheus_servers, "_CACHED_CHARACTERS", 20_000)
    queries = prometheus_servers.TenantQueries()
    long = f'x{{a="{"b" * 100}"}}'
    for query in ("x", long):
        await queries.restricted(query, SHOP, is_selector=False)
    for number in range(100):
        await queries.restricted(f'x{{a="{number}{"b" * 500}"}}', BANK, is_selector=False)
    for query in ("x", long):
        await queries.restricted(query, SHOP, is_selector=False)
    own = threading.get_ident()
    assert threads["x"] == [own]
    [elsewhere] = threads[long]
    assert elsewhere != own
