"""Helm installs, upgrades, rolls back and uninstalls the chart on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kube.api.client import KubeClient
from playground.cluster import Cluster, start_cluster
from tests.chart.choices import CHOICES
from tests.chart.record import FOLDER, NAMESPACE, RELEASE, load, rendered_file
from tools.render_chart import CHART, load_helm

pytestmark = pytest.mark.kubebuilder
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horizontalpodautoscalers.milliscale.io"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with start_cluster(tmp_path / "cluster") as cluster, await cluster.client() as client:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await client.post("/api/v1/namespaces", namespace)
        yield cluster


class Helm:
    """The engine, in threads of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._config = load_helm().Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE)

    async def run(self, action: str, *arguments: Any) -> None:
        await asyncio.to_thread(getattr(self._config, action), *arguments)

    async def apply(self, action: str, release: str, values: Mapping[str, Any]) -> None:
        """Install or upgrade our chart; it has no default for the image."""
        await self.run(action, CHART, release, {"image": {"repository": "registry.example/milliscale"}, **values})


def prometheus_adapter_chart(folder: Path, values: Path) -> Path:
    """A chart that installs what the prometheus-adapter chart renders for a values file."""
    chart = folder / "prometheus-adapter"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: prometheus-adapter, version: 5.3.0}")
    # Without a cluster the chart renders the version that Kubernetes had before 1.22.
    text = rendered_file(values).read_text().replace("apiregistration.k8s.io/v1beta1", "apiregistration.k8s.io/v1")
    (chart / "templates/objects.yaml").write_text(text)
    return chart


async def served_by(client: KubeClient) -> dict[str, str]:
    """The Service of each of the metrics APIs."""
    listed = await client.get(API_SERVICES)
    return {
        entry["metadata"]["name"]: entry["spec"]["service"]["name"]
        for entry in listed["items"]
        if "metrics.k8s.io" in entry["metadata"]["name"]
    }


async def deployments(client: KubeClient) -> list[str]:
    listed = await client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
    return [entry["metadata"]["name"] for entry in listed["items"]]


async def test_release_of_prometheus_adapter_is_upgraded_and_rolled_back(cluster: Cluster, tmp_path: Path) -> None:
    values = FOLDER / "kube-prometheus-stack.yaml"
    helm = Helm(cluster)
    theirs = {f"v1beta1.{group}.metrics.k8s.io": "prometheus-adapter" for group in ("custom", "external")}
    ours = dict.fromkeys([*theirs, "v1beta2.custom.metrics.k8s.io"], f"{RELEASE}-milliscale-adapter")
    async with await cluster.client() as client:
        await helm.run("install", prometheus_adapter_chart(tmp_path, values), RELEASE)
        assert await served_by(client) == theirs
        await helm.apply("upgrade", RELEASE, load(values))
        assert await served_by(client) == ours
        assert await deployments(client) == [f"{RELEASE}-milliscale-adapter"]
        await helm.run("rollback", RELEASE)
        assert await served_by(client) == theirs
        assert await deployments(client) == ["prometheus-adapter"]


async def test_choice_can_be_changed_and_hpas_outlive_the_release(cluster: Cluster) -> None:
    helm = Helm(cluster)
    async with await cluster.client() as client:
        await helm.apply("install", "milliscale", {})
        assert await deployments(client) == ["milliscale-adapter"]
        await helm.apply("upgrade", "milliscale", CHOICES["own HPA kind"].values)
        assert await deployments(client) == ["milliscale-adapter", "milliscale-autoscaler"]
        await helm.apply("upgrade", "milliscale", CHOICES["sharded"].values)  # a StatefulSet, and no CRD
        assert await deployments(client) == ["milliscale-adapter"]
        await helm.run("uninstall", "milliscale")
        assert await deployments(client) == []
        assert await served_by(client) == {}
        crd = await client.get(CRD)
        assert "deletionTimestamp" not in crd["metadata"]
        await helm.apply("install", "milliscale", CHOICES["own HPA kind"].values)


async def test_second_server_of_an_api_is_refused(cluster: Cluster) -> None:
    helm = Helm(cluster)
    await helm.apply("install", "milliscale", {})
    with pytest.raises(Exception, match=r"v1beta1\.custom\.metrics\.k8s\.io"):
        await helm.apply("install", "another", {})
    await helm.apply("install", "beside", {"apiService": {"custom": False}})
    async with await cluster.client() as client:
        assert set((await served_by(client)).values()) == {"milliscale-adapter"}
        assert await deployments(client) == ["beside-milliscale-adapter", "milliscale-adapter"]
