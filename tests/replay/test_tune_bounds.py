"""The bounds of `tune`: the file, and the search space that it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from replay.load import ReplayError
from replay.simulation import Settings
from replay.tune.bounds import Bounds, Given, PolicyRanges, Range, parse_bounds, read_bounds
from replay.tune.space import Candidate, Policy, Space, make_space
from replay.tune.specs import candidate_object, describe, to_yaml
from tests.replay.builders import cpu_metric, external_metric, hpa_document, load_of, make_hpa, pods_metric

SETTINGS = Settings(capacity={"rps": 100.0})


def space_of(bounds: Bounds | None = None, *, settings: Settings = SETTINGS, **options: Any) -> Space:
    hpa = make_hpa(pods_metric(average="70"), **options)
    return make_space(hpa, load_of(rps=[100.0]), settings, bounds or {}, mean_replicas=6.0)


def choices(space: Space) -> dict[str, tuple[float, ...]]:
    return {field.name: field.choices for field in space.fields}


# --- the file


def test_bounds_file_has_ranges_fixed_values_and_given_fields(tmp_path: Path) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text(
        "target: [60%, 95%]\nminReplicas: 3\nscaleDown.stabilizationWindowSeconds: [60, 1800]\n"
        "scaleUp.tolerance: given\nscaleUp.policies: given\nscaleDown.policies: {Percent: [5, 50], periodSeconds: 60}\n"
    )
    assert read_bounds(path) == {
        "target": Range(60, 95),
        "minReplicas": Range(3, 3),
        "scaleDown.stabilizationWindowSeconds": Range(60, 1800),
        "scaleUp.tolerance": Given(),
        "scaleUp.policies": Given(),
        "scaleDown.policies": PolicyRanges(percent=Range(5, 50), period_seconds=Range(60, 60)),
    }


def test_empty_bounds_file_means_the_default_ranges() -> None:
    assert parse_bounds(None) == {}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (["target"], "write fields and their ranges, such as minReplicas: [2, 10]"),
        ({"tagret": "60%"}, "tagret: unknown field: did you mean target?"),
        ({"target": [60, 90]}, "target: 60 is not a percentage of a pod's capacity, such as [60%, 90%]"),
        ({"target": ["0%", "90%"]}, "target: 0% is not between 1% and 100%"),
        ({"minReplicas": [10, 2]}, "minReplicas: the least value comes first: [2, 10]"),
        ({"minReplicas": [1, 2, 3]}, "minReplicas: write the least and the highest value, such as [2, 10]"),
        ({"minReplicas": 1.5}, "minReplicas: 1.5 is not a whole number; write [2, 10], one value, or given"),
        ({"minReplicas": True}, "minReplicas: True is not a whole number; write [2, 10], one value, or given"),
        ({"maxReplicas": float("nan")}, "maxReplicas: nan is not a whole number; write [2, 10], one value, or given"),
        ({"scaleUp.tolerance": [0, 2]}, "scaleUp.tolerance: 2 is not between 0 and 1"),
        (
            {"scaleDown.stabilizationWindowSeconds": 7200},
            "scaleDown.stabilizationWindowSeconds: 7200 is not between 0 and 3600",
        ),
        ({"scaleUp.policies": 3}, "scaleUp.policies: write given, or ranges of Percent, Pods and periodSeconds"),
        (
            {"scaleUp.policies": {"periodSeconds": 15}},
            "scaleUp.policies: give a range of Percent or Pods, or write given",
        ),
        ({"scaleUp.policies": {"Pod": 4}}, "scaleUp.policies.Pod: unknown field: did you mean Pods?"),
        (
            {"minReplicas": [2, 9], "maxReplicas": [5, 20]},
            "minReplicas: its highest value must not be above the least maxReplicas",
        ),
    ],
)
def test_wrong_bounds_are_errors_that_name_the_field(document: Any, message: str) -> None:
    with pytest.raises(ReplayError) as error:
        parse_bounds(document)
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["a: [", "\x00"])
def test_bounds_file_that_is_no_yaml_is_an_error_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text(text)
    with pytest.raises(ReplayError, match=r"bounds\.yaml: this is not YAML"):
        read_bounds(path)
    with pytest.raises(ReplayError, match="No such file"):
        read_bounds(tmp_path / "other.yaml")


# --- the space


def test_default_space_surrounds_the_given_spec() -> None:
    space = space_of(min_replicas=2)
    assert space.target
    assert [space.target.choices[0], space.target.choices[-1], space.target.given] == [30, 100, 70]
    found = choices(space)
    assert list(found["minReplicas"]) == [2, 3, 4, 5, 6]  # not below the given one, up to the mean
    assert "maxReplicas" not in found
    assert found["scaleUp.stabilizationWindowSeconds"][-1] == 300
    assert found["scaleDown.stabilizationWindowSeconds"][-1] == 3600
    assert found["scaleUp.tolerance"][-1] == 0.2
    assert [each.name for each in space.policies] == ["scaleUp.policies", "scaleDown.policies"]


def test_bounds_replace_the_default_ranges() -> None:
    bounds = parse_bounds(
        {"target": ["60.5%", "62%"], "maxReplicas": [10, 12], "scaleUp.tolerance": 0, "scaleUp.policies": "given"}
    )
    space = space_of(bounds)
    assert space.target
    assert list(space.target.choices) == [60.5, 61, 62]
    assert list(choices(space)["maxReplicas"]) == [10, 11, 12]
    assert list(choices(space)["scaleUp.tolerance"]) == [0]
    assert [each.name for each in space.policies] == ["scaleDown.policies"]


def test_given_value_is_among_the_choices_if_it_is_within_the_bounds() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 77, "tolerance": "0.033"}}
    found = choices(space_of(behavior=behavior))
    assert 77 in found["scaleDown.stabilizationWindowSeconds"]
    assert 0.033 in found["scaleDown.tolerance"]


def test_direction_that_is_disabled_is_not_searched() -> None:
    space = space_of(behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    assert not [name for name in choices(space) if name.startswith("scaleDown")]
    assert [each.name for each in space.policies] == ["scaleUp.policies"]


def test_min_replicas_of_zero_stays() -> None:
    hpa = make_hpa(external_metric(averageValue="5"), min_replicas=0)
    settings = Settings(capacity={"queue": 5.0})
    space = make_space(hpa, load_of(queue=[100.0]), settings, {}, mean_replicas=6.0)
    assert "minReplicas" not in choices(space)


def test_value_target_is_not_searched() -> None:
    hpa = make_hpa(external_metric(value="5"))
    space = make_space(hpa, load_of(queue=[100.0]), Settings(capacity={"queue": 5.0}), {}, mean_replicas=6.0)
    assert space.target is None


# --- candidates as objects


def test_candidate_changes_only_its_fields() -> None:
    document = hpa_document(pods_metric(average="70"), behavior={"scaleUp": {"selectPolicy": "Min"}})
    changed = object_of(
        document,
        {
            "target": 82.0,
            "minReplicas": 3.0,
            "scaleUp.stabilizationWindowSeconds": 30.0,
            "scaleDown.tolerance": 0.05,
            "scaleDown.policies": Policy("Percent", 10, 60),
        },
    )
    assert changed["metadata"] == {"name": "web", "namespace": "shop"}
    assert changed["spec"] == {
        **document["spec"],
        "minReplicas": 3,
        "metrics": [pods_metric(average="82")],
        "behavior": {
            "scaleUp": {"selectPolicy": "Min", "stabilizationWindowSeconds": 30},
            "scaleDown": {"tolerance": "0.05", "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]},
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
    space = space_of()
    document = hpa_document(pods_metric(average="70"))
    assert space.target is not None
    for field in (*space.fields, space.target):
        for value in (field.choices[0], field.choices[-1]):
            assert errors_of(object_of(document, {field.name: value})) == []
    for policies in space.policies:
        for kind, values in policies.values.items():
            for value in (values[0], values[-1]):
                for period in (policies.periods[0], policies.periods[-1]):
                    policy = Policy(kind, value, period)
                    assert errors_of(object_of(document, {policies.name: policy})) == []


def test_yaml_keeps_quantities_as_text() -> None:
    assert "averageValue: '82'" in to_yaml(object_of(hpa_document(pods_metric(average="70")), {"target": 82.0}))


def test_candidate_is_described_in_one_line() -> None:
    candidate: Candidate = {"target": 82.0, "scaleDown.policies": Policy("Pods", 2, 60), "scaleUp.tolerance": 0.05}
    assert describe(candidate) == "target 82%, scaleDown.policies 2 pods per 60 s, scaleUp.tolerance 0.05"
    assert describe({}) == "as given"


def object_of(document: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
    return candidate_object(document, make_hpa(pods_metric(average="70")), load_of(rps=[100.0]), SETTINGS, candidate)


def errors_of(document: dict[str, Any]) -> list[str]:
    return validate_hpa(default_hpa(document), scale_to_zero=False)


# --- several targets


def two_targets(first: str, second: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return pods_metric("writes", first), pods_metric("reads", second)


@pytest.mark.parametrize(
    ("targets", "highest"),
    [
        (("35", "70"), 50.0),  # then reads is at 100 %
        (("70", "35"), 100.0),
        (("20", "100"), 20.0),  # reads is at 100 % already
    ],
)
def test_no_target_exceeds_its_own_capacity(targets: tuple[str, str], highest: float) -> None:
    metrics = two_targets(*targets)
    settings = Settings(capacity={"writes": 100.0, "reads": 100.0})
    load, hpa = load_of(writes=[1.0], reads=[1.0]), make_hpa(*metrics)
    space = make_space(hpa, load, settings, {}, mean_replicas=6.0)
    assert space.target
    assert space.target.choices[-1] == pytest.approx(highest)
    found = candidate_object(hpa_document(*metrics), hpa, load, settings, {"target": space.target.choices[-1]})
    values = [float(metric["pods"]["target"]["averageValue"]) for metric in found["spec"]["metrics"]]
    assert max(values) == 100


def test_targets_are_rounded_down_to_stay_within_the_capacity() -> None:
    changed = object_of(hpa_document(pods_metric(average="70")), {"target": 99.96})
    assert changed["spec"]["metrics"] == [pods_metric(average="99900m")]


def test_target_bound_above_the_capacity_of_another_metric_is_an_error() -> None:
    load, hpa = load_of(writes=[1.0], reads=[1.0]), make_hpa(*two_targets("35", "70"))
    settings = Settings(capacity={"writes": 100.0, "reads": 100.0})
    with pytest.raises(ReplayError, match="bounds: target: above 50%, a target in proportion to it would exceed"):
        make_space(hpa, load, settings, parse_bounds({"target": ["60%", "90%"]}), mean_replicas=6.0)


# --- bounds that cannot hold


@pytest.mark.parametrize(
    ("bounds", "options", "message"),
    [
        (
            {"minReplicas": [100, 120]},
            {"max_replicas": 60},
            "bounds: minReplicas: 100 is above maxReplicas, which is 60",
        ),
        ({"maxReplicas": 1}, {"min_replicas": 2}, "bounds: maxReplicas: 1 is below minReplicas, which is 2"),
        (
            {"scaleDown.tolerance": [0, 0.1]},
            {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}},
            "bounds: scaleDown.tolerance: scaleDown has selectPolicy Disabled, so it changes nothing",
        ),
    ],
)
def test_bounds_that_cannot_hold_are_errors(bounds: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ReplayError) as error:
        space_of(parse_bounds(bounds), **options)
    assert str(error.value).startswith(message)


def test_given_bound_of_a_disabled_direction_is_allowed() -> None:
    space_of(parse_bounds({"scaleUp.policies": "given"}), behavior={"scaleUp": {"selectPolicy": "Disabled"}})
