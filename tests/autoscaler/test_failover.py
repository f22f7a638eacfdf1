"""Several processes: one acts at a time, and the history survives a failover."""

import asyncio
import base64
import gzip
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscaler.core.config import Config
from autoscaler.loop.options import Availability
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.settings import HistorySettings, Settings
from kube.api.mapping import GroupResource
from tests.autoscaler.cluster import QUICK as IN_PROCESS
from tests.autoscaler.cluster import Cluster, running_controller
from tests.autoscaler.process import Autoscaler, autoscaler
from tests.eventually import until

LEASE = 2.0
RENEW = 1.2
QUICK = (
    f"--leader-elect-lease-duration={LEASE:g}s",
    f"--leader-elect-renew-deadline={RENEW:g}s",
    "--leader-elect-retry-period=200ms",
    "--leader-elect-resource-namespace=default",
    "--horizontal-pod-autoscaler-sync-period=100ms",
    "--kube-api-qps=0",
)
STATE = "milliscale-autoscaler-state"
WRITES = [("update", "deployments/scale"), ("update", "horizontalpodautoscalers/status"), ("update", "configmaps")]


def kubeconfig(cluster: Cluster, user: str) -> Path:
    """Each process is a user of its own, so that the API server counts the requests of each."""
    return cluster.server.kubeconfig(user, ("system:masters",))


def holder(cluster: Cluster) -> str:
    lease = cluster.server.storage.get(
        GroupResource("coordination.k8s.io", "leases"), "default", "milliscale-autoscaler"
    )
    return lease["spec"]["holderIdentity"] if lease else ""


def saved(cluster: Cluster) -> str | None:
    found = cluster.server.storage.get(GroupResource("", "configmaps"), "default", STATE)
    return found["binaryData"]["memory.json.gz"] if found else None


def reconciliations(cluster: Cluster, user: str) -> int:
    return cluster.server.requests.of("get", "deployments/scale", user=user)


def writes(cluster: Cluster, user: str) -> int:
    return sum(cluster.server.requests.of(*write, user=user) for write in WRITES)


async def decisions(process: Autoscaler) -> list[dict[str, Any]]:
    page = json.loads(await process.get("/debug/decisions/default/web"))
    return list(page["decisions"])


def logged(process: Autoscaler, text: str) -> Callable[[], bool]:
    return lambda: any(text in line for line in process.log_lines)


async def wait_for_reconciliations(cluster: Cluster, user: str, number: int = 3) -> None:
    goal = reconciliations(cluster, user) + number
    await until(lambda: reconciliations(cluster, user) >= goal)


# --- what survives -------------------------------------------------------------------------------------------------


SAVING = replace(
    IN_PROCESS,
    availability=Availability(saved_history=SavedHistoryLocation(namespace="default", name=STATE)),
    settings=Settings(history=HistorySettings(save_seconds=0.1)),
)


async def test_a_restart_in_the_middle_of_a_stabilisation_window_scales_down_neither_early_nor_late(
    cluster: Cluster,
) -> None:
    options = replace(SAVING, config=Config(downscale_stabilization_ms=30 * 60_000))
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web", most=3)
    cluster.metrics.value = "30"
    async with running_controller(kubeconfig(cluster, "one"), options):
        await until(lambda: cluster.replicas("web") == 3)
        await cluster.roll_out("web")
        await wait_for_reconciliations(cluster, "one")
        cluster.metrics.value = "1"
        await until(lambda: cluster.condition("web", "AbleToScale") == ("True", "ScaleDownStabilized"))
    async with running_controller(kubeconfig(cluster, "two"), options) as two:
        await until(lambda: two.logged("restored the history of 1 HPAs"))
        await wait_for_reconciliations(cluster, "two")
        assert cluster.replicas("web") == 3
        assert cluster.condition("web", "AbleToScale") == ("True", "ScaleDownStabilized")
    await let_pass(cluster, minutes=30)
    async with running_controller(kubeconfig(cluster, "three"), options):
        # A window begun anew would last for longer than anything waits here.
        await until(lambda: cluster.replicas("web") == 1)


async def let_pass(cluster: Cluster, *, minutes: int) -> None:
    """Make the saved history older."""
    content = saved(cluster)
    assert content is not None
    history = json.loads(gzip.decompress(base64.b64decode(content)))
    history["saved_ms"] -= minutes * 60_000
    older = base64.b64encode(gzip.compress(json.dumps(history).encode())).decode()
    path = f"/api/v1/namespaces/default/configmaps/{STATE}"
    await cluster.admin.patch(path, {"binaryData": {"memory.json.gz": older}})


async def test_after_a_kill_removed_pods_still_count_against_the_policy(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=5)
    cluster.add_hpa("web")
    slowly = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]}
    await cluster.patch_hpa("web", behavior={"scaleDown": slowly})
    cluster.metrics.value = "1"
    async with running_controller(kubeconfig(cluster, "one"), SAVING) as one:
        await until(lambda: cluster.replicas("web") == 4)
        await wait_for_reconciliations(cluster, "one")
        before = saved(cluster)
        await until(lambda: saved(cluster) not in (None, before))  # with the scale-down
        await one.kill()
    async with running_controller(kubeconfig(cluster, "two"), SAVING) as two:
        await until(lambda: two.logged("restored the history of 1 HPAs"))
        await wait_for_reconciliations(cluster, "two")
        await until(lambda: cluster.condition("web", "ScalingLimited") == ("True", "ScaleDownLimit"))
        assert cluster.replicas("web") == 4


# --- one process acts ------------------------------------------------------------------------------------------------


async def test_on_sigterm_the_history_is_saved_and_the_lease_released(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    # The lease is not waited for, and no decision is dropped.
    flags = (*QUICK, "--leader-elect-lease-duration=60s", "--kept-decisions=1000")
    async with autoscaler(kubeconfig(cluster, "one"), *flags) as one:
        await wait_for_reconciliations(cluster, "one")
        async with autoscaler(kubeconfig(cluster, "two"), *flags) as two:
            await until(logged(two, "held by"))
            assert await two.get("/readyz") == "ok"
            assert 'leader_election_master_status{name="milliscale-autoscaler"} 0.0' in await two.get("/metrics")
            assert "[+]leaderElection ok" in await one.get("/healthz?verbose")
            assert 'leader_election_master_status{name="milliscale-autoscaler"} 1.0' in await one.get("/metrics")
            assert (reconciliations(cluster, "two"), writes(cluster, "two")) == (0, 0)
            first = (await decisions(one))[0]
            one.signal(signal.SIGTERM)
            assert await one.ended() == 0
            assert saved(cluster) is not None
            await wait_for_reconciliations(cluster, "two")
            assert logged(two, "restored the history of 1 HPAs")()
            assert first in await decisions(two), "a rollout loses no decisions"
            await cluster.server.hang_up()
            two.signal(signal.SIGTERM)
            assert await two.ended() == 0, "without an API server, too"
        await cluster.server.listen()
    assert logged(one, "released")()
    assert "Traceback" not in "\n".join((*one.log_lines, *two.log_lines))


async def test_process_that_was_suspended_writes_nothing_when_it_continues(cluster: Cluster) -> None:
    """The machine is suspended for longer than the lease, with a reconciliation in flight."""
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web", most=9)
    async with autoscaler(kubeconfig(cluster, "one"), *QUICK) as one:
        await wait_for_reconciliations(cluster, "one")
        async with autoscaler(kubeconfig(cluster, "two"), *QUICK) as two:
            await until(logged(two, "held by"))
            cluster.metrics.held = asyncio.Event()
            before = cluster.metrics.requests
            cluster.metrics.value = "30"
            await until(lambda: cluster.metrics.requests > before)  # its reconciliation waits for this response
            one.signal(signal.SIGSTOP)
            await wait_for_reconciliations(cluster, "two", 1)
            cluster.metrics.held.set()  # now both have their responses, and both would scale to 3
            before = writes(cluster, "one")
            one.signal(signal.SIGCONT)
            await until(lambda: cluster.replicas("web") == 3)
            await until(logged(one, "leader election lost"))
            await wait_for_reconciliations(cluster, "two", 5)
            assert writes(cluster, "one") == before
            assert holder(cluster) in "\n".join(two.log_lines)
            assert await one.get("/readyz") == "ok", "it stands by"
            two.signal(signal.SIGTERM)
            assert await two.ended() == 0
        await wait_for_reconciliations(cluster, "one")
    assert "Traceback" not in "\n".join(one.log_lines)
