"""The largest and deepest objects that a real API server takes, in lists and watches."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.model import KIND, MILLISCALE
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.cache.store import Store
from playground.install import apply, read_objects
from tests.eventually import eventually

PODS = "/api/v1/namespaces/default/pods"
CRD = Path(__file__).parent.parent.parent / "manifests/crds/horizontalpodautoscalers.yaml"

pytestmark = pytest.mark.kubebuilder


def pod(name: str, value: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": value}]}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def environment(entry: Any) -> int:
    return len(entry["spec"]["containers"][0]["env"][0].get("value", ""))


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_pods_whose_json_is_six_times_as_long_as_in_etcd_are_listed_and_watched(admin: KubeClient) -> None:
    text = "<" * 1_400_000
    for number in range(4):
        await admin.post(PODS, pod(f"large-{number}", text))
    await admin.post(PODS, pod("small"))
    assert len(await admin.get_bytes(f"{PODS}/large-0")) > 8_400_000
    store = Store(admin, PODS, environment)
    running = asyncio.create_task(store.run())

    async def known(count: int) -> bool:
        return len(store) == count

    try:
        await asyncio.wait_for(store.wait_synced(), 60)
        assert sorted(store.list()) == [0, *[1_400_000] * 4]
        await admin.patch(f"{PODS}/large-0", {"metadata": {"annotations": {"a": "b"}}})
        await admin.post(PODS, pod("late", text))
        await admin.post(PODS, pod("last"))
        await eventually(lambda: known(7))
        assert store.get("default", "late") == 1_400_000
        assert not store.is_unknown("default")
        assert store.problem is None
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_own_hpa_has_no_field_that_is_nested_without_limit(admin: KubeClient) -> None:
    await apply(admin, await read_objects(CRD))
    deep: dict[str, Any] = {}
    for _ in range(3):
        deep = {"a": deep}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 2,
        "behavior": {"scaleUp": {"tolerance": deep}},
    }
    hpa = {"apiVersion": MILLISCALE.api_version, "kind": KIND, "metadata": {"name": "a"}, "spec": spec}

    async def refused() -> StatusError | None:
        try:
            await admin.post(MILLISCALE.path("default"), hpa)
        except StatusError as error:
            return error if error.code == 422 else None
        return None

    error = await eventually(refused)
    assert error is not None
    assert "spec.behavior.scaleUp.tolerance" in str(error)
