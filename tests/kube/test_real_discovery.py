"""RestMapper on a real API server."""

import pytest

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.core.observation import ReadError
from autoscaler.loop.scales import ScaleClient
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.api.status import StatusError
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from tests.eventually import eventually

GROUP = "example.milliscale.io"

pytestmark = pytest.mark.kubebuilder


async def test_every_resource_of_the_api_server_is_found(admin: KubeClient) -> None:
    groups = (await admin.get("/apis"))["groups"]
    rest = RestMapper(admin)
    for group in ({"name": "", "versions": [{"version": "v1"}]}, *groups):
        for each in group["versions"]:
            name, number = group["name"], each["version"]
            path = f"/apis/{name}/{number}" if name else f"/api/{number}"
            for entry in (await admin.get(path))["resources"]:
                if "/" not in entry["name"]:
                    found = await rest.mappings_for_kind(name, entry["kind"])
                    assert (number, entry["name"], entry["singularName"], entry["namespaced"]) in {
                        (info.version, info.plural, info.singular, info.namespaced) for info in found
                    }


async def test_cluster_scoped_target_is_not_found_in_a_namespace(admin: KubeClient) -> None:
    scaled = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }
        },
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    cluster_scoped = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [scaled]},
    }
    await admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", cluster_scoped)
    widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "pool"}, "spec": {"replicas": 2}}

    async def created() -> bool:
        try:
            await admin.post(f"/apis/{GROUP}/v1/widgets", widget)
        except StatusError:
            return False
        return True

    await eventually(created)
    assert (await admin.get(f"/apis/{GROUP}/v1/widgets/pool/scale"))["spec"] == {"replicas": 2}
    scales = ScaleClient(ThrottledClient(admin, TokenBucket(qps=0, burst=1)), RestMapper(admin))
    read = await scales.read("default", CrossVersionObjectReference("Widget", "pool", f"{GROUP}/v1"))
    assert read == ReadError("the server could not find the requested resource (get widgets pool)")
