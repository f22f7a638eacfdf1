"""Create, update, patch, scale and delete objects, with the errors of Kubernetes."""

from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from tests.objects import config_map, deployment, hpa, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PODS = "/api/v1/namespaces/default/pods"


async def test_created_object_has_system_metadata(admin: KubeClient) -> None:
    created = await admin.post(DEPLOYMENTS, {**deployment(), "status": {"replicas": 7}})
    metadata = created["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["generation"] == 1
    assert created["status"] == {}, "the status of a create request is dropped"


async def test_generation_counts_changes_of_spec(admin: KubeClient) -> None:
    await admin.post(DEPLOYMENTS, deployment())
    labelled = await admin.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    grown = await admin.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 3}})
    assert grown["metadata"]["generation"] == 2


async def test_update_of_an_old_version_is_a_conflict(admin: KubeClient) -> None:
    seen = await admin.post(CONFIG_MAPS, config_map("c"))
    await admin.put(f"{CONFIG_MAPS}/c", {**seen, "data": {"by": "another"}})
    with pytest.raises(StatusError) as refusal:
        await admin.put(f"{CONFIG_MAPS}/c", {**seen, "data": {"by": "me"}})
    assert (refusal.value.code, refusal.value.reason) == (409, "Conflict")
    assert refusal.value.message == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_update_without_changes_keeps_the_version(admin: KubeClient) -> None:
    created = await admin.post(CONFIG_MAPS, config_map("c"))
    same = await admin.put(f"{CONFIG_MAPS}/c", created)
    assert same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_spec_and_status_are_updated_separately(admin: KubeClient) -> None:
    created = await admin.post(DEPLOYMENTS, deployment())
    by_status = {**created, "spec": {**created["spec"], "replicas": 9}, "status": {"replicas": 1}}
    written = await admin.put(f"{DEPLOYMENTS}/web/status", by_status)
    assert (written["spec"]["replicas"], written["status"]) == (2, {"replicas": 1})
    by_spec = {**written, "spec": {**written["spec"], "replicas": 4}, "status": {}}
    written = await admin.put(f"{DEPLOYMENTS}/web", by_spec)
    assert (written["spec"]["replicas"], written["status"]) == (4, {"replicas": 1})


async def test_deletion_returns_a_status_with_details(admin: KubeClient) -> None:
    created = await admin.post(HPAS, hpa())
    response = await admin.delete(f"{HPAS}/web")
    assert response["status"] == "Success"
    assert response["details"] == {
        "name": "web",
        "group": "autoscaling",
        "kind": "horizontalpodautoscalers",
        "uid": created["metadata"]["uid"],
    }


async def test_pod_on_a_node_is_deleted_gracefully(admin: KubeClient) -> None:
    await admin.post(PODS, pod("p", node="n"))
    marked = await admin.delete(f"{PODS}/p")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await admin.get(f"{PODS}/p"))["metadata"]["deletionTimestamp"]
    await admin.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    with pytest.raises(StatusError, match="not found"):
        await admin.get(f"{PODS}/p")


async def test_objects_of_a_deleted_namespace_are_deleted(admin: KubeClient) -> None:
    await admin.post("/api/v1/namespaces", {"metadata": {"name": "short-lived"}})
    await admin.post("/api/v1/namespaces/short-lived/configmaps", config_map("c"))
    await admin.delete("/api/v1/namespaces/short-lived")
    assert (await admin.get("/api/v1/namespaces/short-lived/configmaps"))["items"] == []


async def test_hpa_is_stored_with_defaults(admin: KubeClient) -> None:
    created = await admin.post(HPAS, hpa(behavior={"scaleUp": {}}))
    assert created["spec"]["minReplicas"] == 1
    assert created["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    assert created["spec"]["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 0


async def test_only_hpas_of_milliscale_may_scale_to_zero(admin: KubeClient) -> None:
    external = {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}
    to_zero = hpa(minReplicas=0, metrics=[{"type": "External", "external": external}])
    with pytest.raises(StatusError, match=r"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"):
        await admin.post(HPAS, to_zero)
    ours = "milliscale.io/v1"
    created = await admin.post(HPAS.replace("autoscaling/v2", ours), {**to_zero, "apiVersion": ours})
    assert created["spec"]["minReplicas"] == 0


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        (CONFIG_MAPS, {"metadata": {}}, 422, "metadata.name: Required value"),
        (CONFIG_MAPS, {"metadata": {"name": "A_b"}}, 422, 'metadata.name: Invalid value: "A_b": a lowercase RFC 1123'),
        (CONFIG_MAPS, {"kind": "Pod", "metadata": {"name": "c"}}, 400, 'Pod in version "v1" cannot be handled as a'),
        (
            CONFIG_MAPS,
            {"apiVersion": "v2", "metadata": {"name": "c"}},
            400,
            'no kind "ConfigMap" is registered for version',
        ),
        (HPAS, {**hpa(), "apiVersion": "autoscaling/v1"}, 400, r"the API version in the data \(autoscaling/v1\)"),
        (
            CONFIG_MAPS,
            {"metadata": {"name": "c", "namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (CONFIG_MAPS.replace("default", "nowhere"), config_map("c"), 404, 'namespaces "nowhere" not found'),
        (HPAS, hpa(maxReplicas=0), 422, "spec.maxReplicas: Required value: must be set and greater than 0"),
        (HPAS, hpa(maxReplicas="many"), 400, "cannot be handled as a HorizontalPodAutoscaler"),
    ],
)
async def test_invalid_objects_are_refused(
    admin: KubeClient, path: str, body: dict[str, Any], code: int, message: str
) -> None:
    with pytest.raises(StatusError, match=message) as refusal:
        await admin.post(path, body)
    assert refusal.value.code == code


async def test_existing_name_is_a_conflict(admin: KubeClient) -> None:
    await admin.post(DEPLOYMENTS, deployment())
    with pytest.raises(StatusError, match=r'^deployments.apps "web" already exists$') as refusal:
        await admin.post(DEPLOYMENTS, deployment())
    assert (refusal.value.code, refusal.value.reason) == (409, "AlreadyExists")


async def test_lease_update_requires_a_resource_version(admin: KubeClient) -> None:
    await admin.post(LEASES, {"metadata": {"name": "l"}})
    with pytest.raises(StatusError, match=r"metadata.resourceVersion: Invalid value: 0: must be specified"):
        await admin.put(f"{LEASES}/l", {"metadata": {"name": "l"}})


async def test_unknown_paths_are_404_and_unknown_verbs_405(admin: KubeClient) -> None:
    with pytest.raises(StatusError, match="could not find the requested resource") as refusal:
        await admin.get("/apis/apps/v1/gizmos")
    assert refusal.value.code == 404
    with pytest.raises(StatusError, match="does not allow this method") as refusal:
        await admin.put("/api/v1/pods", {})
    assert refusal.value.code == 405


async def test_scale_subresource_reads_and_writes_replicas(admin: KubeClient) -> None:
    await admin.post(DEPLOYMENTS, deployment())
    scale = await admin.get(f"{DEPLOYMENTS}/web/scale")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    scaled = await admin.put(f"{DEPLOYMENTS}/web/scale", {**scale, "spec": {"replicas": 5}})
    assert scaled["spec"] == {"replicas": 5}
    stored = await admin.get(f"{DEPLOYMENTS}/web")
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)


async def test_scale_of_zero_has_no_replicas_field(admin: KubeClient) -> None:
    await admin.post(DEPLOYMENTS, deployment())
    assert (await admin.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 0}}))["spec"] == {}
    assert (await admin.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 0


async def test_scale_updates_are_validated(admin: KubeClient) -> None:
    await admin.post(DEPLOYMENTS, deployment())
    scale = await admin.get(f"{DEPLOYMENTS}/web/scale")
    await admin.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(StatusError, match=r'Operation cannot be fulfilled on deployments.apps "web"'):
        await admin.put(f"{DEPLOYMENTS}/web/scale", {**scale, "spec": {"replicas": 5}})
    with pytest.raises(StatusError) as refusal:
        await admin.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": -1}})
    assert refusal.value.message == (
        'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


async def test_label_and_field_selectors(admin: KubeClient) -> None:
    for name, tier in (("a", "front"), ("b", "back"), ("c", "back")):
        await admin.post(CONFIG_MAPS, config_map(name, tier=tier))

    async def names(**query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await admin.get(CONFIG_MAPS, query))["items"]]

    assert await names(labelSelector="tier in (back)") == ["b", "c"]
    assert await names(fieldSelector="metadata.name=a") == ["a"]
    assert await names(labelSelector="tier=back", fieldSelector="metadata.name!=b") == ["c"]
    with pytest.raises(StatusError, match="unable to parse requirement"):
        await names(labelSelector="tier in")


async def test_update_of_a_v1_hpa_keeps_other_metrics(admin: KubeClient) -> None:
    pods_metric = {
        "type": "Pods",
        "pods": {"metric": {"name": "pps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
    }
    await admin.post(HPAS, hpa(metrics=[pods_metric]))
    v1_path = f"{HPAS.replace('v2', 'v1')}/web"
    old = await admin.get(v1_path)
    assert old["spec"].keys() == {"scaleTargetRef", "minReplicas", "maxReplicas"}
    old["spec"]["maxReplicas"] = 9
    await admin.put(v1_path, old)
    new = await admin.get(f"{HPAS}/web")
    assert (new["spec"]["maxReplicas"], new["spec"]["metrics"]) == (9, [pods_metric])


@pytest.mark.parametrize("body", [[], "text", 7])
async def test_bodies_that_are_no_objects_are_refused(admin: KubeClient, body: Any) -> None:
    with pytest.raises(StatusError) as refusal:
        await admin.post(CONFIG_MAPS, body)
    assert refusal.value.code == 400


async def test_null_fields_are_absent(admin: KubeClient) -> None:
    created = await admin.post(CONFIG_MAPS, {"metadata": {"name": "c", "labels": None}, "data": None})
    assert "labels" not in created["metadata"]


async def test_update_with_another_uid_is_a_conflict(admin: KubeClient) -> None:
    created = await admin.post(CONFIG_MAPS, config_map("c"))
    await admin.delete(f"{CONFIG_MAPS}/c")
    await admin.post(CONFIG_MAPS, config_map("c"))
    with pytest.raises(StatusError, match=r"Precondition failed: UID in precondition: ") as refusal:
        await admin.put(f"{CONFIG_MAPS}/c", {"metadata": {"name": "c", "uid": created["metadata"]["uid"]}})
    assert refusal.value.code == 409


async def test_updates_cannot_change_system_metadata(admin: KubeClient) -> None:
    created = await admin.post(CONFIG_MAPS, config_map("c"))
    forged = {**created["metadata"], "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 7, "labels": {"a": "b"}}
    written = (await admin.put(f"{CONFIG_MAPS}/c", {**created, "metadata": forged}))["metadata"]
    assert written["labels"] == {"a": "b"}
    assert written["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert "generation" not in written
