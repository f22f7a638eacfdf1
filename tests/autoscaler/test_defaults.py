"""Defaulting of HPAs, beside the recorded cases of Kubernetes in tests/conformance: copies, and errors of decoding."""

from typing import Any

import pytest

from autoscaler.objects.hpa import default_hpa
from kube.api.objects import ParseError

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def defaulted(**spec: Any) -> dict[str, Any]:
    result: dict[str, Any] = default_hpa({"spec": {"scaleTargetRef": TARGET, "maxReplicas": 5} | spec})["spec"]
    return result


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
