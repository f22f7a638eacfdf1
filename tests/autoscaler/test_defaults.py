"""Defaulting of HPAs. The recorded cases of Kubernetes are in tests/conformance; these are a few of them in short."""

from typing import Any

import pytest

from autoscaler.objects.hpa import default_hpa
from kube.api.objects import ParseError

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def defaulted(**spec: Any) -> dict[str, Any]:
    result: dict[str, Any] = default_hpa({"spec": {"scaleTargetRef": TARGET, "maxReplicas": 5} | spec})["spec"]
    return result


@pytest.mark.parametrize("nothing", [{}, {"metrics": []}, {"metrics": None}])
def test_without_metrics_the_target_is_80_percent_of_the_requested_cpu(nothing: dict[str, Any]) -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    assert defaulted(**nothing) == {
        "scaleTargetRef": TARGET,
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [cpu],
    }


def test_a_behavior_gets_defaults_for_each_field_that_is_not_set() -> None:
    behavior = defaulted(behavior={"scaleUp": {"selectPolicy": "Min"}, "scaleDown": {"tolerance": 0.1}})["behavior"]
    assert behavior == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Min",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "selectPolicy": "Max",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            "tolerance": "100m",
        },
    }


def test_an_empty_behavior_gets_both_directions_and_none_gets_nothing() -> None:
    assert set(defaulted(behavior={})["behavior"]) == {"scaleUp", "scaleDown"}
    assert "behavior" not in defaulted(behavior=None)


def test_an_empty_list_of_policies_gets_no_defaults() -> None:
    assert defaulted(behavior={"scaleUp": {"policies": []}})["behavior"]["scaleUp"]["policies"] == []


def test_unknown_fields_are_dropped_and_quantities_canonical() -> None:
    metric = {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"averageValue": " 0.5", "bogus": 1}}}
    assert defaulted(metrics=[metric], bogus=1)["metrics"] == [
        {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "", "averageValue": "500m"}}}
    ]


def test_defaulting_changes_the_spec_of_a_copy_only() -> None:
    given = {"metadata": {"name": "web", "bogus": 1}, "spec": {}, "status": {"currentReplicas": 1}}
    result = default_hpa(given)
    assert given["spec"] == {}
    assert {key: result[key] for key in ("metadata", "status")} == {key: given[key] for key in ("metadata", "status")}


@pytest.mark.parametrize(
    ("hpa", "error"),
    [
        ({"spec": {"maxReplicas": "ten"}}, "spec.maxReplicas: expected a whole number, got text"),
        ({"spec": {"maxReplicas": 1.0}}, "spec.maxReplicas: expected a whole number, got a number"),
        ({"spec": {"maxReplicas": True}}, "spec.maxReplicas: expected a whole number, got true or false"),
        ({"spec": {"minReplicas": 2**31}}, "spec.minReplicas: expected a whole number <= 2147483647"),
        ({"spec": {"metrics": {}}}, "spec.metrics: expected a list, got a mapping"),
        ({"spec": {"behavior": {"scaleUp": {"tolerance": "1mm"}}}}, "'1mm' is not a quantity such as"),
        ({"spec": {"behavior": {"scaleUp": {"tolerance": True}}}}, "expected a quantity"),
        ({"spec": {"behavior": {"scaleUp": {"tolerance": "\n1"}}}}, "is not a quantity such as"),
        ({"spec": []}, "spec: expected a mapping, got a list"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels"),
    ],
)
def test_decode_error_names_the_field(hpa: dict[str, Any], error: str) -> None:
    with pytest.raises(ParseError) as caught:
        default_hpa(hpa)
    assert error in str(caught.value)


def test_deeply_nested_object_is_a_decode_error() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ParseError):
        default_hpa({"spec": deep})
