"""HPAs that kube-controller-manager reconciles are left to it, until it stops."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from playground.cluster import Cluster, start_cluster
from playground.ports import free_port
from tests.e2e.controllers import autoscaler, controller_manager, needs_controller_manager, started
from tests.e2e.scripted_metrics import scripted_metrics
from tests.e2e.test_shadow import HPAS, SOON, Stage, writers
from tests.e2e.tools import fetch
from tests.eventually import eventually

pytestmark = needs_controller_manager

OBSERVED = "horizontal_pod_autoscaler_controller_foreign_controlled_hpas"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with start_cluster(tmp_path / "cluster", ready_seconds=0.05) as cluster:
        yield cluster


@asynccontextmanager
async def acting(cluster: Cluster, folder: Path, port: int) -> AsyncIterator[None]:
    flags = ("--leader-elect=false", "--state-configmap=", f"--metrics-port={port}")
    command = autoscaler(cluster.user_kubeconfig("newcomer", ["system:masters"]), *flags)
    async with started(f"autoscaler-{port}", command, folder):
        yield


async def rescalers(stage: Stage) -> set[str]:
    """Return the controllers that emitted SuccessfulRescale."""
    events = (await stage.client.get("/api/v1/namespaces/default/events"))["items"]
    return {writer for event in events if event["reason"] == "SuccessfulRescale" for writer in writers(event)}


async def test_hpas_are_left_to_kube_controller_manager_until_it_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    async with await cluster.client() as client, scripted_metrics(client, tmp_path) as metrics:
        stage = Stage(client, metrics, first)
        async with started("kube-controller-manager", controller_manager(cluster, tmp_path), tmp_path):
            await stage.create("web")
            stage.load("web", 20)
            await stage.scaled("web", 2)
            async with acting(cluster, tmp_path, first):
                loads = itertools.cycle((21, 20))

                async def left_alone() -> bool:
                    # kube-controller-manager writes changed statuses only.
                    stage.load("web", next(loads))
                    return f"\n{OBSERVED} 1.0\n" in (await fetch(f"http://127.0.0.1:{first}/metrics"))[1]

                await eventually(left_alone, within=SOON, every=2)
                stage.load("web", 90)
                await stage.scaled("web", 9)
                stage.load("web", 30)
                await stage.scaled("web", 3)
                assert await rescalers(stage) == {"kube-controller-manager"}
        assert "kube-controller-manager" in writers(await client.get(f"{HPAS}/web"))
        async with acting(cluster, tmp_path, second):
            stage.load("web", 80)
            await stage.scaled("web", 8)
            assert f"\n{OBSERVED} 0.0\n" in (await fetch(f"http://127.0.0.1:{second}/metrics"))[1]
        assert await rescalers(stage) == {"kube-controller-manager", "milliscale-autoscaler"}
