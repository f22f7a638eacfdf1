"""The row of an HPA: metrics against their targets, replicas, conditions, mode, and what is out of date."""

from typing import Any

import pytest
from msgspec.structs import replace

from autoscaler.core.config import AnnotationOverrides, Config, Mode, Pause
from autoscaler.core.model import (
    HPA,
    MILLISCALE,
    Condition,
    ContainerResourceMetric,
    MetricSpec,
    MetricTarget,
    ResourceMetric,
    ScalingRules,
    Status,
)
from autoscaler.ui.rows import Row, highest_ratio, states_of
from autoscaler.ui.rows import row as row_of
from tests.autoscaler.simulated_cluster import (
    NOW,
    behavior,
    external_metric,
    hpa,
    object_metric,
    pods_metric,
    quantity,
)

CPU = MetricSpec.of(ResourceMetric("cpu", MetricTarget("Utilization", average_utilization=80)))
MEMORY = MetricSpec.of(ResourceMetric("memory", MetricTarget("AverageValue", average_value=quantity(2 * 2**30 * 1000))))
OF_APP = MetricSpec.of(
    ContainerResourceMetric("cpu", MetricTarget("Utilization", average_utilization=60), container="app")
)


def row(of: HPA, mode: Mode = Mode.ACT, *, is_foreign: bool = False, is_owned: bool = True) -> Row:
    return row_of(of, mode, Config(), is_foreign=is_foreign, is_owned=is_owned)


def measured(*pairs: tuple[MetricSpec, MetricTarget], **spec: Any) -> HPA:
    """An HPA with these metrics and their current values."""
    metrics = [metric for metric, _ in pairs]
    current = tuple(metric.with_target(target) for metric, target in pairs)
    return hpa(*metrics, status=Status(current_metrics=current), **spec)


def average(milli: int) -> MetricTarget:
    return MetricTarget(average_value=quantity(milli))


def condition(type_: str, status: str, reason: str = "Reason") -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="why", last_transition_ms=NOW)


def with_status(**fields: Any) -> HPA:
    return hpa(status=Status(**fields))


# --- metrics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "current", "expected"),
    [
        (pods_metric(100_000), average(87_500), ("packets", "87.5", "100 per pod")),
        (CPU, MetricTarget(average_utilization=63, average_value=quantity(315)), ("cpu", "63%", "80% of requests")),
        (MEMORY, average(2**30 * 1000), ("memory", "1Gi", "2Gi per pod")),
        (OF_APP, MetricTarget(average_utilization=30), ("cpu of container app", "30%", "60% of requests")),
        (
            object_metric(2_000_000),
            MetricTarget(value=quantity(1_500_000)),
            ("requests of Service front", "1500", "2k"),
        ),
        (external_metric(50_000), average(25_000), ("queue", "25", "50 per pod")),
    ],
    ids=["pods", "utilization", "memory", "container", "object", "external"],
)
def test_metric_of_each_type_has_its_value_and_target(
    metric: MetricSpec, current: MetricTarget, expected: tuple[str, str, str]
) -> None:
    (bar,) = row(measured((metric, current))).metrics
    assert (bar.name, bar.current, bar.target) == expected


@pytest.mark.parametrize(
    ("milli", "length"), [(0, 0.0), (75_000, 50.0), (100_000, 66.7), (150_000, 100.0), (900_000, 100.0)]
)
def test_bar_ends_at_one_and_a_half_times_the_target(milli: int, length: float) -> None:
    (bar,) = row(measured((pods_metric(100_000), average(milli)))).metrics
    assert bar.length == length
    assert bar.target_at == pytest.approx(66.67, abs=0.01)


def level(milli: int, of: HPA) -> str:
    (bar,) = row(of).metrics
    assert bar.current == str(milli // 1000)
    return bar.level


@pytest.mark.parametrize(
    ("milli", "override", "written", "expected"),
    [
        (110_000, None, None, "ok"),
        (111_000, None, None, "warn"),
        (111_000, 0.2, None, "ok"),
        (111_000, 0.2, 50, "warn"),
        (20_000, None, None, "ok"),
    ],
    ids=["within the flag's", "beyond the flag's", "annotation", "behavior before annotation", "below the target"],
)
def test_value_above_the_scale_up_tolerance_is_a_warning(
    milli: int, override: float | None, written: int | None, expected: str
) -> None:
    rules = None if written is None else behavior(up=ScalingRules(tolerance=quantity(written)))
    given = measured((pods_metric(100_000), average(milli)), behavior=rules)
    assert level(milli, replace(given, overrides=AnnotationOverrides(tolerance=override))) == expected


def test_metric_without_a_current_value_is_unknown() -> None:
    (metric,) = row(hpa(pods_metric(100_000))).metrics
    assert (metric.name, metric.current, metric.target) == ("packets", "unknown", "100 per pod")
    assert (metric.level, metric.length) == ("", 0.0)
    assert row(hpa(pods_metric(100_000), status=Status(current_metrics=(MetricSpec(),)))).metrics == (metric,)


def test_value_of_an_earlier_spec_is_not_shown() -> None:
    given = measured((pods_metric(100_000, "old"), average(10_000)))
    assert row(replace(given, spec=hpa(pods_metric(100_000, "new")).spec)).metrics[0].current == "unknown"


def test_value_remains_if_only_the_target_was_changed() -> None:
    given = measured((pods_metric(100_000), average(10_000)))
    assert row(replace(given, spec=hpa(pods_metric(5_000)).spec)).metrics[0].current == "10"


def test_highest_ratio_is_that_of_the_metric_farthest_above_its_target() -> None:
    given = measured((pods_metric(100_000), average(50_000)), (CPU, MetricTarget(average_utilization=120)))
    assert highest_ratio(given) == 1.5
    assert highest_ratio(hpa()) == -1.0
    assert highest_ratio(replace(given, problem="spec: bad")) == -1.0


# --- replicas and conditions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "length", "expected"),
    [(1, 0.0, ""), (2, 0.0, ""), (6, 50.0, ""), (10, 100.0, "warn"), (12, 100.0, "warn")],
)
def test_replicas_are_between_minimum_and_maximum(current: int, length: float, expected: str) -> None:
    bar = row(hpa(minimum=2, status=Status(current_replicas=current, desired_replicas=7))).replicas
    assert bar is not None
    assert (bar.current, bar.desired, bar.minimum, bar.maximum) == (current, 7, 2, 10)
    assert (bar.length, bar.level) == (length, expected)


@pytest.mark.parametrize(("minimum", "desired"), [(1, 3), (0, 0)])
def test_desired_replicas_of_0_below_the_minimum_are_not_shown(minimum: int, desired: int) -> None:
    bar = row(hpa(minimum=minimum, status=Status(current_replicas=3, desired_replicas=0))).replicas
    assert bar is not None
    assert bar.desired == desired


@pytest.mark.parametrize(("current", "length"), [(0, 0.0), (3, 100.0)])
def test_equal_bounds_have_a_full_or_empty_bar(current: int, length: float) -> None:
    bar = row(hpa(minimum=3, maximum=3, status=Status(current_replicas=current))).replicas
    assert bar is not None
    assert bar.length == length


@pytest.mark.parametrize(
    ("type_", "status", "reason", "expected"),
    [
        ("AbleToScale", "True", "ReadyForNewScale", "ok"),
        ("AbleToScale", "False", "FailedGetScale", "bad"),
        ("ScalingActive", "True", "ValidMetricFound", "ok"),
        ("ScalingActive", "False", "FailedGetPodsMetric", "bad"),
        ("ScalingActive", "Unknown", "Unheard", "bad"),
        ("ScalingActive", "False", "ScalingDisabled", "warn"),
        ("ScalingLimited", "False", "DesiredWithinRange", "ok"),
        ("ScalingLimited", "True", "TooManyReplicas", "warn"),
        ("ScaledToZero", "True", "ScaledToZero", ""),
        ("Unheard", "False", "Of", ""),
    ],
)
def test_condition_has_a_level(type_: str, status: str, reason: str, expected: str) -> None:
    (shown,) = row(with_status(conditions=(condition(type_, status, reason),))).conditions
    assert shown == (condition(type_, status, reason), expected)


# --- states --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (with_status(conditions=(condition("AbleToScale", "True"), condition("ScalingLimited", "False"))), set()),
        (with_status(conditions=(condition("AbleToScale", "False"),)), {"failing"}),
        (with_status(conditions=(condition("ScalingActive", "False"),)), {"failing"}),
        (replace(hpa(), problem="spec: bad"), {"failing"}),
        (with_status(conditions=(condition("ScalingActive", "False", "ScalingDisabled"),)), set()),
        (with_status(conditions=(condition("ScalingLimited", "True"),)), {"limited"}),
        (replace(hpa(), overrides=AnnotationOverrides(paused=Pause.SCALE_IN)), {"paused"}),
        (with_status(current_replicas=3, desired_replicas=4), {"scaling"}),
        (
            with_status(current_replicas=3, desired_replicas=4, conditions=(condition("AbleToScale", "False"),)),
            {"failing"},
        ),
    ],
    ids=[
        "none",
        "not able",
        "not active",
        "invalid",
        "disabled",
        "limited",
        "paused",
        "scaling",
        "failing, so not scaling",
    ],
)
def test_states_follow_from_spec_and_status(given: HPA, expected: set[str]) -> None:
    assert states_of(given) == expected


# --- mode, notes, identity -----------------------------------------------------------------------------------------


def test_badges_name_the_mode_and_what_keeps_this_process_from_acting() -> None:
    given = replace(hpa(), overrides=AnnotationOverrides(paused=Pause.SCALE_IN))
    shown = row(given, Mode.SHADOW, is_foreign=True, is_owned=False)
    assert [each.text for each in shown.modes] == ["shadow", "foreign controller", "other shard", "paused scale-in"]
    assert [each.text for each in row(hpa(), Mode.DRY_RUN).modes] == ["dry-run"]


def test_status_that_is_missing_or_of_an_earlier_spec_is_noted() -> None:
    reconciled = (condition("AbleToScale", "True"),)
    current = replace(with_status(conditions=reconciled, observed_generation=3), generation=3)
    assert row(hpa()).notes == ("not reconciled yet",)
    assert row(current).notes == ()
    assert row(replace(current, generation=4)).notes == ("the spec was changed, and is not reconciled yet",)


def test_ignored_annotations_are_noted() -> None:
    given = replace(with_status(conditions=(condition("AbleToScale", "True"),)), generation=0)
    assert row(replace(given, overrides=AnnotationOverrides(problems=("annotation x is ignored",)))).notes == (
        "annotation x is ignored",
    )


def test_invalid_hpa_has_nothing_of_a_spec() -> None:
    shown = row(replace(hpa(), problem="spec.maxReplicas: must be at least 1"))
    assert (shown.metrics, shown.replicas) == ((), None)


def test_hpas_of_both_apis_with_one_name_differ() -> None:
    one, other = row(hpa()), row(replace(hpa(), api_version=MILLISCALE.api_version))
    assert (one.id, one.url) == ("hpa/autoscaling/default/web", "/hpas/default/web")
    assert (other.id, other.url) == ("hpa/milliscale.io/default/web", "/hpas/default/web?group=milliscale.io")
