"""The rendered manifests in a real cluster, and both processes with the tokens of their service accounts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kube.api.client import KubeClient, KubeError
from kube.api.mapping import RestMapper
from kube.api.status import StatusError
from playground.cluster import Cluster, start_cluster
from playground.install import Account, Manifests, Object, apply, read_objects, write_account_kubeconfig
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.autoscaler.process import SAVES_OFTEN, Autoscaler, autoscaler
from tests.e2e.rights import AuditLog, is_allowed, rights_of
from tests.eventually import eventually
from tests.manifests.rendering import MANIFESTS, Objects

ROOT: Final = MANIFESTS.parent
RULES: Final = """
rules:
- seriesQuery: '{__name__="packets",namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{__name__="requests",namespace!="",service!=""}'
  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{__name__="node_load",node!=""}'
  resources: {overrides: {node: {resource: node}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{__name__="queue_depth",namespace!="",queue!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""

# The namespace file is that of a pod.
_PROGRAM: Final = """
import runpy
from autoscaler.loop import pages
pages.own_namespace = lambda *, default: "milliscale"
runpy.run_module("autoscaler", run_name="__main__", alter_sys=True)
"""


def samples() -> str:
    """Return series from ten minutes ago to ten minutes ahead."""
    start = time.time() - 600
    times = [start + step for step in range(0, 1201, 10)]

    def series(name: str, value: float, rate: float = 0.0, **labels: str) -> Series:
        return Series(name, labels, [(moment, value + rate * (moment - start)) for moment in times])

    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    shop = {"namespace": "shop"}
    return openmetrics(
        [
            *(series(cpu, 0, 0.25, **shop, pod=f"{name}-0", container="app") for name in APPLICATIONS),
            series(cpu, 0, 1.5, node="playground", id="/"),
            *(series(memory, 2.0**26, 0.0, **shop, pod=f"{name}-0", container="app") for name in APPLICATIONS),
            series(memory, 2.0**31, node="playground", id="/"),
            *(series("packets", 10, namespace="shop", pod=f"{name}-0") for name in APPLICATIONS),
            *(series("requests", 20, namespace="shop", service=name) for name in APPLICATIONS),
            series("node_load", 3, node="playground"),
            series("queue_depth", 30, namespace="shop", queue="orders"),
        ]
    )


def workload(kind: str, name: str, *, replicas: int, namespace: str = "shop") -> Object:
    """Return a Deployment, StatefulSet or ReplicationController; its pods have the label app."""
    labels = {"app": name}
    container = {"name": "app", "image": "nothing", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    is_core = kind == "ReplicationController"
    spec: Object = {
        "replicas": replicas,
        "selector": labels if is_core else {"matchLabels": labels},
        "template": template,
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1" if is_core else "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def hpa(target: Object, *metrics: Object, api: str = "autoscaling/v2", **annotations: str) -> Object:
    """Return an HPA with the name of its target, for at most three replicas."""
    metadata = {"name": target["metadata"]["name"], "namespace": target["metadata"]["namespace"]}
    reference = {"apiVersion": target["apiVersion"], "kind": target["kind"], "name": metadata["name"]}
    return {
        "apiVersion": api,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3, "metrics": [*metrics]},
    }


def _metric(kind: str, target: Object, **fields: Any) -> Object:
    return {"type": kind, kind[0].lower() + kind[1:]: {**fields, "target": target}}


UTILIZATION: Final[Object] = {"type": "Utilization", "averageUtilization": 50}
QUEUE: Final = _metric("External", {"type": "AverageValue", "averageValue": "5"}, metric={"name": "queue_depth"})
APPLICATIONS: Final = {"web": "autoscaling/v2", "own": "milliscale.io/v1"}
"""StatefulSets and the APIs of their HPAs."""


def all_types(name: str) -> list[Object]:
    """Return a metric of each type."""
    service = {"apiVersion": "v1", "kind": "Service", "name": name}
    return [
        _metric("Resource", UTILIZATION, name="cpu"),
        _metric("ContainerResource", UTILIZATION, name="cpu", container="app"),
        _metric("Pods", {"type": "AverageValue", "averageValue": "5"}, metric={"name": "packets"}),
        _metric("Object", {"type": "Value", "value": "5"}, metric={"name": "requests"}, describedObject=service),
        QUEUE,
    ]


_NOT_FOUND: Final = 404
ENOUGH: Final = 50
"""So many Deployments or StatefulSets with HPAs are watched."""
RUNNING: Final = {
    "phase": "Running",
    "startTime": "2020-01-01T00:00:00Z",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:01:00Z"}],
}


def idle_hpa(target: Object) -> Object:
    """Return an HPA that is reconciled less often than others; there are many."""
    return hpa(target, QUEUE, api="milliscale.io/v1", **{"milliscale.io/sync-period": "2s"})


def applications() -> list[Object]:
    """Return workloads with HPAs of both APIs.

    For each API there is one with all types of metrics, and one of a Deployment with the pod selection `owner`.
    Deployments and StatefulSets without pods have HPAs, too: enough for a watch on their scales.
    """
    objects: list[Object] = [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("shop", "idle")),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "playground"}},
    ]
    for name, api in APPLICATIONS.items():
        labels = {"app": name}
        target, owner = workload("StatefulSet", name, replicas=1), workload("Deployment", f"{name}-front", replicas=1)
        pod = {"apiVersion": "v1", "kind": "Pod", **target["spec"]["template"]}
        service = {"selector": labels, "ports": [{"port": 80}]}
        objects += [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": service},
            {**pod, "metadata": {"name": f"{name}-0", "namespace": "shop", "labels": labels}},
            *(target, hpa(target, *all_types(name), api=api)),
            *(owner, hpa(owner, QUEUE, api=api, **{"milliscale.io/pod-selection": "owner"})),
        ]
    core = workload("ReplicationController", "core", replicas=1)
    idle = [
        workload(kind, f"{kind.lower()}-{number}", replicas=0, namespace="idle")
        for kind in ("Deployment", "StatefulSet")
        for number in range(ENOUGH)
    ]
    return [*objects, core, hpa(core, QUEUE), *idle, *map(idle_hpa, idle)]


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A running cluster with the adapter; `client` is of an admin. Another adapter may have the same settings."""

    folder: Path
    cluster: Cluster
    client: KubeClient
    audit: AuditLog
    adapter: ChildProcess
    adapter_settings: tuple[str, ...]
    adapter_port: int
    adapter_ui_port: int

    async def kubeconfig(self, account: Account) -> Path:
        """Write a kubeconfig with a new token of a service account."""
        path = self.folder / f"{account.namespace}-{account.name}.kubeconfig"
        await write_account_kubeconfig(self.client, path, admin=self.cluster.kubeconfig, account=account)
        return path

    async def restart_adapter(self) -> None:
        await self.adapter.restart()
        await self.adapter_listens()

    async def adapter_listens(self) -> None:
        """Wait until the adapter accepts connections."""

        async def listening() -> bool:
            assert self.adapter.exit_status is None, self.adapter.last_lines()
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, self.adapter_port)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(listening, every=0.05)

    async def apply(self, objects: Iterable[Object]) -> None:
        await apply(self.client, objects)

    async def delete(self, objects: Iterable[Object]) -> None:
        """Delete objects, which need not exist."""
        mapper = RestMapper(self.client, refresh_seconds=0)
        for entry in objects:
            metadata = entry["metadata"]
            info = (await mapper.mappings_for_kind(entry["apiVersion"].rpartition("/")[0], entry["kind"]))[0]
            try:
                await self.client.delete(info.path(metadata.get("namespace", ""), metadata["name"]))
            except StatusError as error:
                if error.code != _NOT_FOUND:
                    raise

    async def until_granted(self, account: Account) -> None:
        """Wait until the API server's authorizer knows all rights of an account."""
        for right in await rights_of(self.client, account):
            access = right.example()

            async def allowed() -> bool:
                return await is_allowed(self.client, account, access)  # noqa: B023  # awaited within the loop

            await eventually(allowed, every=0.02)


def part(objects: Objects, component: str) -> list[Object]:
    """Return the objects of one process, without Services (their pods do not run here) and what stays for all tests."""
    return [
        entry
        for (kind, _), entry in objects.items()
        if kind not in ("Service", "APIService", "CustomResourceDefinition")
        and entry["metadata"]["labels"].get("app.kubernetes.io/component", component) == component
    ]


def arguments(workload: Object) -> list[str]:
    """Return the arguments of the container in a Deployment or StatefulSet, without the subcommand."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


async def start_adapter(log: Path, objects: Objects, *flags: str) -> ChildProcess:
    """Start an adapter with the arguments of the rendered Deployment, and more flags."""
    given = arguments(objects["Deployment", "milliscale-adapter"])
    command = [sys.executable, "-m", "adapter", "serve", *given, *flags]
    return await ChildProcess.start("adapter", command, log=log, directory=ROOT)


@asynccontextmanager
async def installation(folder: Path, objects: Objects) -> AsyncIterator[Installation]:
    """Run a cluster with the rendered objects of the adapter, and the adapter behind its aggregation layer."""
    audit = AuditLog(folder / "audit.log")
    port, ui_port = free_port(), free_port()
    rules = folder / "rules.yaml"
    rules.write_text(RULES + (ROOT / "tests/data/rules/resource.yaml").read_text())
    async with (
        PrometheusServer(folder / "prometheus", samples=samples()) as prometheus,
        start_cluster(folder / "cluster", ready_seconds=0.05, audit_log=folder / "audit.log") as cluster,
        await cluster.client() as client,
    ):
        for name in ("horizontalpodautoscalers", "metric-rules/metricrules", "metric-rules/clustermetricrules"):
            await apply(client, await read_objects(MANIFESTS / f"crds/{name}.yaml"))
        await apply(client, part(objects, "adapter"))
        kubeconfig = folder / "adapter.kubeconfig"
        account = Account("milliscale", "milliscale-adapter")
        await write_account_kubeconfig(client, kubeconfig, admin=cluster.kubeconfig, account=account)
        settings = (
            *(f"--{purpose}-kubeconfig={kubeconfig}" for purpose in ("lister", "authentication", "authorization")),
            *(f"--prometheus-url={prometheus.url}", f"--config={rules}"),
            *(f"--bind-address={LOOPBACK}", f"--cert-dir={folder / 'adapter-certificates'}"),
            *(f"--authorization-webhook-cache-{kind}-ttl=1ms" for kind in ("authorized", "unauthorized")),
            "--authentication-token-webhook-cache-ttl=1ms",
        )
        flags = (*settings, f"--secure-port={port}", f"--ui-address=0.0.0.0:{ui_port}")
        async with await start_adapter(folder / "adapter.log", objects, *flags) as child:
            made = Installation(
                folder=folder,
                cluster=cluster,
                client=client,
                audit=audit,
                adapter=child,
                adapter_settings=settings,
                adapter_port=port,
                adapter_ui_port=ui_port,
            )
            await made.until_granted(account)
            await made.adapter_listens()
            await apply(client, Manifests(list(objects.values())).registration(port=port))
            await until_established(client)
            for entry in applications():
                await apply(client, [entry])
            for name in APPLICATIONS:
                await client.patch(f"/api/v1/namespaces/shop/pods/{name}-0/status", {"status": RUNNING})
            yield made


async def until_established(client: KubeClient) -> None:
    """Wait until the cluster serves our kind of HPA and the metrics APIs."""

    async def served() -> bool:
        try:
            await client.get("/apis/milliscale.io/v1/horizontalpodautoscalers")
            return bool(await client.get("/apis/metrics.k8s.io/v1beta1/nodes"))
        except (KubeError, StatusError):
            return False

    await eventually(served)


@asynccontextmanager
async def autoscalers(
    installed: Installation, objects: Objects, *, before_start: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[list[Autoscaler]]:
    """Apply the rendered objects of the autoscaler, and run as many processes as it has replicas; then delete them."""
    account = Account("milliscale", "milliscale-autoscaler")
    applied = [entry for entry in part(objects, "autoscaler") if entry["kind"] != "Namespace"]
    await installed.apply(applied)
    kubeconfig = await installed.kubeconfig(account)
    await installed.until_granted(account)
    if before_start is not None:
        await before_start()
    (name,) = (key for key in objects if key[1] == account.name and key[0] in ("Deployment", "StatefulSet"))
    spec = objects[name]["spec"]
    try:
        async with AsyncExitStack() as stack:
            processes = []
            for ordinal in range(spec["replicas"]):
                pod = {"apiVersion": "v1", "kind": "Pod", **spec["template"]}
                pod["metadata"] = {
                    **pod["metadata"],
                    "name": f"{account.name}-{ordinal}",
                    "namespace": account.namespace,
                }
                await installed.apply([pod])
                applied.append(pod)
                processes.append(
                    await stack.enter_async_context(
                        autoscaler(
                            kubeconfig,
                            *arguments(objects[name]),
                            *("--bind-address=127.0.0.1", "--metrics-port=0", "--ui-address=0.0.0.0:0", "-v=4"),
                            *(f"--leader-elect-resource-namespace={account.namespace}", "--kube-api-qps=-1"),
                            f"--cert-dir={installed.folder / 'autoscaler-certificates'}-{ordinal}",
                            *("--horizontal-pod-autoscaler-sync-period=500ms", SAVES_OFTEN),
                            environment={"HOSTNAME": pod["metadata"]["name"]},
                            program=_PROGRAM,
                        )
                    )
                )
            yield processes
    finally:
        left = await installed.client.get("/apis/coordination.k8s.io/v1/namespaces/milliscale/leases")
        leases = [{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease} for lease in left["items"]]
        left = await installed.client.get("/api/v1/namespaces/milliscale/configmaps")
        saved = [{"apiVersion": "v1", "kind": "ConfigMap", **each} for each in left["items"] if each.get("binaryData")]
        await installed.delete([*leases, *saved, *applied])
