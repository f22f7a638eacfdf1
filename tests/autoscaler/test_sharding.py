"""Several autoscalers that divide the HPAs: each has its own, and none overlooks the others'."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from autoscaler.loop.options import Availability, Options
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard, shard_number
from autoscaler.settings import ReconciliationSettings, Settings
from kube.api.mapping import GroupResource
from kube.controller.election import ElectionSettings
from tests.autoscaler.cluster import QUICK, Cluster, Running, running_controller
from tests.autoscaler.stepped_queue import SteppedQueue
from tests.eventually import until

FIRST, SECOND = "web", "shop"


def shard(cluster: Cluster, index: int, options: Options = QUICK) -> AbstractAsyncContextManager[Running]:
    """The autoscaler of one of two shards, as the user shard-0 or shard-1."""
    part = Shard(index=index, count=2)
    availability = Availability(
        election=ElectionSettings(namespace="default", name=part.name("lock"), retry_period=0.05),
        saved_history=SavedHistoryLocation(namespace="default", name="state"),
        shard=part,
    )
    kubeconfig = cluster.server.kubeconfig(f"shard-{index}", ("system:masters",))
    return running_controller(kubeconfig, replace(options, availability=availability))


async def test_a_process_with_another_number_of_shards_waits_and_reports_it(
    cluster: Cluster,
) -> None:
    metadata = {"name": "lock-2", "namespace": "default", "annotations": {"milliscale.io/shards": "3"}}
    spec = {"holderIdentity": "one-of-three", "leaseDurationSeconds": 3600}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    cluster.server.create(lease)
    cluster.add_deployment(FIRST, replicas=1)
    cluster.add_hpa(FIRST)
    async with shard(cluster, 0) as running:
        await until(lambda: running.logged("waiting before acting"))
        ready = await running.get("/readyz?verbose")
        assert await running.metric("waiting_for_shards") == 1
    assert ready.endswith("readyz check passed\n"), "a StatefulSet that rolls out waits for its pods to be ready"
    problem = "lease default/lock-2 is held by one-of-three with --shards=3, and this process has --shards=2"
    assert f"[!]shards: {problem}\n" in ready
    assert written(cluster, 0) == 0


def written(cluster: Cluster, index: int) -> int:
    return cluster.server.requests.of("update", "horizontalpodautoscalers/status", user=f"shard-{index}")


def names(group: str, resource: str) -> Callable[[Cluster], set[str]]:
    def found(cluster: Cluster) -> set[str]:
        objects = cluster.server.storage.objects(GroupResource(group, resource), "default")
        return {each["metadata"]["name"] for each in objects}

    return found


async def test_each_shard_has_its_own_hpas_lease_and_saved_history(
    cluster: Cluster,
) -> None:
    assert [shard_number("default", name, count=2) for name in (FIRST, SECOND)] == [0, 1]
    for name in (FIRST, SECOND):
        cluster.add_deployment(name, replicas=1)
        cluster.add_hpa(name)
    cluster.metrics.value = "30"
    async with shard(cluster, 0):
        await until(lambda: cluster.replicas(FIRST) == 3)
        assert cluster.replicas(SECOND) == 1
        assert cluster.condition(SECOND, "AbleToScale") is None
        async with shard(cluster, 1):
            await until(lambda: cluster.replicas(SECOND) == 3)
            await until(lambda: cluster.condition(SECOND, "ScalingActive") is not None)
    async with shard(cluster, 0) as running:
        await until(lambda: running.logged("restored the history of 1 HPAs"))
        assert await running.metric("num_horizontal_pod_autoscalers") == 1
    assert names("coordination.k8s.io", "leases")(cluster) >= {"lock-0", "lock-1"}
    assert names("", "configmaps")(cluster) >= {"state-0", "state-1"}


async def test_two_hpas_of_different_shards_on_one_target_stop_each_other(cluster: Cluster) -> None:
    cluster.add_deployment("target", replicas=1)
    cluster.add_hpa(FIRST, target="target")
    async with shard(cluster, 0), shard(cluster, 1):
        await until(lambda: cluster.condition(FIRST, "ScalingActive") == ("True", "ValidMetricFound"))
        cluster.add_hpa(SECOND, target="target")
        await until(lambda: cluster.condition(FIRST, "ScalingActive") == ("False", "AmbiguousSelector"))
        await until(lambda: cluster.condition(SECOND, "ScalingActive") == ("False", "AmbiguousSelector"))
        assert written(cluster, 0) > 0
        assert written(cluster, 1) > 0
        await cluster.admin.delete(f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{SECOND}")
        await until(lambda: cluster.condition(FIRST, "ScalingActive") == ("True", "ValidMetricFound"))


async def test_an_hpa_of_another_shard_is_an_ambiguous_selector_as_soon_as_it_controls_the_same_pods(
    cluster: Cluster,
) -> None:
    """An HPA of another shard controls no pods until its target can be read; its status shows that."""
    cluster.add_deployment("target", replicas=1)
    cluster.add_hpa(FIRST, target="target")
    cluster.add_hpa(SECOND, target="late")
    settings = Settings(reconciliation=ReconciliationSettings(other_shards_periods=10_000))
    seldom = replace(QUICK, sync_period=1.5, settings=settings)
    async with shard(cluster, 0, seldom), shard(cluster, 1, seldom):
        await until(lambda: cluster.condition(SECOND, "AbleToScale") == ("False", "FailedGetScale"))
        await until(lambda: cluster.condition(FIRST, "ScalingActive") == ("True", "ValidMetricFound"))
        cluster.add_deployment("late", replicas=1, selects="target")
        await until(lambda: cluster.condition(FIRST, "ScalingActive") == ("False", "AmbiguousSelector"))


async def test_an_hpa_of_another_shard_costs_one_request_in_ten_sync_periods(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_deployment(FIRST, replicas=1)
    cluster.add_hpa(FIRST)
    cluster.add_deployment(SECOND, replicas=1)
    cluster.add_hpa(SECOND)
    queue, period = SteppedQueue(monkeypatch), 64.0

    def reconciled(times: int) -> Callable[[], bool]:
        return lambda: cluster.metrics.requests == times

    async with shard(cluster, 1, replace(QUICK, sync_period=period)):
        await queue.started(2)
        for times in range(1, 22):
            await queue.advance(period + 1, until=reconciled(times))
        # Its own HPA is reconciled 21 times, the other one at the first, the eleventh and the twenty-first.
        await until(lambda: cluster.server.requests.of("get", "deployments/scale", user="shard-1") >= 21 + 3)
    assert cluster.metrics.requests == 21
    assert cluster.server.requests.of("get", "deployments/scale", user="shard-1") == 21 + 3
    assert cluster.condition(FIRST, "AbleToScale") is None
