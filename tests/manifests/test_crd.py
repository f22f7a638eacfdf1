"""The CustomResourceDefinition in a real API server: the same fields, defaults and checks as autoscaling/v2."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.model import KUBERNETES, MILLISCALE
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from kube.api.client import KubeClient
from kube.api.objects import ParseError
from kube.api.status import StatusError
from playground.binaries import find_async
from playground.cluster import Cluster, start_cluster
from playground.install import apply, read_objects
from tests import objects
from tests.conformance.runner import RECORDED
from tests.eventually import eventually

CRD = Path(__file__).parent.parent.parent / "manifests/crds/horizontalpodautoscalers.yaml"
HPAS = MILLISCALE.path("default")

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"maxReplicas": 0}, "spec.maxReplicas in body should be greater than or equal to 1"),
    ({"minReplicas": 7}, "maxReplicas must be greater than or equal to `minReplicas`"),
    ({"minReplicas": 0}, "must specify at least one Object or External metric to support scaling to zero replicas"),
    ({"metrics": [{"type": "Pods"}]}, "must populate information for the given metric source"),
    ({"behavior": {"scaleUp": {"policies": []}}}, "should have at least 1 items"),
    ({"scaleTargetRef": {"kind": "Deployment", "name": "web"}}, "apiVersion must specify API group"),
]

pytestmark = pytest.mark.kubebuilder


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with start_cluster(tmp_path) as cluster, await cluster.client() as client:
        await apply(client, await read_objects(CRD))

        async def served() -> bool:
            try:
                await client.get(HPAS)
            except StatusError as error:
                raise AssertionError(str(error)) from error
            return True

        await eventually(served, within=20)
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with await cluster.client() as client:
        yield client


def hpa(name: str = "web", **spec: Any) -> dict[str, Any]:
    return objects.hpa(name, api=MILLISCALE.api_version, **spec)


async def refusal(client: KubeClient, obj: dict[str, Any]) -> str | None:
    """What the API server says against an object."""
    try:
        await client.post(HPAS, obj)
    except StatusError as error:
        return str(error)
    return None


def problem(obj: dict[str, Any]) -> str | None:
    """What Kubernetes says against an object, by our own rules."""
    try:
        return "; ".join(validate_hpa(default_hpa(obj), scale_to_zero=True)) or None
    except ParseError as error:
        return str(error)


async def test_crd_accepts_and_refuses_as_kubernetes(admin: KubeClient) -> None:
    """The cases recorded from Kubernetes; the few that a schema cannot refuse fail as metrics."""
    with gzip.open(RECORDED / "hpa_validation.jsonl.gz", "rt") as lines:
        specs = [json.loads(line)["input"].get("spec") or {} for line in lines]
    assert len(specs) > 300
    objects = [{**hpa(f"case-{number}"), "spec": spec} for number, spec in enumerate(specs)]
    refusals = await asyncio.gather(*(refusal(admin, obj) for obj in objects))
    wrongly_refused = [
        said for obj, said in zip(objects, refusals, strict=True) if said is not None and problem(obj) is None
    ]
    assert wrongly_refused == []
    left_to_us = {problem(obj) for obj, said in zip(objects, refusals, strict=True) if said is None} - {None}
    assert len(left_to_us) < 5
    assert all(each is not None and "containerResource.name" in each for each in left_to_us)


async def test_crd_defaults_are_those_of_kubernetes(admin: KubeClient) -> None:
    behaviors: list[dict[str, Any]] = [{}, {"behavior": {}}, {"behavior": {"scaleUp": {"selectPolicy": "Min"}}}]
    for number, more in enumerate(behaviors):
        stored = (await admin.post(HPAS, hpa(f"web-{number}", **more)))["spec"]
        assert stored == default_hpa(hpa(**more))["spec"]
        theirs = {**hpa(f"web-{number}", **more), "apiVersion": KUBERNETES.api_version}
        assert stored == (await admin.post(KUBERNETES.path("default"), theirs))["spec"]


async def test_invalid_hpa_is_refused_at_admission(admin: KubeClient) -> None:
    for spec, message in WRONG:
        assert message in str(await refusal(admin, hpa(**spec)))


async def test_kubectl_get_and_explain(cluster: Cluster, admin: KubeClient) -> None:
    stored = await admin.post(HPAS, hpa(minReplicas=2))
    status = {"currentReplicas": 3, "desiredReplicas": 4, "observedGeneration": 1, "targets": "10/5"}
    updated = await admin.put(
        MILLISCALE.path("default", "web", subresource="status"),
        {**stored, "spec": {"maxReplicas": 9}, "status": status},
    )
    assert (updated["spec"], updated["status"]) == (stored["spec"], status)
    kubectl = await find_async("kubectl")

    async def shown(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            kubectl, f"--kubeconfig={cluster.kubeconfig}", *arguments, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    heads, row = (line.split() for line in (await shown("get", "mhpa")).splitlines())
    assert heads == ["NAME", "KIND", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert row[:-1] == ["web", "Deployment", "web", "10/5", "2", "5", "3"]
    assert await shown("get", "hpa") == ""
    assert "Limits for scaling down." in await shown("explain", "mhpa.spec.behavior.scaleDown")
