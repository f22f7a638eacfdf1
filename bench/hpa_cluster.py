"""A cluster full of HPAs, as a process of its own: `python -m bench.hpa_cluster FOLDER`.

It runs the API server (the playground's, or kube-apiserver and etcd of KUBEBUILDER_ASSETS) and an aggregated custom
metrics API. The values change every second within the tolerance, so each reconciliation writes a status and none
scales. Each HPA has a Deployment of two pods.

Orders and results are JSON lines: `{"grow": 1000}` creates HPAs up to that number, `{"begin": true}` starts a
measurement and `{"end": true}` ends it. A reconciliation is counted by its status write, which every controller makes.
`{"tenant": [40, 1, 10.0]}` creates a namespace of 40 HPAs with one metric each, for which a request takes 10 s; their
reconciliations are not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import click
import msgspec
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from bench.figures import children, cpu_seconds, percentile
from bench.hpa_objects import (
    GROUP,
    TARGET_MILLI,
    TENANT,
    app_objects,
    metrics_api_objects,
    namespace_objects,
    namespace_of,
)
from bench.processes import LinesProcess, lines_process
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.mapping import GroupResource
from kube.api.status import StatusError
from kube.process.runtime import run
from kube.values.selectors import LabelSelector
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.pki import Pki
from playground.certs import CertificateAuthority
from playground.kube_apiserver import KubeApiServer, find_assets
from playground.tasks import background

PODS_EACH = 2
_ADMIN, _MEASURED = "admin", "measured"
# Prime, so that the value at one step differs from that at the next, however many seconds lie between.
_VALUES = 97
_CREATORS = 16
_PODS = GroupResource("", "pods")
_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_WATCH_SECONDS = 3600.0
_VERBS = {"PUT": "update", "POST": "create"}


class Order(msgspec.Struct, omit_defaults=True):
    """An order for the cluster's process."""

    grow: int = 0
    begin: bool = False
    end: bool = False
    tenant: tuple[int, int, float] | None = None


class Grown(msgspec.Struct):
    """The result of growing: the number of HPAs."""

    hpas: int
    kubeconfig: str
    seconds: float


class Ended(msgspec.Struct):
    """The counts since the start of the measurement."""

    seconds: float
    syncs: int
    synced_hpas: int
    """HPAs with at least two status writes."""
    interval_p50: float
    """Seconds between two status writes of an HPA."""
    interval_p99: float
    interval_max: float
    requests: dict[str, int]
    """{verb and resource: count}."""
    metric_requests: int
    metric_values: int
    server_cpu_seconds: float
    """Of the API server and etcd; of the playground's together with the metrics API."""


def cluster_process(folder: Path, namespaces: int) -> AbstractAsyncContextManager[LinesProcess]:
    """Run this module, a cluster with so many namespaces, which takes orders."""
    # It logs clients that disconnect during a watch, which is normal here.
    return lines_process("bench.hpa_cluster", folder, f"--namespaces={namespaces}", log=folder.with_suffix(".log"))


class _Syncs:
    """When each HPA's status was last written."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset the counts; earlier writes may be another process's."""
        self._last: dict[tuple[str, str], float] = {}
        self.count = 0
        self.intervals: list[float] = []
        self.repeated: set[tuple[str, str]] = set()

    def saw(self, metadata: Mapping[str, Any]) -> None:
        """Record a status write."""
        if metadata["namespace"] == TENANT:
            return
        key, now = (metadata["namespace"], metadata["name"]), time.monotonic()
        self.count += 1
        if key in self._last:
            self.intervals.append(now - self._last[key])
            self.repeated.add(key)
        self._last[key] = now


class _Metrics:
    """The aggregated API: one Pods metric."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, list[str]]] = {}
        """By namespace and app."""
        self.requests = 0
        self.values = 0
        self.tenant_seconds = 0.0

    async def discover(self, request: web.Request) -> web.Response:
        """The group version's document."""
        version = f"{GROUP}/{request.match_info['version']}"
        return web.json_response({"kind": "APIResourceList", "groupVersion": version, "resources": []})

    async def respond(self, request: web.Request) -> web.Response:
        """Return the value of every selected pod, the same for all."""
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        if namespace == TENANT:
            await asyncio.sleep(self.tenant_seconds)
        apps = self.pods.get(namespace, {})
        selector = LabelSelector.parse(request.query.get("labelSelector", ""))
        selected = next((each.values for each in selector.requirements if each.key == "app"), None)
        names = [name for app in (apps if selected is None else selected) for name in apps.get(app, ())]
        now = int(time.time())
        common = {
            "metric": {"name": metric},
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "windowSeconds": 60,
            "value": f"{TARGET_MILLI - _VALUES // 2 + now % _VALUES}m",
        }
        items = [
            {"describedObject": {"kind": "Pod", "namespace": namespace, "name": name, "apiVersion": "/v1"}, **common}
            for name in names
        ]
        self.requests += 1
        self.values += len(items)
        body = {"kind": "MetricValueList", "apiVersion": f"{GROUP}/v1beta2", "metadata": {}, "items": items}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")


class _Server(Protocol):
    """An API server: the playground's or kube-apiserver."""

    kubeconfig: Path
    """The kubeconfig of an administrator."""

    async def create(self, obj: dict[str, Any]) -> None:
        """Create an object with its status."""

    async def follow(self, syncs: _Syncs) -> None:
        """Report every status write of an HPA, until cancelled."""

    async def requests(self) -> Counter[str]:
        """Return {verb and resource: count} since the server's start."""

    def cpu_seconds(self) -> float:
        """Return its CPU seconds since its start."""


class _Playground:
    """The playground's API server, in this process."""

    def __init__(self, server: PlaygroundApiServer) -> None:
        self.kubeconfig = server.kubeconfig(_MEASURED)
        self._server = server

    async def create(self, obj: dict[str, Any]) -> None:
        created = self._server.create(obj)
        if fields := obj["metadata"].get("managedFields"):
            # This server writes none down, and a real one does.
            whole = {**created, "metadata": {**created["metadata"], "managedFields": fields}}
            self._server.storage.put(_PODS, whole)
        await asyncio.sleep(0)

    async def follow(self, syncs: _Syncs) -> None:
        storage = self._server.storage
        resource = GroupResource("autoscaling", "horizontalpodautoscalers")
        with contextlib.closing(storage.subscribe(resource, storage.revision)) as changes:
            while True:
                change = await changes.next()
                if change.type == "MODIFIED":
                    syncs.saw(change.object["metadata"])

    async def requests(self) -> Counter[str]:
        by_user = self._server.requests.by_user(_MEASURED)
        return Counter({f"{verb} {resource}": count for (verb, resource), count in by_user.items()})

    def cpu_seconds(self) -> float:
        return time.process_time()


class _Kubernetes:
    """kube-apiserver and etcd, children of this process."""

    def __init__(self, server: KubeApiServer, pki: Pki, client: KubeClient) -> None:
        self.kubeconfig = pki.kubeconfig(server.url, _MEASURED, ["system:masters"])
        self._server = server
        self._client = client
        self._context = ssl.create_default_context(cafile=str(pki.serving_ca_file))

    async def create(self, obj: dict[str, Any]) -> None:
        api_version, metadata = obj["apiVersion"], obj["metadata"]
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if "namespace" in metadata:
            path += f"/namespaces/{metadata['namespace']}"
        path += f"/{obj['kind'].lower()}s"
        # This server writes its own.
        metadata = {name: value for name, value in metadata.items() if name != "managedFields"}
        await self._client.post(path, {**obj, "metadata": metadata})
        if "status" in obj:
            await self._client.patch(f"{path}/{metadata['name']}/status", {"status": obj["status"]})

    async def show_metrics(self) -> None:
        """Let this process read the server's own metrics without a certificate."""
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"}
        everybody = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}
        await self.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "bench-monitoring"},
                "roleRef": role,
                "subjects": [everybody],
            }
        )

    async def follow(self, syncs: _Syncs) -> None:
        while True:
            version = (await self._client.get(_HPAS, {"limit": 1}))["metadata"]["resourceVersion"]
            with contextlib.suppress(StatusError, KubeUnreachable):
                query = {"resourceVersion": version}
                async for event in self._client.watch(_HPAS, query, seconds=_WATCH_SECONDS):
                    if event["type"] == "MODIFIED":
                        syncs.saw(event["object"]["metadata"])

    async def requests(self) -> Counter[str]:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.get(f"{self._server.url}/metrics", ssl=self._context) as response,
        ):
            text = await response.text()
        wanted = "\n".join(line for line in text.splitlines() if line.startswith("apiserver_request_total"))
        counts: Counter[str] = Counter()
        for family in text_string_to_metric_families(wanted + "\n"):
            for sample in family.samples:
                labels = sample.labels
                verb = _VERBS.get(labels["verb"], labels["verb"].lower())
                what = "/".join(filter(None, (labels["resource"] or labels["group"], labels["subresource"])))
                counts[f"{verb} {what}"] += int(sample.value)
        return counts

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, children(os.getpid())))


class _Cluster:
    """The API server with its HPAs, and the measurement."""

    def __init__(self, server: _Server, metrics: _Metrics, *, namespaces: int) -> None:
        self.syncs = _Syncs()
        self._server = server
        self._metrics = metrics
        self._namespaces = namespaces
        self._hpas = 0
        self._began = 0.0
        self._requests: Counter[str] = Counter()
        self._metrics_before = (0, 0)
        self._cpu = 0.0

    async def grow(self, wanted: int) -> Grown:
        """Create HPAs up to a number."""
        started = time.monotonic()
        await _side_by_side(map(self._add, range(self._hpas, wanted)))
        self._hpas = max(self._hpas, wanted)
        return Grown(self._hpas, str(self._server.kubeconfig), time.monotonic() - started)

    async def add_tenant(self, hpas: int, metrics: int, seconds: float) -> None:
        """Create the HPAs of a namespace with slow or many metrics."""
        self._metrics.tenant_seconds = seconds
        await _side_by_side(self._create(TENANT, f"app-{number:05}", metrics) for number in range(hpas))

    async def begin(self) -> None:
        """Start a measurement."""
        self._requests = await self._server.requests()
        self._metrics_before = (self._metrics.requests, self._metrics.values)
        self._cpu = self._server.cpu_seconds()
        self._began = time.monotonic()
        self.syncs.begin()

    async def end(self) -> Ended:
        """Return the counts since then."""
        syncs, seconds = self.syncs, time.monotonic() - self._began
        cpu = self._server.cpu_seconds() - self._cpu
        requests = await self._server.requests() - self._requests
        return Ended(
            seconds=seconds,
            syncs=syncs.count,
            synced_hpas=len(syncs.repeated),
            interval_p50=percentile(syncs.intervals, 0.5),
            interval_p99=percentile(syncs.intervals, 0.99),
            interval_max=max(syncs.intervals, default=0.0),
            requests=dict(requests.most_common()),
            metric_requests=self._metrics.requests - self._metrics_before[0],
            metric_values=self._metrics.values - self._metrics_before[1],
            server_cpu_seconds=cpu,
        )

    async def _add(self, number: int) -> None:
        await self._create(namespace_of(number, self._namespaces), f"app-{number:05}", 1)

    async def _create(self, namespace: str, app: str, metrics: int) -> None:
        pods = [f"{app}-{pod}" for pod in range(PODS_EACH)]
        # Known to the metrics API before the HPA is known to anybody.
        self._metrics.pods.setdefault(namespace, {})[app] = pods
        for obj in app_objects(namespace, app, pods, metrics=metrics):
            await self._server.create(obj)


async def _side_by_side(works: Iterable[Awaitable[Any]]) -> None:
    """Run works with a few concurrent tasks."""
    left = iter(works)

    async def hand() -> None:
        for work in left:
            await work

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CREATORS):
            tasks.create_task(hand())


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[_Server]:
    assets = find_assets(os.environ)
    if assets is None:
        async with PlaygroundApiServer(folder) as server:
            yield _Playground(server)
        return
    pki = await asyncio.to_thread(Pki.create, folder)
    async with (
        KubeApiServer(folder, assets=assets, pki=pki) as real,
        await KubeClient.connect(pki.kubeconfig(real.url, _ADMIN, ["system:masters"])) as client,
    ):
        kubernetes = _Kubernetes(real, pki, client)
        await kubernetes.show_metrics()
        yield kubernetes


async def _serve_metrics(stack: AsyncExitStack, server: _Server, folder: Path) -> _Metrics:
    authority = CertificateAuthority.create("metrics")
    pair = authority.issue("metrics", hosts=["metrics.default.svc"], server=True)
    file = folder / "metrics.pem"
    file.write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    metrics = _Metrics()
    app = web.Application()
    app.router.add_get("/apis/{group}/{version}", metrics.discover)
    app.router.add_get("/apis/{group}/{version}/namespaces/{namespace}/pods/*/{metric}", metrics.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    for obj in metrics_api_objects(port=runner.addresses[0][1], ca=authority.cert_pem):
        await server.create(obj)
    return metrics


async def _orders() -> AsyncIterator[Order]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield msgspec.json.decode(line, type=Order)


async def _run(folder: Path, namespaces: int) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(_server(folder))
        metrics = await _serve_metrics(stack, server, folder)
        await _side_by_side(map(server.create, namespace_objects(namespaces)))
        cluster = _Cluster(server, metrics, namespaces=namespaces)
        await stack.enter_async_context(background(server.follow(cluster.syncs)))
        async for order in _orders():
            reply: Grown | Ended | Order = order
            if order.tenant is not None:
                await cluster.add_tenant(*order.tenant)
            elif order.begin:
                await cluster.begin()
            elif order.end:
                reply = await cluster.end()
            else:
                reply = await cluster.grow(order.grow)
            print(msgspec.json.encode(reply).decode(), flush=True)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--namespaces", type=click.IntRange(1, 1000), default=50, show_default=True)
def main(folder: Path, namespaces: int) -> None:
    """Serve until standard input ends."""
    run(_run(folder, namespaces))


if __name__ == "__main__":
    main()
