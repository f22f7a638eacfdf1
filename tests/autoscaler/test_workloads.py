"""Scales from a watch: when a kind is watched, and which scales are read all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from autoscaler.core.model import KUBERNETES, CrossVersionObjectReference
from autoscaler.loop.options import Options
from autoscaler.loop.scales import ScaleClient, TargetScale, Workloads
from autoscaler.settings import ReconciliationSettings, Settings
from kube.api.mapping import RestMapper
from kube.cache.store import Store
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from tests.autoscaler.cluster import Cluster, running_controller
from tests.eventually import eventually, until

DEPLOYMENTS = "deployments"


@asynccontextmanager
async def scale_client(cluster: Cluster, *, enough: int) -> AsyncIterator[ScaleClient]:
    workloads = Workloads(cluster.admin, enough=enough)
    watching = asyncio.create_task(workloads.run())
    client = ThrottledClient(cluster.admin, TokenBucket(qps=0, burst=1))
    yield ScaleClient(client, RestMapper(cluster.admin), workloads)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def look(scales: ScaleClient, name: str) -> TargetScale:
    target = await scales.read("default", CrossVersionObjectReference("Deployment", name, "apps/v1"), to_write=False)
    assert isinstance(target, TargetScale)
    return target


async def watched(scales: ScaleClient, name: str) -> TargetScale:
    async def known() -> bool:
        return (await look(scales, name)).body is None

    await eventually(known, within=5, every=0.01)
    return await look(scales, name)


async def test_few_scales_are_read_without_a_watch(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    async with scale_client(cluster, enough=2) as scales:
        for _ in range(3):
            assert (await look(scales, "web")).body is not None
    assert cluster.server.requests.of("list", DEPLOYMENTS) == 0


async def test_watched_scales_equal_read_ones(cluster: Cluster) -> None:
    for name in ("web", "api"):
        cluster.add_deployment(name, replicas=2)
    async with scale_client(cluster, enough=2) as scales:
        read = (await look(scales, "web")).scale
        await look(scales, "api")
        assert (await watched(scales, "web")).scale == read
        before = cluster.server.requests.of("get", "deployments/scale")
        for _ in range(10):
            await look(scales, "web")
        assert cluster.server.requests.of("get", "deployments/scale") == before
        await cluster.admin.patch("/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"replicas": 4}})

        async def changed() -> bool:
            return (await look(scales, "web")).scale.spec_replicas == 4

        await eventually(changed, within=5, every=0.01)


async def test_scale_to_write_or_unknown_is_read(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    async with scale_client(cluster, enough=1) as scales:
        await watched(scales, "web")
        reference = CrossVersionObjectReference("Deployment", "web", "apps/v1")
        target = await scales.read("default", reference)
        assert isinstance(target, TargetScale)
        assert target.body is not None
        missing = await scales.read(
            "default", CrossVersionObjectReference("Deployment", "x", "apps/v1"), to_write=False
        )
    assert "not found" in str(missing)


async def test_scale_of_a_workload_whose_event_cannot_be_read_is_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("web", "api"):
        cluster.add_deployment(name, replicas=2)
    async with scale_client(cluster, enough=1) as scales:
        await watched(scales, "web")
        monkeypatch.setattr(Store, "is_unknown", lambda _, namespace, name: (namespace, name) == ("default", "web"))
        assert (await look(scales, "web")).body is not None
        assert (await look(scales, "api")).body is None


async def test_scales_of_a_disconnected_watch_are_read(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    async with scale_client(cluster, enough=1) as scales:
        await watched(scales, "web")
        await cluster.server.hang_up()

        async def fails() -> bool:
            reference = CrossVersionObjectReference("Deployment", "web", "apps/v1")
            return not isinstance(await scales.read("default", reference, to_write=False), TargetScale)

        await eventually(fails, within=5, every=0.01)


@pytest.mark.parametrize(("silent_seconds", "read"), [(89.0, False), (90.0, True)])
async def test_scales_of_a_silent_watch_are_read(
    silent_seconds: float, read: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection may be dead without an error."""
    cluster.add_deployment("web", replicas=2)
    async with scale_client(cluster, enough=1) as scales:
        await watched(scales, "web")
        monkeypatch.setattr(Store, "silent_seconds", silent_seconds)
        assert ((await look(scales, "web")).body is not None) is read


async def test_only_an_hpa_that_scales_reads_its_scale(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"app-{number}" for number in range(6)]
    for name in names:
        cluster.add_deployment(name, replicas=1)
        cluster.add_hpa(name)
    kubeconfig = cluster.server.kubeconfig("autoscaler")
    options = Options(
        hpa_apis=(KUBERNETES,),
        sync_period=0.2,
        qps=0,
        workers=5,
        bind_address="127.0.0.1",
        metrics_port=0,
        settings=Settings(reconciliation=ReconciliationSettings(watched_from=5)),
    )
    requests = cluster.server.requests

    def reconciliations() -> int:
        return cluster.metrics.requests

    async with running_controller(kubeconfig, options):
        await until(lambda: requests.of("watch", DEPLOYMENTS) == 1)
        await until(lambda: bool(cluster.hpa(names[-1]).get("status")))
        read, seen = requests.of("get", "deployments/scale"), reconciliations()
        await until(lambda: reconciliations() > seen + 10)
        assert requests.of("get", "deployments/scale") == read
        await cluster.patch_hpa(names[0], minReplicas=2)
        await until(lambda: cluster.replicas(names[0]) == 2)
        assert requests.of("get", "deployments/scale") == read + 1
        assert requests.of("update", "deployments/scale") == 1
