"""A real Prometheus with the series of examples, a real adapter, and a small API server that has workloads and HPAs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from autoscaler.commands.decide_once import decide_once
from autoscaler.core.config import Config
from autoscaler.records.record import DecisionRecord
from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer
from tests.docs.remote_write import WrittenSeries, remote_write
from tests.e2e.tools import fetch
from tests.eventually import eventually

_ROOT = Path(__file__).parent.parent.parent
_TIME = "2026-01-01T00:00:00Z"
_APIS = {"rules": "v1beta2.custom.metrics.k8s.io", "externalRules": "v1beta1.external.metrics.k8s.io"}


@dataclass(frozen=True, slots=True)
class ExampleCluster:
    """A running API server with workloads and HPAs, and the adapter behind it.

    `client` has all rights; `served` are the names of the adapter's APIServices.
    """

    server: PlaygroundApiServer
    client: KubeClient
    served: Sequence[str]

    def add_target(self, hpa: Mapping[str, Any], replicas: int) -> None:
        """Create the workload that an HPA scales, with Ready pods NAME-0, NAME-1, ..."""
        target, namespace = hpa["spec"]["scaleTargetRef"], hpa["metadata"]["namespace"]
        labels = {"app": target["name"]}
        containers = {"containers": [{"name": "c", "image": "i"}]}
        selection = {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": containers},
        }
        self.server.create(
            {
                "apiVersion": target["apiVersion"],
                "kind": target["kind"],
                "metadata": {"name": target["name"], "namespace": namespace},
                "spec": {"replicas": replicas, **selection},
                "status": {"replicas": replicas},
            }
        )
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": _TIME}]
        for number in range(replicas):
            self.server.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{target['name']}-{number}", "namespace": namespace, "labels": labels},
                    "spec": containers,
                    "status": {"phase": "Running", "startTime": _TIME, "conditions": ready},
                }
            )

    async def set_replicas(self, hpa: Mapping[str, Any], replicas: int) -> None:
        """Set the replicas of the Deployment that an HPA scales, without pods."""
        namespace, name = hpa["metadata"]["namespace"], hpa["spec"]["scaleTargetRef"]["name"]
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        await self.client.patch(path, {"spec": {"replicas": replicas}})
        await self.client.patch(f"{path}/status", {"status": {"replicas": replicas}})

    @asynccontextmanager
    async def with_hpa(self, hpa: Mapping[str, Any]) -> AsyncIterator[None]:
        """Create an HPA, and delete it at the end."""
        self.server.create(dict(hpa))
        yield
        path = f"/apis/{hpa['apiVersion']}/namespaces/{hpa['metadata']['namespace']}/horizontalpodautoscalers"
        await self.client.delete(f"{path}/{hpa['metadata']['name']}")

    async def decide(self, hpa: Mapping[str, Any]) -> DecisionRecord:
        """Return the autoscaler's decision on an HPA that exists."""
        namespace, name = hpa["metadata"]["namespace"], hpa["metadata"]["name"]
        record, _ = await decide_once(self.client, namespace=namespace, name=name, config=Config())
        return record

    async def listed(self) -> set[str]:
        """Return the metrics in discovery: `pods/NAME`, `deployments.apps/NAME`, and `NAME` of external ones."""
        documents = [await self.client.get(f"/apis/{'/'.join(reversed(name.split('.', 1)))}") for name in self.served]
        return {one["name"] for document in documents for one in document["resources"]}


@asynccontextmanager
async def running_prometheus(
    folder: Path, series: Iterable[WrittenSeries], *, recording_rules: Sequence[Mapping[str, Any]] = ()
) -> AsyncIterator[str]:
    """Run Prometheus with series and recording rules; yield its URL once each recording rule has a result."""
    rules = folder.with_name("recording-rules.yml")
    await asyncio.to_thread(rules.write_text, yaml.safe_dump({"groups": [dict(group) for group in recording_rules]}))
    flags = ["--web.enable-remote-write-receiver", "--enable-feature=native-histograms"]
    async with PrometheusServer(folder, rule_files=[rules], flags=flags) as server:
        await remote_write(server.url, series)
        for group in recording_rules:
            for rule in group["rules"]:
                await eventually(lambda record=rule["record"]: has_result(server.url, record))  # type: ignore[misc]
        yield server.url


async def has_result(prometheus_url: str, query: str) -> bool:
    """Return whether a query has a result."""
    async with (
        aiohttp.ClientSession(prometheus_url) as session,
        session.get("/api/v1/query", params={"query": query}) as response,
    ):
        return bool((await response.json())["data"]["result"])


@asynccontextmanager
async def running_cluster(
    folder: Path,
    *,
    rules: Mapping[str, Any],
    prometheus_url: str,
    namespaces: Iterable[str],
    metric_rules: Sequence[Mapping[str, Any]] = (),
    flags: Sequence[str] = (),
) -> AsyncIterator[ExampleCluster]:
    """Run the API server, and the adapter behind it with these rules, MetricRules and further flags."""
    config = folder.with_name("rules.yaml")
    await asyncio.to_thread(config.write_text, yaml.safe_dump(dict(rules)))
    port = free_port()
    async with (
        PlaygroundApiServer(folder / "api", availability_seconds=0.1) as server,
        await KubeClient.connect(server.kubeconfig()) as client,
    ):
        for name in namespaces:
            server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for rule in metric_rules:
            server.create(dict(rule))
        command = [
            *(sys.executable, "-m", "adapter", "serve", f"--config={config}", f"--prometheus-url={prometheus_url}"),
            *(f"--bind-address={LOOPBACK}", f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}"),
            *(f"--lister-kubeconfig={server.kubeconfig()}", "--shutdown-delay-duration=100ms"),
            *(
                f"--authentication-kubeconfig={server.kubeconfig()}",
                f"--authorization-kubeconfig={server.kubeconfig()}",
            ),
            *(("--metric-rules",) if metric_rules else ()),
            *flags,
        ]
        log = folder / "adapter.log"
        async with await ChildProcess.start("adapter", command, log=log, directory=_ROOT) as adapter:
            served_apis = [name for section, name in _APIS.items() if section in rules]
            _register(server, port, served_apis)
            cluster = ExampleCluster(server, client, served_apis)

            async def served() -> bool:
                if adapter.exit_status is not None:
                    raise RuntimeError("\n".join(["the adapter ended:", *adapter.last_lines()]))
                status, text = await fetch(f"https://{LOOPBACK}:{port}/readyz")
                assert status == 200, text
                try:
                    return bool(await cluster.listed())
                except StatusError as error:
                    raise AssertionError(str(error)) from error

            await eventually(served)
            yield cluster


def _register(server: PlaygroundApiServer, port: int, names: Iterable[str]) -> None:
    service = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": "adapter", "namespace": "default"}
    server.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    for name in names:
        version, _, group = name.partition(".")
        server.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {**metadata, "port": port},
                },
            }
        )
