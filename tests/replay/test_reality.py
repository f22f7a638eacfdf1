"""A live run, recorded and replayed: the same replicas at every sync, apart from one sync's phase.

It protects the model of what is around a decision: when pods are ready, what a sync reads, which scales policies
count. That the decisions are the same is tested on simulated time, in test_kept_decisions.py, on every machine.

The replay's syncs are at the times of the live ones, so that a busy machine, where these are late, changes nothing. No
window or policy period is a multiple of the sync period: whether a sync exactly one period ago counts would depend on
its jitter. The load changes between syncs, by their count, so that both controllers see the same values. Pods become
ready a while after their creation, and only ready ones have values.
"""

from __future__ import annotations

import asyncio
import csv
import json
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.config import Config
from autoscaler.core.model import KUBERNETES
from autoscaler.records.record import BoundsRecord, DecisionRecord
from kube.api.client import KubeClient
from kube.cache.store import Store
from playground.cluster import start_cluster
from playground.tasks import background
from replay.csv_source import read_csv
from replay.hpa_files import parse_hpa_document
from replay.load import Load as RecordedLoad
from replay.load import RecordedDecision
from replay.simulation import Settings, simulate
from tests.e2e.controllers import autoscaler, controller_manager, needs_controller_manager, started
from tests.e2e.scripted_metrics import METRIC, Load, ScriptedMetrics, scripted_metrics
from tests.eventually import eventually

STARTUP_MS = 1500
GAP = math.nan
TOTALS = (20, 55, 90, 90, 140, 60, GAP, 130, 33, 12, GAP, 12, 47, 71, 8, 8, 8)
"""The load, each for SYNCS; in a gap the metrics APIs fail."""
SYNCS = 3
BETWEEN_SYNCS = 0.4
REPLICAS_COLUMN = "kube_deployment_status_replicas"

PER_POD = {"type": "AverageValue", "averageValue": "10"}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": METRIC, "selector": {"matchLabels": {"app": "APP"}}}, "target": PER_POD},
}
PACKETS = {"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": PER_POD}}
BEHAVIOR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 2,
        "policies": [
            {"type": "Pods", "value": 3, "periodSeconds": 2},
            {"type": "Percent", "value": 50, "periodSeconds": 2},
        ],
        "tolerance": "0.05",
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 4,
        "policies": [{"type": "Percent", "value": 30, "periodSeconds": 3}],
        "tolerance": "0.2",
    },
}
SPECS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {
    "external": (QUEUE, BEHAVIOR),
    "pods": (PACKETS, BEHAVIOR),
    "external-default": (QUEUE, None),
    "pods-default": (PACKETS, None),
}

SYNC_MS = 1200
DOWNSCALE_STABILIZATION_MS = 5400
TIMING = (
    f"--horizontal-pod-autoscaler-sync-period={SYNC_MS}ms",
    f"--horizontal-pod-autoscaler-downscale-stabilization={DOWNSCALE_STABILIZATION_MS}ms",
)


@dataclass
class Recording:
    """What a target's metric and replicas were: (seconds since the epoch, value)."""

    loads: list[tuple[float, float]]
    replicas: list[tuple[float, int]]
    syncs: list[float]


def hpa_document(name: str) -> dict[str, Any]:
    metric, behavior = SPECS[name]
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": 12,
        "metrics": [json.loads(json.dumps(metric).replace('"APP"', f'"{name}"'))],
        **({"behavior": behavior} if behavior else {}),
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


async def create_deployment(client: KubeClient, name: str, replicas: int) -> None:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path = "/apis/apps/v1/namespaces/default/deployments"
    await client.post(
        path,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        },
    )

    async def rolled_out() -> bool:
        status = (await client.get(f"{path}/{name}")).get("status") or {}
        return bool(status.get("readyReplicas") == replicas)

    await eventually(rolled_out)


@asynccontextmanager
async def recorded_replicas(client: KubeClient) -> AsyncIterator[dict[str, list[tuple[float, int]]]]:
    """Record the replicas of all Deployments."""
    found: dict[str, list[tuple[float, int]]] = {}

    def note(key: tuple[str, str], old: int | None, new: int | None) -> None:
        if new is not None and new != old:
            found.setdefault(key[1], []).append((time.time(), new))

    deployments = Store(client, "/apis/apps/v1/deployments", lambda raw: int(raw["spec"]["replicas"]), on_change=note)
    async with background(deployments.run()):
        yield found


async def move_load(metrics: ScriptedMetrics, name: str) -> list[tuple[float, float]]:
    """Change the load until it has had all values; return them with their times."""
    values: list[tuple[float, float]] = []
    for total in TOTALS:
        values.append((time.time(), total))
        failing = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io"})
        metrics.loads[name] = Load(failing=failing) if math.isnan(total) else Load(int(total) * 1000)
        goal = metrics.requests[name] + SYNCS

        async def synced(goal: int = goal) -> bool:
            return metrics.requests[name] >= goal

        await eventually(synced, every=0.02)
        await asyncio.sleep(BETWEEN_SYNCS)
    return values


async def record(command: str, folder: Path) -> dict[str, Recording]:
    """Run a controller on a moving load."""
    async with (
        start_cluster(folder / "cluster", ready_seconds=STARTUP_MS / 1000) as cluster,
        await cluster.client() as client,
        scripted_metrics(client, folder, settles=False) as metrics,
        recorded_replicas(client) as replicas,
    ):
        for name in SPECS:
            metrics.loads[name] = Load(int(TOTALS[0]) * 1000)
            await create_deployment(client, name, 2)
        if command == "autoscaler":
            flags = ("--hpa-apis=kubernetes", "--metrics-port=0", "--leader-elect=false", "--state-configmap=")
            run = autoscaler(cluster.kubeconfig, *flags, timing=TIMING)
        else:
            run = controller_manager(cluster, folder, timing=TIMING)
        async with started(command, run, folder):
            for name in SPECS:
                await client.post(KUBERNETES.path("default"), hpa_document(name))

            async def synced() -> bool:
                return all(metrics.times[name] for name in SPECS)

            await eventually(synced)
            loads = await asyncio.gather(*(move_load(metrics, name) for name in SPECS))
        return {
            name: Recording(load, replicas[name], metrics.times[name]) for name, load in zip(SPECS, loads, strict=True)
        }


def write_csv(recording: Recording, path: Path) -> None:
    """Write a row for each tenth of a second."""
    start, end = recording.syncs[0], recording.syncs[-1] + BETWEEN_SYNCS
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", METRIC, REPLICAS_COLUMN])
        for tenth in range(int((end - start) * 10)):
            now = start + tenth / 10
            rows.writerow([f"{now:.3f}", _at(recording.loads, now), _at(recording.replicas, now)])


def _at(values: Sequence[tuple[float, float]], now: float) -> float:
    """The value at a time; before the first one, the first one."""
    return next((value for time_, value in reversed(values) if time_ <= now), values[0][1])


def differences(recording: Recording, replayed: Mapping[int, int]) -> Iterator[str]:
    """Compare the replicas after each sync with those of the replay, at most one sync earlier or later."""
    syncs = recording.syncs
    counts = [replayed.get(round(1000 * sync)) for sync in syncs]
    for index, (sync, until) in enumerate(zip(syncs, [*syncs[1:], syncs[-1] + 1], strict=True)):
        # A scale is written after the metrics were read, and before the next sync.
        live, near = _at(recording.replicas, until - 0.01), counts[max(index - 1, 0) : index + 2]
        if live not in near:
            yield f"at {sync - syncs[0]:.1f} s: {live} replicas, but in the replay {near}"


def at_recorded_syncs(load: RecordedLoad, recording: Recording) -> RecordedLoad:
    """Return the load with a reconciliation at each sync; these have no replicas, so pods are those of the model."""
    bounds = BoundsRecord(min_replicas=1, max_replicas=12)
    record = DecisionRecord(version=1, time="", api_version="", namespace="", name="", target="", bounds=bounds)
    decisions = [
        RecordedDecision(time_ms=round(1000 * sync), record=record, metrics={}, totals={}) for sync in recording.syncs
    ]
    return replace(load, decisions=decisions)


async def check_replay_equals_reality(command: str, folder: Path) -> None:
    found = []
    for name, recording in (await record(command, folder)).items():
        path = folder / f"{name}.csv"
        write_csv(recording, path)
        hpa = parse_hpa_document(hpa_document(name), "hpa.yaml").hpa
        load = at_recorded_syncs(read_csv(path, [metric.source for metric in hpa.spec.metrics]), recording)
        config = Config(downscale_stabilization_ms=DOWNSCALE_STABILIZATION_MS, scale_to_zero=False)
        settings = Settings(config=config, pod_startup_ms=STARTUP_MS)
        replayed = {step.time_ms: step.desired_replicas for step in simulate(hpa, load, settings)}
        found += [f"{name}: {each}" for each in differences(recording, replayed)]
        assert len(recording.replicas) > 8, "the load must move the replicas"
    assert not found, "\n".join(found)


@pytest.mark.e2e
async def test_replay_of_the_autoscaler(tmp_path: Path) -> None:
    await check_replay_equals_reality("autoscaler", tmp_path)


class TestKubeControllerManager:
    pytestmark = needs_controller_manager

    async def test_replay_of_kube_controller_manager(self, tmp_path: Path) -> None:
        await check_replay_equals_reality("kube-controller-manager", tmp_path)
