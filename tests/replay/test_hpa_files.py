"""HPA files: what is read, and errors that name the file and the field."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from replay.hpa_files import parse_hpa_document, read_hpa_file
from replay.load import ReplayError, metric_key
from replay.output.names import named
from tests.replay.builders import cpu_metric, external_metric, hpa_document, make_hpa, pods_metric

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {"name": "app", "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}}},
                    {"name": "proxy", "resources": {"requests": {"cpu": 0.2}}},
                ],
                "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "5"}}}],
            }
        }
    },
}


def write(path: Path, *documents: object) -> Path:
    path = path / "hpa.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def problem_of(path: Path, **options: bool) -> str:
    """The error without the file, which it must begin with."""
    with pytest.raises(ReplayError) as caught:
        read_hpa_file(path, **options)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def without(document: dict[str, Any], *fields: str) -> dict[str, Any]:
    """The document without one field, whose path is given."""
    changed: dict[str, Any] = json.loads(json.dumps(document))
    inner = changed
    for field in fields[:-1]:
        inner = inner[field]
    del inner[fields[-1]]
    return changed


@pytest.mark.parametrize("version", ["autoscaling/v2", "milliscale.io/v1"])
def test_both_apis(tmp_path: Path, version: str) -> None:
    (found,) = read_hpa_file(write(tmp_path, {**hpa_document(), "apiVersion": version}))

    assert found.hpa.api_version == version
    assert [metric_key(metric.source) for metric in found.hpa.spec.metrics] == ["rps"]


def test_autoscaling_v1(tmp_path: Path) -> None:
    document = without(hpa_document(), "spec", "metrics")
    document["apiVersion"] = "autoscaling/v1"
    document["spec"]["targetCPUUtilizationPercentage"] = 60

    (found,) = read_hpa_file(write(tmp_path, document))

    (metric,) = found.hpa.spec.metrics
    assert (metric_key(metric.source), metric.target.average_utilization) == ("cpu", 60)
    assert found.document["apiVersion"] == "autoscaling/v2"


def test_an_hpa_without_metrics_has_kubernetes_default(tmp_path: Path) -> None:
    (found,) = read_hpa_file(write(tmp_path, without(hpa_document(), "spec", "metrics")))

    (metric,) = found.hpa.spec.metrics
    assert (metric_key(metric.source), metric.target.average_utilization) == ("cpu", 80)


def test_the_namespace_is_default_and_the_status_is_left_out(tmp_path: Path) -> None:
    document = {**without(hpa_document(), "metadata", "namespace"), "status": {"desiredReplicas": 7}}

    (found,) = read_hpa_file(write(tmp_path, document))

    assert str(found.hpa.key) == "default/web"
    assert found.hpa.status.desired_replicas == 0


def test_several_documents(tmp_path: Path) -> None:
    other = hpa_document(max_replicas=5)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}

    files = read_hpa_file(write(tmp_path, service, hpa_document(), None, other))

    assert [each.hpa.spec.max_replicas for each in files] == [20, 5]


@pytest.mark.parametrize("kind", ["List", "HorizontalPodAutoscalerList"])
def test_lists_as_kubectl_prints_them(tmp_path: Path, kind: str) -> None:
    version = "v1" if kind == "List" else "autoscaling/v2"
    item = hpa_document() if kind == "List" else without(without(hpa_document(), "kind"), "apiVersion")

    files = read_hpa_file(write(tmp_path, {"apiVersion": version, "kind": kind, "items": [item, item]}))

    assert [str(each.hpa.key) for each in files] == ["shop/web", "shop/web"]


def test_the_scale_target_in_the_file_tells_requests(tmp_path: Path) -> None:
    other = json.loads(json.dumps(DEPLOYMENT).replace("300m", "9"))
    other["metadata"]["name"] = "api"

    (found,) = read_hpa_file(write(tmp_path, other, hpa_document(cpu_metric()), DEPLOYMENT))

    # The proxy states no request for memory, so the pod as a whole has none.
    assert found.requests == {"cpu": 500, "app/cpu": 300, "proxy/cpu": 200, "app/memory": 2**30 * 1000}


def test_requests_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    deployment = json.loads(json.dumps(DEPLOYMENT).replace("300m", "lots"))

    assert problem_of(write(tmp_path, hpa_document(), deployment)).startswith(
        "Deployment web: spec.template: Pod /web: request for cpu: 'lots': "
    )


def test_names_of_further_specs_are_their_changes() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 900, "tolerance": "20m"}}
    changed = make_hpa(pods_metric(average="85"), behavior=behavior)
    hpas = [make_hpa(), make_hpa(), changed, make_hpa(cpu_metric(60), min_replicas=3), changed]

    assert list(named(hpas)) == [
        "shop/web",
        "shop/web again",
        "target 85, scaleDown.stabilizationWindowSeconds 900, scaleDown.tolerance 0.02",
        "target 60%, metric rps removed, minReplicas 3 and 1 more",
        "target 85, scaleDown.stabilizationWindowSeconds 900, scaleDown.tolerance 0.02 #2",
    ]


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([], "there is no HorizontalPodAutoscaler in it, only: nothing"),
        ([DEPLOYMENT], "there is no HorizontalPodAutoscaler in it, only: Deployment"),
        (
            [{"kind": "VerticalPodAutoscaler"}, {"a": 1}],
            "there is no HorizontalPodAutoscaler in it, only: VerticalPodAutoscaler, object without a kind",
        ),
        (["text"], "a Kubernetes object is a mapping, and this is 'text'"),
        (
            [[hpa_document()]],
            "a Kubernetes object is a mapping, and this is [{'apiVersion': 'autoscaling/v2', 'kind'...",
        ),
        ([without(hpa_document(), "apiVersion")], "web: apiVersion: None is not read: write autoscaling/v2"),
        ([without(hpa_document(), "spec", "scaleTargetRef")], "web: spec.scaleTargetRef.kind: Required value"),
        ([{**hpa_document(), "spec": "x"}], "web: metadata and spec must be mappings"),
        ([without(hpa_document(), "spec")], "web: spec.maxReplicas: Required value: must be set and greater than 0"),
        (
            [hpa_document(pods_metric(average="-1"))],
            'web: spec.metrics[0].pods.target.averageValue: Invalid value: "-1": must be positive',
        ),
        (
            [hpa_document(min_replicas=30)],
            "web: spec.maxReplicas: Invalid value: 20: must be greater than or equal to `minReplicas`",
        ),
        ([{**hpa_document(), "metadata": {"name": "Web"}}], 'Web: metadata.name: Invalid value: "Web": ...'),
        ([{**hpa_document(), "metadata": None}], "metadata.name: Required value: name or generateName is required"),
        (
            [hpa_document(external_metric("q", {"no label": "x"}, value="1"))],
            "web: the selector of metric q is invalid: ...",
        ),
    ],
)
def test_errors(tmp_path: Path, documents: list[object], problem: str) -> None:
    found = problem_of(write(tmp_path, *documents))

    if problem.endswith("..."):
        assert found.startswith(problem.removesuffix("..."))
    else:
        assert found == problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"maxReplica": 3}, "spec.maxReplica: unknown field: did you mean maxReplicas?"),
        (
            {"behavior": {"scaledown": {}}},
            "spec.behavior.scaledown: unknown field: did you mean scaleDown?",
        ),
        (
            {"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "period": 15}]}}},
            "spec.behavior.scaleUp.policies[0].period: unknown field: did you mean periodSeconds?",
        ),
        (
            {"metrics": [{"type": "Pods", "pods": {"metricName": "x", "targetAverageValue": 1}}]},
            "spec.metrics[0].pods.metricName: unknown field: did you mean metric?",
        ),
        ({"zzz": 1}, "spec.zzz: unknown field; there are: scaleTargetRef, minReplicas, maxReplicas, metrics, behavior"),
    ],
)
def test_unknown_fields_are_errors(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    document = hpa_document()
    document["spec"].update(change)

    assert problem_of(write(tmp_path, document)) == f"web: {problem}"


def test_v1_with_fields_of_v2_is_an_error(tmp_path: Path) -> None:
    document = {**hpa_document(), "apiVersion": "autoscaling/v1"}
    assert problem_of(write(tmp_path, document)) == (
        "web: spec.metrics: autoscaling/v1 has no such field: write apiVersion: autoscaling/v2"
    )

    document = without(document, "spec", "metrics")
    document["metadata"]["annotations"] = {"autoscaling.alpha.kubernetes.io/metrics": "[]"}
    assert problem_of(write(tmp_path, document)) == (
        "web: annotation autoscaling.alpha.kubernetes.io/metrics is not read: write the HPA as autoscaling/v2"
    )


def test_scale_to_zero_needs_the_feature(tmp_path: Path) -> None:
    path = write(tmp_path, hpa_document(external_metric(value="1"), min_replicas=0))

    assert read_hpa_file(path)
    assert problem_of(path, scale_to_zero=False) == (
        "web: spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
    )


@pytest.mark.parametrize(
    "content",
    [b"a: [1", b"\xff\xfe\x00", b"a: b: c", b"!!python/object:os.system {}", b"\x00", b"a: 2024-99-99"],
)
def test_files_that_are_not_yaml_are_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hpa.yaml"
    path.write_bytes(content)

    assert problem_of(path).startswith("this is not YAML: ")


@pytest.mark.parametrize("content", ["kind: Service\nspec: " + "[" * 100_000, "kind:\n" + "- " * 100_000])
def test_deep_yaml_is_an_error_before_it_ends_the_stack(tmp_path: Path, content: str) -> None:
    path = tmp_path / "hpa.yaml"
    path.write_text(content)

    assert problem_of(path) == "this is no HPA: line 2 is nested more than 100 deep; remove it"


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "none.yaml") == "No such file or directory"
    assert problem_of(tmp_path) == "Is a directory"
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (5 << 20))
    assert problem_of(large) == "this is no HPA: it has more than 4 MiB"


_KEYS = st.sampled_from(
    ["metrics", "type", "pods", "metric", "name", "target", "averageValue", "behavior", "scaleUp", "policies", "value"]
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 2**40), st.sampled_from(["Pods", "AverageValue", "10", "x"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=8,
)


@given(spec=_VALUES, metrics=_VALUES, metadata=_VALUES, version=st.sampled_from(["autoscaling/v1", "autoscaling/v2"]))
def test_any_object_is_an_hpa_or_an_error(spec: object, metrics: object, metadata: object, version: str) -> None:
    document = {**hpa_document(), "apiVersion": version}
    for changed in (
        {**document, "spec": spec},
        {**document, "spec": {**document["spec"], "metrics": metrics}},
        {**document, "spec": {**document["spec"], "behavior": spec}},
        {**document, "metadata": metadata},
    ):
        with contextlib.suppress(ReplayError):
            parse_hpa_document(changed, "hpa.yaml", [{"kind": "Deployment", "metadata": metadata, "spec": spec}])
