"""The labels of reconciliations in the metrics are those of kube-controller-manager 1.36.

The expectations are those of Kubernetes' own tests of its controller (horizontal_test.go:
expectedReportedReconciliationActionLabel and its like), for the situations of the same names here.
"""

from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from autoscaler.core.config import Config, Pause
from autoscaler.core.model import MetricSpec, MetricTarget, Status
from autoscaler.core.observation import ReadError, Scale
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
    assert outcome.observation.hpa == before
    telemetry = Telemetry()
    telemetry.decided(outcome, metric_seconds=(), seconds=0.1)
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
    scale: Scale | ReadError | None = None,
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
    simulated = SimulatedCluster(on_three, replicas=3, config=config)
    simulated.scale = scale or simulated.scale
    return simulated


UP, DOWN, NONE = (("Pods", action, "none") for action in ("scale_up", "scale_down", "none"))
FAILED = ("External", "none", "internal")
NO_SELECTOR = Scale(spec_replicas=3, status_replicas=3, selector="")
AT_ZERO = Scale(spec_replicas=0, status_replicas=0, selector="app=web")
UNKNOWN_KIND = ReadError("no matches for kind", unknown_kind=True)


@pytest.mark.parametrize(
    ("simulated", "values", "expected"),
    [
        pytest.param(three(), [150], Counted(("scale_up", "none"), (UP,), 5), id="scale up"),
        pytest.param(three(), [30], Counted(("scale_down", "none"), (DOWN,), 1), id="scale down"),
        pytest.param(three(), [100], Counted(("none", "none"), (NONE,), 3), id="nothing to do"),
        pytest.param(three(window=60), [30], Counted(("none", "none"), (DOWN,), 3), id="stabilized"),
        # A metric's proposal is compared with the replicas of the stored status.
        pytest.param(three(status_replicas=5), [100], Counted(("none", "none"), (DOWN,), 3), id="old status"),
        pytest.param(three(status_replicas=0), [100], Counted(("none", "none"), (UP,), 3), id="new HPA"),
        pytest.param(
            three(), ["unavailable"], Counted(("none", "internal"), (("Pods", "none", "internal"),)), id="failed metric"
        ),
        pytest.param(
            three(NO_TARGET), [0], Counted(("none", "internal"), (("Pods", "none", "internal"),)), id="no target"
        ),
        pytest.param(
            three(UNKNOWN),
            [0],
            Counted(("none", "internal"), (("CheddarCheese", "none", "spec"),)),
            id="unknown type",
        ),
        pytest.param(
            three(object_metric(100), external_metric(100)),
            [200, "unavailable"],
            Counted(("scale_up", "internal"), (("Object", "scale_up", "none"), FAILED), 6),
            id="scale up beside a failed metric",
        ),
        pytest.param(
            three(object_metric(100), external_metric(100)),
            [30, "unavailable"],
            Counted(("none", "internal"), (("Object", "scale_down", "none"), FAILED)),
            id="scale down that a failed metric forbids",
        ),
        pytest.param(three(api_version="apps/v1/beta"), [], Counted(("none", "spec")), id="malformed API version"),
        pytest.param(three(scale=ReadError("not found")), [], Counted(("none", "internal")), id="no scale"),
        pytest.param(three(scale=UNKNOWN_KIND), [], Counted(("none", "internal")), id="unknown kind"),
        pytest.param(three(scale=NO_SELECTOR), [], Counted(("none", "internal")), id="no selector"),
        pytest.param(three(maximum=2), [], Counted(("scale_down", "none"), (), 2), id="above the maximum"),
        pytest.param(three(minimum=4), [], Counted(("scale_up", "none"), (), 4), id="below the minimum"),
        pytest.param(three(scale=AT_ZERO), [], Counted(("none", "none"), (), 0), id="scaled to zero by hand"),
        pytest.param(three(config=Config(paused=Pause.ALL)), [150], Counted(("none", "none"), (UP,), 3), id="paused"),
    ],
)
def test_each_situation_has_kubernetes_labels(
    simulated: SimulatedCluster, values: list[int | str], expected: Counted
) -> None:
    assert counted(simulated, *values) == expected


def test_a_scale_that_cannot_be_written_has_no_action_and_leaves_the_gauge() -> None:
    assert counted(three(), 150, scale_error="denied") == Counted(("none", "internal"), (UP,))


def test_a_status_that_cannot_be_stored_is_internal_beside_the_scale() -> None:
    assert counted(three(), 150, status_error="conflict") == Counted(("scale_up", "internal"), (UP,), 5)
