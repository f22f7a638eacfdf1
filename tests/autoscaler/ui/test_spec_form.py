"""The form of a what-if: texts in the URL become a spec that an API server would accept, or errors beside fields."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from autoscaler.objects.hpa import parse_hpa
from autoscaler.ui.spec_form import Field, SpecForm, read_form
from kube.security.request_info import Query
from tests.replay.builders import cpu_metric, external_metric, hpa_document, object_metric, pods_metric

BEHAVIOR = {
    "scaleUp": {"tolerance": "0.05"},
    "scaleDown": {
        "stabilizationWindowSeconds": 60,
        "selectPolicy": "Min",
        "policies": [
            {"type": "Pods", "value": 1, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 30},
        ],
    },
}
ALL_METRICS = [
    pods_metric("rps", "100"),
    cpu_metric(50),
    cpu_metric(60, "app"),
    object_metric("hits", value="1500m"),
    object_metric("hits", averageValue="3"),
    external_metric("queue", {"queue": "mail"}, value="30"),
    external_metric("queue", averageValue="30"),
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
]


def hpa_of(*metrics: dict[str, Any], **options: Any) -> HPA:
    return parse_hpa(hpa_document(*metrics, **options))


def form_of(hpa: HPA, *, config: Config | None = None, **parameters: str) -> SpecForm:
    return read_form(
        hpa,
        Query.parse(urlencode({each.replace("__", "."): text for each, text in parameters.items()})),
        config or Config(),
    )


def fields(form: SpecForm) -> dict[str, Field]:
    return {each.name: each for section in form.sections for each in section.fields}


def submitted(hpa: HPA, **changed: str) -> SpecForm:
    """Return the form as a browser sends it, with all fields."""
    values = {name: field.value for name, field in fields(form_of(hpa)).items()}
    values |= {name.replace("__", "."): text for name, text in changed.items()}
    return read_form(hpa, Query.parse(urlencode(values)), Config())


@pytest.mark.parametrize("behavior", [None, BEHAVIOR, {}], ids=["none", "some", "empty"])
def test_unchanged_form_is_the_present_spec(behavior: Any) -> None:
    hpa = hpa_of(*ALL_METRICS, behavior=behavior, min_replicas=2, annotations={"team": "shop"})
    form = submitted(hpa)
    assert form.changed is not None
    assert form.changed.spec == hpa.spec
    assert parse_hpa(form.document).spec == hpa.spec
    assert form.document["metadata"] == {"name": "web", "namespace": "shop", "annotations": {"team": "shop"}}


BEHAVIOR_TEXT = """
scaleUp:
  tolerance: "0"
  stabilizationWindowSeconds: 30
  policies: [{type: Pods, value: 3, periodSeconds: 60}]
  selectPolicy: Min
scaleDown: {tolerance: "0.2", selectPolicy: Disabled}
"""


def test_each_field_changes_the_spec() -> None:
    form = submitted(
        hpa_of(*ALL_METRICS),
        minReplicas="3",
        maxReplicas="33",
        target__0="120",
        target__1="70",
        target__2="80",
        target__3="2",
        target__6="500m",
        down__window="600",
        behavior=BEHAVIOR_TEXT,
    )
    assert form.changed is not None
    spec = parse_hpa(
        hpa_document(
            pods_metric("rps", "120"),
            cpu_metric(70),
            cpu_metric(80, "app"),
            object_metric("hits", value="2"),
            *ALL_METRICS[4:6],
            external_metric("queue", averageValue="500m"),
            ALL_METRICS[7],
            min_replicas=3,
            max_replicas=33,
            behavior={
                "scaleUp": {
                    "tolerance": "0",
                    "stabilizationWindowSeconds": 30,
                    "policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}],
                    "selectPolicy": "Min",
                },
                "scaleDown": {"tolerance": "0.2", "stabilizationWindowSeconds": 600, "selectPolicy": "Disabled"},
            },
        )
    ).spec
    assert form.changed.spec == spec


def test_percent_signs_and_durations_are_understood() -> None:
    hpa = hpa_of(cpu_metric(60))
    written = submitted(hpa, target__0="70 %", down__window="5m")
    assert written.errors == []
    assert written.changed is not None
    assert written.changed.spec == submitted(hpa, target__0="70", down__window="300").changed.spec  # type: ignore[union-attr]
    policies = "policies: [{type: Pods, value: 4, periodSeconds: %s}]"
    rules = "scaleUp: {tolerance: %s, stabilizationWindowSeconds: %s, %s}"
    friendly = submitted(hpa, behavior=rules % ("12.5%", "1m", policies % "90s"))
    assert friendly.changed is not None
    assert friendly.document == submitted(hpa, behavior=rules % ("'0.125'", "60", policies % "90")).document


def test_one_field_of_behavior_leaves_the_others_to_the_defaults() -> None:
    form = submitted(hpa_of(), down__window="60")
    assert form.document["spec"]["behavior"] == {"scaleDown": {"stabilizationWindowSeconds": 60}}
    assert form.changed is not None
    assert form.changed.spec == hpa_of(behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}).spec


@pytest.mark.parametrize(
    "text", ["scaleDown:", "scaleDown: null", "scaleDown: {}", "scaleDown: {stabilizationWindowSeconds: }"]
)
def test_window_counts_whatever_the_rest_of_scale_down(text: str) -> None:
    form = submitted(hpa_of(), down__window="60", behavior=text)
    assert form.document["spec"]["behavior"] == {"scaleDown": {"stabilizationWindowSeconds": 60}}
    assert form.changed is not None


@pytest.mark.parametrize("text", ["scaleDown: 5", "scaleDown: []", "scaleDown: ''", "scaleDown: false"])
def test_scale_down_that_is_no_mapping_is_an_error(text: str) -> None:
    form = submitted(hpa_of(), down__window="60", behavior=text)
    assert form.changed is None
    assert fields(form)["behavior"].errors


def test_parameters_of_another_form_are_an_error() -> None:
    form = form_of(hpa_of(pods_metric()), group="autoscaling", up__window="30", target__1="5", maxReplicas="7")
    assert form.changed is None
    assert form.errors == [
        "the address has parameters that this form does not have: target.1, up.window; open the form again"
    ]


def test_empty_fields_remove_behavior() -> None:
    form = submitted(hpa_of(behavior=BEHAVIOR), down__window="", behavior="")
    assert form.changed is not None
    assert form.changed.spec == hpa_of().spec


def test_fields_show_what_counts_if_they_are_empty() -> None:
    config = Config(tolerance=0.2, downscale_stabilization_ms=60_000)
    shown = fields(form_of(hpa_of(annotations={"milliscale.io/tolerance": "0.03"}), config=config))
    assert "tolerance: 0.03" in shown["behavior"].hint
    assert shown["down.window"].placeholder == "1m0s"


def test_assumptions_are_read() -> None:
    form = form_of(hpa_of(*ALL_METRICS), startup="1m30s", capacity__0="150", capacity__3="2500m", capacity__1="")
    assert form.pod_startup == 90.0
    assert form.capacity == {0: 150.0, 3: 2.5}
    assert form_of(hpa_of()).pod_startup is None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("minReplicas", "two", "write a whole number"),
        ("minReplicas", "-1", "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            "minReplicas",
            "0",
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero",
        ),
        ("maxReplicas", "", "spec.maxReplicas: Required value: must be set and greater than 0"),
        ("maxReplicas", "99999999999", "write a whole number up to 2147483647"),
        ("target.0", "-5", 'spec.metrics[0].pods.target.averageValue: Invalid value: "-5": must be positive'),
        ("target.0", "lots", "write a quantity such as 100 or 500m, not 'lots'"),
        ("target.1", "0", "must be greater than 0"),
        ("target.1", "half%", "write a whole number"),
        ("down.window", "1.5s", "write whole seconds, such as 300 or 5m"),
        ("down.window", "3601", "Invalid value: 3601: must be less than or equal to 3600"),
        ("behavior", "scaleUp: {tolerance: -0.1}", "spec.behavior.scaleUp.tolerance"),
        ("behavior", 'scaleUp: {tolerance: "-0.1"}', 'scaleUp.tolerance: Invalid value: "-100m": must be greater than'),
        ("behavior", "scaleUp: {policies: [{type: Pods, value: 0, periodSeconds: 60}]}", "must be greater than zero"),
        ("behavior", "scaleDown: {selectPolicy: Most}", 'scaleDown.selectPolicy: Unsupported value: "Most"'),
        ("behavior", "scaleUp: {tolerence: '0.1'}", "spec.behavior.scaleUp.tolerence: unknown field"),
        ("behavior", "scaleup: {}", "spec.behavior.scaleup: unknown field"),
        (
            "behavior",
            "scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 60, x: 1}]}",
            "spec.behavior.scaleUp.policies[0].x: unknown field",
        ),
        ("behavior", "4 pods", "write scaleUp or scaleDown with their fields"),
        ("behavior", "scaleUp: [", "this is not YAML of a behavior: "),
        ("behavior", "scaleUp: {tolerance: 2026-01-01}", "this is not YAML of a behavior: "),
        ("behavior", "scaleUp: {tolerance: .nan}", "not JSON compliant"),
        ("behavior", "scaleUp: 5", "spec.behavior.scaleUp"),
        ("behavior", "scaleUp: {policies: {a: b}}", "spec.behavior.scaleUp.policies"),
        ("behavior", "scaleUp: {stabilizationWindowSeconds: 9999999999}", "spec.behavior.scaleUp"),
        ("behavior", "a: &a [x]\nb: *a", "without aliases"),
        ("behavior", "[" * 5000, "no deeper than a behavior"),
        ("behavior", "!!python/object/apply:os.system [id]", "this is not YAML of a behavior: "),
        *[
            ("behavior", f"scaleUp: {{tolerance: {value}}}", "this is not YAML of a behavior: a value cannot be read: ")
            for value in ("!!bool foo", "!!timestamp foo", "!!int ''", "!!float x", "2026-13-45", "!!set [a]", "!a b")
        ],
        ("behavior", "scaleDown: {stabilizationWindowSeconds: 7}", "has a field of its own: write it there only"),
        ("startup", "2h", "write a duration from 0s to 1h0m0s, such as 30s"),
        ("capacity.0", "0", "write a quantity above 0"),
    ],
)
def test_error_is_beside_its_field(name: str, text: str, expected: str) -> None:
    form = submitted(hpa_of(pods_metric(), cpu_metric()), **{"down.window": "60", name: text})
    assert form.changed is None
    assert form.errors == []
    errors = {field.name: field.errors for field in fields(form).values() if field.errors}
    assert list(errors) == [name]
    assert expected in "; ".join(errors[name])
    assert fields(form)[name].value == text


def test_all_wrong_fields_have_their_errors_at_once() -> None:
    hpa = hpa_of(pods_metric(), cpu_metric(), min_replicas=2)
    wrong = {
        "minReplicas": "two",
        "maxReplicas": "0",
        "target.0": "lots",
        "target.1": "0",
        "behavior": "scaleUp: {tolerance: '-1'}",
        "down.window": "99999999999",
        "startup": "soon",
    }
    form = submitted(hpa, **wrong)
    assert form.changed is None
    assert form.errors == []
    errors = {field.name: field.errors for field in fields(form).values() if field.errors}
    assert errors.keys() == wrong.keys()
    assert "spec.maxReplicas: Required value: must be set and greater than 0" in errors["maxReplicas"]
    assert errors["target.0"][0].startswith("write a quantity")


def test_bound_that_cannot_be_parsed_is_not_compared_with_the_other() -> None:
    form = submitted(hpa_of(min_replicas=5), minReplicas="l", maxReplicas="3")
    assert {field.name: list(field.errors) for field in fields(form).values() if field.errors} == {
        "minReplicas": ["write a whole number"]
    }


def test_error_of_no_field_is_shown_above_the_form() -> None:
    hpa = hpa_of({"type": "Pods", "pods": {"metric": {"name": ""}, "target": {"type": "AverageValue", "value": "1"}}})
    form = form_of(hpa, target__0="5")
    assert form.changed is None
    assert any("metric.name: Required value" in error for field in fields(form).values() for error in field.errors)
    assert submitted(hpa_of(annotations={"_bad": "x"})).errors


def test_what_kubectl_and_the_api_server_add_is_not_in_the_document() -> None:
    document = hpa_document(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    document["metadata"] |= {"uid": "1", "resourceVersion": "2", "labels": {"app": "web"}}
    assert form_of(parse_hpa(document)).document["metadata"] == {
        "name": "web",
        "namespace": "shop",
        "labels": {"app": "web"},
    }
