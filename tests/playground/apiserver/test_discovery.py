"""Discovery of groups, versions and resources."""

import pytest

from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer


async def test_groups_are_sorted_by_priority(admin: KubeClient) -> None:
    response = await admin.get("/apis")
    assert [group["name"] for group in response["groups"]] == [
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "apiextensions.k8s.io",
        "coordination.k8s.io",
        "milliscale.io",
    ]


async def test_autoscaling_v2_is_preferred(admin: KubeClient) -> None:
    group = await admin.get("/apis/autoscaling")
    assert [entry["version"] for entry in group["versions"]] == ["v2", "v1"]
    assert group["preferredVersion"] == {"groupVersion": "autoscaling/v2", "version": "v2"}


async def test_versions_of_equal_priority_are_sorted_by_name(admin: KubeClient, server: PlaygroundApiServer) -> None:
    for version in ("v1alpha1", "v2", "v1beta2", "v11beta1", "v1beta10", "v1"):
        server.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.example.com"},
                "spec": {
                    "group": "example.com",
                    "version": version,
                    "groupPriorityMinimum": 1,
                    "versionPriority": 1,
                    "insecureSkipTLSVerify": True,
                    "service": {"namespace": "default", "name": "none"},
                },
            }
        )
    versions = [entry["version"] for entry in (await admin.get("/apis/example.com"))["versions"]]
    assert versions == ["v2", "v1", "v11beta1", "v1beta10", "v1beta2", "v1alpha1"]


async def test_resources_have_subresources(admin: KubeClient) -> None:
    entries = {entry["name"]: entry for entry in (await admin.get("/apis/apps/v1"))["resources"]}
    assert entries["deployments"]["shortNames"] == ["deploy"]
    assert entries["deployments"]["singularName"] == "deployment"
    assert entries["deployments"]["categories"] == ["all"]
    assert "watch" in entries["deployments"]["verbs"]
    assert entries["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }


async def test_rest_mapper_uses_discovery(admin: KubeClient) -> None:
    mapper = RestMapper(admin)
    assert (await mapper.resource_for("pod")).path("ns", "p") == "/api/v1/namespaces/ns/pods/p"
    kinds = await mapper.mappings_for_kind("autoscaling", "HorizontalPodAutoscaler")
    assert [info.version for info in kinds] == ["v2", "v1"]


async def test_aggregated_discovery_is_not_served(admin: KubeClient) -> None:
    newer = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    assert (await admin.get("/apis", accept=newer))["kind"] == "APIGroupList"


async def test_version_and_paths(admin: KubeClient) -> None:
    assert (await admin.get("/version"))["minor"] == "36"
    assert "/apis/autoscaling/v2" in (await admin.get("/"))["paths"]


@pytest.mark.parametrize("path", ["/apis/nobody.example.com", "/apis/apps/v9", "/api/v9", "/nothing"])
async def test_unknown_groups_and_versions_are_404(admin: KubeClient, path: str) -> None:
    with pytest.raises(StatusError) as refusal:
        await admin.get(path)
    assert refusal.value.code == 404
