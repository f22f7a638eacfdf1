"""RestMapper on a real API server."""

from typing import Any

import pytest

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.core.observation import ReadError
from autoscaler.loop.scales import ScaleClient
from kube.api.client import KubeClient
from kube.api.mapping import NoMatchError, RestMapper
from kube.api.status import StatusError
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from tests.eventually import eventually

GROUP = "example.milliscale.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

pytestmark = pytest.mark.kubebuilder


def version(name: str, *, served: bool, stored: bool) -> dict[str, Any]:
    return {"name": name, "served": served, "storage": stored, "schema": {"openAPIV3Schema": {"type": "object"}}}


def definition(*versions: dict[str, Any]) -> dict[str, Any]:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": list(versions)},
    }


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
        **version("v1", served=True, stored=True),
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }
        },
    }
    cluster_scoped = definition(scaled)
    cluster_scoped["spec"]["scope"] = "Cluster"
    await admin.post(CRDS, cluster_scoped)
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


async def test_crd_that_moves_to_v1_is_found_there(admin: KubeClient) -> None:
    now = 0.0
    rest = RestMapper(admin, clock=lambda: now)
    await admin.post(CRDS, definition(version("v1beta1", served=True, stored=True)))

    async def served_in(wanted: str) -> bool:
        nonlocal now
        now += 30
        try:
            found = await rest.mappings_for_kind(GROUP, "Widget")
        except NoMatchError as error:
            raise AssertionError(str(error)) from error
        return [info.version for info in found] == [wanted]

    await eventually(lambda: served_in("v1beta1"), within=30)
    both = definition(version("v1beta1", served=False, stored=False), version("v1", served=True, stored=True))
    await admin.patch(f"{CRDS}/widgets.{GROUP}", {"spec": both["spec"]})
    await eventually(lambda: served_in("v1"), within=30)
