"""The components for certificates, network policies and high availability fit the objects of the base and overlays."""

from pathlib import Path

import click
import pytest

from adapter.cli import main as adapter_main
from tests.manifests.rendering import Object, render_with

pytestmark = pytest.mark.usefixtures("overlays_can_be_rendered")

SERVICES = [
    "v1beta1.custom.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
    "v1beta1.metrics.k8s.io",
]


def pod_spec(workload: Object) -> Object:
    return dict(workload["spec"]["template"]["spec"])


def test_api_server_verifies_the_certificate_that_cert_manager_issues(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "resource-metrics", "certificates")
    certificate = objects["Certificate", "milliscale-adapter"]
    metadata = certificate["metadata"]
    for name in SERVICES:
        service = objects["APIService", name]
        assert "insecureSkipTLSVerify" not in service["spec"]
        assert service["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": f"{metadata['namespace']}/{metadata['name']}"
        }
        reference = service["spec"]["service"]
        assert f"{reference['name']}.{reference['namespace']}.svc" in certificate["spec"]["dnsNames"]


def test_certificate_is_signed_by_a_ca_of_the_adapter(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "certificates")
    issuer = objects["Issuer", objects["Certificate", "milliscale-adapter"]["spec"]["issuerRef"]["name"]]
    (ca,) = (
        entry
        for (kind, _), entry in objects.items()
        if kind == "Certificate" and entry["spec"]["secretName"] == issuer["spec"]["ca"]["secretName"]
    )
    assert ca["spec"]["isCA"] is True
    assert objects["Issuer", ca["spec"]["issuerRef"]["name"]]["spec"] == {"selfSigned": {}}


def test_adapter_serves_with_the_issued_certificate(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "certificates")
    spec = pod_spec(objects["Deployment", "milliscale-adapter"])
    (container,) = spec["containers"]
    (volume,) = (each for each in spec["volumes"] if "secret" in each)
    assert volume["secret"]["secretName"] == objects["Certificate", "milliscale-adapter"]["spec"]["secretName"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == volume["name"])
    flags = dict(argument.split("=", 1) for argument in container["args"])
    assert flags["--tls-cert-file"] == f"{mount['mountPath']}/tls.crt"
    assert flags["--tls-private-key-file"] == f"{mount['mountPath']}/tls.key"
    known = {name for parameter in adapter_main.commands["serve"].params for name in parameter.opts}
    assert flags.keys() <= known


@pytest.mark.parametrize("process", ["adapter", "autoscaler"])
def test_network_policy_admits_to_the_ports_of_the_process(tmp_path: Path, process: str) -> None:
    objects = render_with(tmp_path, f"{process}-ui", f"{process}-network-policy")
    policy = objects["NetworkPolicy", f"milliscale-{process}"]["spec"]
    template = objects["Deployment", f"milliscale-{process}"]["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    (container,) = template["spec"]["containers"]
    admitted = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert admitted == {port["name"] for port in container["ports"]}


def test_network_policy_admits_only_prometheus_to_the_autoscalers_metrics(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "autoscaler-network-policy")
    rules = objects["NetworkPolicy", "milliscale-autoscaler"]["spec"]["ingress"]
    (sources,) = (rule["from"] for rule in rules if {"port": "metrics"} in rule["ports"])
    assert sources == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


@pytest.mark.parametrize(
    ("base", "kind", "name"),
    [
        ("base", "Deployment", "milliscale-adapter"),
        ("base", "Deployment", "milliscale-autoscaler"),
        ("overlays/sharded", "StatefulSet", "milliscale-autoscaler"),
    ],
)
def test_highly_available_pods_are_on_different_nodes_and_spread_over_zones(
    tmp_path: Path, base: str, kind: str, name: str
) -> None:
    workload = render_with(tmp_path, "high-availability", base=base)[kind, name]
    selector = workload["spec"]["selector"]
    spec = pod_spec(workload)
    assert spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    ]
    (constraint,) = spec["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "topology.kubernetes.io/zone"
    assert constraint["labelSelector"] == selector
    assert constraint["matchLabelKeys"] == ["pod-template-hash"]


def test_highly_available_rollout_needs_no_further_node(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "high-availability")
    for process in ("adapter", "autoscaler"):
        strategy = objects["Deployment", f"milliscale-{process}"]["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_two_of_three_adapters_serve_while_a_node_is_drained(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "high-availability")
    budget = objects["PodDisruptionBudget", "milliscale-adapter"]["spec"]
    assert objects["Deployment", "milliscale-adapter"]["spec"]["replicas"] == 3
    assert ("minAvailable" in budget, budget["maxUnavailable"]) == (False, 1)


def test_shadow_mode_keeps_its_one_replica_with_high_availability(tmp_path: Path) -> None:
    objects = render_with(tmp_path, "high-availability", base="overlays/shadow")
    assert objects["Deployment", "milliscale-autoscaler"]["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("component", "name"),
    [
        ("metric-rules", "metric_rules"),
        ("rules-config-maps", "rules_config_maps"),
        ("hpa-annotations", "hpa_annotations"),
    ],
)
def test_rules_of_namespaces_read_series_of_their_namespace_unless_a_patch_says_otherwise(
    tmp_path: Path, component: str, name: str
) -> None:
    (container,) = pod_spec(render_with(tmp_path, component)["Deployment", "milliscale-adapter"])["containers"]
    command = adapter_main.commands["serve"]
    parser = command.make_parser(click.Context(command))
    given, _, _ = parser.parse_args(list(container["args"]))
    assert given[name]
    assert given["label"] == "namespace"
    given, _, _ = parser.parse_args([*container["args"], "--tenant-label="])
    assert given["label"] == ""


def test_components_of_the_adapter_add_no_autoscaler(tmp_path: Path) -> None:
    rules = ("metric-rules", "rules-config-maps", "hpa-annotations")
    objects = render_with(
        *(tmp_path, "certificates", "adapter-network-policy", "high-availability", *rules), base="overlays/adapter-only"
    )
    processes = {entry["metadata"]["labels"].get("app.kubernetes.io/component") for entry in objects.values()}
    assert processes == {"adapter", None}  # the namespace belongs to both
