"""The environment of the adapter's benchmark: a cluster with many pods, a Prometheus with their series, the adapter.

Everything runs on this machine and shares its cores: the API server (the playground's, in this process, or a real one
from KUBEBUILDER_ASSETS), Prometheus, the adapter and the load generator. The series are loaded beforehand, some minutes
into the future, so that nothing is scraped during a run.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench.figures import Cost
from bench.load_generator import Outcome, Task
from bench.processes import ROOT, adapter_flags, api_server, generate_load, give_rights
from bench.recorded_heads import hpa_head
from kube.api.client import KubeClient
from playground.apiserver.pki import Pki, client_tls
from playground.kube_apiserver import find_assets
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer, Series, openmetrics

NAMESPACES: Final = 50
"""Namespaces ns-0, ns-1 and so on."""

PODS: Final = 20
"""Pods in each of them: web-N-0 and so on; those with even numbers have the label half=even."""

BIG: Final = 5000
"""Pods of the namespace `big`; a label `share` divides them into eighths."""

BARE: Final = "aiohttp"
"""An HTTPS server on aiohttp with one handler; see bench.bare_server."""

OURS: Final = "milliscale"
UNCACHED: Final = "milliscale, freshness 0s"
PEER: Final = "prometheus-adapter"

CUSTOM: Final = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL: Final = "/apis/external.metrics.k8s.io/v1beta1"

_START_SECONDS: Final = 120.0
_AT_A_TIME: Final = 16
_BEFORE, _AFTER = 300.0, 1500.0
_STEP: Final = 120.0  # Prometheus looks back five minutes
# Whose requests were recorded; the manifests give the rights to a service account.
_READER: Final = "milliscale-metrics-reader"
_RIGHTS: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "bench-metrics-reader"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _READER},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-controller-manager"}],
}
_RULES: Final = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"wide_[0-9]+",namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  merge: always
externalRules:
- seriesQuery: '{__name__=~"wide_[0-9]+",namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
  merge: always
- seriesQuery: 'queue_depth{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of a server since its start; `stalls`: how often its event loop's lag was longer, by seconds."""

    cost: Cost
    queries: int = 0
    stalls: Mapping[float, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: the adapter, the peer, or aiohttp alone, which has no counters."""

    name: str
    port: int
    process: ChildProcess
    _pki: Pki
    _prometheus_url: str
    is_adapter: bool = True

    def task(self, *targets: str, connections: int, seconds: float) -> Task:
        """Return requests for the targets in turn, like the API server's aggregation layer for an HPA controller."""
        return Task(
            host=LOOPBACK,
            port=self.port,
            certificate=str(self._pki.front_proxy.certificate),
            key=str(self._pki.front_proxy.key),
            targets=targets,
            head=hpa_head(),
            connections=connections,
            seconds=seconds,
        )

    async def load(self, *targets: str, connections: int, seconds: float) -> Outcome:
        """Request the targets in turn, each connection as soon as it has a response."""
        task = self.task(*targets, connections=connections, seconds=seconds)
        return await generate_load("bench.load_generator", task, Outcome)

    async def totals(self) -> Totals:
        """Return its counters since its start."""
        queries = await _samples(f"{self._prometheus_url}/metrics")
        own = await self.get("/metrics") if self.is_adapter else ""
        return Totals(
            cost=await asyncio.to_thread(Cost.of, self.process.pid),
            queries=int(sum(value for name, value in queries if _is_query_count(name))),
            stalls={
                float(bound[1]): int(value)
                for name, value in _parsed(own)
                if (bound := re.match(r'milliscale_adapter_event_loop_lag_seconds_bucket\{le="(.+)"\}', name))
            },
        )

    async def get(self, path: str) -> str:
        """Send one request as an administrator; raises on failure."""
        context = await asyncio.to_thread(client_tls, self._pki.front_proxy)
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.get(
                f"https://{LOOPBACK}:{self.port}{path}",
                headers={"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
                ssl=context,
            ) as response,
        ):
            return await response.text()


@dataclass(frozen=True, slots=True)
class AdapterEnvironment:
    """The running environment. `servers`: aiohttp alone, the adapter, the adapter without cache, the peer if any.

    In an environment that is `alone`, only the adapter.
    """

    is_real: bool
    prometheus: PrometheusServer
    servers: tuple[Server, ...]


@asynccontextmanager
async def adapter_environment(
    folder: Path, *, peer: Path | None, freshness: str, wide: Sequence[int] = (), alone: bool = False
) -> AsyncIterator[AdapterEnvironment]:
    """Start everything, and stop it at the end of the context.

    Args:
        folder: for data, certificates and logs.
        peer: a prometheus-adapter to compare with.
        freshness: the adapter's --metrics-freshness.
        wide: numbers of series; for each number N there is a metric wide_N with N series.
        alone: start no other server than the adapter with its cache.

    Raises:
        PlaygroundError, TimeoutError: something does not start.
    """
    async with AsyncExitStack() as stack:
        text = await asyncio.to_thread(_openmetrics, time.time(), wide)
        prometheus = await stack.enter_async_context(PrometheusServer(folder / "prometheus", samples=text))
        del text
        url, pki = await stack.enter_async_context(api_server(folder / "cluster"))
        admin = pki.kubeconfig(url, "admin", ["system:masters"])
        client = await stack.enter_async_context(await KubeClient.connect(admin))
        _, account = await give_rights(client, folder, admin=admin, more=[_RIGHTS])
        await _create_objects(client)
        serve = [sys.executable, "-m", "adapter", "serve", "--shutdown-delay-duration=100ms"]
        commands = {
            OURS: [*serve, f"--metrics-freshness={freshness}"],
            UNCACHED: [*serve, "--metrics-freshness=0s"],
        }
        if alone:
            del commands[UNCACHED]
        if peer is not None:
            # With its default limits it may list pods five times a second.
            commands[PEER] = [str(peer), "--client-qps=100000", "--client-burst=100000"]
        servers = [] if alone else [await _bare_server(stack, folder, pki, prometheus.url)]
        for name, command in commands.items():
            port = free_port()
            rules = folder / f"{name}.yaml"
            text = _RULES.replace("  merge: always\n", "") if name == PEER else _RULES
            await asyncio.to_thread(rules.write_text, text)
            flags = adapter_flags(
                prometheus_url=prometheus.url,
                rules=rules,
                kubeconfig=account,
                port=port,
                certificates=folder / f"{name}-certificates",
                metrics_relist_interval="10m",
            )
            process = await ChildProcess.start(name, [*command, *flags], log=folder / f"{name}.log", directory=ROOT)
            await stack.enter_async_context(process)
            server = Server(name, port, process, pki, prometheus.url)
            await _until_ready(server)
            servers.append(server)
        yield AdapterEnvironment(find_assets(os.environ) is not None, prometheus, tuple(servers))


async def _bare_server(stack: AsyncExitStack, folder: Path, pki: Pki, prometheus_url: str) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "bench.bare_server", f"--port={port}"]
    command += [f"--certificate={pki.serving.certificate}", f"--key={pki.serving.key}"]
    command += [f"--client-ca={pki.requestheader_ca_file}"]
    process = await ChildProcess.start(BARE, command, log=folder / f"{BARE}.log", directory=ROOT)
    await stack.enter_async_context(process)
    return Server(BARE, port, process, pki, prometheus_url, is_adapter=False)


async def _create_objects(client: KubeClient) -> None:
    for name in ("big", *(f"ns-{n}" for n in range(NAMESPACES))):
        await client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    pods = _pods()

    async def create() -> None:
        for namespace, name, labels in pods:
            await client.post(
                f"/api/v1/namespaces/{namespace}/pods",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {"containers": [{"name": "app", "image": "none"}]},
                },
            )

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_A_TIME):
            tasks.create_task(create())


def _pods() -> Iterator[tuple[str, str, dict[str, str]]]:
    for n, pod in itertools.product(range(NAMESPACES), range(PODS)):
        yield f"ns-{n}", f"web-{n}-{pod}", {"app": "web", "half": "odd" if pod % 2 else "even"}
    for pod in range(BIG):
        share = 8 if pod >= BIG // 2 else 4 if pod >= BIG // 4 else 2 if pod >= BIG // 8 else 1
        yield "big", f"big-6c5d8f7b9c-{pod:05d}", {"app": "big", "share": str(share)}


def wide_pod(number: int) -> str:
    """Return a pod that has a series of each metric wide_N with N above `number`."""
    return f"wide-7d9c5b8f6d-{number:06d}"


def _openmetrics(now: float, wide: Sequence[int]) -> str:
    times = [now - _BEFORE + step * _STEP for step in range(int((_BEFORE + _AFTER) / _STEP))]
    series = [
        Series(
            "http_requests_total",
            {"namespace": namespace, "pod": name, "instance": "10.0.0.1:8080", "job": "web"},
            [(round(at, 3), (100 + len(name)) * (at - times[0])) for at in times],
        )
        for namespace, name, _ in _pods()
    ]
    series += [
        Series(
            "queue_depth",
            {"namespace": f"ns-{n}", "queue": f"q{queue}", "instance": "10.0.0.2:8080", "job": "queues"},
            [(round(at, 3), float(n + queue)) for at in times],
        )
        for n, queue in itertools.product(range(NAMESPACES), range(2))
    ]
    series += [
        Series(
            f"wide_{number}",
            {"namespace": f"ns-{n % NAMESPACES}", "pod": wide_pod(n), "instance": "10.0.0.3:8080"},
            [(round(at, 3), float(n)) for at in times],
        )
        for number in wide
        for n in range(number)
    ]
    return openmetrics(series)


async def _until_ready(server: Server) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            if server.process.exit_status is not None:
                raise RuntimeError("\n".join(server.process.last_lines()))
            try:
                await server.get(f"{CUSTOM}/namespaces/ns-0/pods/web-0-0/http_requests_per_second")
                await server.get(f"{EXTERNAL}/namespaces/ns-0/queue_depth")
            except aiohttp.ClientError:
                await asyncio.sleep(0.5)
            else:
                return


async def _samples(url: str) -> list[tuple[str, float]]:
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(url) as response:
        return _parsed(await response.text())


def _parsed(exposition: str) -> list[tuple[str, float]]:
    lines = (line.rpartition(" ") for line in exposition.splitlines() if line and not line.startswith("#"))
    return [(name, float(value)) for name, _, value in lines]


def _is_query_count(name: str) -> bool:
    return name.startswith("prometheus_http_requests_total{") and 'handler="/api/v1/query"' in name
