"""The component that registers metrics.k8s.io: it joins the base, and leads to the adapter's Service."""

from pathlib import Path

import pytest

from tests.manifests.rendering import render_with


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_resource_metrics_component_adds_api_and_roles(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "resource-metrics")
    api = objects["APIService", "v1beta1.metrics.k8s.io"]["spec"]
    assert (api["group"], api["version"]) == ("metrics.k8s.io", "v1beta1")
    assert ("Service", api["service"]["name"]) in objects
    assert objects["ClusterRole", "milliscale-resource-metrics-reader"]["rules"][0]["apiGroups"] == ["metrics.k8s.io"]
