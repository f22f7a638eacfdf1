"""The fields that `tune` may change, their values, and candidates as objects."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from replay.hpa_files import parse_hpa_document
from replay.simulation import Settings
from replay.tune.candidates import FIELDS, Candidate, candidate_object, other_fields, target_field, to_yaml
from tests.replay.builders import cpu_metric, external_metric, hpa_document, load_of, make_hpa, pods_metric

SETTINGS = Settings(capacity={"rps": 100.0})


def choices(*names: str, **options: Any) -> dict[str, tuple[float, ...]]:
    """Of the fields but the target, of an HPA with 20 replicas on average."""
    hpa = make_hpa(pods_metric(average="70"), **options)
    fields = other_fields(hpa, SETTINGS, mean_replicas=20.0, names=names or FIELDS)
    return {field.name: field.choices for field in fields}


def targets(*metrics: dict[str, Any], settings: Settings = SETTINGS, max_target: float = 90.0) -> tuple[float, ...]:
    load = load_of(rps=[1.0], writes=[1.0], reads=[1.0], queue=[1.0])
    field = target_field(make_hpa(*metrics), load, settings, max_target=max_target)
    return field.choices if field is not None else ()


# --- fields


def test_target_has_a_safety_margin_to_the_capacity() -> None:
    assert targets(pods_metric(average="70"))[0::60] == (30, 90)
    assert targets(pods_metric(average="70"), max_target=100)[-1] == 100
    assert targets(pods_metric(average="95"))[-2:] == (90, 95)  # the given one may stay


def test_values_of_other_fields_differ_from_the_given_ones() -> None:
    behavior = {"scaleUp": {"tolerance": "0.05"}, "scaleDown": {"stabilizationWindowSeconds": 77}}
    assert choices(behavior=behavior, min_replicas=2, max_replicas=40) == {
        "scaleUp.tolerance": (0.02, 0.1),
        "scaleDown.tolerance": (0.02, 0.05),
        "scaleDown.stabilizationWindowSeconds": (60, 120, 300, 600),
        "minReplicas": (5, 10),
    }


def test_min_replicas_is_neither_lowered_nor_above_max_replicas() -> None:
    assert choices("minReplicas", min_replicas=7) == {"minReplicas": (10,)}
    assert choices("minReplicas", min_replicas=2, max_replicas=4) == {"minReplicas": ()}


def test_direction_that_is_disabled_is_not_searched() -> None:
    assert list(choices(behavior={"scaleDown": {"selectPolicy": "Disabled"}})) == ["scaleUp.tolerance", "minReplicas"]


def test_min_replicas_of_zero_stays() -> None:
    hpa = make_hpa(external_metric(averageValue="5"), min_replicas=0)
    [field] = other_fields(hpa, SETTINGS, mean_replicas=20.0, names=["minReplicas"])
    assert field.choices == ()


def test_value_target_is_not_searched() -> None:
    assert targets(external_metric(value="5"), settings=Settings(capacity={"queue": 5.0})) == ()


@pytest.mark.parametrize(
    ("first", "second", "highest"),
    [
        ("35", "70", 45.0),  # then reads is at 90 %
        ("70", "35", 90.0),
        ("20", "100", 20.0),  # reads is above 90 % already
    ],
)
def test_no_target_exceeds_the_margin_to_its_own_capacity(first: str, second: str, highest: float) -> None:
    settings = Settings(capacity={"writes": 100.0, "reads": 100.0})
    found = targets(pods_metric("writes", first), pods_metric("reads", second), settings=settings)
    assert found[-1] == pytest.approx(highest)


# --- candidates as objects


def test_candidate_changes_only_its_fields() -> None:
    document = hpa_document(pods_metric(average="70"), behavior={"scaleUp": {"selectPolicy": "Min"}})
    changed = object_of(
        document,
        {
            "target": 82.0,
            "minReplicas": 3.0,
            "scaleDown.stabilizationWindowSeconds": 30.0,
            "scaleDown.tolerance": 0.05,
        },
    )
    assert changed["metadata"] == {"name": "web", "namespace": "shop"}
    assert changed["spec"] == {
        **document["spec"],
        "minReplicas": 3,
        "metrics": [pods_metric(average="82")],
        "behavior": {
            "scaleUp": {"selectPolicy": "Min"},
            "scaleDown": {"tolerance": "0.05", "stabilizationWindowSeconds": 30},
        },
    }
    assert document["spec"]["metrics"] == [pods_metric(average="70")]  # the user's is not changed


def test_what_the_api_server_adds_is_left_out() -> None:
    document = hpa_document(pods_metric(average="70"), annotations={"team": "a"})
    document["status"] = {"currentReplicas": 3}
    document["metadata"] |= {"uid": "1", "resourceVersion": "7", "managedFields": [], "creationTimestamp": "x"}
    document["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    changed = object_of(document, {})
    assert list(changed) == ["apiVersion", "kind", "metadata", "spec"]
    assert changed["metadata"] == {"name": "web", "namespace": "shop", "annotations": {"team": "a"}}


def test_hpa_without_a_namespace_gets_none() -> None:
    document = hpa_document(pods_metric(average="70"))
    del document["metadata"]["namespace"]
    file = parse_hpa_document(document, "hpa.yaml")
    changed = candidate_object(file.document, file.hpa, load_of(rps=[100.0]), SETTINGS, {"target": 80.0})
    assert changed["metadata"] == {"name": "web"}


def test_utilization_target_is_a_percentage_of_the_requests() -> None:
    document = hpa_document(cpu_metric(50))
    load = load_of(requests={"cpu": 500}, cpu=[1.0])
    settings = Settings(capacity={"cpu": 0.4})
    hpa = make_hpa(cpu_metric(50))
    changed = candidate_object(document, hpa, load, settings, {"target": 90.0})
    # 90 % of 0.4 cores, of which a pod requests 0.5
    assert changed["spec"]["metrics"] == [cpu_metric(72)]


def test_several_targets_keep_their_proportion() -> None:
    metrics = (pods_metric("a", "40"), pods_metric("b", "5"))
    load = load_of(a=[1.0], b=[1.0])
    settings = Settings(capacity={"a": 100.0, "b": 10.0})
    changed = candidate_object(hpa_document(*metrics), make_hpa(*metrics), load, settings, {"target": 60.0})
    assert changed["spec"]["metrics"] == [pods_metric("a", "60"), pods_metric("b", "7500m")]


def test_default_metrics_are_written_if_their_target_changes() -> None:
    document = hpa_document()
    del document["spec"]["metrics"]
    hpa = make_hpa(cpu_metric(80))
    load = load_of(requests={"cpu": 1000}, cpu=[1.0])
    changed = candidate_object(document, hpa, load, Settings(capacity={"cpu": 1.0}), {"target": 90.0})
    assert changed["spec"]["metrics"] == [cpu_metric(90)]


def test_every_candidate_is_a_valid_hpa() -> None:
    document = hpa_document(pods_metric(average="70"))
    values = {**choices(min_replicas=2, max_replicas=40), "target": (30.0, 99.96)}
    assert set(values) == set(FIELDS)
    for name, found in values.items():
        for value in found:
            assert validate_hpa(default_hpa(object_of(document, {name: value})), scale_to_zero=False) == []


def test_targets_are_rounded_down_to_stay_within_the_capacity() -> None:
    changed = object_of(hpa_document(pods_metric(average="70")), {"target": 99.96})
    assert changed["spec"]["metrics"] == [pods_metric(average="99")]


@pytest.mark.parametrize(
    ("given", "capacity", "found"),
    [
        ("35M", 49_902_828.0, "44900k"),
        ("35k", 49_902.828, "44900"),
        ("1k", 2276.0, "2040"),
        ("70", 94.4285, "84"),
        ("3", 3.4689, "3120m"),
        ("2m", 0.0005, "1m"),
        ("512Mi", 1024.0**3, "921Mi"),
        ("1Gi", 2 * 1024.0**3, "1843Mi"),
    ],
)
def test_targets_are_round_quantities_in_the_units_of_the_given_one(given: str, capacity: float, found: str) -> None:
    metric = pods_metric(average=given)
    settings = Settings(capacity={"rps": capacity})
    changed = candidate_object(hpa_document(metric), make_hpa(metric), load_of(rps=[1.0]), settings, {"target": 90.0})
    assert changed["spec"]["metrics"] == [pods_metric(average=found)]


def test_yaml_keeps_quantities_as_text() -> None:
    assert "averageValue: '82'" in to_yaml(object_of(hpa_document(pods_metric(average="70")), {"target": 82.0}))


def object_of(document: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
    return candidate_object(document, make_hpa(pods_metric(average="70")), load_of(rps=[100.0]), SETTINGS, candidate)
