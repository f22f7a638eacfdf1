"""One aggregated API server for resource, custom and external metrics, with values from a script.

Every request names an app: in the label selector of pods or of the external metric, or as the described Service. A load
is divided among the current pods of the app.

A response waits until all pods of the app are Ready, so that two controllers get the same values at different times.
"""

import asyncio
import base64
import datetime
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from kube.api.client import KubeClient
from kube.cache.store import Store
from playground.certs import CertificateAuthority
from playground.tasks import background
from tests.web_servers import served, server_tls

METRIC = "load"
_RESOURCE, _CUSTOM, _EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
_APIS = ((_RESOURCE, "v1beta1"), (_CUSTOM, "v1beta2"), (_EXTERNAL, "v1beta1"))
_WINDOW_SECONDS = 1
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """The metrics of an app."""

    total: int = 0
    """In thousandths; the object's and the external metric's value, and the sum of all pods' values."""
    silent: int = 0
    """The number of pods without a value."""
    failing: frozenset[str] = frozenset()
    """The API groups whose responses are errors."""


@dataclass(frozen=True, slots=True)
class _Deployment:
    replicas: int
    reported: int


@dataclass(frozen=True, slots=True)
class _Pod:
    name: str
    app: str
    ready: bool


def _deployment(raw: Mapping[str, Any]) -> _Deployment:
    return _Deployment(raw["spec"]["replicas"], raw["status"].get("replicas", 0))


def _pod(raw: Mapping[str, Any]) -> _Pod:
    conditions = raw["status"].get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    metadata = raw["metadata"]
    return _Pod(metadata["name"], metadata["labels"].get("app", ""), ready and "deletionTimestamp" not in metadata)


@dataclass
class ScriptedMetrics:
    """The loads by app, the number of requests per app, and their times in seconds since the epoch."""

    client: KubeClient
    loads: dict[str, Load] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    times: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._deployments = Store(self.client, "/apis/apps/v1/deployments", _deployment, on_change=self._note)
        self._pods = Store(self.client, "/api/v1/pods", _pod, on_change=self._note)

    async def run(self) -> None:
        """Watch Deployments and pods until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deployments.run())
            tasks.create_task(self._pods.run())

    async def discover(self, request: web.Request) -> web.Response:
        """Serve the discovery of a group version; only for resource metrics it must have the resources."""
        group, version = request.match_info["group"], request.match_info["version"]
        resources = [_discovered("pods", "PodMetrics")] if group == _RESOURCE else []
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return web.json_response({**body, "resources": resources})

    async def values(self, request: web.Request) -> web.Response:
        """Serve the values of a metric."""
        group, rest = request.match_info["group"], request.match_info["rest"].split("/")
        is_service = rest[0] == "services"
        app = rest[1] if is_service else request.query.get("labelSelector", "").removeprefix("app=")
        load = self.loads.get(app, Load())
        self.requests[app] += 1
        self.times[app].append(time.time())
        if group in load.failing:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "ServiceUnavailable"}
            return web.json_response({**status, "message": "failing by script", "code": 503}, status=503)
        values = await self._values(app, load)
        if group == _EXTERNAL:
            item = {"metricName": METRIC, "metricLabels": {}, "timestamp": _now(), "value": f"{load.total}m"}
            return _listed(group, "v1beta1", "ExternalMetricValueList", [item])
        if group == _RESOURCE:
            return _listed(group, "v1beta1", "PodMetricsList", [_usage(pod, milli) for pod, milli in values.items()])
        if is_service:
            items = [_value("Service", app, load.total)]
        else:
            items = [_value("Pod", pod, milli) for pod, milli in values.items()]
        return _listed(group, "v1beta2", "MetricValueList", items)

    async def _values(self, app: str, load: Load) -> dict[str, int]:
        """Return {pod: milli-value} when the app has the replicas of its Deployment."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                self._changed.clear()
                pods = self._settled(app)
                if pods is not None:
                    return {pod: load.total // len(pods) for pod in pods[: len(pods) - load.silent]}
                await self._changed.wait()

    def _note(self, *_: object) -> None:
        self._changed.set()

    def _settled(self, app: str) -> list[str] | None:
        wanted = self._deployments.get("default", app)
        pods = [pod for pod in self._pods.list("default") if pod.app == app]
        if wanted is None or not wanted.replicas == wanted.reported == len(pods):
            return None
        return sorted(pod.name for pod in pods) if all(pod.ready for pod in pods) else None


def _discovered(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list"]}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _value(kind: str, name: str, milli: int) -> dict[str, Any]:
    return {
        "describedObject": {"kind": kind, "namespace": "default", "name": name, "apiVersion": "/v1"},
        "metric": {"name": METRIC},
        "timestamp": _now(),
        "windowSeconds": _WINDOW_SECONDS,
        "value": f"{milli}m",
    }


def _usage(pod: str, milli: int) -> dict[str, Any]:
    return {
        "metadata": {"name": pod, "namespace": "default"},
        "timestamp": _now(),
        "window": f"{_WINDOW_SECONDS}s",
        "containers": [{"name": "c", "usage": {"cpu": f"{milli}m"}}],
    }


def _listed(group: str, version: str, kind: str, items: list[dict[str, Any]]) -> web.Response:
    return web.json_response({"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": items})


@asynccontextmanager
async def scripted_metrics(client: KubeClient, folder: Path) -> AsyncIterator[ScriptedMetrics]:
    """Start the server, and register it in the cluster."""
    metrics = ScriptedMetrics(client)
    app = web.Application()
    app.router.add_get("/apis/{group}/{version}", metrics.discover)
    app.router.add_get("/apis/{group}/{version}/namespaces/default/{rest:.*}", metrics.values)
    async with registered(app, client, folder), background(metrics.run()):
        yield metrics


@asynccontextmanager
async def registered(app: web.Application, client: KubeClient, folder: Path) -> AsyncIterator[None]:
    """Serve an application as the metrics APIs of a cluster."""
    authority = CertificateAuthority.create("metrics")
    pair = authority.issue("metrics", hosts=["metrics.default.svc"], server=True)
    async with served(app, tls=server_tls(pair, folder), host="localhost") as url:
        port = urlsplit(url).port
        assert port is not None
        await _register(client, port, authority)
        yield


async def _register(client: KubeClient, port: int, authority: CertificateAuthority) -> None:
    reference = {"name": "metrics", "namespace": "default"}
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    services = "/api/v1/namespaces/default/services"
    await client.post(services, {"apiVersion": "v1", "kind": "Service", "metadata": reference, "spec": spec})
    for group, version in _APIS:
        await client.post(
            "/apis/apiregistration.k8s.io/v1/apiservices",
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "caBundle": base64.b64encode(authority.cert_pem).decode(),
                    "service": {**reference, "port": port},
                },
            },
        )
