"""ScaledObjects, as people write them, become MetricRules and HPAs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from promql_parser import BinaryExpr

from adapter.promql import parse
from adapter.promql.tree import bare, operator
from adapter.rules import parse_rules
from adapter.rules.objects import Tenancy, read_object
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from kubectl_milliscale.keda.manifests import KedaManifests, ManifestError, read_manifests
from kubectl_milliscale.keda.scaled import Migrated, Migration
from kubectl_milliscale.keda.servers import Servers

DATA = Path("tests/data/keda")
PROMETHEUS = "http://prometheus.monitoring:9090"
IDLE: dict[str, Any] = {"minReplicaCount": 3, "idleReplicaCount": 0}
TO_ZERO = (
    "minReplicas 0 needs the feature gate HPAScaleToZero (on since Kubernetes 1.37), or an HPA of milliscale.io/v1"
    " (--hpa-version)"
)
QUERY = {"serverAddress": PROMETHEUS, "query": "sum(up)", "threshold": "5"}


def moved(manifests: KedaManifests, servers: Servers | None = None) -> list[Migrated]:
    migration = Migration(servers=servers or Servers(), authentications=manifests.authentications)
    return list(map(migration.migrate, manifests.scaled))


def scaled_object(*triggers: dict[str, Any], name: str = "web", **spec: Any) -> str:
    metadata = {"name": name, "namespace": "shop", **spec.pop("metadata", {})}
    full = {"scaleTargetRef": {"name": "web"}, "triggers": list(triggers), **spec}
    return yaml.safe_dump(
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": full}
    )


def one(*triggers: dict[str, Any], servers: Servers | None = None, **spec: Any) -> Migrated:
    [result] = moved(read_manifests(scaled_object(*triggers, **spec), source="x"), servers)
    return result


def prometheus(**metadata: Any) -> dict[str, Any]:
    return {"type": "prometheus", "metadata": {**QUERY, **metadata}}


def cron(**metadata: Any) -> dict[str, Any]:
    given = {"timezone": "Europe/Berlin", "start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "desiredReplicas": "4"}
    return {"type": "cron", "metadata": {**given, **metadata}}


def rule(result: Migrated) -> dict[str, Any]:
    [found] = [each["spec"] for each in result.objects if each["kind"] == "MetricRule"]
    return dict(found)


def hpa(result: Migrated) -> dict[str, Any]:
    assert not [problem for problem in result.problems if problem.startswith("not moved")], result.problems
    return dict(result.objects[-1])


def target(result: Migrated) -> dict[str, Any]:
    [metric] = hpa(result)["spec"]["metrics"]
    return dict(metric["external"]["target"])


@pytest.mark.parametrize("file", ["rendered.yaml", "exported.yaml"])
def test_objects_are_valid(file: str) -> None:
    servers = Servers()
    objects = [
        each
        for result in moved(read_manifests((DATA / file).read_text(), source=file), servers)
        for each in result.objects
    ]
    known = parse_rules(yaml.safe_dump({"prometheusServers": servers.entries}), source="x").prometheus_servers
    for each in objects:
        if each["kind"] == "MetricRule":
            read = read_object(each, servers=known, tenancy=Tenancy(label="namespace"))
            assert (read.error, len(read.rules)) == ("", 1)
        else:
            each["metadata"].setdefault("namespace", "shop")
            assert validate_hpa(default_hpa(each), scale_to_zero=True) == []
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    assert {each["kind"] for each in objects} == {"MetricRule", "HorizontalPodAutoscaler"}


def test_rendered_chart_keeps_bounds_behavior_and_each_trigger() -> None:
    [result] = moved(read_manifests((DATA / "rendered.yaml").read_text(), source="x"))
    rules, made = result.objects[:-1], result.objects[-1]
    written = next(yaml.safe_load_all((DATA / "rendered.yaml").read_text().split("---")[-1]))["spec"]
    assert made["metadata"]["name"] == "web"
    assert "namespace" not in made["metadata"], "the manifest has none: kubectl apply -n sets it"
    spec = made["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 20)
    assert spec["behavior"] == written["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert [each["spec"]["metric"] for each in rules] == ["web-scaledobject-prometheus", "web-scaledobject-latency"]
    assert [each["spec"]["query"] for each in rules] == [
        written["triggers"][0]["metadata"]["query"],
        written["triggers"][1]["metadata"]["query"].strip(),
    ]
    metrics = spec["metrics"]
    assert [metric["type"] for metric in metrics] == ["External", "External", "Resource", "ContainerResource"]
    assert metrics[1]["external"]["target"] == {"type": "AverageValue", "averageValue": "250m"}
    assert metrics[2]["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    assert metrics[3]["containerResource"] == {
        "name": "memory",
        "container": "app",
        "target": {"type": "AverageValue", "averageValue": "512Mi"},
    }
    assert result.problems == []


def test_exported_list_is_read_without_status_and_with_its_authentication() -> None:
    servers = Servers()
    office, export = moved(read_manifests((DATA / "exported.yaml").read_text(), source="x"), servers)
    assert office.problems == [TO_ZERO]
    assert [each["metadata"]["name"] for each in office.objects] == ["office-cron", "office-cron-2", "office"]
    assert office.objects[0]["metadata"] == {"name": "office-cron", "namespace": "tools", "labels": {"team": "tools"}}
    assert hpa(office)["spec"]["scaleTargetRef"]["kind"] == "Rollout"
    assert office.objects[1]["spec"]["schedule"]["windows"] == [
        {"start": "0 11 * * MON-FRI", "end": "0 13 * * MON-FRI", "value": 3}
    ]
    assert servers.entries == {
        "mimir": {
            "url": "https://mimir.example/prometheus",
            "headers": {"X-Scope-OrgID": "shop", "X-Source": "keda"},
            "tokenFile": "/etc/milliscale/mimir/token",
            "caFile": "/etc/milliscale/mimir/ca.crt",
            "tenants": True,
        }
    }
    problem, gate = export.problems
    assert gate == TO_ZERO
    assert problem == (
        "triggers[0] (prometheus): mount a Secret with token, ca.crt at /etc/milliscale/mimir into the adapter's pod"
        " (from bearerToken: key token of Secret mimir-credentials, ca: key ca.crt of Secret mimir-credentials)"
    )
    assert rule(export)["prometheus"] == "mimir"


@pytest.mark.parametrize(
    ("threshold", "metric_type", "expected"),
    [
        ("5", "", {"type": "AverageValue", "averageValue": "5"}),
        ("100.50", "AverageValue", {"type": "AverageValue", "averageValue": "100500m"}),
        ("1e3", "Value", {"type": "Value", "value": "1k"}),
        (0.25, "", {"type": "AverageValue", "averageValue": "250m"}),
        (" 7 ", "", {"type": "AverageValue", "averageValue": "7"}),
        ("0.0019", "", {"type": "AverageValue", "averageValue": "1m"}),
    ],
)
def test_threshold_becomes_the_target(threshold: object, metric_type: str, expected: dict[str, str]) -> None:
    assert target(one({**prometheus(threshold=threshold), "metricType": metric_type})) == expected


@pytest.mark.parametrize(
    ("ignored", "expected"),
    [
        ({}, {"empty": "zero", "inf": "zero"}),
        ({"ignoreNullValues": "true"}, {"empty": "zero", "inf": "zero"}),
        ({"ignoreNullValues": "False"}, {"nan": "missing"}),
        ({"ignoreNullValues": False}, {"nan": "missing"}),
    ],
)
def test_null_values_are_zero_unless_ignore_null_values_is_false(ignored: Any, expected: dict[str, str]) -> None:
    made = rule(one(prometheus(**ignored), minReplicaCount=1))
    assert {key: value for key, value in made.items() if key in ("empty", "inf", "nan")} == expected


@pytest.mark.parametrize(
    ("counts", "replicas"),
    [
        ({}, (0, 100)),
        ({"minReplicaCount": 0, "maxReplicaCount": 7}, (0, 7)),
        ({"minReplicaCount": 3}, (3, 100)),
        ({"minReplicaCount": 3, "idleReplicaCount": 0}, (0, 100)),
        ({"minReplicaCount": "2", "maxReplicaCount": "9"}, (2, 9)),
    ],
)
def test_replica_counts_become_the_bounds(counts: dict[str, Any], replicas: tuple[int, int]) -> None:
    spec = hpa(one(prometheus(), **counts))["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == replicas


def test_resource_triggers_alone_never_scale_to_zero() -> None:
    cpu = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "65", "activationThreshold": "25"}}
    result = one(cpu, minReplicaCount=0)
    assert hpa(result)["spec"]["minReplicas"] == 1
    assert result.notes == [
        "triggers[0] (cpu): metadata.activationThreshold is no key of KEDA's trigger cpu, and is ignored"
    ]


def test_activation_threshold_is_moved_only_if_the_target_scales_to_zero() -> None:
    assert rule(one(prometheus(activationThreshold="2")))["activation"] == {"threshold": "2.001"}
    assert rule(one(prometheus(activationThreshold="0.5")))["activation"] == {"threshold": "0.501"}
    assert "activation" not in rule(one(prometheus(activationThreshold="2"), minReplicaCount=1))
    assert "activation" not in rule(one(prometheus()))


def test_threshold_of_less_than_a_thousandth_and_metadata_type_are_noted() -> None:
    assert one(prometheus(threshold="0.0019"), minReplicaCount=1).notes == [
        "triggers[0] (prometheus): threshold 0.0019: 1m, as KEDA up to 2.19 cuts it; later ones use 2m"
    ]
    cpu = {"type": "cpu", "metadata": {"type": "Utilization", "value": "65"}}
    assert one(cpu).notes == [
        "triggers[0] (cpu): metadata.type was removed in KEDA 2.18: without metricType, KEDA 2.18 refuses the trigger"
    ]


def test_query_with_an_operator_is_compared_as_a_whole() -> None:
    result = one(prometheus(query="sum(jobs) or vector(0)"), minReplicaCount=3, idleReplicaCount=0)
    product = parse(rule(result)["query"])
    assert isinstance(product, BinaryExpr)
    comparison = bare(product.rhs)
    assert isinstance(comparison, BinaryExpr)
    assert operator(comparison) == ">"
    inner = bare(comparison.lhs)
    assert isinstance(inner, BinaryExpr)
    assert operator(inner) == "or"


def test_idle_replica_count_lets_active_triggers_have_the_least_replicas() -> None:
    result = one(prometheus(activationThreshold="2"), minReplicaCount=3, idleReplicaCount=0)
    assert " ".join(rule(result)["query"].split()) == "clamp_min( sum(up) , 15) * (( sum(up) ) > bool 2)"
    scheduled = one(cron(desiredReplicas="2"), minReplicaCount=3, idleReplicaCount=0)
    assert rule(scheduled)["schedule"]["windows"][0]["value"] == 3


def behavior(window: int | None) -> dict[str, Any]:
    rules = {"scaleDown": {"stabilizationWindowSeconds": window}} if window is not None else None
    return {"horizontalPodAutoscalerConfig": {"behavior": rules}}


@pytest.mark.parametrize(
    ("cooldown", "window", "held"),
    [
        *((None, None, None), (300, None, None), (100, None, None), (30, 60, None)),
        *((600, None, "300s"), (600, 60, "540s"), (None, 60, "240s"), (301, None, "1s"), (10**6, 300, "86400s")),
    ],
)
def test_metrics_are_zero_after_the_rest_of_the_cooldown_period(
    cooldown: int | None, window: int | None, held: str | None
) -> None:
    """An HPA scales down after its window: in all, the step to zero waits as long as KEDA's."""
    spec: dict[str, Any] = {"cooldownPeriod": cooldown} if cooldown is not None else {}
    result = one(prometheus(), advanced=behavior(window), **spec)
    assert rule(result).get("activation") == ({"threshold": "0.001", "for": held} if held else None)
    rules = hpa(result)["spec"].get("behavior", {}).get("scaleDown", {})
    assert rules.get("stabilizationWindowSeconds") == window, "other scale-downs wait as in KEDA"
    kept = one(prometheus(), minReplicaCount=1, **spec)
    assert "activation" not in rule(kept), "with one replica or more KEDA has no cooldown"
    active = one(prometheus(activationThreshold="2"), advanced=behavior(window), **spec)
    assert rule(active)["activation"] == {"threshold": "2.001", **({"for": held} if held else {})}


@pytest.mark.parametrize(
    ("cooldown", "window", "expected"),
    [(300, None, None), (100, None, None), (600, None, 600), (600, 60, 600), (30, 60, 60), (9000, None, 3600)],
)
def test_window_is_the_cooldown_period_of_schedules(cooldown: int, window: int | None, expected: int | None) -> None:
    for triggers, counts in (([cron()], {}), ([prometheus(), cron()], {}), ([prometheus()], IDLE)):
        result = one(*triggers, advanced=behavior(window), cooldownPeriod=cooldown, **counts)
        rules = hpa(result)["spec"].get("behavior", {}).get("scaleDown", {})
        assert rules.get("stabilizationWindowSeconds") == expected
        assert not [each for each in result.objects if "activation" in each["spec"]]
        assert [note for note in result.notes if note.startswith("cooldownPeriod")] or cooldown == (window or 300)


def test_pauses_become_policies_and_annotations() -> None:
    annotations = {
        "autoscaling.keda.sh/paused-scale-in": "true",
        "autoscaling.keda.sh/paused-scale-out": "",
        "autoscaling.keda.sh/paused": "false",
        "autoscaling.keda.sh/force-activation": "true",
    }
    result = one(prometheus(), minReplicaCount=1, metadata={"annotations": annotations})
    disabled = {"selectPolicy": "Disabled"}
    assert hpa(result)["spec"]["behavior"] == {"scaleDown": disabled, "scaleUp": disabled}
    assert "annotations" not in hpa(result)["metadata"]
    assert result.problems == ["annotation force-activation: raise minReplicas while you need it"]
    paused = one(
        prometheus(), minReplicaCount=1, metadata={"annotations": {"autoscaling.keda.sh/paused-replicas": "5"}}
    )
    assert hpa(paused)["metadata"]["annotations"] == {"milliscale.io/paused": "all"}
    assert paused.problems == ["annotation paused-replicas: scale the target to 5 replicas yourself"]


@pytest.mark.parametrize(
    ("fallback", "annotations"),
    [
        ({"failureThreshold": 3, "replicas": 6}, {"replicas": "6", "failure-threshold": "3"}),
        ({"failureThreshold": 0, "replicas": 6}, {"replicas": "6", "failure-threshold": "1"}),
        ({"failureThreshold": 3, "replicas": 6, "behavior": "currentReplicas"}, {}),
    ],
)
def test_fallback_becomes_annotations_of_our_autoscaler(fallback: dict[str, Any], annotations: dict[str, str]) -> None:
    metadata = hpa(one(prometheus(), fallback=fallback))["metadata"]
    expected = {f"milliscale.io/fallback-{key}": value for key, value in annotations.items()}
    assert metadata.get("annotations", {}) == expected


@pytest.mark.parametrize(
    ("metadata", "entry"),
    [
        ({}, {"url": PROMETHEUS}),
        ({"serverAddress": f"{PROMETHEUS}/"}, {"url": PROMETHEUS}),
        ({"unsafeSsl": "true"}, {"url": PROMETHEUS, "insecureSkipVerify": True}),
        ({"timeout": 5000}, {"url": PROMETHEUS, "timeout": "5000ms"}),
        ({"timeout": "5s"}, {"url": PROMETHEUS, "timeout": "5s"}),
        ({"namespace": "shop"}, {"url": PROMETHEUS, "queryParameters": {"namespace": "shop"}}),
        ({"cortexOrgID": "my-org"}, {"url": PROMETHEUS, "headers": {"X-Scope-OrgID": "my-org"}}),
        ({"queryParameters": "a=b, c=d"}, {"url": PROMETHEUS, "queryParameters": {"a": "b", "c": "d"}}),
        ({"awsRegion": "eu-west-1"}, {"url": PROMETHEUS, "auth": {"sigv4": {"region": "eu-west-1"}}}),
        (
            {"authModes": "tls, basic"},
            {
                "url": PROMETHEUS,
                "username": "USERNAME",
                "certFile": "/etc/milliscale/prometheus/tls.crt",
                "keyFile": "/etc/milliscale/prometheus/tls.key",
                "passwordFile": "/etc/milliscale/prometheus/password",
            },
        ),
    ],
)
def test_server_of_a_trigger_is_an_entry_for_the_rules_file(metadata: dict[str, str], entry: dict[str, Any]) -> None:
    servers = Servers()
    assert rule(one(prometheus(**metadata), servers=servers))["prometheus"] == "prometheus"
    assert servers.entries == {"prometheus": {**entry, "tenants": True}}
    parse_rules(yaml.safe_dump({"prometheusServers": servers.entries}), source="x")


def test_servers_are_shared_by_address_and_credentials() -> None:
    known = parse_rules(
        "prometheusServers: {thanos: {url: 'http://thanos.monitoring:9090/', tenants: true}}", source="x"
    )
    servers = Servers(default_url=f"{PROMETHEUS}/", known=known.prometheus_servers.values())
    addresses = [
        *(PROMETHEUS, "http://prometheus.monitoring.svc.cluster.local:9090"),
        *("http://thanos.monitoring.svc:9090", "http://prometheus.other:9090", "http://prometheus.other.svc:9090/"),
        *("http://prometheus.third:9090", "http://10.0.122.197:8084"),
    ]
    names = [
        rule(one(prometheus(serverAddress=address), servers=servers)).get("prometheus", "") for address in addresses
    ]
    assert names == ["", "", "thanos", "prometheus", "prometheus", "prometheus-third", "10-0-122-197"]
    tenant = rule(one(prometheus(customHeaders="X-Scope-OrgID=a"), servers=servers))["prometheus"]
    assert servers.entries[tenant]["headers"] == {"X-Scope-OrgID": "a"}


def test_known_server_that_is_not_for_namespaces_is_a_problem() -> None:
    known = parse_rules(f"prometheusServers: {{main: {{url: '{PROMETHEUS}'}}}}", source="x").prometheus_servers
    result = one(prometheus(), minReplicaCount=1, servers=Servers(known=known.values()))
    assert rule(result)["prometheus"] == "main"
    assert result.problems == ["triggers[0] (prometheus): set prometheusServers.main.tenants: true in the rules file"]


def test_azure_and_google_identities_are_those_of_the_adapter() -> None:
    for provider, expected in (("gcp", {"google": {}}), ("azure-workload", {"azure": {"clientId": "c"}})):
        trigger = {**prometheus(), "authenticationRef": {"name": "cloud", "kind": "ClusterTriggerAuthentication"}}
        identity = {"provider": provider, "identityId": "c"}
        authentication = {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ClusterTriggerAuthentication",
            "metadata": {"name": "cloud"},
            "spec": {"podIdentity": identity},
        }
        text = f"{scaled_object(trigger)}---\n{yaml.safe_dump(authentication)}"
        servers = Servers()
        [result] = moved(read_manifests(text, source="x"), servers)
        assert servers.entries["prometheus"]["auth"] == expected
        assert "give the adapter's own service account the right" in result.problems[0]


@pytest.mark.parametrize("metadata", [{"awsRegion": "eu-west-1"}, {"authModes": "bearer"}, {"namespace": "shop"}])
def test_server_with_the_same_address_and_other_credentials_is_another_one(metadata: dict[str, str]) -> None:
    known = parse_rules(f"prometheusServers: {{thanos: {{url: '{PROMETHEUS}', tenants: true}}}}", source="x")
    for servers in (Servers(default_url=PROMETHEUS), Servers(known=known.prometheus_servers.values())):
        assert rule(one(prometheus(**metadata), servers=servers))["prometheus"] == "prometheus"


def test_role_of_a_pod_identity_is_assumed() -> None:
    trigger = {**prometheus(awsRegion="eu-west-1"), "authenticationRef": {"name": "aws"}}
    manifests = read_manifests(scaled_object(trigger), source="x")
    for identity, role in (({"roleArn": "arn:aws:iam::1:role/a"}, {"roleArn": "arn:aws:iam::1:role/a"}), ({}, {})):
        authentications = {("TriggerAuthentication", "shop", "aws"): {"podIdentity": {"provider": "aws", **identity}}}
        servers = Servers()
        Migration(servers=servers, authentications=authentications).migrate(manifests.scaled[0])
        assert servers.entries["prometheus"]["auth"] == {"sigv4": {"region": "eu-west-1", **role}}


def test_azure_clouds_have_their_scopes() -> None:
    trigger = {**prometheus(cloud="AzureUSGovernmentCloud"), "authenticationRef": {"name": "cloud"}}
    private = {"cloud": "Private", "azureManagedPrometheusResourceURL": "https://prometheus.example/.default"}
    for metadata, scope in (
        ({"cloud": "AzureUSGovernmentCloud"}, "https://prometheus.monitor.azure.us/.default"),
        (private, "https://prometheus.example/.default"),
    ):
        trigger = {**prometheus(**metadata), "authenticationRef": {"name": "cloud"}}
        manifests = read_manifests(scaled_object(trigger), source="x")
        identity = {("TriggerAuthentication", "shop", "cloud"): {"podIdentity": {"provider": "azure-workload"}}}
        servers = Servers()
        Migration(servers=servers, authentications=identity).migrate(manifests.scaled[0])
        assert servers.entries["prometheus"]["auth"] == {"azure": {"scope": scope}}


def test_template_that_is_not_rendered_is_refused() -> None:
    for field in ("name", "namespace"):
        text = scaled_object(prometheus()).replace(
            f"{field}: {'web' if field == 'name' else 'shop'}", f"{field}: ${{APP}}"
        )
        manifests = read_manifests(text, source="x")
        assert manifests.scaled == []
        [(_, reason)] = manifests.unreadable
        assert reason == "'${APP}' is no name of an object; render the template first"


def test_names_do_not_collide() -> None:
    text = "---\n".join(
        [
            scaled_object({**prometheus(), "name": "b-c"}, name="a"),
            scaled_object({**prometheus(), "name": "c"}, name="a-b"),
            scaled_object(prometheus(), {**prometheus(), "name": "Requests per second"}, prometheus(), name="x"),
        ]
    )
    results = moved(read_manifests(text, source="x"))
    assert [each["metadata"]["name"] for result in results for each in result.objects[:-1]] == [
        *("a-b-c", "a-b-c-2", "x-prometheus", "x-requests-per-second", "x-prometheus-2")
    ]
    metrics = [metric["external"]["metric"]["name"] for metric in hpa(results[2])["spec"]["metrics"]]
    assert metrics == ["x-prometheus", "x-requests-per-second", "x-prometheus-2"]


@pytest.mark.parametrize(
    ("triggers", "spec", "reason"),
    [
        ([{"type": "kafka", "metadata": {}}, prometheus()], {}, "triggers[0] (kafka): only prometheus, cron"),
        ([prometheus(threshold="many")], {}, "triggers[0] (prometheus): threshold: 'many' is no number"),
        ([prometheus(threshold="0")], {}, "triggers[0] (prometheus): threshold: must be at least 0.001, got 0"),
        ([prometheus(query="")], {}, "triggers[0] (prometheus): it has no metadata.query"),
        ([prometheus(ignoreNullValues="maybe")], {}, "triggers[0] (prometheus): ignoreNullValues: expected true or"),
        ([prometheus(customHeaders="X")], {}, "triggers[0] (prometheus): customHeaders: expected name=value"),
        ([prometheus(serverAddress="prometheus:9090")], {}, "triggers[0] (prometheus): not a URL of a Prometheus"),
        ([prometheus(serverAddress="http://[")], {}, "triggers[0] (prometheus): "),
        ([{**prometheus(), "metricType": "Utilization"}], {}, "triggers[0] (prometheus): metricType: expected"),
        ([cron(desiredReplicas="0")], {}, "triggers[0] (cron): desiredReplicas: '0' is no number of replicas"),
        ([cron(start="@daily")], {}, "triggers[0] (cron): '@daily' is no cron expression of five fields"),
        ([cron(start="0 8 1 * */2")], {}, "triggers[0] (cron): in '0 8 1 * */2', write the step of days as a list"),
        ([cron(start="61 8 * * *")], {}, "triggers[0] (cron): "),
        ([cron(timezone="Mars/Olympus")], {}, "triggers[0] (cron): "),
        ([{"type": "cpu", "metadata": {"value": "50"}}], {}, "triggers[0] (cpu): metricType: expected Utilization"),
        (
            [{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "50%"}}],
            {},
            "triggers[0] (cpu): value: '50%' is no percentage",
        ),
        (
            [prometheus()],
            {"advanced": {"scalingModifiers": {"formula": "a", "target": "1"}}},
            "advanced.scalingModifiers: write the formula in PromQL",
        ),
        ([prometheus()], {"minReplicaCount": 3, "idleReplicaCount": 2}, "idleReplicaCount 2: an HPA has only 0"),
        (
            [{**prometheus(), "metricType": "Value"}],
            {"minReplicaCount": 3, "idleReplicaCount": 0},
            "triggers[0] (prometheus): idleReplicaCount goes only with metricType AverageValue",
        ),
        ([], {}, "it has no triggers"),
    ],
)
def test_scaled_object_that_cannot_be_moved_as_a_whole_is_not_moved(
    triggers: list[dict[str, Any]], spec: dict[str, Any], reason: str
) -> None:
    servers = Servers()
    result = one(*triggers, servers=servers, **spec)
    assert result.objects == []
    assert result.problems[0].startswith(f"not moved: {reason}")
    assert servers.entries == {}, "only servers of rules are printed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: web}", "there are no ScaledObjects in it, but Depl"),
        ("", "there are no ScaledObjects in it, but no objects"),
        ("a: [", "line 2, column 1: did not find"),
        ("kind: {{ .Values.kind }}\nmetadata: {{- x }}", "this is a template; render it first, for example with `helm"),
    ],
)
def test_text_without_scaled_objects_is_an_error_of_one_line(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as error:
        read_manifests(text, source="file.yaml")
    assert str(error.value).startswith("file.yaml: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


KEYS = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "spec", "items", "triggers", "type", "name", "threshold", "query"),
        *("serverAddress", "scaleTargetRef", "minReplicaCount", "advanced", "annotations", "fallback", "podIdentity"),
    ]
)
VALUES = st.sampled_from(
    [
        "keda.sh/v1alpha1",
        "ScaledObject",
        "List",
        "TriggerAuthentication",
        "prometheus",
        "cron",
        "",
        "-1",
        "nan",
        "http://",
    ]
)
TREES = st.recursive(
    VALUES | st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
SCALED = st.fixed_dictionaries(
    {
        "apiVersion": st.just("keda.sh/v1alpha1"),
        "kind": st.just("ScaledObject"),
        "metadata": st.just({"name": "x"}) | TREES,
        "spec": st.fixed_dictionaries(
            {
                "scaleTargetRef": st.just({"name": "x"}),
                "triggers": st.lists(
                    st.fixed_dictionaries(
                        {
                            "type": st.sampled_from(["prometheus", "cron", "cpu"]),
                            "metadata": st.dictionaries(
                                st.sampled_from(
                                    [*QUERY, *cron()["metadata"], "value", "activationThreshold", "timeout"]
                                ),
                                VALUES | st.text(max_size=8) | st.floats() | st.integers(),
                            ),
                        }
                    ),
                    max_size=2,
                ),
            }
        )
        | TREES,
    }
)


@given(SCALED | TREES)
def test_any_object_is_moved_or_refused(tree: Any) -> None:
    try:
        manifests = read_manifests(yaml.safe_dump(tree), source="x")
    except ManifestError:
        return
    for result in moved(manifests):
        assert result.objects or result.problems
