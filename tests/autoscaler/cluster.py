"""A small cluster for the autoscaler: the playground's API server, a custom metrics API, workloads and HPAs."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from autoscaler.core.model import KIND, KUBERNETES, HPAApi
from autoscaler.loop.controller import Controller
from autoscaler.loop.options import Options
from autoscaler.loop.telemetry import Telemetry
from kube.api.client import KubeClient
from kube.api.mapping import GroupResource
from kube.values.selectors import LabelSelector
from playground.apiserver import PlaygroundApiServer
from playground.certs import CertificateAuthority
from tests.web_servers import served, server_tls

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
"""The user that Kubernetes' own HPA controller is, with that controller's rights and no others."""
METRIC = "packets_per_second"
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
        labels = {"app": selects or name}
        self.server.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
                },
                "status": {"replicas": replicas},
            }
        )
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
        metric = {"metric": {"name": metric_name}, "target": {"type": "AverageValue", "averageValue": goal}}
        self.server.create(
            {
                "apiVersion": api.api_version,
                "kind": KIND,
                "metadata": {"name": name, "namespace": namespace, "labels": {"kept": "yes"}},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target or name},
                    "minReplicas": least,
                    "maxReplicas": most,
                    "metrics": [{"type": "Pods", "pods": metric}],
                },
            }
        )

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


@asynccontextmanager
async def running_controller(
    kubeconfig: Path, options: Options, *, telemetry: Telemetry | None = None
) -> AsyncIterator[None]:
    """Run a controller in this process until the end of the context."""
    stop = asyncio.Event()
    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(Controller(client, options, telemetry=telemetry).run(stop))
        try:
            yield
        finally:
            stop.set()
