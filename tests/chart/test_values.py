"""Values that are ours: the schema, messages about wrong values, and effects that kustomize does not have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.rules import parse_rules
from adapter.rules.manifests import load_manifest_rules
from tests.chart.effects import Rendered
from tests.helm_engine import IMAGE, render
from tools.render_chart import CHART, ChartError, Object, load_helm, objects

ON = {"enabled": True}
TLS = {"enable": True, "ca": "CA", "certificate": "C", "key": "K"}


def rendered(
    values: dict[str, Any], *, release: str = "milliscale", namespace: str = "milliscale"
) -> dict[tuple[str, str], Object]:
    found = objects(render(values, release=release, namespace=namespace))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def adapter(values: dict[str, Any]) -> Rendered:
    return Rendered(objects(render(values)))


def schema() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.schema.json").read_text()))


def closed(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every part of the schema whose keys are fixed, with its path."""
    if "properties" in part:
        yield path, part
        for key, inner in part["properties"].items():
            yield from closed(inner, f"{path}.{key}".lstrip("."))


def test_schema_has_exactly_the_keys_of_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, part in closed(schema()):
        assert part["additionalProperties"] is False
        found = values
        for key in path.split(".") if path else ():
            found = found[key]
        unused = set() if path else {"enabled", "global"}  # of a parent chart
        assert part["properties"].keys() - unused == found.keys()


def test_schema_describes_every_key() -> None:
    for _, part in closed(schema()):
        for key, inner in part["properties"].items():
            assert inner["description"].endswith("."), key


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"rules": {"customs": []}}, "at '/rules': additional properties 'customs' not allowed"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"image": {"tag": 1.0}}, "at '/image/tag': got number, want string"),
        ({"metricsRelistInterval": "1 minute"}, "at '/metricsRelistInterval': '1 minute' does not match"),
        ({"prometheus": {"path": "api"}}, "at '/prometheus/path': 'api' does not match"),
        ({"podAnnotations": {"prometheus.io/scrape": True}}, "got boolean, want string"),
        ({"extraArguments": "--v=4"}, "at '/extraArguments': got string, want array"),
        ({"autoscaler": {"mode": "on"}}, "at '/autoscaler/mode': value must be one of 'act', 'dry-run', 'shadow'"),
        ({"autoscaler": {"shards": 0}}, "at '/autoscaler/shards': minimum: got 0, want 1"),
        ({"listenPort": 70000}, "at '/listenPort': maximum: got 70,000, want 65,535"),
        ({"adapter": {"enabled": False}}, "Nothing to install: set adapter.enabled or autoscaler.enabled to true"),
        (
            {"image": {"repository": ""}},
            "image.repository is not set: set it to where your registry has milliscale's image",
        ),
        ({"certManager": ON, "tls": TLS}, "set only one of certManager.enabled and tls.enable"),
        ({"tls": {**TLS, "ca": ""}}, "tls.enable needs tls.ca"),
        ({"tls": {**TLS, "key": ""}}, "tls.enable needs tls.certificate and tls.key (PEM), or tls.existingSecret"),
        ({"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}, "set only one of them"),
        ({"autoscaler": {**ON, "ownHPAs": True, "mode": "shadow"}}, "set autoscaler.ownHPAs to false, or the mode"),
        (
            {"image": {"repository": "registry.k8s.io/prometheus-adapter/prometheus-adapter"}},
            "set image.repository and image.tag to milliscale's",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_message_says_what_is_wrong(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ChartError) as raised:
        render(values)
    assert message in str(raised.value)


def test_addresses_and_debug_endpoints_are_flags() -> None:
    pages = {"adapterURL": "https://adapter.example", "prometheusURL": "http://prometheus:9090", **ON}
    values = {
        "ui": {"prometheusExternalURL": "https://prometheus.example", **ON},
        "debugEndpoints": "off",
        "autoscaler": {"debugEndpoints": "all", "ui": pages, **ON},
    }

    def flags(values: dict[str, Any]) -> set[str]:
        workloads = [each for (kind, _), each in rendered(values).items() if kind == "Deployment"]
        arguments = [each["spec"]["template"]["spec"]["containers"][0]["args"] for each in workloads]
        given = {argument for each in arguments for argument in each}
        return {each for each in given if each.partition("=")[0] in names}

    names = ("--debug-endpoints", "--adapter-ui-url", "--prometheus-external-url")
    assert flags(values) == {
        "--debug-endpoints=off",
        "--debug-endpoints=all",
        "--adapter-ui-url=https://adapter.example",
        "--prometheus-external-url=https://prometheus.example",
    }
    assert "--prometheus-url=http://prometheus:9090" in str(rendered(values)["Deployment", "milliscale-autoscaler"])
    assert flags({"ui": ON, "autoscaler": {"ui": ON, **ON}}) == set()


def test_autoscaler_is_not_installed_by_default() -> None:
    components = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in rendered({}).values()}
    assert components == {"adapter"}


@pytest.mark.parametrize(
    ("rules", "apis"),
    [
        ({"default": False}, set()),
        ({"default": True}, {"v1beta1.custom", "v1beta2.custom"}),
        ({"default": False, "external": [{}]}, {"v1beta1.external"}),
        ({"default": False, "forwardExternal": {"url": "https://keda"}}, {"v1beta1.external"}),
        ({"default": False, "forwardExternal": [{"name": "keda", "url": "https://keda"}]}, {"v1beta1.external"}),
        ({"default": False, "resource": {"cpu": {}}}, {"v1beta1"}),
    ],
)
def test_only_apis_with_rules_are_registered(rules: dict[str, Any], apis: set[str]) -> None:
    registered = {name for kind, name in rendered({"rules": rules}) if kind == "APIService"}
    assert registered == {f"{api}.metrics.k8s.io" for api in apis}


@pytest.mark.parametrize("value", ["enabled", "configMaps", "hpaAnnotations"])
def test_apis_of_rules_in_objects_are_registered(value: str) -> None:
    found = rendered({"rules": {"default": False}, "metricRules": {value: True}})
    registered = {name for kind, name in found if kind == "APIService"}
    assert registered == {f"{api}.metrics.k8s.io" for api in ("v1beta1.custom", "v1beta2.custom", "v1beta1.external")}


def test_adapter_can_be_installed_beside_another_one() -> None:
    values = {"apiService": {"custom": False, "external": False, "resource": False}, "rules": {"external": [{}]}}
    assert "APIService" not in {kind for kind, _ in rendered(values)}


def test_rules_file_without_rules_is_valid() -> None:
    config = rendered({"rules": {"default": False}})["ConfigMap", "milliscale-rules"]
    assert parse_rules(config["data"]["rules.yaml"], source="rules.yaml").all_rules == ()


def test_default_rules_precede_custom_rules() -> None:
    custom = {"seriesQuery": "up", "resources": {"template": "<<.Resource>>"}, "metricsQuery": "<<.Series>>"}
    rules = adapter({"rules": {"custom": [custom]}}).rules()["rules"]
    assert (len(rules), rules[-1]) == (7, custom)


def test_check_command_finds_the_rules_of_a_values_file(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(
        "rules:\n"
        "  default: false\n"
        "  prometheusServers: {mimir: {url: 'https://mimir.example/prometheus'}}\n"
        "  external:\n"
        "  - {seriesQuery: queue_depth, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})', prometheus: mimir}\n"
    )
    (found,) = load_manifest_rules(path)
    assert [rule.prometheus for rule in found.rules.external] == ["mimir"]
    in_cluster = rendered(yaml.safe_load(path.read_text()))["ConfigMap", "milliscale-rules"]["data"]["rules.yaml"]
    assert parse_rules(in_cluster, source="rules.yaml") == found.rules


def test_changed_rules_roll_the_pods_and_a_new_chart_version_alone_does_not(tmp_path: Path) -> None:
    helm = load_helm()

    def pods(values: dict[str, Any], version: str) -> Object:
        with helm.Chart.load(helm.package(CHART, destination=tmp_path, version=version)) as chart:
            text = chart.render(values, name="milliscale", namespace="shop")
        return dict(yaml.safe_load(text["milliscale/templates/adapter-deployment.yaml"])["spec"]["template"])

    assert pods(IMAGE, "1.0.0") == pods(IMAGE, "1.0.1")
    assert pods(IMAGE, "1.0.0") != pods({**IMAGE, "rules": {"default": False}}, "1.0.0")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"minAvailable": 1}),
        ({"replicas": 1}, {"maxUnavailable": 1}),  # minAvailable would keep its node from being drained
        ({"highAvailability": ON}, {"maxUnavailable": 1}),
        ({"podDisruptionBudget": {"minAvailable": "50%"}}, {"minAvailable": "50%"}),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, {"maxUnavailable": 0}),
        ({"podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": ""}}, {"minAvailable": 2}),
    ],
)
def test_disruption_budget_allows_one_unavailable_pod_unless_given(values: dict[str, Any], expected: Object) -> None:
    assert adapter(values).budget() == [expected]


@pytest.mark.parametrize(("replicas", "expected"), [(1, 3), (2, 3), (5, 5)])
def test_highly_available_adapter_has_at_least_three_replicas(replicas: int, expected: int) -> None:
    deployment = adapter({"replicas": replicas, "highAvailability": ON}).deployment
    assert deployment["spec"]["replicas"] == expected


def test_resources_affinity_and_strategy_replace_the_defaults_as_a_whole() -> None:
    given = adapter(
        {
            "resources": {"limits": {"memory": "128Mi"}},
            "affinity": {"nodeAffinity": {}},
            "strategy": {"type": "Recreate"},
        }
    )
    assert given.container["resources"] == {"limits": {"memory": "128Mi"}}
    assert given.pod["affinity"] == {"nodeAffinity": {}}
    assert given.deployment["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(("replicas", "surge"), [(2, 0), (1, 1)])
def test_rollout_on_the_network_of_nodes_needs_no_further_node(replicas: int, surge: int) -> None:
    strategy = adapter({"hostNetwork": ON, "replicas": replicas}).deployment["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": surge, "maxUnavailable": 1 - surge}


def test_null_removes_the_user_as_openshift_needs() -> None:
    """Helm's engine removes keys that are null."""
    found = adapter({"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}})
    assert found.pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_dry_run_may_write_events_only() -> None:
    found = rendered({"autoscaler": {**ON, "mode": "dry-run"}})
    workload = found["Deployment", "milliscale-autoscaler"]["spec"]
    assert workload["replicas"] == 1
    assert "--mode=dry-run" in workload["template"]["spec"]["containers"][0]["args"]
    rules = found["ClusterRole", "milliscale-autoscaler"]["rules"]
    writes = {(*rule["resources"], verb) for rule in rules for verb in rule["verbs"]}
    assert {entry for entry in writes if entry[-1] not in ("get", "list", "watch")} == {
        ("events", "create"),
        ("events", "patch"),
    }


def test_certificate_of_an_existing_secret_is_mounted() -> None:
    found = rendered({"tls": {"enable": True, "ca": "CA", "existingSecret": "mine"}})
    assert "Secret" not in {kind for kind, _ in found}
    pod = found["Deployment", "milliscale-adapter"]["spec"]["template"]["spec"]
    assert {"name": "tls", "secret": {"secretName": "mine"}} in pod["volumes"]
    assert found["APIService", "v1beta1.custom.metrics.k8s.io"]["spec"]["caBundle"] == "Q0E="


def test_certificate_is_requested_from_the_given_issuer() -> None:
    issuer = {"name": "corp", "kind": "ClusterIssuer"}
    found = rendered({"certManager": {**ON, "issuerRef": issuer}})
    assert [name for kind, name in found if kind in ("Issuer", "Certificate")] == ["milliscale-adapter"]
    assert found["Certificate", "milliscale-adapter"]["spec"]["issuerRef"] == issuer


@pytest.mark.parametrize(
    ("values", "plural"),
    [
        ({"autoscaler": {**ON, "ownHPAs": True}}, "horizontalpodautoscalers"),
        ({"metricRules": ON}, "metricrules"),
        ({"metricRules": ON}, "clustermetricrules"),
    ],
)
def test_crd_is_upgraded_with_the_release_and_kept_without_it(values: dict[str, Any], plural: str) -> None:
    key = ("CustomResourceDefinition", f"{plural}.milliscale.io")
    assert rendered(values)[key]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in rendered({**values, "crds": {"keep": False}})[key]["metadata"]
    assert key not in rendered({**values, "crds": {"enabled": False}})


@pytest.mark.parametrize("value", ["enabled", "configMaps", "hpaAnnotations"])
def test_rules_of_namespaces_read_series_of_their_namespace_unless_told_otherwise(value: str) -> None:
    def labels(**values: Any) -> list[str]:
        container = adapter({"metricRules": values}).container
        return [argument for argument in container["args"] if "tenant" in argument]

    assert labels(**{value: True}) == ["--tenant-label=namespace"]
    assert labels(**{value: True, "tenantLabel": "kubernetes_namespace"}) == ["--tenant-label=kubernetes_namespace"]
    assert labels(**{value: True, "tenantLabel": ""}) == []
    assert labels() == []


def test_users_who_edit_a_namespace_write_its_metric_rules_unless_told_otherwise() -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-edit"
    key = ("ClusterRole", "milliscale-metric-rule-editor")
    assert label in rendered({"metricRules": ON})[key]["metadata"]["labels"]
    assert label not in rendered({"metricRules": {**ON, "aggregateToEdit": False}})[key]["metadata"]["labels"]


def test_network_policy_admits_the_given_peers() -> None:
    peer = {"ipBlock": {"cidr": "10.0.0.0/28"}}
    found = rendered({"networkPolicy": {**ON, "adapterFrom": [peer], "metricsFrom": []}, "autoscaler": ON})
    (rule,) = found["NetworkPolicy", "milliscale-adapter"]["spec"]["ingress"]
    assert rule["from"] == [peer]
    (rule,) = found["NetworkPolicy", "milliscale-autoscaler"]["spec"]["ingress"]
    assert rule == {"ports": [{"port": "ui"}]}


def test_no_role_is_rendered_without_rbac_create() -> None:
    values = {"rbac": {"create": False}, "autoscaler": {**ON, "ui": ON}, "ui": ON, "serviceAccount": {"create": False}}
    found = rendered(values)
    assert not [kind for kind, _ in found if "Role" in kind]
    assert found["Deployment", "milliscale-adapter"]["spec"]["template"]["spec"]["serviceAccountName"] == "default"


def test_another_release_and_namespace_have_names_and_alerts_of_their_own() -> None:
    found = rendered({"monitoring": ON, "autoscaler": ON}, release="team-a", namespace="shop")
    scoped = {name for (_, name), each in found.items() if "namespace" in each["metadata"]}
    assert all(name.startswith("team-a-milliscale") for name in scoped)
    assert {each["metadata"].get("namespace") for each in found.values()} == {None, "shop", "kube-system"}
    alerts = yaml.safe_dump(found["PrometheusRule", "team-a-milliscale-adapter"])
    assert 'job="team-a-milliscale-adapter"' in alerts
    assert 'job="milliscale-adapter"' not in alerts
    alerts = yaml.safe_dump(found["PrometheusRule", "team-a-milliscale-autoscaler"])
    assert 'job="shop/team-a-milliscale-autoscaler"' in alerts
    assert 'job="milliscale/' not in alerts


def test_names_stay_within_kubernetes_limits() -> None:
    found = rendered({"autoscaler": {**ON, "shards": 2, "ui": ON}}, release="a" * 53)
    (workload,) = (name for kind, name in found if kind == "StatefulSet")
    assert len(workload) <= 52
    assert all(len(name) <= 63 for kind, name in found if kind == "Service")


def test_names_that_look_like_numbers_are_strings() -> None:
    names = {
        "fullnameOverride": "1e3",
        "nameOverride": "7",
        "priorityClassName": "8",
        "image": {"pullSecrets": ["9"]},
        "rules": {"existing": "10"},
        "serviceAccount": {"name": "11"},
        "tls": {"enable": True, "ca": "CA", "existingSecret": "12"},
        "autoscaler": {**ON, "priorityClassName": "13", "serviceAccount": {"name": "14"}},
    }

    def strings(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for inner, item in value.items():
                named = inner in ("name", "namespace", "priorityClassName", "serviceAccountName", "secretName")
                if named or key in ("labels", "matchLabels", "selector"):
                    yield inner, item
                yield from strings(item, inner)
        elif isinstance(value, list):
            for item in value:
                yield from strings(item)

    found = list(strings(list(rendered(names, release="42", namespace="2026").values())))
    assert len(found) > 100
    assert [(key, value) for key, value in found if not isinstance(value, str | dict)] == []


def test_runbooks_have_the_given_address() -> None:
    found = rendered({"monitoring": {**ON, "runbookURL": "https://git.example/", "labels": {"release": "prom"}}})
    rule = found["PrometheusRule", "milliscale-adapter"]
    assert rule["metadata"]["labels"]["release"] == "prom"
    assert "https://git.example/docs/runbooks.md#milliscaleadapterdown" in yaml.safe_dump(rule)


def test_notes_name_the_choice() -> None:
    assert "rules.default is on" in render({})["NOTES.txt"]
    notes = render({"rules": {"default": False}, "autoscaler": ON})["NOTES.txt"]
    assert "rules.default is on" not in notes
    assert "RUN ONE CONTROLLER ONLY" in notes
    assert "RUN ONE CONTROLLER ONLY" not in render({"autoscaler": {**ON, "ownHPAs": True}})["NOTES.txt"]
