"""The kustomize base: it renders, its references exist, it has the needed rights, and it starts our commands."""

import importlib
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from adapter.rules import load_rules
from autoscaler.cli import main as autoscaler_main
from autoscaler.core.config import Mode
from autoscaler.loop.options import Options
from autoscaler.loop.sharding import Shard
from kube.version import VERSION
from playground.binaries import find
from tests.manifests.rendering import render_with
from tools.render_chart import FAST_LOADER

ROOT = Path(__file__).parent.parent.parent
BASE = ROOT / "manifests/base"
SHARDED = ROOT / "manifests/overlays/sharded"
ADAPTER_ONLY = ROOT / "manifests/overlays/adapter-only"
MANAGED = ROOT / "manifests/overlays/managed"
SHADOW = ROOT / "manifests/overlays/shadow"
EXAMPLE = ROOT / "manifests/overlays/example"
CRDS = ROOT / "manifests/crds"

Object = dict[str, Any]


@cache
def kubectl(*arguments: str) -> str:
    return subprocess.run([find("kubectl"), *arguments], check=True, capture_output=True, text=True).stdout


@cache
def render(directory: Path) -> tuple[Object, ...]:
    return tuple(yaml.load_all(kubectl("kustomize", str(directory)), Loader=FAST_LOADER))


def of_kind(kind: str, directory: Path = BASE) -> list[Object]:
    return [obj for obj in render(directory) if obj["kind"] == kind]


def names(kind: str) -> set[tuple[str | None, str]]:
    return {(obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in of_kind(kind)}


def pod_specs() -> dict[str, Object]:
    return {obj["metadata"]["name"]: obj["spec"]["template"]["spec"] for obj in of_kind("Deployment")}


def container(deployment: str) -> Object:
    (only,) = pod_specs()[deployment]["containers"]
    return dict(only)


DEPLOYMENTS = ["milliscale-adapter", "milliscale-autoscaler"]


def test_all_objects_are_in_one_namespace() -> None:
    assert names("Namespace") == {(None, "milliscale")}
    assert names("Deployment") == {("milliscale", name) for name in DEPLOYMENTS}


def test_objects_have_the_recommended_labels() -> None:
    for obj in render(BASE):
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == labels["app.kubernetes.io/part-of"] == "milliscale"
        assert obj["kind"] == "Namespace" or labels["app.kubernetes.io/component"] in ("adapter", "autoscaler")


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_references_of_pods_exist(deployment: str) -> None:
    pod = pod_specs()[deployment]
    assert ("milliscale", pod["serviceAccountName"]) in names("ServiceAccount")
    for volume in pod["volumes"]:
        assert "emptyDir" in volume or ("milliscale", volume["configMap"]["name"]) in names("ConfigMap")
    mounted = {mount["name"] for mount in container(deployment)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_pods_meet_the_restricted_security_standard(deployment: str) -> None:
    pod, process = pod_specs()[deployment], container(deployment)["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert process == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(("deployment", "scheme"), [("milliscale-adapter", "HTTPS"), ("milliscale-autoscaler", "HTTP")])
def test_probes_use_a_port_that_is_served(deployment: str, scheme: str) -> None:
    process = container(deployment)
    ports = {port["name"]: port["containerPort"] for port in process["ports"]}
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = process[probe]["httpGet"]
        assert asked["path"].partition("?")[0] == path
        assert asked.get("scheme", "HTTP") == scheme
        assert asked["port"] in ports
    flag = {"HTTPS": "--secure-port", "HTTP": "--metrics-port"}[scheme]
    assert f"{flag}={next(iter(ports.values()))}" in process["args"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_commands_and_flags_exist(deployment: str) -> None:
    process = container(deployment)
    script, subcommand = process["command"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, attribute = scripts[script].partition(":")
    group: click.Group = getattr(importlib.import_module(module), attribute)
    command = group.commands[subcommand]
    context = click.Context(command, info_name=subcommand)
    given, rest, _ = command.make_parser(context).parse_args(list(process["args"]))
    assert rest == []
    for parameter in command.params:
        if parameter.name in given and not isinstance(parameter.type, click.Path):
            parameter.type_cast_value(context, given[parameter.name])


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_pods_of_the_same_version_prefer_different_nodes(deployment: str) -> None:
    """After a drain all old pods are on one node: if they counted, the new ones would all go to the other one."""
    (workload,) = (each for each in of_kind("Deployment") if each["metadata"]["name"] == deployment)
    (constraint,) = workload["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint == {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "matchLabelKeys": ["pod-template-hash"],
        "labelSelector": workload["spec"]["selector"],
    }


def test_service_sends_requests_only_to_pods_that_are_ready() -> None:
    """A pod that does not listen yet, or is ending, is not ready; one without Prometheus is."""
    assert all("publishNotReadyAddresses" not in service["spec"] for service in of_kind("Service"))
    probe = container("milliscale-adapter")["readinessProbe"]["httpGet"]
    assert probe["path"] == "/readyz?exclude=metrics"


def test_service_targets_the_secure_port() -> None:
    (service,) = of_kind("Service")
    (port,) = service["spec"]["ports"]
    assert port["port"] == 443
    assert port["targetPort"] in {served["name"] for served in container("milliscale-adapter")["ports"]}
    (labels,) = (
        obj["spec"]["template"]["metadata"]["labels"]
        for obj in of_kind("Deployment")
        if obj["metadata"]["name"] == "milliscale-adapter"
    )
    assert service["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_disruption_budgets_leave_one_pod_of_each_process(deployment: str) -> None:
    (workload,) = (obj for obj in of_kind("Deployment") if obj["metadata"]["name"] == deployment)
    (budget,) = (obj["spec"] for obj in of_kind("PodDisruptionBudget") if obj["metadata"]["name"] == deployment)
    assert budget["selector"]["matchLabels"] == workload["spec"]["selector"]["matchLabels"]
    assert workload["spec"]["replicas"] == 2
    assert (budget.get("minAvailable"), budget.get("maxUnavailable")) in {(1, None), (None, 1)}
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_api_services_prefer_v1beta2() -> None:
    services = of_kind("APIService")
    assert {(each["spec"]["group"], each["spec"]["version"], each["spec"]["versionPriority"]) for each in services} == {
        ("custom.metrics.k8s.io", "v1beta1", 100),
        ("custom.metrics.k8s.io", "v1beta2", 200),
        ("external.metrics.k8s.io", "v1beta1", 100),
    }
    for each in services:
        spec = each["spec"]
        assert each["metadata"]["name"] == f"{spec['version']}.{spec['group']}"
        assert (spec["service"]["namespace"], spec["service"]["name"]) in names("Service")


# Roles that every cluster has.
BUILT_IN = {("ClusterRole", "system:auth-delegator"), ("Role", "extension-apiserver-authentication-reader")}


def bindings() -> list[Object]:
    return of_kind("ClusterRoleBinding") + of_kind("RoleBinding")


def test_bindings_refer_to_existing_roles_and_accounts() -> None:
    roles = {(kind, name) for kind in ("ClusterRole", "Role") for _, name in names(kind)} | BUILT_IN
    for binding in bindings():
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        for subject in binding["subjects"]:
            assert (subject["namespace"], subject["name"]) in names("ServiceAccount")
    assert names("RoleBinding") == {
        ("kube-system", "milliscale-adapter-auth-reader"),  # where the Role and its ConfigMap are
        ("milliscale", "milliscale-autoscaler"),
    }


def test_processes_have_the_built_in_roles_for_delegated_authentication() -> None:
    bound = {
        (binding["roleRef"]["name"], subject["name"])
        for binding in bindings()
        for subject in binding["subjects"]
        if (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in BUILT_IN
    }
    assert bound == {(name, "milliscale-adapter") for _, name in BUILT_IN}


def rights(account: str) -> set[tuple[str, str, str]]:
    """Return (group, resource, verb) for each right that our roles give to an account."""
    bound = {
        binding["roleRef"]["name"]
        for binding in bindings()
        for subject in binding["subjects"]
        if subject["name"] == account
    }
    return {
        (group, resource, verb)
        for role in of_kind("ClusterRole")
        if role["metadata"]["name"] in bound
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


READ_METRICS = {("custom.metrics.k8s.io", "*", "get"), ("external.metrics.k8s.io", "*", "list")}


HPA_RIGHTS = [
    ("horizontalpodautoscalers", "list"),
    ("horizontalpodautoscalers", "watch"),
    ("horizontalpodautoscalers/status", "update"),
]


def test_autoscaler_has_the_rights_that_it_needs() -> None:
    assert rights("milliscale-autoscaler") == READ_METRICS | {
        *((group, resource, verb) for group in ("autoscaling", "milliscale.io") for resource, verb in HPA_RIGHTS),
        ("*", "*/scale", "get"),
        ("*", "*/scale", "update"),
        ("", "pods", "list"),
        ("", "pods", "watch"),
        ("apps", "replicasets", "list"),
        ("apps", "replicasets", "watch"),
        *(("apps", kind, verb) for kind in ("deployments", "statefulsets") for verb in ("list", "watch")),
        ("", "events", "create"),
        ("", "events", "patch"),
        ("metrics.k8s.io", "pods", "list"),
    }


def test_adapter_may_list_and_watch_only() -> None:
    assert rights("milliscale-adapter") == {
        ("", resource, verb) for resource in ("namespaces", "nodes", "pods", "services") for verb in ("list", "watch")
    }


def test_starter_rules_load() -> None:
    (config,) = of_kind("ConfigMap")
    assert config["data"] == {"rules.yaml": (BASE / "rules.yaml").read_text()}
    rules = load_rules(BASE / "rules.yaml")
    assert rules.custom
    assert rules.external
    (mount,) = (each for each in container("milliscale-adapter")["volumeMounts"] if each["name"] == "rules")
    assert f"--config={mount['mountPath']}/rules.yaml" in container("milliscale-adapter")["args"]


OWN_RIGHTS = {
    *(("leases", name, verb) for name in ["milliscale-autoscaler"] for verb in ("get", "update", "watch")),
    ("configmaps", "milliscale-autoscaler-state", "update"),
    *(("leases", "", "create"), ("leases", "", "list"), ("configmaps", "", "create"), ("configmaps", "", "list")),
}


def own_rights(directory: Path) -> set[tuple[str, str, str]]:
    """(resource, name or "", verb) of what the autoscaler may do in its own namespace."""
    (role,) = of_kind("Role", directory)
    assert role["metadata"]["namespace"] == "milliscale"
    return {
        (resource, name, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def autoscaler_options(arguments: list[str]) -> Options:
    """What the autoscaler makes of its flags in a pod."""
    found: list[Options] = []

    async def note(options: Options, **_: object) -> None:
        found.append(options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoscaler.cli.run_controller", note)
        patch.setattr("autoscaler.cli.setup_logging", lambda verbosity: None)
        patch.setenv("HOSTNAME", "milliscale-autoscaler-3")
        assert CliRunner().invoke(autoscaler_main, ["run", *arguments]).exit_code == 0
    return found[0]


def test_autoscalers_elect_a_leader_and_save_history() -> None:
    (spec,) = (obj["spec"] for obj in of_kind("Deployment") if obj["metadata"]["name"] == "milliscale-autoscaler")
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    options = autoscaler_options(container("milliscale-autoscaler")["args"]).availability
    assert options.election is not None
    assert options.saved_history is not None
    assert own_rights(BASE) == OWN_RIGHTS
    assert {options.election.name, options.saved_history.name} == {name for _, name, _ in OWN_RIGHTS if name}


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_sharded_overlay_gives_each_shard_two_pods() -> None:
    (spec,) = (obj["spec"] for obj in of_kind("StatefulSet", SHARDED))
    assert [obj["metadata"]["name"] for obj in of_kind("Deployment", SHARDED)] == ["milliscale-adapter"]
    (process,) = spec["template"]["spec"]["containers"]
    options = autoscaler_options(process["args"]).availability
    assert options.shard == Shard(index=1, count=2)
    assert spec["replicas"] == 2 * options.shard.count
    assert options.election is not None
    assert options.saved_history is not None
    for name in (options.election.name, options.shard.name(options.saved_history.name)):
        assert "update" in {verb for _, allowed, verb in own_rights(SHARDED) if allowed == name}


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("base", ["overlays/managed", "base"])
def test_deleting_an_installation_leaves_the_objects_of_users(base: str, tmp_path: Path) -> None:
    """`kubectl delete -k` deletes what it renders, and with a CustomResourceDefinition all of its objects."""
    found = render_with(tmp_path, "metric-rules", base=base)
    assert not [name for kind, name in found if kind == "CustomResourceDefinition"]
    assert {obj["kind"] for folder in (CRDS, CRDS / "metric-rules") for obj in render(folder)} == {
        "CustomResourceDefinition"
    }


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_managed_overlay_manages_its_own_kind_only() -> None:
    changed = [obj for obj in render(MANAGED) if obj not in render(BASE)]
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in changed] == [
        ("ClusterRole", "milliscale-autoscaler"),
        ("Deployment", "milliscale-autoscaler"),
    ]
    role, deployment = changed
    (base,) = (obj for obj in of_kind("ClusterRole") if obj["metadata"]["name"] == "milliscale-autoscaler")
    assert _verbs(role) == {right for right in _verbs(base) if right[0] != "autoscaling"}
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--hpa-apis=milliscale"


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_shadow_overlay_cannot_write() -> None:
    changed = [obj for obj in render(SHADOW) if obj not in render(BASE)]
    assert not of_kind("Role", SHADOW)
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in changed] == [
        ("ClusterRole", "milliscale-autoscaler"),
        ("Deployment", "milliscale-autoscaler"),
    ]
    role, deployment = changed
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    (base,) = (obj for obj in of_kind("ClusterRole") if obj["metadata"]["name"] == "milliscale-autoscaler")
    assert _verbs(role) == {right for right in _verbs(base) if right[2] in ("get", "list", "watch")}
    options = autoscaler_options(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    assert (options.mode, options.availability.election, options.availability.saved_history) == (
        Mode.SHADOW,
        None,
        None,
    )
    assert deployment["spec"]["replicas"] == 1


def _verbs(role: Object) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_adapter_only_overlay_has_no_autoscaler() -> None:
    assert list(render(ADAPTER_ONLY)) == [
        obj for obj in render(BASE) if obj["metadata"]["labels"].get("app.kubernetes.io/component") != "autoscaler"
    ]


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_example_overlay_sets_image_prometheus_and_rules() -> None:
    assert (EXAMPLE / "rules.yaml").read_text() == (BASE / "rules.yaml").read_text()
    (deployment,) = of_kind("Deployment", EXAMPLE)
    (process,) = deployment["spec"]["template"]["spec"]["containers"]
    assert process["image"] == f"registry.example/milliscale:{VERSION}"
    assert [argument for argument in process["args"] if argument.startswith("--prometheus-url=")] == process["args"][:1]
    (rules,) = of_kind("ConfigMap", EXAMPLE)
    assert set(rules["data"]) == {"rules.yaml"}
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert rules["metadata"]["name"] in [volume.get("configMap", {}).get("name") for volume in volumes]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_paths_in_the_docs_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"(?<![\w/])(?:manifests|docs)/[\w./-]*\w", text)
    linked = [str((page.parent / link).relative_to(ROOT)) for link in re.findall(r"\]\((?!http)([\w./-]+)", text)]
    roots = (ROOT, ROOT / "tests")  # docs/security.md names tests without the latter
    paths = [path for path in (*named, *linked) if "/mine" not in path]
    missing = [path for path in paths if not any((root / path).exists() for root in roots)]
    assert not missing
