"""How many requests many HPAs cost, counted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from autoscaler.core.model import KUBERNETES
from autoscaler.loop.controller import Controller
from autoscaler.loop.options import Options
from kube.client import KubeClient
from tests.autoscaler.cluster import Cluster, running_cluster
from tests.eventually import eventually

HPAS = 60


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as running:
        yield running


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds, within=30, every=0.01)


async def test_hpas_with_nothing_to_do_cost_a_few_requests_for_metrics_and_nothing_else(cluster: Cluster) -> None:
    for number in range(HPAS):
        cluster.add_deployment(f"app-{number}", replicas=1)
        cluster.add_hpa(f"app-{number}")
    options = Options(
        hpa_apis=(KUBERNETES,), sync_period=0.5, qps=0, workers=HPAS, bind_address="127.0.0.1", metrics_port=0
    )
    stop = asyncio.Event()
    requests, metrics = cluster.server.requests, cluster.metrics
    async with (
        await KubeClient.connect(cluster.server.kubeconfig("autoscaler")) as client,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(Controller(client, options).run(stop))
        try:
            await until(lambda: requests.of("watch", "deployments") == 1)
            await until(lambda: all(cluster.hpa(f"app-{number}").get("status") for number in range(HPAS)))
            # Two more steps of each: the first statuses have come back and been settled.
            values = metrics.values
            await until(lambda: metrics.values >= values + 2 * HPAS)
            requests.clear()
            metrics.asked = metrics.values = 0
            await until(lambda: metrics.values >= 5 * HPAS)
        finally:
            stop.set()
    # On a busy machine fewer HPAs are due at the same time; then fewer queries can be merged.
    assert metrics.asked <= metrics.values * 0.7
    used = requests.by_user("autoscaler")
    assert not [what for what in used if what[0] in ("update", "patch", "create", "list", "watch")]
    assert requests.of("get", "deployments/scale") == 0
