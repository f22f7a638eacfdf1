"""The three kinds of patches, and what this server says about what it has not."""

from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from tests.objects import config_map, deployment

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
RULES = "/apis/milliscale.io/v1/namespaces/default/metricrules"
PODS = "/api/v1/namespaces/default/pods"
NOT_IN_THE_DEMO = "^this is the demo's API server: "


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c", "d": 1}, {"a": "c", "d": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    """Cases of RFC 7396, which hold for strategic merge patches, too."""
    assert merge_patch(target, patch) == expected
    assert strategic_merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"containers": [{"name": "b", "image": "2"}]}, [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]),
        (
            {"containers": [{"name": "a", "env": [{"name": "X"}]}]},
            [{"name": "a", "image": "1", "env": [{"name": "X"}]}],
        ),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, []),
        ({"$setElementOrder/containers": [{"name": "a"}]}, [{"name": "a", "image": "1"}]),
        ({"$patch": "replace", "containers": [{"name": "b"}]}, [{"name": "b"}]),
    ],
)
def test_strategic_merge_patch_merges_containers_by_name(patch: Any, expected: Any) -> None:
    target = {"containers": [{"name": "a", "image": "1"}], "nodeName": "n"}
    patched = strategic_merge_patch(target, patch)
    assert patched.pop("containers") == expected
    assert patched == ({} if "$patch" in patch else {"nodeName": "n"})
    assert target == {"containers": [{"name": "a", "image": "1"}], "nodeName": "n"}


def test_json_patch() -> None:
    """Cases of RFC 6902, appendix A."""
    target = {"a/b": {"c": [1, 3]}, "d": "e"}
    operations = [
        {"op": "test", "path": "/d", "value": "e"},
        {"op": "add", "path": "/a~1b/c/1", "value": 2},
        {"op": "add", "path": "/a~1b/c/-", "value": 4},
        {"op": "remove", "path": "/a~1b/c/0"},
        {"op": "replace", "path": "/d", "value": {"f": None}},
    ]
    assert json_patch(target, operations) == {"a/b": {"c": [2, 3, 4]}, "d": {"f": None}}
    assert target == {"a/b": {"c": [1, 3]}, "d": "e"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/spec/none", "value": 1},
        {"op": "test", "path": "/spec/replicas", "value": 3},
        {"op": "remove", "path": "/spec/replicas/x"},
        {"op": "add"},
    ],
)
async def test_json_patch_that_does_not_fit_is_refused(operation: Any, admin: KubeClient) -> None:
    await admin.post(DEPLOYMENTS, deployment())
    with pytest.raises(StatusError, match=r"^the patch cannot be applied: ") as refusal:
        await admin.patch(f"{DEPLOYMENTS}/web", [operation], content_type="application/json-patch+json")
    assert refusal.value.code == 400


async def test_strategic_merge_patch_of_a_custom_resource_is_refused_as_upstream(admin: KubeClient) -> None:
    await admin.post(RULES, {"metadata": {"name": "r"}, "spec": {}})
    with pytest.raises(StatusError) as refusal:
        await admin.patch(f"{RULES}/r", {}, content_type="application/strategic-merge-patch+json")
    assert refusal.value.code == 415


async def test_what_it_has_not_is_one_sentence(admin: KubeClient) -> None:
    await admin.post(CONFIG_MAPS, config_map("c"))
    one = f"{CONFIG_MAPS}/c"
    for content_type in ("application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"):
        with pytest.raises(StatusError, match=NOT_IN_THE_DEMO):
            await admin.patch(one, {}, content_type=content_type)
    for subresource in ("log", "exec", "portforward"):
        with pytest.raises(StatusError, match=NOT_IN_THE_DEMO):
            await admin.get(f"{PODS}/web/{subresource}")
    with pytest.raises(StatusError, match=NOT_IN_THE_DEMO):
        await admin.delete(one, {"dryRun": "All"})
    assert (await admin.get(one))["metadata"]["name"] == "c"


async def test_hpas_have_a_schema_in_openapi(admin: KubeClient) -> None:
    paths = (await admin.get("/openapi/v3"))["paths"]
    document = await admin.get(paths["apis/autoscaling/v2"]["serverRelativeURL"].partition("?")[0])
    schema = document["components"]["schemas"]["HorizontalPodAutoscaler"]
    assert "maxReplicas" in schema["properties"]["spec"]["properties"]
    patch = document["paths"]["/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"]["patch"]
    assert patch["parameters"][0]["name"] == "fieldValidation", "or kubectl wants schemas of all kinds"
