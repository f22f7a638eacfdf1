"""The scoreboard counts the scales of an HPA's target, from the API alone."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer
from playground.install import apply, read_objects
from playground.scenario import APPLICATIONS, HPAS, NAMESPACE, SWINGING
from playground.scoreboard import Scoreboard
from playground.tasks import background
from tests.eventually import eventually

ROUTER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/router"
HPA_STATUS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/router/status"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with PlaygroundApiServer(tmp_path) as server, await KubeClient.connect(server.kubeconfig()) as client:
        await apply(client, [*await read_objects(APPLICATIONS), *await read_objects(HPAS)])
        yield client


async def scale(client: KubeClient, replicas: int) -> None:
    await client.patch(f"{ROUTER}/scale", {"spec": {"replicas": replicas}})


async def report(client: KubeClient, value: str) -> None:
    current = {"type": "Pods", "pods": {"metric": {"name": "packets_per_second"}, "current": {"averageValue": value}}}
    status: dict[str, Any] = {"currentMetrics": [current], "currentReplicas": 1, "desiredReplicas": 1}
    await client.patch(HPA_STATUS, {"status": status})


async def test_scale_ups_and_downs_are_counted(client: KubeClient) -> None:
    scoreboard = Scoreboard(client, NAMESPACE, swinging=SWINGING)
    async with background(scoreboard.run()):
        await scoreboard.wait_synced()

        async def router_has(replicas: int, value: str) -> bool:
            standing = scoreboard.standings[0]
            return standing.deployment.spec.replicas == replicas and standing.hpa.value == value

        for replicas, value in [(1, "90"), (4, "142500m"), (6, "120"), (2, "10")]:
            await scale(client, replicas)
            await report(client, value)
            await eventually(partial(router_has, replicas, value), within=10)

        tally = scoreboard.standings[0].tally
        assert (tally.ups, tally.downs, tally.lowest, tally.highest) == (2, 1, 1, 6)
        assert tally.largest == "142500m"
        assert [standing.hpa.name for standing in scoreboard.standings] == ["router", "shop", "worker"]
        assert not scoreboard.all_swung, "shop and worker stand still"


async def test_events_are_in_order_and_failures_are_shown_once(client: KubeClient) -> None:
    scoreboard = Scoreboard(client, NAMESPACE, swinging=SWINGING)
    async with background(scoreboard.run()):
        await scoreboard.wait_synced()
        path = f"/api/v1/namespaces/{NAMESPACE}/events"
        for number, reason in enumerate(("SuccessfulRescale", "FailedGetPodsMetric", "SuccessfulRescale")):
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"router.{number}", "namespace": NAMESPACE},
                "involvedObject": {"kind": "HorizontalPodAutoscaler", "name": "router", "namespace": NAMESPACE},
                "reason": reason,
                "message": f"message {number}",
            }
            await client.post(path, event)
            await client.patch(f"{path}/router.{number}", {"count": 2})

        async def all_came() -> bool:
            return scoreboard.events_seen == 5

        await eventually(all_came, within=10)
        assert [event.message[-1] for event in scoreboard.events] == ["0", "0", "1", "2", "2"]
        assert scoreboard.events[0].about == "horizontalpodautoscaler/router"
