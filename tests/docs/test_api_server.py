"""A real API server accepts the Kubernetes objects of the documentation: no unknown field, no invalid value."""

from pathlib import Path

import pytest
import yaml

from playground.cluster import start_cluster
from tests.chart.test_api_server import run_kubectl
from tests.docs.blocks import ROOT, blocks

# Kinds of CustomResourceDefinitions of others.
OTHERS = ("keda.sh/", "zalando.org/", "monitoring.coreos.com/", "cert-manager.io/")

pytestmark = pytest.mark.kubebuilder


def documented_objects() -> set[str]:
    documents = (document for block in blocks("yaml") for document in yaml.safe_load_all(block.text))
    return {
        yaml.safe_dump(document)
        for document in documents
        if isinstance(document, dict) and {"apiVersion", "kind"} <= set(document)
        if not document["apiVersion"].startswith(OTHERS)
    }


async def test_server_accepts_the_objects_of_the_documentation(tmp_path: Path) -> None:
    documented = documented_objects()
    assert len(documented) > 30
    namespaces = {yaml.safe_load(text)["metadata"].get("namespace", "default") for text in documented} - {
        "default",
        "kube-system",
    }
    async with start_cluster(tmp_path, feature_gates="HPAScaleToZero=true") as cluster:
        for namespace in sorted(namespaces):
            await run_kubectl(cluster, "create", "namespace", namespace)
        for folder in ("crds", "crds/metric-rules"):
            await run_kubectl(cluster, "apply", "--server-side", "--kustomize", str(ROOT / "manifests" / folder))
        await run_kubectl(cluster, "wait", "--for=condition=Established", "crd", "--all")
        # A dry run stores nothing, so objects of the same name do not conflict.
        flags = ("--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
        output = await run_kubectl(cluster, "apply", *flags, text="---\n".join(sorted(documented)))
        assert output.count("serverside-applied (server dry run)") == len(documented)
