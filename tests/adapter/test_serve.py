"""`serve` in this process: caches beside those of custom metrics, the garbage collector, and the shutdown delay.

Merged queries of custom metrics, and reloaded rules, are in test_process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web

from adapter.commands import serve as serve_module
from adapter.commands.flags import CatalogOptions, KubernetesOptions, PrometheusAccess, ServeOptions
from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.commands.serve import delayed, serve
from adapter.commands.serving_flags import ServingOptions
from adapter.prometheus import PrometheusOptions
from adapter.rules import load_rules
from adapter.settings import DEFAULTS, RulesSettings, Settings
from kube.security.tls import TLSOptions
from kube.serving.options import AuthOptions
from kube.web.options import UIAddress
from playground.ports import LOOPBACK, free_port
from tests.adapter.front_proxy import Connection, front_proxy
from tests.adapter.metrics_env import RESOURCES, RULES
from tests.adapter.serving import ServedAdapter
from tests.adapter.test_forward import API, other_adapter
from tests.eventually import eventually
from tests.kube.access_api import AccessApi, Authorities, write_pair
from tests.kube.scripted import Collection, ScriptedServer, scripted_server, thing
from tests.process_parts import Parts, changed, check_settings

TAKEN = {
    "caches.requests_bytes",
    "caches.results_bytes",
    "forward.cache_bytes",
    "forward.requests",
    "forward.waiting",
    "pages.events_per_second",
    "prometheus.query_seconds",
    "prometheus.url_bytes",
    "prometheus.waiting",
    "reviews.decision_bytes",
    "reviews.tokens",
    "rule_objects.burst",
    "rule_objects.lists",
    "rule_objects.requests_per_second",
    "rule_objects.total_bytes",
    "rules.poll_seconds",
}
"""Settings whose value a part of the process has; of others it has the group."""
PACKETS = """
rules:
- seriesQuery: packets_total
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
POD = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop"


class Prometheus:
    """A Prometheus with series of some names. `listed` lets the series be listed.

    `value_of` returns the value of each query, and can delay it.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self.queries: list[str] = []
        self.requests: asyncio.Queue[str] = asyncio.Queue()
        self.listed = asyncio.Event()
        self.listed.set()
        self.names = ["packets_total"]
        self.value_of: Callable[[str], Awaitable[str]] = one
        server.handlers |= {"/api/v1/series": self._series, "/api/v1/query": self._query}

    async def _series(self, request: web.Request) -> web.StreamResponse:
        self.requests.put_nowait("series")
        await self.listed.wait()
        names = [name for name in self.names if name in request.query["match[]"]]
        found = [{"__name__": name, "namespace": "shop", "pod": "web-0"} for name in names]
        return web.json_response({"status": "success", "data": found})

    async def _query(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(request.query["query"])
        value = await self.value_of(request.query["query"])
        samples = [
            {"metric": {"namespace": space, "pod": f"web-{pod}", "container": "app"}, "value": [1e9, value]}
            for space in ("shop", "bank", "club")
            for pod in range(3)
            if ".+" in request.query["query"] or f'namespace="{space}"' in request.query["query"]
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": samples}})


async def one(_: str) -> str:
    """The same value at once."""
    return "1"


class Pods(Collection):
    """Nine pods. `listed` lets them be listed."""

    def __init__(self) -> None:
        super().__init__()
        self.items = [thing(f"web-{n}", "1", namespace=space) for space in ("shop", "bank", "club") for n in range(3)]
        self.listed = asyncio.Event()
        self.listed.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await self.listed.wait()
        return await super().handle(request)


class Running:
    """A running adapter, its Prometheus and its pods."""

    def __init__(self, client: ServedAdapter, prometheus: Prometheus, pods: Pods) -> None:
        self.client, self.prometheus, self.pods = client, prometheus, pods

    async def ready(self) -> bool:
        try:
            return (await self.client.request("/readyz")).status == 200
        except OSError:
            return False

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Connect as the front proxy, once the adapter is ready and has the pods."""
        assert await eventually(self.ready, within=20.0)
        (await asyncio.wait_for(self.pods.watches.get(), 60)).open()
        async with front_proxy(self.client) as connection:
            yield connection


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    rules: str,
    *,
    freshness: float = 60.0,
    hold: str = "",
    relist_interval: float = 60.0,
    shutdown_delay: float = 0.05,
    ui_address: UIAddress | None = None,
    debug_endpoints: str = "local",
    settings: Settings = DEFAULTS,
    metric_rules: bool = False,
) -> AsyncIterator[Running]:
    """Run `serve` with these rules, where PROMETHEUS becomes a URL; `hold` delays a list: "pods" or "series"."""
    authorities = Authorities()
    access = AccessApi(authorities)
    pods = Pods()
    client = ServedAdapter(folder, authorities, access)
    client.port = free_port()
    async with scripted_server() as api, scripted_server() as prometheus_server:
        access.script(api)
        api.handlers |= RESOURCES | {"/api/v1/pods": pods.handle}
        (folder / "config.yaml").write_text(rules.replace("PROMETHEUS", prometheus_server.url))
        prometheus = Prometheus(prometheus_server)
        if hold == "series":
            prometheus.listed.clear()
        if hold == "pods":
            pods.listed.clear()
        pair = write_pair(folder, authorities.serving.issue("adapter", hosts=[LOOPBACK], server=True))
        kubeconfig = api.kubeconfig(folder)
        options = ServeOptions(
            config=folder / "config.yaml",
            prometheus=PrometheusAccess(options=PrometheusOptions(url=prometheus_server.url)),
            catalog=CatalogOptions(relist_interval=relist_interval, max_age=120.0, freshness=freshness),
            kubernetes=KubernetesOptions(
                lister_kubeconfig=kubeconfig, authentication_kubeconfig=kubeconfig, authorization_kubeconfig=kubeconfig
            ),
            serving=ServingOptions(bind_address=LOOPBACK, port=client.port, shutdown_delay=shutdown_delay),
            auth=AuthOptions(tls=TLSOptions(certificate=pair)),
            ui_address=ui_address,
            debug_endpoints=debug_endpoints,
            settings=settings,
            rule_objects=RuleObjectOptions(metric_rules=metric_rules),
        )
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(options, load_rules(options.config)))
            try:
                yield Running(client, prometheus, pods)
            finally:
                if not serving.done():
                    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("freshness", "queries"), [(60.0, 6), (0.0, 12)])
async def test_queries_of_resource_rules_are_coalesced_if_the_cache_is_enabled(
    tmp_path: Path, freshness: float, queries: int
) -> None:
    rules = (RULES / "resource.yaml").read_text()
    async with running(tmp_path, rules, freshness=freshness) as adapter, adapter.connection() as connection:
        for more in ("", "?again=1"):
            for number, space in enumerate(("shop", "bank", "club")):
                code, _, body = await connection.request(f"{USAGE}/{space}/pods/web-1{more}")
                assert (code, b'"cpu":"1"' in body) == (200, True)
                if freshness and not more and number == 1:  # the merged queries are sent and have results

                    async def is_merged() -> bool:
                        await connection.request(f"{USAGE}/shop/pods/web-1")
                        metrics = (await adapter.client.request_as_master("/metrics")).body.decode()
                        lines = (
                            'milliscale_adapter_rule_requests_total{query="merged",rule="resourceRules.%s.containerQ'
                        )
                        return all(lines % kind in metrics for kind in ("cpu", "memory"))

                    assert await eventually(is_merged, within=20.0)
    assert len(adapter.prometheus.queries) == queries
    assert sum(".+" in query for query in adapter.prometheus.queries) == (2 if freshness else 0)


@pytest.mark.parametrize(("freshness", "queries_sent"), [(60.0, 1), (0.0, 3)])
async def test_forwarded_values_are_cached_if_the_cache_is_enabled(
    tmp_path: Path, freshness: float, queries_sent: int
) -> None:
    (tmp_path / "other").mkdir()
    async with other_adapter(tmp_path / "other") as (server, options):
        files = f"caFile: {options.ca_file}, certFile: {options.cert_file}, keyFile: {options.key_file}"
        rules = f"{PACKETS}forwardExternal: {{url: {options.url}, {files}}}"
        async with running(tmp_path, rules, freshness=freshness) as adapter, adapter.connection() as connection:
            for number in range(3):
                assert (await connection.request(f"{EXTERNAL}/s0-queue?request={number}"))[0] == 200
        assert len([line for line in server.requests if line.startswith(f"GET {API}/namespaces/")]) == queries_sent


@pytest.mark.parametrize("held", ["pods", "series"])
async def test_first_lists_are_excluded_from_garbage_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    settled: list[str] = []
    done = asyncio.Event()

    def settle() -> None:
        settled.append("now")
        done.set()

    monkeypatch.setattr(serve_module, "freeze_gc", settle)
    async with running(tmp_path, PACKETS, hold=held) as adapter:
        if held == "pods":
            assert await eventually(adapter.ready, within=20.0)  # the series have come
        else:
            await asyncio.wait_for(adapter.pods.watches.get(), 60)  # the pods have come
            await asyncio.wait_for(adapter.prometheus.requests.get(), 60)
        assert settled == []
        adapter.pods.listed.set()
        adapter.prometheus.listed.set()
        await asyncio.wait_for(done.wait(), 60)
    assert settled == ["now"]


async def test_readiness_without_metrics_waits_for_the_first_lists(tmp_path: Path) -> None:
    """So a rollout does not end the pods that know the metrics before the new ones do."""
    async with running(tmp_path, PACKETS, hold="series") as adapter:
        await asyncio.wait_for(adapter.prometheus.requests.get(), 60)
        reply = await adapter.client.request("/readyz?exclude=metrics")
        assert (reply.status, b"[-]first-lists failed: the series of the rules are being listed" in reply.body) == (
            500,
            True,
        )
        adapter.prometheus.listed.set()

        async def is_ready() -> bool:
            return (await adapter.client.request("/readyz?exclude=metrics")).status == 200

        assert await eventually(is_ready)


async def test_readiness_without_metrics_does_not_wait_for_a_prometheus_that_hangs(tmp_path: Path) -> None:
    settings = Settings(rules=RulesSettings(start_seconds=0.01))
    async with running(tmp_path, PACKETS, hold="series", settings=settings) as adapter:

        async def is_ready() -> bool:
            try:
                return (await adapter.client.request("/readyz?exclude=metrics")).status == 200
            except OSError:
                return False

        assert await eventually(is_ready)
        assert (await adapter.client.request("/readyz")).status == 500
        adapter.prometheus.listed.set()


async def test_each_part_of_the_process_has_the_settings(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    settings, parts = changed(DEFAULTS), Parts()
    async with other_adapter(tmp_path / "other") as (_, options):
        files = f"caFile: {options.ca_file}, certFile: {options.cert_file}, keyFile: {options.key_file}"
        rules = f"{PACKETS}forwardExternal: {{url: {options.url}, {files}}}"
        pages = UIAddress(LOOPBACK, 0)
        async with (
            running(tmp_path, rules, settings=settings, ui_address=pages, metric_rules=True) as adapter,
            adapter.connection(),
        ):
            check_settings(parts, settings, DEFAULTS, taken=TAKEN)


async def test_shutdown_delay_ends_after_its_duration_or_a_second_signal() -> None:
    again = asyncio.Event()
    for seconds in (0.0, 0.001, 3600.0):
        async with asyncio.timeout(60):
            await delayed(again, seconds)
        again.set()


async def test_pages_show_the_rules_that_are_active(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://{LOOPBACK}:{port}"
    async with (
        running(tmp_path, PACKETS, ui_address=UIAddress(LOOPBACK, port)) as adapter,
        adapter.connection(),
        aiohttp.ClientSession() as http,
    ):

        async def page(path: str) -> str:
            async with http.get(url + path) as response:
                return await response.text()

        def write(rules: str) -> None:
            (tmp_path / "config.yaml").write_text(rules)
            signal.raise_signal(signal.SIGHUP)

        assert "packets_total" in await page("/")
        assert "pods/packets_total" in await page("/rules/rules[0]")
        assert "pods/packets_total is made by rules[0]" in await page("/metric?metric=pods/packets_total")
        tried = await page("/try?rule=" + quote("{name: tried, query: up, resources: {namespace: namespace}}"))
        assert "The rule makes the metric namespaces/tried." in tried
        assert "up" in adapter.prometheus.queries

        write(PACKETS + "- {name: fresh, query: fresh, resources: {namespace: namespace}}\n")

        async def is_applied() -> bool:
            return "fresh" in await page("/")

        assert await eventually(is_applied, within=20.0)
        write("rules: 5")

        async def is_refused() -> bool:
            return "the last good rules stay in use" in await page("/")

        assert await eventually(is_refused, within=20.0)


@pytest.mark.parametrize(("debug_endpoints", "status"), [("local", 200), ("off", 403)])
async def test_local_clients_read_the_configuration_unless_it_is_off(
    debug_endpoints: str, status: int, tmp_path: Path
) -> None:
    async with running(tmp_path, PACKETS, debug_endpoints=debug_endpoints) as adapter, adapter.connection():
        reply = await adapter.client.request("/debug/config")
        assert reply.status == status
        assert (b"packets_total" in reply.body) is (status == 200)
        assert (await adapter.client.request("/debug/rules")).status == 403


async def test_connections_to_named_servers_stay_open_before_the_first_reload(tmp_path: Path) -> None:
    rules = "prometheusServers: {mimir: {url: PROMETHEUS}}\n" + PACKETS.replace("  res", "  prometheus: mimir\n  res")
    async with running(tmp_path, rules) as adapter, adapter.connection() as connection:
        assert (await connection.request(f"{POD}/web-0/packets_total"))[0] == 200
        metrics = (await adapter.client.request_as_master("/metrics")).body.decode()
    # Its metrics are removed when a server is closed.
    for path in ("query", "series"):
        assert f'request_duration_seconds_count{{path="/api/v1/{path}",server="mimir"}} 1.0' in metrics
