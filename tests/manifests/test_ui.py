"""The components that serve the pages over TLS: flags, ports, Services and rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adapter.cli import main as adapter_main
from autoscaler.loop.pages import LEADER_LABEL
from kube.web.options import UIAddress
from tests.manifests.rendering import Objects, render_with
from tests.manifests.test_manifests import autoscaler_options

pytestmark = pytest.mark.usefixtures("overlays_can_be_rendered")


def check_service(objects: Objects, workload: dict[str, Any], service: str, **labels: str) -> None:
    """Check that a Service leads to the port of the pages, on pods with these further labels."""
    template = workload["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    spec = objects["Service", service]["spec"]
    assert spec["selector"].items() <= {**template["metadata"]["labels"], **labels}.items()
    assert labels.items() <= spec["selector"].items()
    assert [ports[port["targetPort"]] for port in spec["ports"]] == [8443]


@pytest.mark.parametrize(("base", "kind"), [("base", "Deployment"), ("overlays/sharded", "StatefulSet")])
def test_autoscaler_serves_pages_to_users_of_the_cluster(tmp_path: Path, base: str, kind: str) -> None:
    objects = render_with(tmp_path, "autoscaler-ui", base=base)
    workload = objects[kind, "milliscale-autoscaler"]
    check_service(objects, workload, "milliscale-autoscaler-ui", **{LEADER_LABEL: "true"})
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    options = autoscaler_options(container["args"])
    assert options.ui_address == UIAddress("::", 8443)
    assert "--kept-decisions=1000" in container["args"]
    # The root filesystem is read-only.
    assert str(options.ui_auth.tls.cert_dir.parent) in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_autoscaler_may_review_tokens_and_access_and_label_its_pod(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "autoscaler-ui")
    account = {"kind": "ServiceAccount", "name": "milliscale-autoscaler", "namespace": "milliscale"}
    delegator = objects["ClusterRoleBinding", "milliscale-autoscaler:system:auth-delegator"]
    assert (delegator["roleRef"]["name"], delegator["subjects"]) == ("system:auth-delegator", [account])
    reader = objects["RoleBinding", "milliscale-autoscaler-auth-reader"]
    assert reader["metadata"]["namespace"] == "kube-system"
    assert (reader["roleRef"]["name"], reader["subjects"]) == ("extension-apiserver-authentication-reader", [account])
    labels = objects["RoleBinding", "milliscale-autoscaler-leader-label"]
    assert labels["subjects"] == [account]
    (rule,) = objects["Role", labels["roleRef"]["name"]]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods"], ["patch"])


def test_viewers_of_hpas_may_get_them_in_both_api_groups(tmp_path: Path) -> None:
    role = render_with(tmp_path, "autoscaler-ui")["ClusterRole", "milliscale-hpa-viewer"]
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["autoscaling", "milliscale.io"], ["horizontalpodautoscalers"])
    assert "get" in rule["verbs"]


def test_adapter_serves_pages_to_its_viewers(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "adapter-ui")
    workload = objects["Deployment", "milliscale-adapter"]
    check_service(objects, workload, "milliscale-adapter-ui")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    help_text = CliRunner().invoke(adapter_main, ["serve", "--help"]).output
    for argument in container["args"]:
        assert argument.partition("=")[0] in help_text
    for role, paths in (
        ("milliscale-adapter-ui-viewer", ["/debug/rules", "/debug/metrics/*"]),
        ("milliscale-adapter-rule-author", ["/debug/rules", "/debug/metrics/*", "/debug/try"]),
    ):
        assert objects["ClusterRole", role]["rules"] == [{"nonResourceURLs": paths, "verbs": ["get"]}]


def test_servicemonitor_does_not_scrape_the_port_of_the_pages(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "adapter-ui", "adapter-monitoring")
    monitor = objects["ServiceMonitor", "milliscale-adapter"]["spec"]
    scraped = {endpoint["port"] for endpoint in monitor["endpoints"]}
    services = [
        name
        for (kind, name), entry in objects.items()
        if kind == "Service"
        and monitor["selector"]["matchLabels"].items() <= entry["metadata"]["labels"].items()
        and scraped & {port["name"] for port in entry["spec"]["ports"]}
    ]
    assert services == ["milliscale-adapter"]
