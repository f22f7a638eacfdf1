"""A new release takes over from each earlier one: the saved history, the Lease and the rules file.

Earlier releases are recorded in tests/data/releases (tests/release/takeover.py). With OLD=DIR, the virtual environment
of an earlier release, its real process runs beside the new one; `make release` does that.
"""

import base64
import gzip
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.autoscaler.cluster import Cluster, running_cluster
from tests.autoscaler.process import Autoscaler, autoscaler
from tests.eventually import until
from tests.release.takeover import (
    FLAGS,
    LEASES,
    NAME,
    RELEASES,
    adapter_responses,
    add_workloads,
    holds_back,
    kubeconfig,
    left_behind,
    logged,
    scale_up_and_lower_the_load,
    scale_writes,
    some_reconciliations,
)

pytestmark = pytest.mark.e2e

RECORDED = sorted(RELEASES.iterdir())
RESTORED = "restored the history of 2 HPAs"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


def lease(cluster: Cluster) -> dict[str, Any]:
    """Return the Lease's spec."""
    found = cluster.server.storage.get(LEASES, "default", NAME)
    assert found is not None
    return dict(found["spec"])


def leave_behind(cluster: Cluster, recorded: dict[str, Any]) -> None:
    """Make the recorded Lease and ConfigMap, with the time of now and the uids of this cluster's HPAs."""
    content = recorded["configmap"]["binaryData"]
    history = json.loads(gzip.decompress(base64.b64decode(content["memory.json.gz"])))
    history["saved_ms"] = int(time.time() * 1000)
    for entry in history["hpas"]:
        entry[3] = cluster.hpa(entry[1])["metadata"]["uid"]
    content["memory.json.gz"] = base64.b64encode(gzip.compress(json.dumps(history).encode())).decode()
    for each in recorded.values():
        for name in ("resourceVersion", "uid", "creationTimestamp"):
            each["metadata"].pop(name)
        cluster.server.create(each)


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_history_and_lease_of_an_earlier_release_are_taken_over(
    cluster: Cluster, release: Path, end: str
) -> None:
    await add_workloads(cluster, web=3, slow=4)
    recorded = json.loads((release / f"{end}.json").read_text())
    leave_behind(cluster, recorded)
    cluster.metrics.value = "1"
    async with autoscaler(kubeconfig(cluster, "new"), *FLAGS) as new:
        await until(logged(new, RESTORED))
        await until(lambda: holds_back(cluster))
        await some_reconciliations(cluster, "new")
        # Without the history, both would have been scaled down.
        assert (cluster.replicas("web"), cluster.replicas("slow"), scale_writes(cluster, "new")) == (3, 4, 0)
        assert lease(cluster)["leaseTransitions"] == recorded["lease"]["spec"]["leaseTransitions"] + 1
        assert lease(cluster)["holderIdentity"] != recorded["lease"]["spec"]["holderIdentity"]
        cluster.metrics.value = "30"
        await until(lambda: (cluster.replicas("web"), cluster.replicas("slow")) == (5, 5))
        await some_reconciliations(cluster, "new")
        assert scale_writes(cluster, "new") == 2


async def test_without_the_history_both_are_scaled_down(cluster: Cluster) -> None:
    """The test above is able to fail."""
    await add_workloads(cluster, web=3, slow=4)
    cluster.metrics.value = "1"
    async with autoscaler(kubeconfig(cluster, "new"), *FLAGS, "--horizontal-pod-autoscaler-downscale-stabilization=0s"):
        await until(lambda: cluster.replicas("web") == 1 and cluster.replicas("slow") == 3)


@pytest.mark.parametrize("release", RECORDED, ids=lambda path: path.name)
async def test_rules_file_of_an_earlier_release_makes_the_same_metrics_and_queries(
    tmp_path: Path, release: Path
) -> None:
    rules, responses = (release / "rules.yaml").read_text(), (release / "responses.json").read_text()
    assert await adapter_responses(tmp_path, rules) == json.loads(responses)


@pytest.mark.skipif("OLD" not in os.environ, reason="OLD names no environment of an earlier release")
async def test_real_processes_of_both_releases_take_over_from_each_other(cluster: Cluster) -> None:
    """An upgrade, a rollback and a crash: one acts at a time, and each decision is written once."""
    command = [f"{os.environ['OLD']}/bin/milliscale-autoscaler"]

    def start(name: str) -> AbstractAsyncContextManager[Autoscaler]:
        return autoscaler(kubeconfig(cluster, name), *FLAGS, command=command if name.startswith("old") else ())

    await add_workloads(cluster, web=1, slow=5)
    async with start("old") as old:
        await scale_up_and_lower_the_load(cluster)
        assert scale_writes(cluster, "old") == 2
        async with start("new") as new:
            await until(logged(new, "held by"))
            await some_reconciliations(cluster, "old")
            assert cluster.server.requests.of("get", "deployments/scale", user="new") == 0
            old.signal(signal.SIGTERM)
            assert await old.ended() == 0
            await until(logged(new, RESTORED))
            await some_reconciliations(cluster, "new")
            assert holds_back(cluster)
            assert scale_writes(cluster, "new") == 0

            cluster.metrics.value = "30"
            await until(lambda: (cluster.replicas("web"), cluster.replicas("slow")) == (5, 5))
            cluster.metrics.value = "10"
            await cluster.roll_out("web")
            await some_reconciliations(cluster, "new")
            assert scale_writes(cluster, "new") == 2
            async with start("old-again") as rolled_back:
                await until(logged(rolled_back, "held by"))
                new.signal(signal.SIGTERM)
                assert await new.ended() == 0
                await until(logged(rolled_back, RESTORED))
                cluster.metrics.value = "1"
                # In this half hour slow has lost a pod and got it back, so it may lose one, and no more.
                await until(lambda: cluster.replicas("slow") == 4)
                await some_reconciliations(cluster, "old-again")
                assert holds_back(cluster)
                async with start("new-again") as last:
                    await until(logged(last, "held by"))
                    # A process that is killed loses what it has not saved: this is saved every 15 seconds.
                    saved = left_behind(cluster)["configmap"]
                    await until(lambda: left_behind(cluster)["configmap"] != saved)
                    rolled_back.signal(signal.SIGKILL)
                    await rolled_back.ended()
                    await until(logged(last, RESTORED))
                    await some_reconciliations(cluster, "new-again")
                    assert holds_back(cluster)
                    assert (cluster.replicas("web"), cluster.replicas("slow")) == (5, 4)
    assert sum(scale_writes(cluster, name) for name in ("old", "new", "old-again", "new-again")) == 5
    assert not [line for process in (old, new, rolled_back, last) for line in process.log_lines if "Traceback" in line]
