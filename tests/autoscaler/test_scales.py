"""Scales: finding the target's resource, reading, writing, conflicts."""

from typing import Any

import pytest

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.core.observation import ReadError, Scale
from autoscaler.loop.scales import ScaleClient, ScaleWriteError, TargetScale
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.controller.flowcontrol import ThrottledClient
from tests.kube.scripted_api import ScriptedApi, status_body

WEB = CrossVersionObjectReference("Deployment", "web", "apps/v1")
PATH = "/apis/apps/v1/namespaces/default/deployments/web/scale"


def scale(*, replicas: int | None = 3, version: str = "7", **more: Any) -> dict[str, Any]:
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "web", "namespace": "default", "resourceVersion": version},
        "spec": {} if replicas is None else {"replicas": replicas},
        "status": {"replicas": 2, "selector": "app=web"},
        **more,
    }


@pytest.fixture
def scales(api: ScriptedApi, client: ThrottledClient, kube: KubeClient) -> ScaleClient:
    api.on(
        "GET",
        "/apis",
        {
            "groups": [
                {
                    "name": "apps",
                    "preferredVersion": {"version": "v1"},
                    "versions": [{"version": "v1"}, {"version": "v1beta1"}],
                }
            ]
        },
    )
    for version in ("v1", "v1beta1"):
        resources = [{"name": "deployments", "kind": "Deployment", "namespaced": True}]
        api.on("GET", f"/apis/apps/{version}", {"resources": resources})
    return ScaleClient(client, RestMapper(kube))


async def read(scales: ScaleClient) -> TargetScale:
    target = await scales.read("default", WEB)
    assert isinstance(target, TargetScale)
    return target


async def test_a_scale_is_read_from_the_preferred_version(api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH, scale())
    assert (await read(scales)).scale == Scale(spec_replicas=3, status_replicas=2, selector="app=web")


async def test_only_the_group_of_the_reference_matters(api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH, scale())
    outdated = CrossVersionObjectReference("Deployment", "web", "apps/v1beta7")
    assert isinstance(await scales.read("default", outdated), TargetScale)


async def test_only_the_preferred_version_is_read(api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH.replace("v1", "v1beta1"), scale())
    api.fail("GET", PATH, 404, "the server could not find the requested resource")
    assert await scales.read("default", WEB) == ReadError("the server could not find the requested resource")


async def test_a_kind_in_lower_case_is_the_same_kind(api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH, scale())
    assert isinstance(
        await scales.read("default", CrossVersionObjectReference("deployment", "web", "apps/v1")), TargetScale
    )
    shouted = CrossVersionObjectReference("DEPLOYMENT", "web", "apps/v1")
    assert await scales.read("default", shouted) == ReadError(
        'no matches for kind "DEPLOYMENT" in group "apps"', unknown_kind=True
    )


UNPARSABLE = (
    'couldn\'t parse the selector string "a in (": '
    "unable to parse requirement: found '', expected: ',', ')' or identifier"
)


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ("app=web,tier!=x", '"!=" is not a valid label selector operator'),
        ("app=web,n>3", '"gt" isn\'t supported in label selectors'),
        ("n<3", '"lt" isn\'t supported in label selectors'),
        ("a in (", UNPARSABLE),
    ],
)
async def test_a_selector_that_does_not_convert_is_a_scale_error(
    selector: str, problem: str, api: ScriptedApi, scales: ScaleClient
) -> None:
    api.on("GET", PATH, scale(status={"replicas": 1, "selector": selector}))
    assert await scales.read("default", WEB) == ReadError(
        "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
        f"failed to parse target selector: {problem}"
    )


async def test_a_selector_is_read_as_a_label_selector_and_written_as_a_text(
    api: ScriptedApi, scales: ScaleClient
) -> None:
    selector = " tier notin (b,a) , app==web,!old, x in (1)"
    api.on("GET", PATH, scale(status={"replicas": 1, "selector": selector}))
    assert (await read(scales)).scale.selector == "app=web,!old,tier notin (a,b),x in (1)"


async def test_a_target_that_does_not_exist_is_a_scale_error(api: ScriptedApi, scales: ScaleClient) -> None:
    api.fail("GET", PATH, 404, 'deployments.apps "web" not found')
    assert await scales.read("default", WEB) == ReadError('deployments.apps "web" not found')


async def test_target_lies_in_the_namespace_of_the_hpa(api: ScriptedApi, scales: ScaleClient) -> None:
    resources = [{"name": "nodepools", "kind": "NodePool", "namespaced": False}]
    api.on("GET", "/apis/apps/v1", {"resources": resources})
    api.on("GET", "/apis/apps/v1/nodepools/web/scale", scale())
    api.fail("GET", "/apis/apps/v1/namespaces/default/nodepools/web/scale", 404, "not here")
    pool = CrossVersionObjectReference("NodePool", "web", "apps/v1")
    assert await scales.read("default", pool) == ReadError("not here")


async def test_a_kind_that_does_not_exist_is_a_target_error(scales: ScaleClient) -> None:
    gizmo = CrossVersionObjectReference("Gizmo", "web", "apps/v1")
    assert await scales.read("default", gizmo) == ReadError(
        'no matches for kind "Gizmo" in group "apps"', unknown_kind=True
    )


@pytest.mark.parametrize("response", [scale(spec={"replicas": "three"}), scale(spec=[]), b"<html>", b"[]"], ids=str)
async def test_malformed_scale_is_a_scale_error(response: Any, api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH, response)
    assert isinstance(await scales.read("default", WEB), ReadError)


async def test_write_changes_only_the_replicas(api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH, scale(annotations="kept"))
    api.on("PUT", PATH, scale())
    await scales.write(await read(scales), 5)
    assert [asked.body for asked in api.named("PUT")] == [scale(replicas=5, annotations="kept")]


async def test_conflict_reads_the_scale_again(api: ScriptedApi, scales: ScaleClient) -> None:
    api.on("GET", PATH, scale(version="7"))
    api.then("GET", PATH, scale(version="8"))
    api.on("PUT", PATH, status_body(409, "the object has been modified"), status=409)
    api.then("PUT", PATH, scale(version="9"))
    await scales.write(await read(scales), 5)
    assert [asked.body["metadata"]["resourceVersion"] for asked in api.named("PUT")] == ["7", "8"]


async def test_nothing_is_written_twice_if_the_response_of_the_first_write_was_lost(
    api: ScriptedApi, scales: ScaleClient
) -> None:
    """The API server asks for a retry, which then conflicts with the write that it has executed."""
    api.on("GET", PATH, scale(version="7"))
    api.then("GET", PATH, scale(version="8", replicas=5))
    api.on("PUT", PATH, status_body(409, "the object has been modified"), status=409)
    await scales.write(await read(scales), 5)
    assert len(api.named("PUT")) == 1


@pytest.mark.parametrize(
    ("decided", "current", "written"),
    [(3, 20, False), (8, 20, False), (3, 6, False), (8, 6, True), (3, 5, True), (3, 4, True)],
)
async def test_after_a_conflict_a_count_that_was_raised_is_not_lowered(
    decided: int, current: int, written: bool, api: ScriptedApi, scales: ScaleClient
) -> None:
    """The decision was made for 5 replicas."""
    api.on("GET", PATH, scale(replicas=5))
    api.then("GET", PATH, scale(replicas=current))
    api.on("PUT", PATH, status_body(409, "the object has been modified"), status=409)
    api.then("PUT", PATH, scale())
    target = await read(scales)
    if written:
        await scales.write(target, decided)
    else:
        with pytest.raises(ScaleWriteError, match=f"modified; meanwhile it was scaled from 5 to {current} replicas"):
            await scales.write(target, decided)
    assert len(api.named("PUT")) == 1 + written


@pytest.mark.parametrize(
    ("code", "message", "writes"),
    [(409, "the object has been modified", 5), (403, "admission webhook denied the request", 1)],
)
async def test_conflict_is_tried_five_times_and_other_errors_once(
    api: ScriptedApi, scales: ScaleClient, code: int, message: str, writes: int
) -> None:
    api.on("GET", PATH, scale())
    api.fail("PUT", PATH, code, message)
    with pytest.raises(ScaleWriteError, match=message):
        await scales.write(await read(scales), 5)
    assert len(api.named("PUT")) == writes
