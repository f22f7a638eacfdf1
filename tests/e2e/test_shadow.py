"""Shadow mode beside kube-controller-manager, which scales while the autoscaler compares."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube.api.client import KubeClient
from playground.cluster import start_cluster
from playground.ports import free_port
from tests.e2e.controllers import ROOT, autoscaler, controller_manager, needs_controller_manager, started
from tests.e2e.scripted_metrics import METRIC, Load, ScriptedMetrics, scripted_metrics
from tests.eventually import eventually
from tests.objects import deployment, hpa
from tests.replay.builders import external_metric

pytestmark = needs_controller_manager

SOON = 60.0
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
SLOW = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 3}], "stabilizationWindowSeconds": 1}


class Stage:
    """The cluster, both controllers, and the report of shadow mode."""

    def __init__(self, client: KubeClient, metrics: ScriptedMetrics, port: int) -> None:
        self.client = client
        self._metrics = metrics
        self._server = f"http://127.0.0.1:{port}"

    async def create(self, name: str, behavior: dict[str, Any] | None = None) -> None:
        """Create a Deployment, and an HPA with one replica per 10 units of load."""
        await self.client.post(DEPLOYMENTS, deployment(name))
        metric = external_metric(METRIC, {"app": name}, averageValue="10")
        await self.client.post(HPAS, hpa(name, metric, target=name, maxReplicas=10, behavior=behavior))

    def load(self, name: str, total: int) -> None:
        self._metrics.loads[name] = Load(total * 1000)

    async def scaled(self, name: str, replicas: int) -> None:
        """Wait until the target has so many replicas."""

        async def has() -> bool:
            deployment = await self.client.get(f"{DEPLOYMENTS}/{name}")
            return bool(deployment["spec"]["replicas"] == deployment["status"].get("replicas") == replicas)

        await eventually(has, within=SOON)

    async def report(self, *arguments: str) -> str:
        """Return the output of `shadow-report`."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "autoscaler", "shadow-report", f"--server={self._server}", *arguments),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    async def of(self, name: str) -> dict[str, Any]:
        """Return the report's entry of an HPA; empty if there is none."""
        page = json.loads(await self.report("-o", "json"))
        return next((entry for entry in page["hpas"] if entry["name"] == name), {})


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[Stage]:
    port = free_port()
    async with (
        start_cluster(folder / "cluster", ready_seconds=0.05) as cluster,
        await cluster.client() as client,
        scripted_metrics(client, folder) as metrics,
    ):
        observer = cluster.user_kubeconfig("observer", ["system:masters"])
        ours = autoscaler(observer, "--mode=shadow", f"--metrics-port={port}")
        async with (
            started("kube-controller-manager", controller_manager(cluster, folder), folder),
            started("autoscaler", ours, folder),
        ):
            yield Stage(client, metrics, port)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with both(tmp_path) as stage:
        yield stage


def writers(obj: dict[str, Any]) -> set[str]:
    """Return the field managers of an object."""
    return {each["manager"] for each in obj["metadata"]["managedFields"]}


async def test_shadow_agrees_with_kube_controller_manager(stage: Stage) -> None:
    names = ("plain", "gentle")
    await stage.create("plain")
    await stage.create("gentle", {"scaleUp": SLOW, "scaleDown": SLOW})
    for total, replicas in ((20, 2), (90, 9), (33, 4), (34, 4), (60, 6), (0, 1)):
        for name in names:
            stage.load(name, total)
        await asyncio.gather(*(stage.scaled(name, replicas) for name in names))
    for name in names:
        entry = await stage.of(name)
        counts = entry["comparisons"]
        assert counts["agreed"] >= 10, entry
        assert entry["agreement"] >= 0.95, entry
        hpa = await stage.client.get(f"{HPAS}/{name}")
        assert writers(hpa) == {"playground", "kube-controller-manager"}
    events = (await stage.client.get("/api/v1/namespaces/default/events"))["items"]
    rescales = [event for event in events if event["reason"] == "SuccessfulRescale"]
    assert rescales
    assert {writer for event in rescales for writer in writers(event)} == {"kube-controller-manager"}
    assert (await stage.report()).splitlines()[-1].endswith("of all decisions agree, within 1.5 s of each other.")


async def test_shadow_reports_a_different_decision(stage: Stage) -> None:
    """The HPA has tolerance 0 by annotation, and kube-controller-manager 0.1; the ratio is 1.05."""
    await stage.create("web")
    stage.load("web", 20)
    tolerance = {"metadata": {"annotations": {"milliscale.io/tolerance": "0"}}}
    await stage.client.patch(f"{HPAS}/web", tolerance)
    stage.load("web", 21)

    async def differs() -> bool:
        return bool((await stage.of("web")).get("comparisons", {}).get("higher", 0) > 0)

    await eventually(differs, within=SOON)
    assert "ours 3, theirs 2 (ours is higher)" in await stage.report()
