"""The component that registers metrics.k8s.io: it joins the base, and leads to the adapter's Service."""

import subprocess
from pathlib import Path

import pytest
import yaml

from playground.binaries import find

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_resource_metrics_component_adds_api_and_roles(tmp_path: Path) -> None:
    kustomization = tmp_path / "kustomization.yaml"
    relative = Path("../" * len(tmp_path.parts[1:])) / MANIFESTS.relative_to("/")
    kustomization.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": [str(relative / "base")],
                "components": [str(relative / "components/resource-metrics")],
            }
        )
    )
    text = subprocess.run([find("kubectl"), "kustomize", tmp_path], check=True, capture_output=True, text=True).stdout
    objects = {(entry["kind"], entry["metadata"]["name"]): entry for entry in yaml.safe_load_all(text)}
    api = objects["APIService", "v1beta1.metrics.k8s.io"]["spec"]
    assert (api["group"], api["version"]) == ("metrics.k8s.io", "v1beta1")
    assert ("Service", api["service"]["name"]) in objects
    assert objects["ClusterRole", "milliscale-resource-metrics-reader"]["rules"][0]["apiGroups"] == ["metrics.k8s.io"]
