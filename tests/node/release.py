"""milliscale on the node: the values of its chart, the same as an overlay, and what happens to its pods."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kube.api.client import KubeUnreachable
from kube.api.status import StatusError
from tests.eventually import eventually
from tests.manifests.rendering import MANIFESTS
from tests.node.images import REPOSITORY, TAGS
from tests.node.node import Node
from tools.render_chart import CHART, load_helm

NAMESPACE: Final = "milliscale"
ADAPTER: Final = "milliscale-adapter"
AUTOSCALER: Final = "milliscale-autoscaler"
METRIC: Final = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/packets_per_second"
READY_SECONDS: Final = 30.0

Object = dict[str, Any]

_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_RULE: Final = {
    "seriesQuery": '{__name__="packets_total",namespace!="",pod!=""}',
    "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
    "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
    "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[30s])) by (<<.GroupBy>>)",
}
_OVERRIDES: Final = {each: {"resource": each} for each in ("node", "namespace", "pod")}
# The queries of docs/resource-metrics.md, with the range that a scrape interval of 5 s allows.
_RESOURCES: Final = {
    "cpu": {
        "containerQuery": "sum by (<<.GroupBy>>) "
        '(rate(container_cpu_usage_seconds_total{container!="",<<.LabelMatchers>>}[30s]))',
        "nodeQuery": 'sum by (<<.GroupBy>>) (rate(container_cpu_usage_seconds_total{id="/",<<.LabelMatchers>>}[30s]))',
        "resources": {"overrides": _OVERRIDES},
        "containerLabel": "container",
    },
    "memory": {
        "containerQuery": "sum by (<<.GroupBy>>) "
        '(container_memory_working_set_bytes{container!="",<<.LabelMatchers>>})',
        "nodeQuery": 'sum by (<<.GroupBy>>) (container_memory_working_set_bytes{id="/",<<.LabelMatchers>>})',
        "resources": {"overrides": _OVERRIDES},
        "containerLabel": "container",
    },
    "window": "30s",
}
_COMPONENTS: Final = ("resource-metrics", "metric-rules", "adapter-ui", "autoscaler-ui")


def values(*, autoscaler: bool, tag: str = TAGS[0]) -> dict[str, Any]:
    """Return values of the chart; with those that are not given here it is installed as it is."""
    return {
        "image": {"repository": REPOSITORY, "tag": tag},
        "prometheus": {"url": "http://prometheus-k8s.monitoring.svc"},
        "rules": {"default": False, "custom": [_RULE], "resource": _RESOURCES},
        "metricRules": {"enabled": True},
        "ui": {"enabled": True},
        "autoscaler": {"enabled": autoscaler, "ui": {"enabled": True}},
    }


def write_overlay(folder: Path) -> Path:
    """Write an overlay with the same choices as the values, and the autoscaler; return its folder."""
    folder.mkdir()
    root = Path("../" * len(folder.parts[1:])) / MANIFESTS.relative_to("/")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": [_RULE], "resourceRules": _RESOURCES}))
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(root / "base")],
        "components": [str(root / "components" / name) for name in _COMPONENTS],
        "images": [{"name": "milliscale", "newName": REPOSITORY, "newTag": TAGS[0]}],
        "configMapGenerator": [
            {
                "name": "milliscale-rules",
                "namespace": NAMESPACE,
                "behavior": "replace",
                "files": ["rules.yaml"],
            }
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return folder


class Helm:
    """Helm's engine, in threads of its own."""

    def __init__(self, node: Node) -> None:
        self._config = load_helm().Config(
            kubeconfig_path=node.kubeconfig, namespace=NAMESPACE, qps=100, burst_limit=200
        )

    async def install(self, values: Mapping[str, Any]) -> None:
        await self._run("install", CHART, "milliscale", dict(values), namespace=NAMESPACE, create_namespace=True)

    async def upgrade(self, values: Mapping[str, Any]) -> None:
        await self._run("upgrade", CHART, "milliscale", dict(values), namespace=NAMESPACE)

    async def rollback(self) -> None:
        await self._run("rollback", "milliscale")

    async def uninstall(self) -> None:
        await self._run("uninstall", "milliscale")

    async def _run(self, action: str, *arguments: Any, **options: Any) -> None:
        await asyncio.to_thread(getattr(self._config, action), *arguments, **options)


async def pods(node: Node, component: str = "") -> list[Object]:
    """Return milliscale's pods, or those of one process."""
    listed = await node.client.get(_PODS)
    found: list[Object] = listed["items"]
    return [each for each in found if component in ("", each["metadata"]["labels"]["app.kubernetes.io/component"])]


async def rolled_out(node: Node, *deployments: str) -> bool:
    """Return True if the only pods are those of the newest templates, and all are Ready. AssertionError: not yet."""
    wanted = 0
    for name in deployments:
        found = await node.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
        wanted += found["spec"]["replicas"]
        status = found["status"]
        assert status.get("observedGeneration") == found["metadata"]["generation"]
        for count in ("replicas", "updatedReplicas", "availableReplicas"):
            assert status.get(count) == found["spec"]["replicas"], status
    names = [each["metadata"]["name"] for each in await pods(node)]
    assert len(names) == wanted, names
    return True


async def until_rolled_out(node: Node, *deployments: str) -> None:
    await eventually(lambda: rolled_out(node, *deployments), within=150)


async def values_served(node: Node) -> bool:
    """Return True if each pod of the router has a value. AssertionError: not yet."""
    try:
        return bool((await node.client.get(METRIC))["items"])
    except (StatusError, KubeUnreachable) as error:
        raise AssertionError(str(error)) from error


async def unavailable_apis(node: Node) -> list[str]:
    """Return the names of milliscale's APIServices that are not Available."""
    listed = await node.client.get(
        "/apis/apiregistration.k8s.io/v1/apiservices", {"labelSelector": "app.kubernetes.io/name=milliscale"}
    )
    assert listed["items"]
    return [
        each["metadata"]["name"]
        for each in listed["items"]
        if {"Available": "True"}
        not in [{entry["type"]: entry["status"]} for entry in each["status"].get("conditions", [])]
    ]


async def holder(node: Node, lease: str) -> str:
    """Return the identity of a Lease's holder: its pod's name and more. AssertionError: there is none."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}"
    try:
        found: str = (await node.client.get(path))["spec"].get("holderIdentity") or ""
    except StatusError as error:
        raise AssertionError(str(error)) from error
    assert found
    return found


async def process_of(node: Node, pod: Object) -> int:
    """Return the process ID of a pod's only container."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    found = re.search(rf"^{container}\s+(\d+)\s", await node.ctr("tasks", "ls"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def ready_seconds(pod: Object) -> float:
    """Return the seconds from a pod's creation until it was Ready."""
    (ready,) = (
        entry["lastTransitionTime"]
        for entry in pod["status"]["conditions"]
        if entry["type"] == "Ready" and entry["status"] == "True"
    )
    return _time(ready) - _time(pod["metadata"]["creationTimestamp"])


@dataclass(frozen=True)
class Ending:
    """How a container of a deleted pod ended; `seconds` after the request to delete it, rounded."""

    pod: str
    exit_code: int
    seconds: float


@dataclass
class Endings:
    """The endings of milliscale's pods, by their names."""

    found: dict[str, Ending] = field(default_factory=dict)

    def take(self) -> list[Ending]:
        """Return what was found since the last call."""
        taken, self.found = self.found, {}
        return [*taken.values()]

    def see(self, pod: Object) -> None:
        metadata = pod["metadata"]
        states = [each["state"].get("terminated") for each in pod["status"].get("containerStatuses", ())]
        if "deletionTimestamp" in metadata and any(states):
            (state,) = states
            asked = _time(metadata["deletionTimestamp"]) - metadata["deletionGracePeriodSeconds"]
            seconds = _time(state["finishedAt"]) - asked
            self.found.setdefault(metadata["name"], Ending(metadata["name"], state["exitCode"], seconds))


@asynccontextmanager
async def watched_endings(node: Node) -> AsyncIterator[Endings]:
    """Watch milliscale's pods."""
    endings = Endings()

    async def watch() -> None:
        while True:
            events = node.client.watch(_PODS, {"allowWatchBookmarks": True}, seconds=3600)
            with contextlib.suppress(KubeUnreachable):
                async for event in events:
                    if event["type"] in ("MODIFIED", "DELETED"):
                        endings.see(event["object"])

    task = asyncio.create_task(watch())
    try:
        yield endings
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Yield a list, to which the seconds are added at the end."""
    taken: list[float] = []
    started = time.monotonic()
    yield taken
    taken.append(time.monotonic() - started)


def _time(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
