"""Decoding of Kubernetes' JSON into the model: valid objects, and the errors of malformed ones."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.config import AnnotationOverrides, Pause
from autoscaler.core.model import (
    HPA_APIS,
    MILLISCALE,
    Behavior,
    Condition,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    LabelSelectorRequirement,
    LabelSelectorSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    ScaleDownRules,
    ScaleUpRules,
    ScalingPolicy,
    Status,
)
from autoscaler.core.observation import Container, Owned, Owner, Pod, ReadyCondition, Scale
from autoscaler.core.quantities import canonical_quantity
from autoscaler.objects.decoding import time_ms
from autoscaler.objects.hpa import parse_hpa, track_hpa
from autoscaler.objects.workloads import parse_owned, parse_pod, parse_scale, parse_workload, track_pod
from kube.api.objects import ParseError, TooLargeError
from tests.autoscaler.simulated_cluster import quantity

JSON = dict[str, Any]


def raw_hpa(**spec: Any) -> JSON:
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    return {
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": {"scaleTargetRef": target, "maxReplicas": 10, "metrics": metrics} | spec,
    }


def parsed_metric(metric: JSON) -> MetricSpec:
    return parse_hpa(raw_hpa(metrics=[metric])).spec.metrics[0]


def test_hpa_with_too_many_metrics_policies_or_bytes_is_refused() -> None:
    pods: JSON = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    metric = {"type": "Pods", "pods": pods}
    policy = {"type": "Pods", "value": 1, "periodSeconds": 1}
    assert problem_of(raw_hpa(metrics=[metric] * 100, behavior={"scaleUp": {"policies": [policy] * 100}})) == ""
    assert problem_of(raw_hpa(metrics=[metric] * 101)) == "spec.metrics: there are 101, and at most 100 are supported"
    many = problem_of(raw_hpa(behavior={"scaleDown": {"policies": [policy] * 101}}))
    assert many == "spec.behavior.scaleDown.policies: there are 101, and at most 100 are supported"
    expressions = [{"key": "a", "operator": "In", "values": [f"v{number}" for number in range(10_000)]}]
    selected = {"name": "m", "selector": {"matchExpressions": expressions}}
    large = {"type": "Pods", "pods": pods | {"metric": selected}}
    assert problem_of(raw_hpa(metrics=[large])).endswith(" bytes as JSON, and at most 65536 are supported")


def test_hpa_with_too_large_metadata_is_not_kept() -> None:
    """Its spec may be in an annotation, and managedFields are not kept."""
    raw = raw_hpa()
    raw["metadata"] |= {"annotations": {"a": "x" * 120_000}, "managedFields": [{"fieldsV1": "x" * 100_000}]}
    assert problem_of(raw) == ""
    raw["metadata"]["labels"] = {f"label-{number}": "" for number in range(1_000)}
    with pytest.raises(TooLargeError, match=r"shop/web: its metadata has \d+ bytes as JSON, and at most 131072 are "):
        track_hpa(raw)


def problem_of(raw: JSON, **options: Any) -> str:
    hpa = track_hpa(raw, **options)
    assert hpa is not None
    return hpa.problem


# --- HPAs ----------------------------------------------------------------------------------------------------------


def test_an_hpa_is_known_by_its_metadata_and_target() -> None:
    hpa = parse_hpa(raw_hpa(minReplicas=2))
    assert (str(hpa.key), hpa.target) == ("shop/web", "Deployment/shop/web")
    assert (hpa.uid, hpa.resource_version, hpa.generation, hpa.api_version) == ("u", "7", 3, "autoscaling/v2")
    assert (hpa.spec.min_replicas, hpa.spec.max_replicas, hpa.spec.behavior) == (2, 10, None)
    assert hpa.status == Status()


def test_the_five_metric_types() -> None:
    name = {"name": "m", "selector": {"matchLabels": {"b": "2", "a": "1"}}}
    identifier = MetricIdentifier("m", LabelSelectorSpec({"a": "1", "b": "2"}))
    service = {"kind": "Service", "name": "front", "apiVersion": "v1"}
    half = {"type": "AverageValue", "averageValue": "0.5"}
    half_target = MetricTarget("AverageValue", average_value=quantity(500))
    assert half_target.average_value == "500m"
    assert parsed_metric(
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    ) == MetricSpec.of(ResourceMetric("cpu", MetricTarget("Utilization", average_utilization=60)))
    assert parsed_metric(
        {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "app", "target": half}}
    ) == MetricSpec.of(ContainerResourceMetric("memory", half_target, "app"))
    assert parsed_metric({"type": "Pods", "pods": {"metric": name, "target": half}}) == MetricSpec.of(
        PodsMetric(identifier, half_target)
    )
    assert parsed_metric(
        {
            "type": "Object",
            "object": {"metric": name, "describedObject": service, "target": {"type": "Value", "value": "2k"}},
        }
    ) == MetricSpec.of(
        ObjectMetric(
            identifier,
            CrossVersionObjectReference("Service", "front", "v1"),
            MetricTarget("Value", value=quantity(2_000_000)),
        )
    )
    assert parsed_metric({"type": "External", "external": {"metric": name, "target": half}}) == MetricSpec.of(
        ExternalMetric(identifier, half_target)
    )


def test_unknown_metric_type_is_kept() -> None:
    assert parsed_metric({"type": "Weather", "weather": {}}) == MetricSpec("Weather")


def test_invalid_metric_selector_is_kept_as_written() -> None:
    selector = {"matchExpressions": [{"key": "verb", "operator": "Near"}]}
    spec = parsed_metric(
        {"type": "External", "external": {"metric": {"name": "m", "selector": selector}, "target": {"type": "Value"}}}
    )
    assert spec.external is not None
    assert spec.external.metric.selector == LabelSelectorSpec({}, [LabelSelectorRequirement("verb", "Near")])


def test_behavior_is_complete() -> None:
    policy = {"type": "Percent", "value": 50, "periodSeconds": 15}
    up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [policy], "tolerance": "18m"}
    hpa = parse_hpa(raw_hpa(behavior={"scaleUp": up, "scaleDown": {"selectPolicy": "Disabled"}}))
    assert hpa.spec.behavior == Behavior(
        scale_up=ScaleUpRules(
            policies=(ScalingPolicy("Percent", 50, 15),),
            select_policy="Min",
            stabilization_window_seconds=0,
            tolerance=canonical_quantity("18m"),
        ),
        scale_down=ScaleDownRules(policies=(ScalingPolicy("Percent", 100, 15),), select_policy="Disabled"),
    )


def test_status_is_parsed() -> None:
    status = parse_hpa(
        raw_hpa()
        | {
            "status": {
                "currentReplicas": 3,
                "desiredReplicas": 4,
                "lastScaleTime": "2026-01-01T00:00:00Z",
                "currentMetrics": [
                    {"type": ""},
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "current": {"averageValue": "152m", "averageUtilization": 61}},
                    },
                ],
                "conditions": [
                    {
                        "type": "AbleToScale",
                        "status": "True",
                        "lastTransitionTime": "2026-01-01T00:00:01Z",
                        "reason": "ReadyForNewScale",
                        "message": "recommended size matches current size",
                    }
                ],
            }
        }
    ).status
    newyear = 1_767_225_600_000
    assert status == Status(
        current_replicas=3,
        desired_replicas=4,
        last_scale_ms=newyear,
        current_metrics=(
            MetricSpec(),
            MetricSpec.of(ResourceMetric("cpu", MetricTarget(average_value=quantity(152), average_utilization=61))),
        ),
        conditions=(
            Condition(
                type="AbleToScale",
                status="True",
                reason="ReadyForNewScale",
                message="recommended size matches current size",
                last_transition_ms=newyear + 1000,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("status", "read"),
    [
        ({"currentMetrics": [{"type": "Resource"}, 7]}, Status(current_metrics=(MetricSpec(), MetricSpec()))),
        (
            {"currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"value": "much"}}}]},
            Status(current_metrics=(MetricSpec(),)),
        ),
        ({"currentReplicas": 3, "desiredReplicas": "3", "observedGeneration": []}, Status(current_replicas=3)),
        ({"lastScaleTime": "yesterday", "conditions": {}, "currentMetrics": 7}, Status()),
        (
            {"conditions": [{"type": "A"}, {"type": "B", "status": "True", "lastTransitionTime": "soon"}]},
            Status(conditions=(Condition(type="B", status="True", reason="", message="", last_transition_ms=0),)),
        ),
        ("odd", Status()),
    ],
)
def test_unreadable_status_fields_are_left_out(status: Any, read: Status) -> None:
    assert parse_hpa(raw_hpa() | {"status": status}).status == read
    tracked = track_hpa(raw_hpa() | {"status": status})
    assert tracked is not None
    assert not tracked.problem


def test_defaults_are_filled_in() -> None:
    """A schema's default does not apply to an empty list."""
    raw = raw_hpa(metrics=[], minReplicas=None)
    for api in HPA_APIS:
        tracked = track_hpa(raw, api=api)
        assert tracked is not None
        assert tracked.spec.min_replicas == 1
        (metric,) = tracked.spec.metrics
        target = MetricTarget("Utilization", average_utilization=80)
        assert metric == MetricSpec.of(ResourceMetric("cpu", target))


def test_scale_to_zero_needs_the_feature() -> None:
    metric = {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}}
    raw = raw_hpa(minReplicas=0, metrics=[metric])
    assert problem_of(raw, api=MILLISCALE) == ""
    assert problem_of(raw, scale_to_zero=False) == "", "the API server checks its own API"
    assert (
        problem_of(raw, api=MILLISCALE, scale_to_zero=False)
        == "spec.minReplicas: 0 needs the feature HPAScaleToZero, which is off"
    )


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"maxReplicas": "ten"}, r"shop/web: spec.maxReplicas: expected a whole number, got text"),
        ({"maxReplicas": 2**31}, "spec.maxReplicas: expected a whole number <= 2147483647"),
        ({"maxReplicas": None}, "spec.maxReplicas: must be at least 1"),
        ({"scaleTargetRef": None}, "spec.scaleTargetRef: kind and name must be set"),
        ({"metrics": [{"type": "Pods"}]}, r"spec.metrics\[0\]: type is Pods, but the field of that metric type"),
        (
            {"metrics": [{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"averageValue": "many"}}}]},
            r"spec.metrics\[0\].pods.target.averageValue: '.*' is not a quantity",
        ),
        (
            {"behavior": {"scaleUp": {"selectPolicy": "Often"}}},
            "spec.behavior.scaleUp.selectPolicy: 'Often' is not Max, Min or Disabled",
        ),
        ({"behavior": {"scaleDown": {"tolerance": "x"}}}, "spec.behavior.scaleDown.tolerance: 'x' is not a quantity"),
    ],
)
def test_parse_error_names_the_hpa_and_the_field(spec: JSON, error: str) -> None:
    with pytest.raises(ParseError, match=f"^HorizontalPodAutoscaler .*{error}"):
        parse_hpa(raw_hpa(**spec))


# --- scales and pods -----------------------------------------------------------------------------------------------


def test_a_scale() -> None:
    raw = {"metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=web"}}
    assert parse_scale(raw) == Scale(spec_replicas=3, status_replicas=2, selector="app=web")


def test_selector_that_takes_long_to_parse_is_refused() -> None:
    text = f"app in ({','.join(f'v{number}' for number in range(2_000))})"
    why = r"selector: it has \d+ characters, and at most 8192 are supported"
    with pytest.raises(ParseError, match=why):
        parse_scale({"status": {"selector": text}})
    expressions = [{"key": "app", "operator": "In", "values": text.split(",")}]
    spec = {"replicas": 1, "selector": {"matchExpressions": expressions}}
    with pytest.raises(ParseError, match=why):
        parse_workload({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})


def test_absent_fields_of_a_scale_are_zero() -> None:
    assert parse_scale({"spec": {}, "status": {}}) == Scale(spec_replicas=0, status_replicas=0, selector="")


def test_a_pod() -> None:
    raw = {
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "labels": {"app": "web"},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}},
                {"name": "helper"},
            ],
            "initContainers": [
                {"name": "setup", "resources": {"requests": {"cpu": 1}}},
                {"name": "proxy", "restartPolicy": "Always"},
            ],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"memory": "1"},
        },
        "status": {
            "phase": "Running",
            "startTime": "1970-01-01T00:00:10Z",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "1970-01-01T00:00:11Z"},
                {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:12Z"},
            ],
        },
    }
    assert parse_pod(raw) == Pod(
        name="web-0",
        namespace="shop",
        labels={"app": "web"},
        phase="Running",
        deleted=True,
        start_ms=10_000,
        ready=ReadyCondition(status="False", last_transition_ms=12_000),
        containers=(
            Container(name="app", requests={"cpu": 250, "memory": 1024**3 * 1000}),
            Container(name="helper", requests={}),
            Container(name="setup", requests={"cpu": 1000}, init=True),
            Container(name="proxy", requests={}, init=True, restartable=True),
        ),
        requests={"cpu": 2000},
        overhead={"memory": 1000},
    )


def test_new_pod_without_status() -> None:
    pod = parse_pod({"metadata": {"name": "web-0", "labels": None}, "spec": {}})
    assert (pod.phase, pod.start_ms, pod.ready, pod.labels, pod.containers) == ("", None, None, {}, ())


def test_parse_error_names_the_pod() -> None:
    raw = {"metadata": {"namespace": "shop", "name": "web-0"}, "spec": {}, "status": {"startTime": "yesterday"}}
    with pytest.raises(ParseError, match=r"^Pod shop/web-0: status.startTime: 'yesterday' is not an RFC 3339 time"):
        parse_pod(raw)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
hpa_fields = st.dictionaries(
    st.sampled_from(["metrics", "minReplicas", "maxReplicas", "behavior", "scaleTargetRef"]), anything
)


@given(anything, hpa_fields, anything)
@settings(max_examples=10)
def test_hostile_json_raises_only_parse_errors(whole: Any, spec: JSON, part: Any) -> None:
    pod = {"metadata": part, "spec": {"containers": part, "resources": {"requests": part}}, "status": part}
    hpa = raw_hpa(**spec) | {"status": part}
    for raw in (whole, hpa, pod):
        for parse in (parse_hpa, parse_pod, parse_scale, parse_workload, parse_owned):
            with suppress(ParseError):
                parse(raw)
        track_pod(raw)
        for api in HPA_APIS:
            track_hpa(raw, api=api)


# --- numbers and times ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01.250999999Z", 1250),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.5Z", -500),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
    ],
)
def test_times_are_whole_milliseconds(text: str, expected: int) -> None:
    assert time_ms(text, "x") == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"])
def test_invalid_time_is_an_error(text: str) -> None:
    with pytest.raises(ParseError, match=r"timestamp: .* is not an RFC 3339 time"):
        time_ms(text, "timestamp")


def test_the_owner_of_a_pod_is_its_controller() -> None:
    owners = [{"kind": "Node", "uid": "n"}, {"kind": "ReplicaSet", "uid": "rs", "controller": True}]
    metadata = {"name": "web-0", "namespace": "default", "uid": "p", "ownerReferences": owners}
    assert parse_pod({"metadata": metadata, "spec": {}}).owner == Owner("ReplicaSet", "rs")
    assert parse_owned({"metadata": metadata}) == Owned("p", Owner("ReplicaSet", "rs"))
    assert parse_owned({"metadata": {"uid": "p", "ownerReferences": owners[:1]}}) == Owned("p", None)
    with pytest.raises(ParseError, match=r"object default/web-0: Expected `array \| null`"):
        parse_owned({"metadata": {**metadata, "ownerReferences": {}}})


def test_an_hpas_annotations_become_its_settings() -> None:
    metadata = {"name": "web", "namespace": "default", "annotations": {"milliscale.io/paused": "all", "other/x": "y"}}
    assert parse_hpa({**raw_hpa(), "metadata": metadata}).overrides == AnnotationOverrides(paused=Pause.ALL)


@pytest.mark.parametrize(
    ("labels", "spec"),
    [
        ({f"team/{n}": "" for n in range(1_000)}, {"containers": [{"name": "app"}]}),
        ({}, {"containers": [{"name": f"c{n}"} for n in range(1_000)]}),
        ({}, {"containers": [{"name": "c", "resources": {"requests": {f"a.b/{n}": "1" for n in range(1_000)}}}]}),
    ],
    ids=["labels", "containers", "requests"],
)
def test_pod_whose_labels_and_containers_are_too_large_is_not_kept(
    labels: dict[str, str], spec: dict[str, Any]
) -> None:
    raw = {"metadata": {"namespace": "team", "name": "large", "labels": labels}, "spec": spec}
    with pytest.raises(TooLargeError, match="Pod team/large: its labels and containers have"):
        track_pod(raw)


def test_pod_of_a_hundred_containers_is_kept() -> None:
    requests = {"cpu": "100m", "memory": "128Mi"}
    containers = [{"name": f"c{n}", "resources": {"requests": requests}} for n in range(100)]
    assert track_pod({"metadata": {"name": "web"}, "spec": {"containers": containers}}) is not None


def test_an_object_that_cannot_be_parsed_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"maxReplicas": "many", "containers": 3}}
    hpa = track_hpa(odd)
    assert hpa is not None
    assert hpa.problem
    assert track_pod(odd) is None
    assert [record.message.count("default/odd") for record in caplog.records] == [1]
