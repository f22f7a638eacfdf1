"""A cluster whose HPAs get metrics from rules that are objects.

kube-apiserver with its aggregation layer, kube-controller-manager's HPA controller, the adapter with the flags and the
rights of the manifests, and a Prometheus that scrapes gauges of the test.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError
from playground.cluster import start_cluster
from playground.install import Manifests, Object, apply, read_objects, write_account_kubeconfig
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer, Target
from tests import objects
from tests.e2e.controllers import ROOT, controller_manager, started
from tests.e2e.installation import arguments
from tests.eventually import eventually
from tests.manifests.rendering import definitions, render_with
from tests.web_servers import served

EXTERNAL: Final = "/apis/external.metrics.k8s.io/v1beta1"
_SOON = 40.0


@dataclass
class Gauges:
    """The gauges that Prometheus scrapes: the series, such as `queue{namespace="shop"}`, and their values."""

    values: dict[str, float] = field(default_factory=dict)

    async def scrape(self, _: web.Request) -> web.Response:
        """Serve Prometheus' text format."""
        return web.Response(text="".join(f"{series} {value}\n" for series, value in self.values.items()))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve the gauges; yield the address."""
        app = web.Application()
        app.router.add_get("/metrics", self.scrape)
        async with served(app) as url:
            yield url.removeprefix("http://")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The running cluster; `client` is of an admin."""

    client: KubeClient
    gauges: Gauges
    adapter: ChildProcess
    prometheus_url: str

    async def scales(self, namespace: str, name: str, replicas: int) -> None:
        """Wait until a Deployment has so many replicas."""

        async def scaled() -> bool:
            assert self.adapter.exit_status is None, self.adapter.last_lines()
            hpa = await self.client.get(_path("autoscaling/v2", "horizontalpodautoscalers", namespace, name))
            deployment = await self.client.get(_path("apps/v1", "deployments", namespace, name))
            assert deployment["spec"]["replicas"] == replicas, hpa.get("status")
            return True

        await eventually(scaled, within=_SOON)


def _path(api_version: str, resource: str, namespace: str, name: str) -> str:
    return f"/apis/{api_version}/namespaces/{namespace}/{resource}/{name}"


def hpa(namespace: str, name: str, *metrics: Object, annotations: Mapping[str, str] | None = None) -> Object:
    """Return an HPA of a Deployment with the same name, which scales up and down at once."""
    policies = [{"type": "Percent", "value": 1000, "periodSeconds": 1}]
    behavior = {"scaleUp": {"policies": policies}, "scaleDown": {"stabilizationWindowSeconds": 0}}
    spec: dict[str, Any] = {"maxReplicas": 10, "behavior": behavior}
    return objects.hpa(name, *metrics, target=name, namespace=namespace, annotations=annotations, **spec)


@asynccontextmanager
async def stage(folder: Path, *components: str, samples: str | None = None) -> AsyncIterator[Stage]:
    """Run everything, with the adapter of the manifests' base and these components; Prometheus begins with samples."""
    gauges, port = Gauges(), free_port()
    (folder / "overlay").mkdir()
    rendered = await asyncio.to_thread(render_with, folder / "overlay", *components)
    manifests, kubeconfig = Manifests(list(rendered.values())), folder / "adapter.kubeconfig"
    rules = folder / "rules.yaml"
    rules.write_text("externalRules: [{name: of_the_file, query: vector(7)}]\n")
    async with (
        gauges.listening() as address,
        PrometheusServer(folder / "prometheus", scrape_interval=0.2, samples=samples) as prometheus,
        start_cluster(folder / "cluster", ready_seconds=0.05) as cluster,
        await cluster.client() as client,
    ):
        await prometheus.set_targets([Target(address=address)])
        crds = definitions("metric-rules").values()
        own_hpas = await read_objects(ROOT / "manifests/crds/horizontalpodautoscalers.yaml")
        await apply(client, [*own_hpas, *crds, *manifests.rights])
        account = manifests.account("adapter")
        await write_account_kubeconfig(client, kubeconfig, admin=cluster.kubeconfig, account=account)
        command = [
            *(sys.executable, "-m", "adapter", "serve", *arguments(rendered["Deployment", account.name])),
            *(f"--config={rules}", f"--prometheus-url={prometheus.url}"),
            *(f"--{use}-kubeconfig={kubeconfig}" for use in ("lister", "authentication", "authorization")),
            *(f"--bind-address={LOOPBACK}", f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}"),
            *("--metrics-freshness=200ms", "--metrics-relist-interval=1s"),
        ]
        adapter = await ChildProcess.start("adapter", command, log=folder / "adapter.log", directory=ROOT)
        async with adapter:
            await apply(client, manifests.registration(port=port))

            async def served() -> bool:
                assert adapter.exit_status is None, adapter.last_lines()
                try:
                    return bool((await client.get(f"{EXTERNAL}/namespaces/default/of_the_file"))["items"])
                except (KubeError, StatusError) as error:
                    raise AssertionError(str(error)) from error

            await eventually(served, within=_SOON)
            async with started("kube-controller-manager", controller_manager(cluster, folder), folder):
                yield Stage(client=client, gauges=gauges, adapter=adapter, prometheus_url=prometheus.url)
            log = adapter.log.read_text().lower()
            assert "forbidden" not in log
            assert "traceback" not in log
