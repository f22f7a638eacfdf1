"""A small cluster for the autoscaler: the playground's API server, a custom metrics API, workloads and HPAs."""

import asyncio
import base64
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from autoscaler.core.config import Config
from autoscaler.core.model import KUBERNETES, HPAApi
from autoscaler.loop.controller import Controller
from autoscaler.loop.options import Options
from autoscaler.loop.telemetry import Telemetry
from kube.api.client import KubeClient
from kube.api.mapping import GroupResource
from kube.values.selectors import LabelSelector
from playground.apiserver import PlaygroundApiServer
from playground.certs import CertificateAuthority
from tests.eventually import eventually, until
from tests.objects import deployment, hpa
from tests.replay.builders import pods_metric
from tests.web_servers import served, server_tls

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
"""The user that Kubernetes' own HPA controller is, with that controller's rights and no others."""
METRIC = "packets_per_second"
QUICK = Options(
    sync_period=0.05, qps=-1, bind_address="127.0.0.1", metrics_port=0, config=Config(downscale_stabilization_ms=0)
)
"""The demo's counterpart of kube-controller-manager's defaults: quick syncs, no waiting before a scale-down."""
_GROUP = "custom.metrics.k8s.io"
_TIME = "2026-01-01T00:00:00Z"


@dataclass
class FakeMetrics:
    """A custom metrics API with one Pods metric, with the same value for each of `pods`."""

    value: str = "10"
    pods: Mapping[str, list[str]] = field(default_factory=dict)
    """The names of the pods by label selector."""
    status: int = 200
    held: asyncio.Event | None = None
    """Responses wait for this, if set."""
    held_namespace: str | None = None
    """Only those of this namespace do."""
    requests: int = 0
    values: int = 0
    """The number of values in all responses together."""
    explanation: Mapping[str, object] | None = None
    """What the adapter says about every metric, if it is milliscale's."""
    explained: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        if "/debug/" in request.path:
            self.explained.append(request.path_qs)
            missing = {"kind": "Status", "status": "Failure", "message": "no such resource", "code": 404}
            return web.json_response(self.explanation or missing, status=200 if self.explanation else 404)
        if "/pods/*/" not in request.path:
            found = [{"name": f"pods/{METRIC}"}]
            return web.json_response({"groupVersion": f"{_GROUP}/v1beta2", "resources": found})
        if not request.path.endswith(f"/pods/*/{METRIC}"):
            missing = {"kind": "Status", "status": "Failure", "message": "there is no such metric", "code": 404}
            return web.json_response(missing, status=404)
        self.requests += 1
        if self.held is not None and f"/namespaces/{self.held_namespace or ''}" in request.path:
            await self.held.wait()
        if self.status != 200:
            body = {"kind": "Status", "status": "Failure", "message": "prometheus is away", "code": self.status}
            return web.json_response(body, status=self.status)
        selector = LabelSelector.parse(request.query["labelSelector"])
        apps = {known.removeprefix("app="): names for known, names in self.pods.items()}
        names = [name for app, of_app in apps.items() if selector.matches({"app": app}) for name in of_app]
        self.values += len(names)
        items = [{"describedObject": {"name": name}, "timestamp": _TIME, "value": self.value} for name in names]
        return web.json_response({"kind": "MetricValueList", "items": items})


@dataclass
class Cluster:
    """The API server with its objects, and operations of tests on them."""

    server: PlaygroundApiServer
    metrics: FakeMetrics
    admin: KubeClient

    @property
    def kubeconfig(self) -> Path:
        """For the autoscaler."""
        return self.server.kubeconfig(AUTOSCALER, ())

    def syncs(self) -> int:
        """Return the number of reconciliations that have begun: each reads a scale."""
        return self.server.requests.of("get", "deployments/scale")

    def status_writes(self) -> int:
        """How often a status was written."""
        return self.server.requests.of("update", "horizontalpodautoscalers/status")

    def add_deployment(
        self, name: str, *, replicas: int, selects: str | None = None, namespace: str = "default"
    ) -> None:
        """A Deployment, and its pods, all Ready; or one without any that selects those of another Deployment."""
        made = deployment(name, namespace=namespace, replicas=replicas)
        if selects is not None:
            made["spec"] = deployment(selects, replicas=replicas)["spec"]
        self.server.create({**made, "status": {"replicas": replicas}})
        if selects is None:
            self._add_pods(name, range(replicas), namespace)

    def add_hpa(
        self,
        name: str,
        *,
        target: str | None = None,
        most: int = 5,
        least: int = 1,
        goal: str = "10",
        api: HPAApi = KUBERNETES,
        namespace: str = "default",
        metric_name: str = METRIC,
    ) -> None:
        """An HPA on the Pods metric."""
        metric = pods_metric(metric_name, goal)
        spec: dict[str, Any] = {"minReplicas": least, "maxReplicas": most}
        made = hpa(name, metric, target=target or name, namespace=namespace, api=api.api_version, **spec)
        made["metadata"]["labels"] = {"kept": "yes"}
        self.server.create(made)

    def replicas(self, name: str, *, namespace: str = "default") -> int:
        """The replicas in the Deployment's spec."""
        return int(self._object("apps", "deployments", name, namespace)["spec"]["replicas"])

    async def roll_out(self, name: str) -> None:
        """Do a Deployment controller's and kubelets' work: as many Ready pods as the Deployment asks for."""
        wanted, selector = self.replicas(name), f"app={name}"
        present = len(self.metrics.pods.get(selector, ()))
        self._add_pods(name, range(present, wanted))
        for number in range(wanted, present):
            await self.admin.delete(f"/api/v1/namespaces/default/pods/{name}-{number}")
        self.metrics.pods = {**self.metrics.pods, selector: [f"{name}-{number}" for number in range(wanted)]}
        path = f"/apis/apps/v1/namespaces/default/deployments/{name}/status"
        await self.admin.patch(path, {"status": {"replicas": wanted}})

    def hpa(self, name: str, *, api: HPAApi = KUBERNETES) -> dict[str, Any]:
        """An HPA as stored."""
        return self._object(api.group, "horizontalpodautoscalers", name)

    def condition(self, name: str, type_: str, *, api: HPAApi = KUBERNETES) -> tuple[str, str] | None:
        """Status and reason of one of an HPA's conditions."""
        conditions = self.hpa(name, api=api).get("status", {}).get("conditions") or ()
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == type_), None)

    async def patch_hpa(self, name: str, **spec: Any) -> None:
        """Change an HPA's spec."""
        path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}"
        await self.admin.patch(path, {"spec": spec})

    async def events(self, hpa: str) -> list[tuple[str, str, int]]:
        """Reason, message and count of an HPA's events."""
        found = (await self.admin.get("/api/v1/namespaces/default/events"))["items"]
        return [
            (event["reason"], event["message"], event["count"])
            for event in found
            if event["involvedObject"]["name"] == hpa
        ]

    def _object(self, group: str, resource: str, name: str, namespace: str = "default") -> dict[str, Any]:
        found = self.server.storage.get(GroupResource(group, resource), namespace, name)
        assert found is not None, f"no {resource} {name}"
        return found

    def _add_pods(self, name: str, numbers: range, namespace: str = "default") -> None:
        for number in numbers:
            self.server.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"{name}-{number}", "namespace": namespace, "labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                    "status": {
                        "phase": "Running",
                        "startTime": _TIME,
                        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _TIME}],
                    },
                }
            )
        selector = f"app={name}"
        names = [*self.metrics.pods.get(selector, ()), *(f"{name}-{number}" for number in numbers)]
        self.metrics.pods = {**self.metrics.pods, selector: names}


@asynccontextmanager
async def running_cluster(folder: Path, *, bookmark_seconds: float = 60.0) -> AsyncIterator[Cluster]:
    """A cluster with a registered and available custom metrics API."""
    async with (
        PlaygroundApiServer(folder, availability_seconds=0.1, bookmark_seconds=bookmark_seconds) as server,
        _metrics_api(server, folder) as metrics,
        await KubeClient.connect(server.kubeconfig()) as admin,
    ):
        yield Cluster(server, metrics, admin)


@asynccontextmanager
async def _metrics_api(server: PlaygroundApiServer, folder: Path) -> AsyncIterator[FakeMetrics]:
    metrics = FakeMetrics()
    authority = CertificateAuthority.create("metrics")
    pair = authority.issue("metrics", hosts=["metrics.default.svc"], server=True)
    async with served(metrics.handle, tls=server_tls(pair, folder), host="localhost") as url:
        service = {"type": "ExternalName", "externalName": "localhost"}
        name = {"name": "metrics", "namespace": "default"}
        server.create({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": service})
        server.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"v1beta2.{_GROUP}"},
                "spec": {
                    "group": _GROUP,
                    "version": "v1beta2",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "caBundle": base64.b64encode(authority.cert_pem).decode(),
                    "service": {**name, "port": urlsplit(url).port},
                },
            }
        )
        yield metrics


PREFIX = "horizontal_pod_autoscaler_controller"
_LOG: ContextVar[list[str]] = ContextVar("log")


class Running:
    """A controller in this process: its log, and its endpoint."""

    def __init__(self) -> None:
        self.log_lines: list[str] = []
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def logged(self, text: str) -> bool:
        """Whether a line of the log has this text."""
        return any(text in line for line in self.log_lines)

    @property
    def url(self) -> str:
        """Of its endpoint for health and metrics."""
        found = re.search(r"health and metrics on \S+ port (\d+)", "\n".join(self.log_lines))
        assert found, "not listening yet"
        return f"http://127.0.0.1:{found[1]}"

    async def get(self, path: str) -> str:
        """Return a page of its endpoint."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}{path}") as response:
            return await response.text()

    async def metric(self, name: str) -> float:
        """The value of a series, without the prefix of its name; 0 if there is none."""
        lines = (await self.get("/metrics")).splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{PREFIX}_{name} ")), 0.0)

    async def reaches(self, metric: str, least: float) -> None:
        """Wait until a series has at least this value."""

        async def reached() -> bool:
            return await self.metric(metric) >= least

        await eventually(reached, every=0.01)

    async def kill(self) -> None:
        """End it at once, as SIGKILL would."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])


class _LogLines(logging.Handler):
    """The log of one of the controllers in this process."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        if _LOG.get(None) is self._lines:
            self._lines.append(record.getMessage())


@asynccontextmanager
async def running_controller(
    kubeconfig: Path, options: Options, *, telemetry: Telemetry | None = None, bookmark_seconds: float = 60.0
) -> AsyncIterator[Running]:
    """Run a controller in this process until the end of the context, where it is stopped as by SIGTERM."""
    running = Running()
    handler, loggers = _LogLines(running.log_lines), [logging.getLogger(name) for name in ("autoscaler", "kube")]
    levels = [logger.level for logger in loggers]
    context = copy_context()
    context.run(_LOG.set, running.log_lines)
    async with (
        await KubeClient.connect(
            kubeconfig, settings=options.settings.api_server, bookmark_seconds=bookmark_seconds
        ) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
        try:
            controller = Controller(client, options, telemetry=telemetry)
            running.task = tasks.create_task(controller.run(running.stop), context=context)
            await until(lambda: running.logged("health and metrics on"))
            yield running
            running.stop.set()
            await asyncio.wait([running.task])
        finally:
            running.stop.set()
            for logger, level in zip(loggers, levels, strict=True):
                logger.removeHandler(handler)
                logger.setLevel(level)
