"""The whole loop in the modes that do not act, and with the settings of single HPAs, against a real API."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.core.config import Mode
from autoscaler.loop.options import Availability
from kube.controller.election import ElectionSettings
from tests.autoscaler.cluster import AUTOSCALER, QUICK, Cluster, Running, running_controller
from tests.eventually import eventually, until

HPA = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
DRY_RUN = replace(QUICK, mode=Mode.DRY_RUN)
SHADOW = replace(QUICK, mode=Mode.SHADOW)
ELECTION = ElectionSettings(namespace="default", name="lock", retry_period=0.05)
STANDBY = replace(QUICK, availability=Availability(election=ELECTION))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
TIME = "2026-01-01T00:00:00Z"


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web", most=8)
    return cluster


async def shadow(running: Running, name: str = "web") -> dict[str, Any]:
    """Return the HPA's entry on the page about shadow mode, if any."""
    page = json.loads(await running.get("/debug/shadow"))
    return next((entry for entry in page["hpas"] if entry["name"] == name), {})


async def hold_lease(cluster: Cluster) -> None:
    """Have another process be the leader, so that those of STANDBY wait."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    await cluster.admin.post(LEASES, {"metadata": {"name": "lock"}, "spec": spec})


async def release_lease(cluster: Cluster) -> None:
    await cluster.admin.patch(f"{LEASES}/lock", {"spec": {"holderIdentity": ""}})


async def annotate(cluster: Cluster, **annotations: str | None) -> None:
    """Set the HPA's annotations of ours, with _ for -."""
    ours = {f"milliscale.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    await cluster.admin.patch(HPA, {"metadata": {"annotations": ours}})


def written(cluster: Cluster, user: str = AUTOSCALER) -> set[str]:
    """Return the write requests of a user, refused ones included."""
    used = cluster.server.requests.by_user(user)
    return {what for verb, what in used if verb not in ("get", "list", "watch")}


async def other_controller_wants(cluster: Cluster, replicas: int, *, seconds: int) -> None:
    """Scale and store the status, as Kubernetes' own controller; two scales differ in `seconds`."""
    current = cluster.replicas("web")
    if replicas != current:
        scale = await cluster.admin.get(SCALE)
        await cluster.admin.put(SCALE, {**scale, "spec": {"replicas": replicas}})
    active = {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "lastTransitionTime": TIME}
    status = {
        "currentReplicas": current,
        "desiredReplicas": replicas,
        "lastScaleTime": f"2026-01-01T00:00:{seconds:02}Z",
        "conditions": [active],
    }
    await cluster.admin.patch(f"{HPA}/status", {"status": status})
    await cluster.roll_out("web")


async def test_a_single_hpa_may_have_another_mode(cluster: Cluster) -> None:
    cluster.metrics.value = "20"
    await annotate(cluster, mode="shadow")
    cluster.add_deployment("api", replicas=2)
    cluster.add_hpa("api", most=8)
    async with running_controller(cluster.kubeconfig, QUICK):
        await until(lambda: cluster.replicas("api") == 4)
        assert cluster.replicas("web") == 2
        await annotate(cluster, mode=None)
        await until(lambda: cluster.replicas("web") == 4)


async def test_an_annotation_does_not_make_a_dry_run_act(cluster: Cluster) -> None:
    cluster.metrics.value = "20"
    await annotate(cluster, mode="act")
    async with running_controller(cluster.kubeconfig, DRY_RUN) as running:
        await running.reaches('decisions_total{action="scale_up",reason="ValidMetricFound"}', 3)
    assert cluster.replicas("web") == 2
    assert written(cluster) == {"events"}
    limit = "this process runs with --mode=dry-run, which an annotation can only restrict"
    problem = f'annotation milliscale.io/mode: "act" is ignored: {limit}'
    assert ("InvalidAnnotation", problem, 1) in await cluster.events("web")
    assert sum(problem in line for line in running.log_lines) == 1


async def test_an_annotation_does_not_make_a_shadow_write(cluster: Cluster) -> None:
    cluster.metrics.value = "20"
    await annotate(cluster, mode="act")
    async with running_controller(cluster.kubeconfig, SHADOW) as running:
        await running.reaches('decisions_total{action="scale_up",reason="ValidMetricFound"}', 3)
    assert written(cluster) == set()
    assert running.logged('annotation milliscale.io/mode: "act" is ignored: this process runs with --mode=shadow')


async def test_each_hpa_has_its_own_pace(cluster: Cluster) -> None:
    slow = replace(QUICK, sync_period=3600.0)
    async with running_controller(cluster.kubeconfig, slow):
        await until(lambda: cluster.syncs() == 1)
        await annotate(cluster, sync_period="1s")
        await until(lambda: cluster.syncs() >= 3)


@pytest.fixture
async def one_pod_is_owned(cluster: Cluster) -> None:
    """Of two pods with the Deployment's labels only web-0 is the Deployment's, by way of a ReplicaSet."""
    deployment = await cluster.admin.get("/apis/apps/v1/namespaces/default/deployments/web")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "controller": True}
    labels = {"app": "web"}
    made = await cluster.admin.post(
        "/apis/apps/v1/namespaces/default/replicasets",
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": "web-1",
                "namespace": "default",
                "ownerReferences": [{**owner, "name": "web", "uid": deployment["metadata"]["uid"]}],
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        },
    )
    reference = {**owner, "kind": "ReplicaSet", "name": "web-1", "uid": made["metadata"]["uid"]}
    pod = {"metadata": {"ownerReferences": [reference]}}
    await cluster.admin.patch("/api/v1/namespaces/default/pods/web-0", pod)
    cluster.metrics.value = "20"


@pytest.mark.usefixtures("one_pod_is_owned")
async def test_pod_selection_owner_counts_only_pods_of_the_target(
    cluster: Cluster,
) -> None:
    await annotate(cluster, pod_selection="owner")
    admin = cluster.server.kubeconfig()
    async with running_controller(admin, QUICK) as running:
        decided = 'decisions_total{action="none",reason="ValidMetricFound"}'
        await running.reaches(decided, 2)
        assert cluster.replicas("web") == 2, "one pod at twice its target needs two"
        await annotate(cluster, pod_selection=None)
        await until(lambda: cluster.replicas("web") == 4)


async def test_failed_requests_and_late_steps_are_counted(cluster: Cluster) -> None:
    cluster.metrics.status = 503
    async with running_controller(cluster.kubeconfig, QUICK) as running:
        failed = 'api_errors_total{code="503",group="custom.metrics.k8s.io"}'
        await running.reaches(failed, 2)
        assert await running.metric("schedule_lag_seconds_count") >= 2


async def test_standby_forgets_an_hpa_that_is_deleted(cluster: Cluster) -> None:
    await hold_lease(cluster)
    await annotate(cluster, mode="shadow")
    await other_controller_wants(cluster, 2, seconds=0)
    async with running_controller(cluster.server.kubeconfig(), STANDBY) as running:

        async def is_compared() -> bool:
            return bool(await shadow(running))

        async def is_forgotten() -> bool:
            return not await shadow(running)

        await eventually(is_compared, every=0.01)
        await cluster.admin.delete(HPA)
        await eventually(is_forgotten, every=0.01)
