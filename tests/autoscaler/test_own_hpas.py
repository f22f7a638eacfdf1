"""HPAs of milliscale.io/v1: reconciled like those of autoscaling/v2, and never mixed up with them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.core.model import HPA, KUBERNETES, MILLISCALE, HPAKey
from autoscaler.loop.hpas import HPAs
from kube.api.client import KubeClient
from kube.api.mapping import GroupResource
from tests.autoscaler.cluster import AUTOSCALER, QUICK, Cluster, running_controller
from tests.eventually import until
from tests.kube.scripted_api import ScriptedApi

ONLY_OURS = replace(QUICK, hpa_apis=(MILLISCALE,), optional_hpa_apis=())
RIGHTS: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "own-hpas"},
    "rules": [
        {"apiGroups": ["milliscale.io"], "resources": ["horizontalpodautoscalers"], "verbs": ["list", "watch"]},
        {"apiGroups": ["milliscale.io"], "resources": ["horizontalpodautoscalers/status"], "verbs": ["update"]},
    ],
}
BINDING: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "own-hpas"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "own-hpas"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": AUTOSCALER}],
}


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    cluster.server.create(RIGHTS)
    cluster.server.create(BINDING)
    return cluster


async def test_scale_and_observed_generation_are_written(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web", api=MILLISCALE)
    cluster.metrics.value = "20"
    async with running_controller(cluster.kubeconfig, ONLY_OURS):
        await until(lambda: cluster.replicas("web") == 4)
        await until(lambda: cluster.condition("web", "AbleToScale", api=MILLISCALE) is not None)
        status = cluster.hpa("web", api=MILLISCALE)["status"]
        assert (status["observedGeneration"], status["targets"]) == (1, "20/10")
        await cluster.admin.patch(MILLISCALE.path("default", "web"), {"spec": {"maxReplicas": 3}})
        await until(lambda: cluster.replicas("web") == 3)
        await until(lambda: cluster.hpa("web", api=MILLISCALE)["status"]["observedGeneration"] == 2)
    found = (await cluster.admin.get("/api/v1/namespaces/default/events"))["items"]
    about = {(event["involvedObject"]["apiVersion"], event["involvedObject"]["kind"]) for event in found}
    assert about == {("milliscale.io/v1", "HorizontalPodAutoscaler")}


async def test_hpa_apis_milliscale_does_not_watch_kubernetes_hpas(cluster: Cluster) -> None:
    for name, api in (("theirs", KUBERNETES), ("ours", MILLISCALE)):
        cluster.add_deployment(name, replicas=1)
        cluster.add_hpa(name, api=api)
    cluster.metrics.value = "20"
    async with running_controller(cluster.kubeconfig, ONLY_OURS):
        await until(lambda: cluster.replicas("ours") == 2)
        await until(lambda: cluster.condition("ours", "AbleToScale", api=MILLISCALE) is not None)
    assert cluster.replicas("theirs") == 1
    assert "conditions" not in cluster.hpa("theirs")["status"]


async def test_by_default_both_kinds_are_reconciled_also_under_one_name(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_deployment("api", replicas=2)
    cluster.add_hpa("same", target="web", most=3)
    cluster.add_hpa("same", target="api", most=4, api=MILLISCALE)
    cluster.metrics.value = "40"
    async with running_controller(cluster.kubeconfig, QUICK):
        await until(lambda: (cluster.replicas("web"), cluster.replicas("api")) == (3, 4))
        await until(lambda: cluster.hpa("same")["status"]["desiredReplicas"] == 3)
        await until(lambda: cluster.hpa("same", api=MILLISCALE)["status"]["desiredReplicas"] == 4)
        await cluster.admin.delete(KUBERNETES.path("default", "same"))
        await cluster.roll_out("api")
        cluster.metrics.value = "5"
        await until(lambda: cluster.replicas("api") == 2)


async def test_an_hpa_of_each_kind_on_one_target_stop_each_other(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    cluster.add_hpa("web", api=MILLISCALE)
    cluster.metrics.value = "10"
    async with running_controller(cluster.kubeconfig, QUICK):
        stopped = ("False", "AmbiguousSelector")
        await until(lambda: cluster.condition("web", "ScalingActive") == stopped)
        await until(lambda: cluster.condition("web", "ScalingActive", api=MILLISCALE) == stopped)
        conditions = cluster.hpa("web")["status"]["conditions"]
        (message,) = (each["message"] for each in conditions if each["type"] == "ScalingActive")
        assert message == (
            "pods by selector app=web are controlled by multiple HPAs: [default/web default/web (milliscale.io)]"
        )
        cluster.metrics.value = "20"
        await cluster.admin.delete(KUBERNETES.path("default", "web"))
        await until(lambda: cluster.replicas("web") == 2)


async def test_hpa_that_cannot_be_decoded_gets_a_condition_and_is_not_scaled(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web", api=MILLISCALE)
    resource = GroupResource(MILLISCALE.group, "horizontalpodautoscalers")
    stored = cluster.hpa("web", api=MILLISCALE)
    target = {"type": "AverageValue", "averageValue": "many"}  # past every check of the API server's
    metric = {"name": "packets_per_second"}
    invalid = [{"type": "Pods", "pods": {"metric": metric, "target": target}}]
    cluster.server.storage.put(resource, {**stored, "spec": {**stored["spec"], "metrics": invalid}})
    cluster.metrics.value = "20"
    async with running_controller(cluster.kubeconfig, QUICK):
        wanted = ("False", "InvalidSpec")
        await until(lambda: cluster.condition("web", "ScalingActive", api=MILLISCALE) == wanted)
        conditions = cluster.hpa("web", api=MILLISCALE)["status"]["conditions"]
        (message,) = [each["message"] for each in conditions]
        assert message.startswith(
            "the HPA is left alone, because its spec is not valid: "
            "spec.metrics[0].pods.target.averageValue: 'many' is not a quantity such as"
        )
        assert cluster.replicas("web") == 2
        valid = [{"type": "Pods", "pods": {"metric": metric, "target": {**target, "averageValue": "10"}}}]
        await cluster.admin.patch(MILLISCALE.path("default", "web"), {"spec": {"metrics": valid}})
        await until(lambda: cluster.replicas("web") == 4)
        wanted = ("True", "ValidMetricFound")
        await until(lambda: cluster.condition("web", "ScalingActive", api=MILLISCALE) == wanted)
    assert "InvalidSpec" in [reason for reason, _, _ in await cluster.events("web")]


# --- where the CustomResourceDefinition is missing -----------------------------------------------------------------


OURS = HPAKey("default", "web", MILLISCALE.group)
OWN_HPA = {
    "apiVersion": MILLISCALE.api_version,
    "metadata": {"name": "web", "namespace": "default", "uid": "u-1", "generation": 1},
    "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3},
}


@asynccontextmanager
async def following(hpas: HPAs) -> AsyncIterator[None]:
    task = asyncio.create_task(hpas.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ignore(key: HPAKey, old: HPA | None, new: HPA | None) -> None:
    pass


def serve(api: ScriptedApi, *items: dict[str, Any]) -> None:
    api.on("GET", f"/apis/{MILLISCALE.api_version}", {"resources": []})
    api.on("GET", MILLISCALE.collection, {"metadata": {"resourceVersion": "1"}, "items": list(items)})


async def test_a_missing_optional_api_is_not_logged(
    api: ScriptedApi, kube: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.on("GET", KUBERNETES.collection, {"metadata": {"resourceVersion": "1"}, "items": []})
    hpas = HPAs(kube, required=[KUBERNETES], optional=[MILLISCALE], scale_to_zero=True, on_change=ignore)
    async with following(hpas):
        await hpas.wait_synced()
        await api.until(lambda: bool(api.named("GET", f"/apis/{MILLISCALE.api_version}")))
        assert hpas.problem is None
        serve(api, OWN_HPA)
        await until(lambda: len(hpas) == 1)
    assert hpas.get(OURS) is not None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING and "milliscale" in record.msg]


async def test_a_missing_required_api_is_logged_and_waited_for(
    api: ScriptedApi, kube: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    hpas = HPAs(kube, required=[MILLISCALE], scale_to_zero=True, on_change=ignore)
    async with following(hpas):
        await until(lambda: hpas.problem == "milliscale.io/v1: not served by this cluster")
        (warning,) = caplog.records
        assert warning.message == "this cluster does not serve milliscale.io/v1: apply manifests/crds; waiting for it"
        serve(api)
        await hpas.wait_synced()
        assert hpas.problem is None
