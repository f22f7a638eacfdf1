"""Validation of HPAs. The recorded cases of Kubernetes are in tests/conformance; here are the rules that they lack."""

from typing import Any

import pytest

from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa


def errors_of(*, metadata: dict[str, Any] | None = None, scale_to_zero: bool = False, **spec: Any) -> list[str]:
    hpa = {
        "metadata": {"name": "web", "namespace": "default"} | (metadata or {}),
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 5}
        | spec,
    }
    return validate_hpa(default_hpa(hpa), scale_to_zero=scale_to_zero)


def container_metric(**source: Any) -> list[dict[str, Any]]:
    target = {"type": "Utilization", "averageUtilization": 50}
    return [
        {
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "app", "target": target} | source,
        }
    ]


def test_plain_hpa_has_no_errors() -> None:
    assert errors_of() == []


def test_zero_replicas_need_the_feature_and_a_metric_that_exists_without_pods() -> None:
    external = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
    }
    assert errors_of(minReplicas=0, metrics=[external], scale_to_zero=True) == []
    assert errors_of(minReplicas=0, metrics=[external]) == [
        "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
    ]
    lacking = "must specify at least one Object or External metric to support scaling to zero replicas"
    assert errors_of(minReplicas=0, scale_to_zero=True) == [f"spec.metrics: Forbidden: {lacking}"]


def test_errors_are_sorted_and_duplicates_stay() -> None:
    unsupported = (
        'spec.metrics[0].type: Unsupported value: "":'
        ' supported values: "ContainerResource", "External", "Object", "Pods", "Resource"'
    )
    assert errors_of(metrics=[{}]) == [
        "spec.metrics[0].type: Required value: must specify a metric source type",
        unsupported,
        unsupported,
    ]


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("hugepages-2Mi", []),
        ("nvidia.com/gpu", []),
        ("kubernetes.io/thing", []),
        ("pods", ["must be a standard resource for containers"]),
        (
            "bogus",
            ["must be a standard resource for containers", "must be a standard resource type or fully qualified"],
        ),
        ("requests.nvidia.com/gpu", ["doesn't follow extended resource name standard"]),
    ],
)
def test_the_resource_of_a_container_must_be_one_that_containers_have(name: str, messages: list[str]) -> None:
    path = f'spec.metrics[0].containerResource.name: Invalid value: "{name}": '
    assert errors_of(metrics=container_metric(name=name)) == [path + message for message in messages]


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ("", "Required value: must specify a container"),
        ("a.b", 'Invalid value: "a.b": must not contain dots'),
        ("Bad_Name", 'Invalid value: "Bad_Name": a lowercase RFC 1123 label must consist of'),
        ("a" * 64, "must be no more than 63 characters"),
    ],
)
def test_invalid_container_name_is_an_error(container: str, message: str) -> None:
    (error,) = errors_of(metrics=container_metric(container=container))
    assert error.startswith("spec.metrics[0].containerResource.container: ")
    assert message in error


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"generateName": "web-"}, None),
        ({"generateName": "-"}, "metadata.generateName: Invalid value"),
        ({"annotations": {"Some.Prefix/Key": "any value!"}}, None),
        ({"annotations": {"a b": ""}}, 'metadata.annotations: Invalid value: "a b": name part must consist of'),
        ({"annotations": {"a": "x" * 2**18}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        ({"labels": {"a" * 254 + "/b": ""}}, "prefix part must be no more than 253 bytes"),
    ],
)
def test_metadata_errors(metadata: dict[str, Any], error: str | None) -> None:
    found = errors_of(metadata=metadata)
    assert [error in each for each in found] == [True] if error else found == []


def test_fields_that_kubernetes_does_not_check_are_not_checked() -> None:
    pods = {"metric": {"name": "qps", "selector": {"matchLabels": {"bad key!": "x"}}}}
    assert (
        errors_of(metrics=[{"type": "Pods", "pods": pods | {"target": {"type": "Value", "averageValue": "1"}}}]) == []
    )
