"""HPAs of autoscaling/v1 are reconciled and read as v1."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.config import Config
from autoscaler.loop.controller import Controller
from autoscaler.loop.options import Options
from kube.api.client import KubeClient
from playground.cluster import Cluster, start_cluster
from playground.tasks import background
from tests.e2e.scripted_metrics import Load, ScriptedMetrics, scripted_metrics
from tests.eventually import eventually

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
V1_HPAS = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
QUICK = Options(
    sync_period=0.2,
    qps=-1,
    bind_address="127.0.0.1",
    metrics_port=0,
    config=Config(downscale_stabilization_ms=0, cpu_initialization_period_ms=0, initial_readiness_delay_ms=0),
)

pytestmark = pytest.mark.e2e


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    async with start_cluster(tmp_path / "cluster", ready_seconds=0.05) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with await cluster.client() as client:
        yield client


@pytest.fixture
async def metrics(admin: KubeClient, tmp_path: Path) -> AsyncIterator[ScriptedMetrics]:
    async with scripted_metrics(admin, tmp_path) as metrics:
        yield metrics


@asynccontextmanager
async def autoscaler(client: KubeClient) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with background(Controller(client, QUICK).run(stop)):
        yield
        stop.set()


async def add_deployment(admin: KubeClient) -> None:
    labels = {"app": "web"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100"}}}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    await admin.post(DEPLOYMENTS, body)


async def settled(admin: KubeClient, replicas: int) -> dict[str, Any]:
    """Wait for a number of replicas at 50% of the requests; return the v1 HPA."""

    async def has_settled() -> dict[str, Any]:
        found = await admin.get(f"{V1_HPAS}/web")
        status = found["status"]
        assert (status["currentReplicas"], status["desiredReplicas"]) == (replicas, replicas)
        assert status["currentCPUUtilizationPercentage"] == 50
        return found

    return await eventually(has_settled, within=20)


async def test_hpa_created_by_a_v1_client_scales(admin: KubeClient, metrics: ScriptedMetrics) -> None:
    await add_deployment(admin)
    metrics.loads["web"] = Load(200_000)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 5, "targetCPUUtilizationPercentage": 50}
    hpa = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": spec}
    await admin.post(V1_HPAS, hpa)
    async with autoscaler(admin):
        found = await settled(admin, 4)
        assert found["spec"] == {**spec, "minReplicas": 1}
        metrics.loads["web"] = Load(100_000)
        await settled(admin, 2)
