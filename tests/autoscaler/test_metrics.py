"""Responses of the metrics APIs that the recorded cases of tests/conformance lack."""

import pytest

from autoscaler.core.metrics import compute_replicas_for_metric, pod_samples, validate_metric_source
from autoscaler.core.model import ContainerResourceMetric, MetricSpec, MetricTarget, ResourceMetric
from autoscaler.core.observation import MetricError, PodUsage, ResourceResponse, ValuesResponse
from autoscaler.core.replica_calculator import ReplicaCalculator, Tolerances
from tests.autoscaler.simulated_cluster import NOW, external_metric, pods_metric


def values(response: ResourceResponse, metric: ResourceMetric) -> dict[str, int]:
    samples = pod_samples(metric, response)
    assert not isinstance(samples, MetricError)
    return {name: sample.value for name, sample in samples.items()}


def test_first_of_two_containers_with_one_name_counts() -> None:
    entries = ({"cpu": 100}, {"cpu": 20, "memory": 5})
    containers = tuple(("app", each) for each in entries)
    twice = ResourceResponse({"web-0": PodUsage(timestamp_ms=NOW, window_ms=15_000, containers=containers)})
    assert values(twice, ContainerResourceMetric("cpu", container="app")) == {"web-0": 100}
    assert values(twice, ContainerResourceMetric("memory", container="app")) == {}
    assert values(twice, ResourceMetric("cpu")) == {"web-0": 120}


def test_response_of_another_metric_type_is_a_bug() -> None:
    calculator = ReplicaCalculator(
        pods=(),
        spec_replicas=1,
        status_replicas=1,
        tolerances=Tolerances(scale_down=0.1, scale_up=0.1),
        now_ms=NOW,
        cpu_initialization_period_ms=0,
        initial_readiness_delay_ms=0,
    )
    with pytest.raises(ValueError, match="PodsMetric has no response of its kind but ValuesResponse"):
        compute_replicas_for_metric(pods_metric(1), ValuesResponse(values=(1,)), calculator, namespace="default")


NO_EXTERNAL_TARGET = "invalid external metric source: neither a value target nor an average value target was set"


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (MetricSpec("Weather"), 'unknown metric source type "Weather"'),
        (
            pods_metric(100).with_target(MetricTarget("AverageValue")),
            "failed to get pods metric value: invalid pods metric source: no average value target was set",
        ),
        (
            external_metric(100).with_target(MetricTarget("Value")),
            f"failed to get queue external metric value: {NO_EXTERNAL_TARGET}",
        ),
    ],
    ids=["unknown type", "pods without a target", "external without a target"],
)
def test_error_of_an_invalid_source_says_what_is_wrong(spec: MetricSpec, error: str) -> None:
    failure = validate_metric_source(spec)
    assert failure is not None
    assert failure.error == error
