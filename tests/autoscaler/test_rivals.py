"""Kubernetes' own controller at work on the same HPAs: what tells, and what does not."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.model import HPAKey
from autoscaler.core.modes import Mode
from autoscaler.loop.rivals import Rivals
from autoscaler.objects.watched import TrackedHPA, track_hpa
from kube.mapping import GroupResource
from tests.autoscaler.cluster import Cluster, running_cluster
from tests.autoscaler.test_modes import ACTING, SOON, Running, autoscaler
from tests.eventually import eventually

WEB = HPAKey("default", "web")
RESOURCE = GroupResource("autoscaling", "horizontalpodautoscalers")
BEFORE, AFTER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:15Z"
SERIES = "rival_status_writes_total"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def entry(manager: str = "kube-controller-manager", time: str = BEFORE, subresource: str = "status") -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "subresource": subresource, "time": time, "fieldsV1": {}}


# --- what tells ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("managed_fields", "time"),
    [
        ([entry("kubectl", AFTER, ""), entry("milliscale-autoscaler", AFTER), entry(time=BEFORE)], BEFORE),
        ([entry(subresource="scale")], ""),
        ([entry("milliscale-autoscaler")], ""),
        ([], ""),
        (None, ""),
        (["strange", {"manager": 3}], ""),
    ],
)
def test_who_last_wrote_the_status_is_in_the_managed_fields(managed_fields: object, time: str) -> None:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
    tracked = track_hpa(
        {
            "metadata": {"namespace": "default", "name": "web", "managedFields": managed_fields},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 3,
                "metrics": [metric],
            },
        }
    )
    assert isinstance(tracked, TrackedHPA)
    assert tracked.rival_time == time
    assert b"managedFields" not in tracked.metadata


@pytest.mark.parametrize(
    ("old", "new", "wrote"), [(BEFORE, AFTER, 1), ("", AFTER, 1), (AFTER, AFTER, 0), (AFTER, "", 0)]
)
def test_only_a_newer_time_is_a_write(old: str, new: str, wrote: int) -> None:
    writes: list[int] = []
    rivals = Rivals(on_write=lambda: writes.append(1))
    rivals.changed(WEB, old, new)
    assert len(writes) == wrote
    assert (rivals.problem is not None) == bool(wrote)


def test_it_is_said_once_and_again_after_a_time_of_peace(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    rivals = Rivals(on_write=lambda: None, clock=clock)
    for _ in range(3):
        clock.now += 300
        rivals.changed(WEB, BEFORE, AFTER)
    assert len(caplog.records) == 1
    assert "default/web" in caplog.text
    assert "--controllers=*,-horizontal-pod-autoscaler-controller" in caplog.text
    clock.now += 601
    assert rivals.problem is None
    rivals.changed(WEB, BEFORE, AFTER)
    assert len(caplog.records) == 2


# --- the whole loop ------------------------------------------------------------------------------------------------


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as cluster:
        cluster.add_deployment("web", replicas=2)
        cluster.add_hpa("web", most=8)
        yield cluster


def rival_writes(cluster: Cluster, time: str) -> None:
    """Store what the API server has after a status write of kube-controller-manager."""
    hpa = cluster.hpa("web")
    cluster.server.storage.put(RESOURCE, {**hpa, "metadata": {**hpa["metadata"], "managedFields": [entry(time=time)]}})


@pytest.mark.parametrize(("mode", "told"), [(Mode.ACT, True), (Mode.DRY_RUN, False), (Mode.SHADOW, False)])
async def test_who_acts_notices_and_who_looks_on_does_not_mind(
    mode: Mode, told: bool, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with autoscaler(cluster.kubeconfig, replace(ACTING, mode=mode), caplog) as running:
        await eventually(lambda: _steps(running, 1), within=SOON)
        rival_writes(cluster, AFTER)
        await eventually(lambda: _steps(running, 3), within=SOON)
        if told:
            await eventually(lambda: _wrote(running), within=SOON)
        ready = await running.text("/readyz?verbose")
    assert ("[!]rival: kube-controller-manager writes the status of HPAs, too" in ready) == told
    assert ready.endswith("readyz check passed\n")
    assert any(record.name == "autoscaler.loop.rivals" for record in caplog.records) == told


async def _steps(running: Running, count: int) -> bool:
    return await running.metric("schedule_lag_seconds_count") >= count


async def _wrote(running: Running) -> bool:
    return await running.metric(SERIES) == 1
