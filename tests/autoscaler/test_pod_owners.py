"""Which pods belong to a target, and the reduction of responses to these pods."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    Owner,
    Pod,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    ValuesResponse,
)
from autoscaler.loop.pod_owners import PodsByOwner, ReplicaSets, restrict_to_pods, split_by_owner
from kube.api.client import KubeClient
from tests.autoscaler.simulated_cluster import NOW, samples
from tests.eventually import eventually
from tests.kube.scripted_api import ScriptedApi

REPLICA_SETS = "/apis/apps/v1/replicasets"


def pod(name: str, owner: Owner | None) -> Pod:
    return Pod(name=name, namespace="default", labels={"app": "web"}, phase="Running", owner=owner)


CONTROLLERS = {"rs-web-1": "web", "rs-web-2": "web", "rs-api": "api", "rs-alone": ""}


@pytest.mark.parametrize(
    ("owner", "belongs"),
    [
        (Owner("ReplicaSet", "rs-web-1"), "owned"),
        (Owner("ReplicaSet", "rs-web-2"), "owned"),
        (Owner("StatefulSet", "web"), "owned"),
        (Owner("ReplicaSet", "web"), "owned"),
        (Owner("ReplicaSet", "rs-api"), "foreign"),
        (Owner("ReplicaSet", "rs-alone"), "foreign"),
        (Owner("ReplicaSet", "rs-new"), "unknown"),
        (Owner("Job", "backup"), "foreign"),
        (None, "foreign"),
    ],
    ids=[
        "of one of the Deployment's ReplicaSets",
        "of the other during a rolling update",
        "directly",
        "the target is a ReplicaSet itself",
        "of another Deployment's",
        "of a ReplicaSet that nobody controls",
        "of a ReplicaSet that is not known",
        "of another kind",
        "of nobody",
    ],
)
def test_a_pod_belongs_to_the_target_that_its_owners_lead_to(owner: Owner | None, belongs: str) -> None:
    web = pod("web-0", owner)
    assert split_by_owner([web], target_uid="web", controllers=CONTROLLERS) == PodsByOwner(
        owned=(web,) if belongs == "owned" else (),
        foreign=("web-0",) if belongs == "foreign" else (),
        unknown=("web-0",) if belongs == "unknown" else (),
    )


def test_to_a_target_without_a_uid_nothing_belongs() -> None:
    found = split_by_owner(
        [pod("a", None), pod("b", Owner("ReplicaSet", "rs-alone")), pod("c", Owner("Job", "x"))],
        target_uid="",
        controllers={"rs-web-1": "web"},
    )
    assert found.owned == ()


USAGE = PodUsage(timestamp_ms=NOW, window_ms=60_000, containers=(("app", {"cpu": 100}),))


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (PodsResponse(samples(10, 20)), PodsResponse(samples(10))),
        (ResourceResponse({"web-0": USAGE, "web-1": USAGE}), ResourceResponse({"web-0": USAGE})),
        (ValuesResponse(values=(1,), timestamp_ms=NOW), ValuesResponse(values=(1,), timestamp_ms=NOW)),
        (MetricError("away"), MetricError("away")),
        (None, None),
    ],
)
def test_a_response_is_restricted_to_the_owned_pods(answer: MetricResponse | None, left: MetricResponse | None) -> None:
    assert restrict_to_pods(answer, [pod("web-0", None)]) == left


@pytest.fixture
async def replica_sets(kube: KubeClient) -> AsyncIterator[ReplicaSets]:
    replica_sets = ReplicaSets(kube)
    task = asyncio.create_task(replica_sets.run())
    yield replica_sets
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def replica_set(name: str, *owners: dict[str, object]) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default", "uid": f"rs-{name}", "ownerReferences": list(owners)}}


def owner(uid: str, *, controller: bool = True) -> dict[str, object]:
    return {"kind": "Deployment", "name": uid, "uid": uid, "controller": controller}


async def test_only_metadata_of_replica_sets_is_read_and_only_if_needed(
    api: ScriptedApi, replica_sets: ReplicaSets
) -> None:
    listed = [
        replica_set("web-1", owner("somebody", controller=False), owner("web")),
        replica_set("alone"),
        {"metadata": {"name": "odd", "namespace": "default", "ownerReferences": "none"}},
    ]
    api.on("GET", REPLICA_SETS, {"metadata": {"resourceVersion": "1"}, "items": listed})
    await asyncio.sleep(0)
    assert not api.requests
    assert replica_sets.controllers() is None

    async def known() -> bool:
        return replica_sets.controllers() == {"rs-web-1": "web", "rs-alone": ""}

    await eventually(known, within=10, every=0.01)
    assert "watch" not in api.requests[0].query


async def test_forbidden_list_leaves_controllers_unknown(api: ScriptedApi, replica_sets: ReplicaSets) -> None:
    api.fail("GET", REPLICA_SETS, 403, "forbidden")
    assert replica_sets.controllers() is None
    await api.until(lambda: bool(api.requests))
    assert replica_sets.controllers() is None
