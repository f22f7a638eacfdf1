"""The labels of reconciliations in the metrics are those of kube-controller-manager 1.36.

The expectations are those of Kubernetes' own tests of its controller (horizontal_test.go:
expectedReportedReconciliationActionLabel and its like), for the situations of the same names here.
"""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from autoscaler.core.config import Config, Pause
from autoscaler.core.model import MetricSpec, MetricTarget, Status
from autoscaler.core.observation import ReadError
from autoscaler.loop.telemetry import Telemetry
from tests.autoscaler.simulated_cluster import (
    SimulatedCluster,
    behavior,
    external_metric,
    hpa,
    object_metric,
    percent,
    pods_metric,
    rules,
)

PREFIX = "horizontal_pod_autoscaler_controller"
UNKNOWN = MetricSpec("CheddarCheese")
NO_TARGET = pods_metric(100).with_target(MetricTarget("AverageValue"))


@dataclass(frozen=True)
class Counted:
    """The labels of one reconciliation, (action, error), and of its metrics, (type, action, error); and the gauge."""

    reconciliation: tuple[str, str]
    metrics: tuple[tuple[str, str, str], ...] = ()
    desired_replicas: int | None = None


def counted(
    simulated: SimulatedCluster, *values: int | str, scale_error: str | None = None, status_error: str | None = None
) -> Counted:
    """Reconcile once, and return the labels that are counted."""
    before = simulated.hpa
    outcome = simulated.reconcile(*values, scale_error=scale_error, status_error=status_error)
    assert simulated.decision is not None
    assert simulated.decision.observation.hpa == before
    telemetry = Telemetry()
    telemetry.decided(simulated.decision, outcome, scale_error=scale_error, metric_seconds=(), seconds=0.1)
    samples = [
        (sample.name.removeprefix(f"{PREFIX}_"), sample.labels, sample.value)
        for family in text_string_to_metric_families(telemetry.render().decode())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_sum", "_created"))
    ]
    ((action, error),) = (
        (labels["action"], labels["error"]) for name, labels, _ in samples if name == "reconciliations_total"
    )
    assert [value for name, _, value in samples if name == "reconciliation_duration_seconds_count"] == [1.0]
    metrics = tuple(
        (labels["metric_type"], labels["action"], labels["error"])
        for name, labels, value in samples
        if name == "metric_computation_total"
    )
    gauges = [int(value) for name, _, value in samples if name == "desired_replicas"]
    return Counted((action, error), metrics, *gauges)


def three(
    *metrics: MetricSpec,
    config: Config | None = None,
    status_replicas: int = 3,
    window: int = 0,
    minimum: int = 1,
    maximum: int = 10,
    api_version: str = "apps/v1",
) -> SimulatedCluster:
    """Three replicas and an HPA on them, with a stabilization window of so many seconds for scaling down."""
    on_three = hpa(
        *metrics,
        status=Status(current_replicas=status_replicas, desired_replicas=3),
        behavior=behavior(down=rules(percent(100, 1), window=window)),
        minimum=minimum,
        maximum=maximum,
        api_version=api_version,
    )
    return SimulatedCluster(on_three, replicas=3, config=config)


def test_a_scale_up() -> None:
    assert counted(three(), 150) == Counted(("scale_up", "none"), (("Pods", "scale_up", "none"),), 5)


def test_a_scale_down() -> None:
    assert counted(three(), 30) == Counted(("scale_down", "none"), (("Pods", "scale_down", "none"),), 1)


def test_nothing_to_do() -> None:
    assert counted(three(), 100) == Counted(("none", "none"), (("Pods", "none", "none"),), 3)


def test_stabilized_scale_down_is_only_counted_for_the_metric() -> None:
    simulated = three(window=60)
    assert counted(simulated, 30) == Counted(("none", "none"), (("Pods", "scale_down", "none"),), 3)


def test_a_metric_is_compared_with_the_replicas_of_the_stored_status() -> None:
    stale = three(status_replicas=5)
    assert counted(stale, 100) == Counted(("none", "none"), (("Pods", "scale_down", "none"),), 3)


def test_a_new_hpa_has_no_replicas_in_its_status() -> None:
    assert counted(SimulatedCluster(hpa(), replicas=3), 100).metrics == (("Pods", "scale_up", "none"),)


def test_a_metric_that_fails_is_internal_and_has_no_action() -> None:
    assert counted(three(), "unavailable") == Counted(("none", "internal"), (("Pods", "none", "internal"),))


def test_a_metric_without_a_target_is_internal_too() -> None:
    assert counted(three(NO_TARGET), 0) == Counted(("none", "internal"), (("Pods", "none", "internal"),))


def test_an_unknown_metric_type_is_a_spec_error_of_the_metric_and_internal_of_the_reconciliation() -> None:
    assert counted(three(UNKNOWN), 0) == Counted(("none", "internal"), (("CheddarCheese", "none", "spec"),))


def test_a_scale_up_beside_a_metric_that_fails_has_both_labels() -> None:
    expected = (("Object", "scale_up", "none"), ("External", "none", "internal"))
    simulated = three(object_metric(100), external_metric(100))
    assert counted(simulated, 200, "unavailable") == Counted(("scale_up", "internal"), expected, 6)


def test_a_scale_down_that_a_failed_metric_forbids() -> None:
    expected = (("Object", "scale_down", "none"), ("External", "none", "internal"))
    simulated = three(object_metric(100), external_metric(100))
    assert counted(simulated, 30, "unavailable") == Counted(("none", "internal"), expected)


def test_an_api_version_that_cannot_be_parsed_is_a_spec_error() -> None:
    assert counted(three(api_version="apps/v1/beta")) == Counted(("none", "spec"))


@pytest.mark.parametrize("scale", [ReadError("not found"), ReadError("no matches for kind", unknown_kind=True)])
def test_a_scale_that_cannot_be_read_is_internal(scale: ReadError) -> None:
    simulated = three()
    simulated.scale = scale
    assert counted(simulated) == Counted(("none", "internal"))


def test_a_selector_that_is_missing_is_internal() -> None:
    simulated = three()
    assert not isinstance(simulated.scale, ReadError)
    simulated.scale = replace(simulated.scale, selector="")
    assert counted(simulated) == Counted(("none", "internal"))


def test_a_scale_that_cannot_be_written_has_no_action_and_leaves_the_gauge() -> None:
    expected = Counted(("none", "internal"), (("Pods", "scale_up", "none"),))
    assert counted(three(), 150, scale_error="denied") == expected


def test_a_status_that_cannot_be_stored_is_internal_beside_the_scale() -> None:
    expected = Counted(("scale_up", "internal"), (("Pods", "scale_up", "none"),), 5)
    assert counted(three(), 150, status_error="conflict") == expected


def test_a_target_above_its_maximum_is_scaled_without_metrics() -> None:
    assert counted(three(maximum=2)) == Counted(("scale_down", "none"), (), 2)


def test_a_target_below_its_minimum_is_scaled_without_metrics() -> None:
    assert counted(three(minimum=4)) == Counted(("scale_up", "none"), (), 4)


def test_a_target_at_zero_is_left_there() -> None:
    simulated = three()
    simulated.scale_by_hand(0)
    assert counted(simulated) == Counted(("none", "none"), (), 0)


def test_a_pause_has_no_action() -> None:
    simulated = three(config=Config(paused=Pause.ALL))
    assert counted(simulated, 150) == Counted(("none", "none"), (("Pods", "scale_up", "none"),), 3)
