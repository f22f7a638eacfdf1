"""The patch formats change an object as Kubernetes' own do."""

from typing import Any

import pytest

from kube.client import KubeClient
from kube.status import StatusError
from playground.apiserver.patches import apply_patch
from tests.playground.apiserver.objects import deployment

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def test_a_merge_patch_merges_objects_and_replaces_everything_else() -> None:
    old = {"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": 1}
    patch = {"a": {"b": 3, "new": {"x": None, "y": 1}}, "list": [3], "gone": None}
    assert apply_patch(MERGE, old, patch) == {"a": {"b": 3, "c": 2, "new": {"y": 1}}, "list": [3]}
    assert old == {"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": 1}, "it is left alone"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/b", "value": 1}, {"a": [1, 2], "b": 1}),
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1, 2]}),
        ({"op": "add", "path": "/x~1y", "value": 1}, {"a": [1, 2], "x/y": 1}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"op": "replace", "path": "/a/1", "value": 9}, {"a": [1, 9]}),
        ({"op": "replace", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"op": "copy", "from": "/a/0", "path": "/b"}, {"a": [1, 2], "b": 1}),
        ({"op": "move", "from": "/a", "path": "/b"}, {"b": [1, 2]}),
        ({"op": "test", "path": "/a/0", "value": 1}, {"a": [1, 2]}),
    ],
    ids=lambda value: str(value.get("op")) if "op" in value else "",
)
def test_a_json_patch_does_one_thing_after_another(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    old = {"a": [1, 2]}
    assert apply_patch(JSON, old, [operation]) == expected
    assert old == {"a": [1, 2]}, "it is left alone"


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "add", "path": "/a/7", "value": 1},
        {"op": "remove", "path": "/a/-1"},
        {"op": "invent", "path": "/a"},
        {"path": "/a"},
        "add",
    ],
)
def test_an_operation_that_does_not_fit_is_422(operation: Any) -> None:
    with pytest.raises(StatusError) as refusal:
        apply_patch(JSON, {"a": [1, 2]}, [operation])
    assert refusal.value.code == 422


@pytest.mark.parametrize(("content_type", "patch"), [(JSON, {}), (MERGE, []), (STRATEGIC, "text")])
def test_a_patch_of_another_shape_is_400(content_type: str, patch: Any) -> None:
    with pytest.raises(StatusError) as refusal:
        apply_patch(content_type, {}, patch)
    assert refusal.value.code == 400


CONTAINERS: list[dict[str, Any]] = [
    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
    {"name": "b", "image": "1"},
]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            {"containers": [{"name": "a", "image": "2"}]},
            {"containers": [{**CONTAINERS[0], "image": "2"}, CONTAINERS[1]]},
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {
                "containers": [
                    {**CONTAINERS[0], "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                    CONTAINERS[1],
                ]
            },
        ),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": [CONTAINERS[1]]}),
        (
            {
                "containers": [{"name": "c"}],
                "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
            },
            {"containers": [{"name": "c"}, CONTAINERS[1], CONTAINERS[0]]},
        ),
        ({"containers": [{"$patch": "replace"}, {"name": "c"}]}, {"containers": [{"name": "c"}]}),
    ],
    ids=["merge by name", "merge within", "delete", "order", "replace"],
)
def test_a_strategic_merge_knows_that_containers_have_names(patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert apply_patch(STRATEGIC, {"containers": CONTAINERS}, patch) == expected


def test_a_strategic_merge_replaces_lists_without_keys() -> None:
    assert apply_patch(STRATEGIC, {"metrics": [{"type": "Pods"}]}, {"metrics": [{"type": "Object"}]}) == {
        "metrics": [{"type": "Object"}]
    }


def test_a_strategic_merge_retains_and_removes_as_it_is_told() -> None:
    old = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}, "finalizers": ["a", "b"]}
    patch = {
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "finalizers": ["c"],
    }
    assert apply_patch(STRATEGIC, old, patch) == {"strategy": {"type": "Recreate"}, "finalizers": ["b", "c"]}


async def test_what_is_not_supported_is_415_so_that_clients_can_fall_back(admin: KubeClient) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    await admin.post(path, deployment())
    with pytest.raises(StatusError) as refusal:
        await admin.patch(f"{path}/web", deployment(), content_type="application/apply-patch+yaml")
    assert (refusal.value.code, refusal.value.reason) == (415, "UnsupportedMediaType")


async def test_a_patch_may_insist_on_a_version(admin: KubeClient) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    await admin.post(path, deployment())
    with pytest.raises(StatusError) as refusal:
        await admin.patch(f"{path}/web", {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 3}})
    assert refusal.value.code == 409
