"""The cluster of `bench.reaction`: applications whose load rises in a step, a Prometheus that scrapes their pods.

Each application is a Deployment of one pod in the namespace of its scrape interval (`s5`: every 5 s). Its pods share
its load, and each counts its part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.cache.store import Key, Store
from playground.cluster import Cluster, start_cluster
from playground.load import Load, Step, Traffic
from playground.pod_discovery import PodDiscovery
from playground.prometheus import PrometheusServer, Target
from playground.tasks import background
from playground.views import Deployment
from playground.workload import Workload

LOW, HIGH, TARGET, RIGHT = 100.0, 450.0, 100, 5
"""The load before and after the step, the target for each pod, and the replicas that it calls for."""
MAX_REPLICAS: Final = 10
COUNTER: Final = "packets_total"
INSTANT_QUERIES: Final = ("prometheus_http_requests_total", 'handler="/api/v1/query"')
"""The metric of Prometheus that counts them, and a label."""
_AT_A_TIME: Final = 8
_STEP: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A scrape interval and the range of the rates there, in seconds."""

    scrape: int
    window: int

    @property
    def namespace(self) -> str:
        """The namespace of its applications."""
        return f"s{self.scrape}"

    @property
    def metric(self) -> str:
        """The metric of its applications."""
        return f"packets_{self.namespace}"

    def query(self, matchers: str, *, recorded: bool = False) -> str:
        """Return the query for the pods that matchers select."""
        selector = f'{{namespace="{self.namespace}"{matchers and ","}{matchers}}}'
        if recorded:
            return f"sum({self.metric}:rate{selector}) by (namespace, pod)"
        return f"sum(rate({COUNTER}{selector}[{self.window}s])) by (namespace, pod)"


@dataclass(slots=True)
class Application:
    """An application; times are of the wall clock. `writes` are the replicas since the step, with their times."""

    name: str
    interval: Interval
    load: Step = field(default_factory=lambda: Step(low=LOW, high=HIGH))
    stepped: float = 0.0
    writes: list[tuple[float, int]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the right number has been written."""
        return any(replicas >= RIGHT for _, replicas in self.writes)


class _Scraper:
    """Gives all namespaces' targets to one Prometheus, each with its scrape interval."""

    def __init__(self, prometheus: PrometheusServer) -> None:
        self._prometheus = prometheus
        self._targets: dict[str, list[Target]] = {}
        self._writing = asyncio.Lock()

    async def set(self, interval: Interval, targets: Iterable[Target]) -> None:
        every = f"{interval.scrape}s"
        more = {"__scrape_interval__": every, "__scrape_timeout__": every}
        self._targets[interval.namespace] = [
            Target(address=one.address, labels={**one.labels, **more}) for one in targets
        ]
        async with self._writing:
            await self._prometheus.set_targets([one for some in self._targets.values() for one in some])


@dataclass(frozen=True, slots=True)
class _OfInterval:
    scraper: _Scraper
    interval: Interval

    async def set_targets(self, targets: Iterable[Target]) -> None:
        await self.scraper.set(self.interval, targets)


class ReactionCluster:
    """The running cluster with all applications."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        prometheus: PrometheusServer,
        workloads: dict[str, Workload],
        session: aiohttp.ClientSession,
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.prometheus = prometheus
        self._workloads = workloads
        self._session = session
        self._applications: dict[Key, Application] = {}
        path = "/apis/apps/v1/deployments"
        self.deployments = Store(client, path, Deployment.select, on_change=self._written)

    async def create(self, applications: Sequence[Application]) -> None:
        """Create applications."""
        self._applications |= {(one.interval.namespace, one.name): one for one in applications}
        for one in applications:
            traffic = {one.name: Traffic(wave=one.load, counters={COUNTER: 1.0})}
            load = self._workloads[one.interval.namespace].load
            load.traffic = {**load.traffic, **traffic}
        await _each(applications, self._create)

    async def create_hpas(self, applications: Sequence[Application]) -> None:
        """Create their HPAs, with the defaults of Kubernetes."""
        await _each(applications, self._create_hpa)

    async def remove(self, applications: Sequence[Application]) -> None:
        """Delete their HPAs, and scale them to no pod."""

        async def one(application: Application) -> None:
            namespace, name = application.interval.namespace, application.name
            await self.client.delete(f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}")
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
            await self.client.patch(path, {"spec": {"replicas": 0}})

        await _each(applications, one)

    async def measured(self, applications: Sequence[Application]) -> int:
        """Return how many of them have an HPA whose status has a metric near the load before the step."""
        count = 0
        for namespace in {one.interval.namespace for one in applications}:
            names = {one.name for one in applications if one.interval.namespace == namespace}
            hpas: dict[str, Any] = await self.client.get(
                f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
            )
            for hpa in hpas["items"]:
                metrics = hpa.get("status", {}).get("currentMetrics") or [{}]
                value = metrics[0].get("pods", {}).get("current", {}).get("averageValue", "")
                count += hpa["metadata"]["name"] in names and bool(value)
        return count

    def step(self, application: Application) -> None:
        """Raise the load of an application now."""
        application.writes.clear()
        application.stepped = time.time()
        application.load.at = self._workloads[application.interval.namespace].elapsed

    async def in_prometheus(self, application: Application, *, recorded: bool) -> tuple[float, float]:
        """Return how long after the step its first sample was, and the first value beyond the tolerance.

        Both in seconds, by the time of the sample and of the evaluation.
        """
        matchers = f'pod=~"{application.name}-.*"'
        raw = f'{COUNTER}{{namespace="{application.interval.namespace}",{matchers}}}[10m]'
        series = await self._get("query", query=raw)
        times = [float(at) for one in series for at, _ in one["values"]]
        sampled = min((at for at in times if at > application.stepped), default=float("nan"))
        end = application.writes[0][0] if application.writes else time.time()
        query = f"max({application.interval.query(matchers, recorded=recorded)})"
        values = await self._get("query_range", query=query, start=application.stepped, end=end, step=_STEP)
        beyond = [float(at) for one in values for at, value in one["values"] if float(value) > 1.1 * TARGET]
        return sampled - application.stepped, min(beyond, default=end) - application.stepped

    async def queries(self) -> int:
        """Return how many instant queries Prometheus has had."""
        return int(await metric_sum(self._session, self.prometheus.url, *INSTANT_QUERIES))

    async def _get(self, path: str, **parameters: str | float) -> list[Any]:
        url = f"{self.prometheus.url}/api/v1/{path}"
        async with self._session.get(url, params={key: str(value) for key, value in parameters.items()}) as response:
            response.raise_for_status()
            result: list[Any] = (await response.json())["data"]["result"]
            return result

    def _written(self, key: Key, old: Deployment | None, new: Deployment | None) -> None:
        application = self._applications.get(key)
        if application is not None and old is not None and new is not None and new.spec.replicas != old.spec.replicas:
            application.writes.append((time.time(), new.spec.replicas))

    async def _create(self, application: Application) -> None:
        namespace, labels = application.interval.namespace, {"app": application.name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "none"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        await self.client.post(path, {"metadata": {"name": application.name}, "spec": spec})

    async def _create_hpa(self, application: Application) -> None:
        metric = {"name": application.interval.metric}
        pods = {"metric": metric, "target": {"type": "AverageValue", "averageValue": str(TARGET)}}
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": application.name}
        spec = {"scaleTargetRef": target, "maxReplicas": MAX_REPLICAS, "metrics": [{"type": "Pods", "pods": pods}]}
        await self.client.post(
            f"/apis/autoscaling/v2/namespaces/{application.interval.namespace}/horizontalpodautoscalers",
            {"metadata": {"name": application.name}, "spec": spec},
        )


async def metric_sum(session: aiohttp.ClientSession, url: str, name: str, labels: str = "") -> float:
    """Return the sum of a process's own metric over the series whose text has `labels`."""
    async with session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{") and labels in line)


@asynccontextmanager
async def reaction_cluster(
    folder: Path, intervals: Sequence[Interval], *, ready_seconds: float, recorded: bool
) -> AsyncIterator[ReactionCluster]:
    """Start a cluster without applications. `recorded`: a recording rule computes the rates."""
    async with AsyncExitStack() as stack:
        rules = folder / "recording.yaml"
        await asyncio.to_thread(rules.write_text, _recording_rules(intervals))
        prometheus = await stack.enter_async_context(
            PrometheusServer(
                folder / "prometheus", scrape_interval=intervals[0].scrape, rule_files=[rules] if recorded else []
            )
        )
        cluster = await stack.enter_async_context(start_cluster(folder / "cluster", ready_seconds=ready_seconds))
        client = await stack.enter_async_context(await cluster.client(user_agent="bench"))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        scraper, workloads = _Scraper(prometheus), {}
        for interval in intervals:
            namespace = interval.namespace
            await client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            load = Load(traffic={}, backlogs={})
            workloads[namespace] = await stack.enter_async_context(Workload(load))
            discovery = PodDiscovery(
                client,
                namespace=namespace,
                workload=workloads[namespace],
                prometheus=_OfInterval(scraper, interval),
            )
            await stack.enter_async_context(background(discovery.run()))
        running = ReactionCluster(cluster, client, prometheus, workloads, session)
        await stack.enter_async_context(background(running.deployments.run()))
        await running.deployments.wait_synced()
        yield running


def _recording_rules(intervals: Sequence[Interval]) -> str:
    groups = [
        f"- name: {one.namespace}\n  interval: {one.scrape}s\n  rules:\n"
        f"  - record: {one.metric}:rate\n    expr: {one.query('')}\n"
        for one in intervals
    ]
    return f"groups:\n{''.join(groups)}"


async def _each(applications: Sequence[Application], work: Callable[[Application], Awaitable[None]]) -> None:
    """Do some work for each application, a few at a time; what is gone already is no error."""
    free = asyncio.Semaphore(_AT_A_TIME)

    async def one(application: Application) -> None:
        async with free:
            try:
                await work(application)
            except StatusError as error:
                if error.code != 404:
                    raise

    async with asyncio.TaskGroup() as tasks:
        for application in applications:
            tasks.create_task(one(application))
