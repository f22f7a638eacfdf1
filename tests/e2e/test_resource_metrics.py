"""metrics.k8s.io for `kubectl top` and for controllers, through an API server and from a real Prometheus."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError
from playground.binaries import find_async
from playground.cluster import Cluster, start_cluster
from playground.install import Manifests, apply, read_objects, write_account_kubeconfig
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.e2e.controllers import controller_manager, needs_controller_manager, started
from tests.e2e.installation import RUNNING
from tests.eventually import eventually

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
COMPONENT = ROOT / "manifests/components/resource-metrics"
RULES = ROOT / "tests/data/rules/resource.yaml"
GROUP = "/apis/metrics.k8s.io/v1beta1"
SHOWN = 60.0

MEBIBYTE = 2.0**20


def samples() -> str:
    """Series of two pods and a node, from ten minutes ago to ten minutes ahead, with exact rates."""
    start = float(int(time.time()) - 600)  # times are stored in milliseconds, and milli-CPUs are rounded down
    times = [start + step for step in range(0, 1201, 10)]

    def counter(per_second: float, **labels: str) -> Series:
        name = "container_cpu_usage_seconds_total"
        return Series(name, labels, [(moment, per_second * (moment - start)) for moment in times])

    def gauge(value: float, **labels: str) -> Series:
        return Series("container_memory_working_set_bytes", labels, [(moment, value) for moment in times])

    web = {"namespace": "shop", "pod": "web-0"}
    db = {"namespace": "data", "pod": "db-0"}
    return openmetrics(
        [
            counter(0.25, **web, container="app"),
            counter(0.05, **web, container="proxy"),
            counter(0.5, **db, container="postgres"),
            counter(1.5, node="node-a", id="/"),
            gauge(64 * MEBIBYTE, **web, container="app"),
            gauge(16 * MEBIBYTE, **web, container="proxy"),
            gauge(512 * MEBIBYTE, **db, container="postgres"),
            gauge(2048 * MEBIBYTE, node="node-a", id="/"),
        ]
    )


def pod(namespace: str, name: str, app: str) -> dict[str, Any]:
    requests = {"requests": {"cpu": "300m", "memory": "160Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
        "spec": {
            "containers": [{"name": name, "image": "nothing", "resources": requests} for name in ("app", "proxy")]
        },
    }


def cluster_objects() -> list[dict[str, Any]]:
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("shop", "data")]
    account = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": name, "name": "default"}}
        for name in ("shop", "data")
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": {"zone": "north"}}}
    return [
        *namespaces,
        *account,
        node,
        pod("shop", "web-0", "web"),
        pod("shop", "new-0", "new"),
        pod("data", "db-0", "db"),
    ]


@dataclass(frozen=True)
class Environment:
    kubectl: Path
    cluster: Cluster
    client: KubeClient

    async def run(self, *arguments: str) -> str:
        """Return the output of kubectl."""
        process = await asyncio.create_subprocess_exec(
            self.kubectl,
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--cache-dir={self.cluster.kubeconfig.parent / 'kubectl-cache'}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()

    async def top(self, *arguments: str) -> list[list[str]]:
        """Return the lines of `kubectl top`, split, without the header."""
        return [line.split() for line in (await self.run("top", *arguments, "--no-headers")).splitlines()]

    async def refused(self, path: str) -> dict[str, Any]:
        """Return the error response to a request."""
        with pytest.raises(StatusError) as error:
            await self.client.get(path)
        return error.value.body()


@asynccontextmanager
async def resource_metrics(folder: Path) -> AsyncIterator[Environment]:
    async with AsyncExitStack() as stack:
        kubectl = await find_async("kubectl")
        prometheus = await stack.enter_async_context(PrometheusServer(folder / "prometheus", samples=samples()))
        cluster = await stack.enter_async_context(start_cluster(folder / "cluster"))
        client = await stack.enter_async_context(await KubeClient.connect(cluster.kubeconfig))
        await apply(client, cluster_objects())
        resources = {"cpu": "4", "memory": "8Gi"}
        await client.patch("/api/v1/nodes/node-a/status", {"status": {"capacity": resources, "allocatable": resources}})
        base = await Manifests.render(kubectl)
        manifests = Manifests([*base.rights, *await read_objects(COMPONENT / "apiservice.yaml")])
        await apply(client, [*manifests.rights, *await read_objects(COMPONENT / "readers.yaml")])
        account, port = folder / "adapter.kubeconfig", free_port()
        await write_account_kubeconfig(client, account, admin=cluster.kubeconfig, account=base.account("adapter"))
        command = [sys.executable, "-m", "adapter", "serve", f"--config={RULES}", f"--prometheus-url={prometheus.url}"]
        command += [f"--bind-address={LOOPBACK}", f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}"]
        command += ["--shutdown-delay-duration=100ms"]
        command += [f"--{purpose}-kubeconfig={account}" for purpose in ("lister", "authentication", "authorization")]
        child = await ChildProcess.start("adapter", command, log=folder / "adapter.log", directory=ROOT)
        await stack.enter_async_context(child)

        async def listening() -> bool:
            assert child.exit_status is None, child.last_lines()
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(listening, within=30.0)
        await apply(client, manifests.registration(port=port))
        environment = Environment(kubectl, cluster, client)

        async def served() -> bool:
            try:
                return bool(await client.get(f"{GROUP}/nodes"))
            except (KubeError, StatusError):
                return False

        await eventually(served, within=SHOWN)
        yield environment


async def test_kubectl_top_reads_resource_metrics(tmp_path: Path) -> None:
    async with resource_metrics(tmp_path) as environment:
        await check_kubectl_top(environment)
        await check_kubectl_get(environment)
        await check_list_and_selectors(environment)
        await check_errors(environment)


async def check_kubectl_top(environment: Environment) -> None:
    assert await environment.top("pods", "-n", "shop") == [["web-0", "300m", "80Mi"]]  # new-0 has no values yet
    assert await environment.top("pods", "-A") == [["data", "db-0", "500m", "512Mi"], ["shop", "web-0", "300m", "80Mi"]]
    assert await environment.top("pods", "-A", "-l", "app=db") == [["data", "db-0", "500m", "512Mi"]]
    assert await environment.top("pods", "-n", "shop", "--containers") == [
        ["web-0", "app", "250m", "64Mi"],
        ["web-0", "proxy", "50m", "16Mi"],
    ]
    assert await environment.top("pods", "web-0", "-n", "shop") == [["web-0", "300m", "80Mi"]]
    assert await environment.top("nodes", "node-a") == [["node-a", "1500m", "37%", "2048Mi", "25%"]]
    listed = json.loads(await environment.run("get", "pods.metrics.k8s.io", "-n", "shop", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["web-0"]


async def check_kubectl_get(environment: Environment) -> None:
    async def shown(*arguments: str) -> list[list[str]]:
        return [line.split() for line in (await environment.run("get", *arguments)).splitlines()]

    head = ["NAME", "CPU", "MEMORY", "WINDOW"]
    assert await shown("pods.metrics.k8s.io", "-n", "shop") == [head, ["web-0", "300m", "80Mi", "5m0s"]]
    assert await shown("pods.metrics.k8s.io", "web-0", "-n", "shop") == [head, ["web-0", "300m", "80Mi", "5m0s"]]
    assert await shown("pods.metrics.k8s.io", "-A", "--sort-by=metadata.name") == [
        ["NAMESPACE", *head],
        ["data", "db-0", "500m", "512Mi", "5m0s"],
        ["shop", "web-0", "300m", "80Mi", "5m0s"],
    ]
    assert await shown("nodes.metrics.k8s.io") == [head, ["node-a", "1500m", "2Gi", "5m0s"]]
    assert await shown("pods.metrics.k8s.io", "-n", "default") == []


async def check_list_and_selectors(environment: Environment) -> None:
    pod = await environment.client.get(f"{GROUP}/namespaces/shop/pods/web-0")
    assert (pod["kind"], pod["apiVersion"], pod["window"]) == ("PodMetrics", "metrics.k8s.io/v1beta1", "5m0s")
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert pod["containers"] == [
        {"name": "app", "usage": {"cpu": "250m", "memory": "64Mi"}},
        {"name": "proxy", "usage": {"cpu": "50m", "memory": "16Mi"}},
    ]
    by_name = await environment.client.get(f"{GROUP}/pods", {"fieldSelector": "metadata.name=db-0"})
    assert [item["metadata"]["namespace"] for item in by_name["items"]] == ["data"]
    nothing = await environment.client.get(f"{GROUP}/namespaces/shop/pods", {"labelSelector": "app=nothing"})
    assert nothing["items"] == []
    elsewhere = await environment.client.get(f"{GROUP}/nodes", {"labelSelector": "zone=south"})
    assert elsewhere["items"] == []
    node = await environment.client.get(f"{GROUP}/nodes/node-a")
    assert node["usage"] == {"cpu": "1500m", "memory": "2Gi"}


async def check_errors(environment: Environment) -> None:
    missing = await environment.refused(f"{GROUP}/namespaces/shop/pods/nosuch")
    assert (missing["code"], missing["message"]) == (404, 'pods "nosuch" not found')
    unmeasured = await environment.refused(f"{GROUP}/namespaces/shop/pods/new-0")
    assert (unmeasured["code"], unmeasured["message"]) == (404, 'pods.metrics.k8s.io "shop/new-0" not found')
    unknown = await environment.refused(f"{GROUP}/pods?fieldSelector=spec.nodeName%3Dnode-a")
    assert unknown["code"] == 400
    assert unknown["message"].startswith('"spec.nodeName" is not a known field selector: only "metadata.name"')


STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {
        "replicas": 1,
        "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "nothing"}]},
        },
    },
}
HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": 50}},
            }
            for name in ("cpu", "memory")
        ],
    },
}


class TestBesideKubernetes:
    """kube-controller-manager's HPA controller, which requests protobuf."""

    pytestmark = needs_controller_manager

    async def test_kube_controller_manager_reads_resource_metrics(self, tmp_path: Path) -> None:
        async with resource_metrics(tmp_path) as environment:
            await environment.client.patch("/api/v1/namespaces/shop/pods/web-0/status", {"status": RUNNING})
            await apply(environment.client, [STATEFUL_SET, HPA])

            async def utilization() -> list[int]:
                hpa = await environment.client.get("/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web")
                metrics = hpa.get("status", {}).get("currentMetrics") or []
                current = [metric.get("resource", {}).get("current", {}) for metric in metrics]
                return [one["averageUtilization"] for one in current if "averageUtilization" in one]

            async def read() -> bool:
                return len(await utilization()) == 2

            async with started("controller-manager", controller_manager(environment.cluster, tmp_path), tmp_path):
                await eventually(read, within=SHOWN)
            assert await utilization() == [50, 25]


def test_rules_are_those_of_the_documentation() -> None:
    shown = (ROOT / "docs/resource-metrics.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(shown) == yaml.safe_load(RULES.read_text())
