"""Record what a real controller does: `python -m tests.replay.record_reality kube-controller-manager MINUTES`.

The other controller is `autoscaler`. Written to tests/data/reality/CONTROLLER: for each HPA, of the autoscaler its
decisions, of kube-controller-manager a CSV file with load, replicas and ready replicas every five seconds. The load is
that of recorded traces, four times as fast; now and then the metrics APIs fail. The flags differ from the defaults.
With KUBEBUILDER_ASSETS the API server is kube-apiserver.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import math
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from autoscaler.core.model import KUBERNETES
from kube.api.client import KubeClient
from kube.cache.store import Store
from playground.cluster import start_cluster
from playground.ports import LOOPBACK, free_port
from playground.tasks import background
from tests.e2e.controllers import autoscaler, controller_manager, started
from tests.e2e.scripted_metrics import METRIC, Load, ScriptedMetrics, scripted_metrics
from tests.eventually import eventually

DATA = Path(__file__).parent.parent / "data"
REALITY = DATA / "reality"
TIMING = (
    "--horizontal-pod-autoscaler-sync-period=5s",
    "--horizontal-pod-autoscaler-downscale-stabilization=30s",
    "--horizontal-pod-autoscaler-tolerance=0.05",
)
STARTUP_SECONDS = 12.0
_SECONDS_PER_VALUE = 15.0
_SAMPLE_SECONDS = 5.0
_GAPS = (100, 101, 102, 103, 200, 201)
_FAILING = Load(failing=frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io"}))
_MEAN = 140.0

_PER_POD = {"type": "AverageValue", "averageValue": "10"}
_BEHAVIOR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 20,
        "policies": [
            {"type": "Pods", "value": 3, "periodSeconds": 30},
            {"type": "Percent", "value": 50, "periodSeconds": 60},
        ],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 60,
        "policies": [{"type": "Percent", "value": 20, "periodSeconds": 60}],
    },
}
HPAS: Mapping[str, tuple[str, Mapping[str, Any] | None, tuple[str, int]]] = {
    "pods-default": ("Pods", None, ("ms_db_app", 2880)),
    "external-default": ("External", None, ("ms_db_app", 2880)),
    "pods": ("Pods", _BEHAVIOR, ("ms_db_node", 1440)),
    "external": ("External", _BEHAVIOR, ("ms_db_node", 1440)),
}
"""{name: (type of the metric, behavior, (trace, its first value))}."""


def hpa_document(name: str) -> dict[str, Any]:
    kind, behavior, _ = HPAS[name]
    metric: dict[str, Any] = {"name": METRIC}
    if kind == "External":
        metric["selector"] = {"matchLabels": {"app": name}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": 100,
        "metrics": [{"type": kind, kind.lower(): {"metric": metric, "target": _PER_POD}}],
        **({"behavior": behavior} if behavior else {}),
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def totals(name: str, count: int) -> list[float]:
    """Return the loads of an HPA's target; NaN where the metrics APIs fail."""
    trace, first = HPAS[name][2]
    with gzip.open(DATA / "traces" / f"{trace}.csv.gz", "rt") as file:
        values = [float(row[1]) for row in list(csv.reader(file))[1 + first :][:count]]
    scale = _MEAN * len(values) / sum(values)
    return [math.nan if index in _GAPS else round(value * scale, 3) for index, value in enumerate(values)]


@dataclass
class Recording:
    """(seconds since the epoch, value) of a target's load and of its replicas, whenever they changed."""

    loads: list[tuple[float, float]] = field(default_factory=list)
    replicas: list[tuple[float, float]] = field(default_factory=list)
    ready: list[tuple[float, float]] = field(default_factory=list)

    def write(self, path: Path, start: float, end: float) -> None:
        """Write a row for each sample."""
        with gzip.open(path, "wt", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["timestamp", METRIC, "replicas", "ready"])
            for index in range(int((end - start) / _SAMPLE_SECONDS)):
                now = start + index * _SAMPLE_SECONDS
                values = [_at(each, now) for each in (self.loads, self.replicas, self.ready)]
                rows.writerow([f"{now:.3f}", *("" if math.isnan(value) else value for value in values)])


def _at(values: Sequence[tuple[float, float]], now: float) -> float:
    return values[max(bisect_right(values, (now, math.inf)) - 1, 0)][1]


async def _create_deployment(client: KubeClient, name: str, replicas: int) -> None:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path = "/apis/apps/v1/namespaces/default/deployments"
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    await client.post(path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})

    async def rolled_out() -> bool:
        status = (await client.get(f"{path}/{name}")).get("status") or {}
        return bool(status.get("readyReplicas") == replicas)

    await eventually(rolled_out)


@asynccontextmanager
async def _recorded(client: KubeClient) -> AsyncIterator[Mapping[str, Recording]]:
    """Record the replicas of all Deployments."""
    found = {name: Recording() for name in HPAS}

    def view(raw: Mapping[str, Any]) -> tuple[int, int]:
        return int(raw["spec"]["replicas"]), int((raw.get("status") or {}).get("readyReplicas") or 0)

    def note(key: tuple[str, str], old: tuple[int, int] | None, new: tuple[int, int] | None) -> None:
        del old
        if new is not None:
            found[key[1]].replicas.append((time.time(), new[0]))
            found[key[1]].ready.append((time.time(), new[1]))

    async with background(Store(client, "/apis/apps/v1/deployments", view, on_change=note).run()):
        yield found


async def _play(metrics: ScriptedMetrics, recordings: Mapping[str, Recording], count: int) -> tuple[float, float]:
    """Change the loads until they have had all values; return the time of the first and the end."""
    loads, start = {name: totals(name, count) for name in HPAS}, time.time()
    for index in range(count):
        for name, values in loads.items():
            value = values[index]
            recordings[name].loads.append((time.time(), value))
            metrics.loads[name] = _FAILING if math.isnan(value) else Load(int(value * 1000))
        await asyncio.sleep(max(start + (index + 1) * _SECONDS_PER_VALUE - time.time(), 0))
    return start, time.time()


async def record(controller: str, minutes: float, folder: Path) -> None:
    """Run a controller for some minutes, and write what it did to a folder, which exists."""
    with tempfile.TemporaryDirectory() as scratch:
        async with (
            start_cluster(Path(scratch) / "cluster", ready_seconds=STARTUP_SECONDS) as cluster,
            await cluster.client() as client,
            scripted_metrics(client, Path(scratch), settles=False) as metrics,
            _recorded(client) as recordings,
        ):
            for name in HPAS:
                [first] = totals(name, 1)
                metrics.loads[name] = Load(int(first * 1000))
                await _create_deployment(client, name, math.ceil(first / 10))
                await client.post(KUBERNETES.path("default"), hpa_document(name))
            port = free_port()
            flags = ("--hpa-apis=kubernetes", "--leader-elect=false", "--state-configmap=", "--kept-decisions=1000")
            command = controller_manager(cluster, Path(scratch), timing=TIMING)
            if controller == "autoscaler":
                command = autoscaler(cluster.kubeconfig, *flags, f"--metrics-port={port}", timing=TIMING)
            async with started(controller, command, Path(scratch)):
                start, end = await _play(metrics, recordings, int(minutes * 60 / _SECONDS_PER_VALUE))
                for name, each in recordings.items():
                    if controller == "autoscaler":
                        await _write_decisions(f"http://{LOOPBACK}:{port}", name, folder)
                    else:
                        each.write(folder / f"{name}.csv.gz", start, end)


async def _write_decisions(url: str, name: str, folder: Path) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/debug/decisions/default/{name}") as response:
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(await response.read(), mtime=0))


if __name__ == "__main__":
    (REALITY / sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(record(sys.argv[1], float(sys.argv[2]), REALITY / sys.argv[1]))
