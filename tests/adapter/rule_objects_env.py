"""A served adapter that reads rules from objects, with the playground's API server and a canned Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from adapter.commands.flags import CatalogOptions, KubernetesOptions, PrometheusAccess, ServeOptions
from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.commands.serve import serve
from adapter.commands.serving_flags import ServingOptions
from adapter.prometheus import PrometheusOptions
from adapter.rules import load_rules
from adapter.rules.objects import Tenancy
from adapter.settings import DEFAULTS, Settings
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.security.tls import TLSOptions
from kube.security.trust import TrustOptions
from kube.serving.options import AuthOptions
from playground.apiserver.server import PlaygroundApiServer
from playground.ports import LOOPBACK, free_port
from tests.adapter.serving import ServedAdapter
from tests.eventually import eventually
from tests.kube.access_api import AccessApi, Authorities, write_pair
from tests.kube.scripted import ScriptedServer, scripted_server

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
METRIC_RULES = "/apis/milliscale.io/v1/namespaces/{}/metricrules"
CLUSTER_METRIC_RULES = "/apis/milliscale.io/v1/clustermetricrules"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
OWN = "milliscale"
"""The adapter's namespace."""
Labels = dict[str, str]


class Prometheus:
    """A Prometheus with canned results.

    `results` has the samples of each query, and `found` the labels of the series of each selector; other queries and
    selectors find nothing. A text in the place of either is Prometheus' error.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self.url = server.url
        self.results: dict[str, list[tuple[Labels, str]] | str] = {}
        self.found: dict[str, list[Labels] | str] = {}
        self.queries: list[str] = []
        self.listed: list[str] = []
        self.headers: list[dict[str, str]] = []
        server.handlers |= {"/api/v1/series": self._series, "/api/v1/query": self._query}

    async def _series(self, request: web.Request) -> web.StreamResponse:
        selector = {**request.query, **await request.post()}["match[]"]
        self.listed.append(str(selector))
        return _response(self.found.get(str(selector), []))

    async def _query(self, request: web.Request) -> web.StreamResponse:
        query = str({**request.query, **await request.post()}["query"])
        self.queries.append(query)
        self.headers.append(dict(request.headers))
        found = self.results.get(query, [])
        if isinstance(found, str):
            return _response(found)
        samples = [{"metric": labels, "value": [1e9, value]} for labels, value in found]
        return _response({"resultType": "vector", "result": samples})


def _response(data: object) -> web.StreamResponse:
    if isinstance(data, str):
        return web.json_response({"status": "error", "errorType": "bad_data", "error": data}, status=400)
    return web.json_response({"status": "success", "data": data})


class Cluster:
    """An API server's objects, an adapter that reads them, and its Prometheus."""

    def __init__(
        self,
        server: PlaygroundApiServer,
        admin: KubeClient,
        adapter: ServedAdapter,
        prometheus: Prometheus,
        config: Path,
    ) -> None:
        self.server, self.admin, self.adapter = server, admin, adapter
        self.prometheus = prometheus
        self.config = config

    async def create_rule(self, name: str, spec: dict[str, Any], *, namespace: str = "shop") -> None:
        """Create a MetricRule, or a ClusterMetricRule if the namespace is ""."""
        kind = "MetricRule" if namespace else "ClusterMetricRule"
        path = METRIC_RULES.format(namespace) if namespace else CLUSTER_METRIC_RULES
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        await self.admin.post(
            path, {"apiVersion": "milliscale.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
        )

    async def create_config_map(
        self, name: str, data: dict[str, str], *, namespace: str = "shop", label: str = "true"
    ) -> None:
        """Create a ConfigMap with this value of the label milliscale.io/rules."""
        metadata = {"name": name, "namespace": namespace, "labels": {"milliscale.io/rules": label}}
        await self.admin.post(
            CONFIG_MAPS.format(namespace),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        )

    async def created(self, name: str, *, namespace: str = "shop") -> str:
        """Return when a MetricRule was created."""
        rule = await self.admin.get(f"{METRIC_RULES.format(namespace)}/{name}")
        return str(rule["metadata"]["creationTimestamp"])

    async def reload(self, rules: str) -> None:
        """Write the rules file, and have it reloaded."""
        self.config.write_text(rules.replace("PROMETHEUS", self.prometheus.url))
        signal.raise_signal(signal.SIGHUP)

    async def external(self, metric: str, *, namespace: str = "shop") -> list[str] | int:
        """Return the values of an external metric, or the status of the error."""
        reply = await self.adapter.request_as_master(f"{EXTERNAL}/namespaces/{namespace}/{metric}")
        return [item["value"] for item in reply.json["items"]] if reply.status == 200 else reply.status

    async def custom(self, path: str) -> dict[str, str] | int:
        """Return the values of a custom metric by object, or the status of the error."""
        reply = await self.adapter.request_as_master(f"{CUSTOM}/{path}")
        if reply.status != 200:
            return reply.status
        return {item["describedObject"]["name"]: item["value"] for item in reply.json["items"]}

    async def listed(self, api: str = EXTERNAL) -> set[str]:
        """Return the metrics in discovery."""
        reply = await self.adapter.request_as_master(api)
        assert reply.status == 200, reply.body
        return {resource["name"] for resource in reply.json["resources"]}

    async def has_external(self, metric: str, *values: str, namespace: str = "shop") -> None:
        """Wait until an external metric has these values."""

        async def check() -> bool:
            found = await self.external(metric, namespace=namespace)
            assert found == [*values], found
            return True

        await eventually(check, every=0.02)

    async def states(self) -> dict[tuple[str, str], int]:
        """Return the number of objects by kind and state, as in the adapter's own metrics."""
        reply = await self.adapter.request_as_master("/metrics")
        found = re.findall(rb'milliscale_adapter_rule_objects{kind="(\w+)",state="(\w+)"} (\d+)', reply.body)
        return {(kind.decode(), state.decode()): int(count) for kind, state, count in found}

    async def has_states(self, **states: int) -> None:
        """Wait until there are that many MetricRules in each of these states, and in no other one."""

        async def check() -> bool:
            found = {state: count for (kind, state), count in (await self.states()).items() if kind == "MetricRule"}
            assert found == states, found
            return True

        await eventually(check, every=0.02)

    async def has_no_external(self, metric: str, *, namespace: str = "shop") -> None:
        """Wait until there is no such metric."""

        async def check() -> bool:
            found = await self.external(metric, namespace=namespace)
            assert found == 404, found
            return True

        await eventually(check, every=0.02)

    async def is_ready(self) -> bool:
        try:
            return (await self.adapter.request("/readyz")).status == 200
        except OSError:
            return False


@contextlib.asynccontextmanager
async def rule_objects_cluster(
    folder: Path,
    *,
    rules: str = "{}",
    options: RuleObjectOptions | None = None,
    namespaces: Sequence[str] = ("shop", "bank"),
    freshness: float = 0.0,
    relist_interval: float = 60.0,
    prometheus_url: str = "",
    shutdown_delay: float = 0.05,
    settings: Settings = DEFAULTS,
) -> AsyncIterator[Cluster]:
    """Run `serve` with these rules in its file, where PROMETHEUS becomes a URL, until the end of the context.

    `prometheus_url` is another server than the canned one.
    """
    authorities = Authorities()
    adapter = ServedAdapter(folder, authorities, AccessApi(authorities))
    adapter.port = free_port()
    async with (
        PlaygroundApiServer(folder / "api", availability_seconds=0.1) as server,
        await KubeClient.connect(server.kubeconfig()) as admin,
        scripted_server() as prometheus_server,
    ):
        for namespace in (OWN, *namespaces):
            with contextlib.suppress(StatusError):  # some exist
                await admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        prometheus = Prometheus(prometheus_server)
        config, clients = folder / "config.yaml", folder / "clients.pem"
        config.write_text(rules.replace("PROMETHEUS", prometheus.url))
        clients.write_bytes(authorities.clients.cert_pem)
        pair = write_pair(folder, authorities.serving.issue("adapter", hosts=[LOOPBACK], server=True))
        kubeconfig = server.kubeconfig()
        serve_options = ServeOptions(
            config=config,
            prometheus=PrometheusAccess(options=PrometheusOptions(url=prometheus_url or prometheus.url)),
            catalog=CatalogOptions(relist_interval=relist_interval, max_age=120.0, freshness=freshness),
            kubernetes=KubernetesOptions(
                lister_kubeconfig=kubeconfig, authentication_kubeconfig=kubeconfig, authorization_kubeconfig=kubeconfig
            ),
            serving=ServingOptions(bind_address=LOOPBACK, port=adapter.port, shutdown_delay=shutdown_delay),
            auth=AuthOptions(
                tls=TLSOptions(certificate=pair), trust=TrustOptions(client_ca_file=clients, skip_lookup=True)
            ),
            rule_objects=options
            or RuleObjectOptions(metric_rules=True, config_maps=True, tenancy=Tenancy(own_namespace=OWN)),
            settings=settings,
        )
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(serve_options, load_rules(config)))
            try:
                cluster = Cluster(server, admin, adapter, prometheus, config)
                await eventually(cluster.is_ready, every=0.02)
                yield cluster
            finally:
                if not serving.done():
                    signal.raise_signal(signal.SIGTERM)
