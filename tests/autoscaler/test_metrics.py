"""Responses of the metrics APIs, and the metrics that cannot be evaluated."""

import pytest

from autoscaler.core.metrics import Evaluation, compute_replicas_for_metric, pod_samples
from autoscaler.core.model import (
    ContainerResourceMetric,
    MetricIdentifier,
    MetricSpec,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    ValuesResponse,
)
from autoscaler.core.replica_calculator import ReplicaCalculator, Tolerances
from tests.autoscaler.simulated_cluster import NOW, external_metric, object_metric, pods_metric


def usage(name: str, **containers: dict[str, int]) -> PodUsage:
    return PodUsage(
        name=name,
        timestamp_ms=NOW,
        window_ms=15_000,
        containers=tuple((each, values) for each, values in containers.items()),
    )


PODS = PodsMetric(MetricIdentifier("packets"))


def values(response: ResourceResponse, metric: ResourceMetric) -> dict[str, int]:
    samples = pod_samples(metric, response)
    assert not isinstance(samples, MetricError)
    return {name: sample.value for name, sample in samples.items()}


RESPONSE = ResourceResponse(
    (
        usage("web-0", app={"cpu": 100, "memory": 7}, proxy={"cpu": 20}),
        usage("web-1", app={"cpu": 200}),
        usage("web-2"),
    )
)


def test_pod_usage_is_the_sum_of_containers_that_all_have_a_value() -> None:
    assert values(RESPONSE, ResourceMetric("cpu")) == {"web-0": 120, "web-1": 200}
    assert values(RESPONSE, ResourceMetric("memory")) == {}


def test_container_usage_is_of_that_container() -> None:
    assert values(RESPONSE, ContainerResourceMetric("cpu", container="proxy")) == {"web-0": 20}
    assert values(RESPONSE, ContainerResourceMetric("memory", container="app")) == {"web-0": 7}


def test_first_of_two_containers_with_one_name_counts() -> None:
    entries = ({"cpu": 100}, {"cpu": 20, "memory": 5})
    containers = tuple(("app", each) for each in entries)
    twice = ResourceResponse((PodUsage(name="web-0", timestamp_ms=NOW, window_ms=15_000, containers=containers),))
    assert values(twice, ContainerResourceMetric("cpu", container="app")) == {"web-0": 100}
    assert values(twice, ContainerResourceMetric("memory", container="app")) == {}
    assert values(twice, ResourceMetric("cpu")) == {"web-0": 120}


def test_sample_has_the_time_and_window_of_the_pod() -> None:
    samples = pod_samples(ResourceMetric("cpu"), RESPONSE)
    assert not isinstance(samples, MetricError)
    assert samples["web-1"] == PodSample(value=200, timestamp_ms=NOW, window_ms=15_000)


def evaluate(spec: MetricSpec, response: MetricResponse) -> Evaluation:
    calculator = ReplicaCalculator(
        pods=(),
        spec_replicas=1,
        status_replicas=1,
        tolerances=Tolerances(scale_down=0.1, scale_up=0.1),
        now_ms=NOW,
        cpu_initialization_period_ms=0,
        initial_readiness_delay_ms=0,
    )
    return compute_replicas_for_metric(spec, response, calculator, namespace="default")


def message(spec: MetricSpec, response: MetricResponse) -> str:
    failure = evaluate(spec, response).failure
    assert failure is not None
    return failure.message.rpartition(": ")[2]


def test_empty_response_is_an_error_that_names_the_api() -> None:
    empty = "no metrics returned from {} metrics API"
    assert pod_samples(ResourceMetric("cpu"), ResourceResponse(())) == MetricError(empty.format("resource"))
    assert pod_samples(PODS, PodsResponse({})) == MetricError(empty.format("custom"))
    assert message(external_metric(1), ValuesResponse(values=())) == empty.format("external")


def test_failed_request_is_an_error_that_names_the_api() -> None:
    error = MetricError("timed out")
    failed = "unable to fetch metrics from {} metrics API: timed out"
    assert pod_samples(ResourceMetric("cpu"), error) == MetricError(failed.format("resource"))
    assert pod_samples(PODS, error) == MetricError(failed.format("custom"))
    for spec, api in ((object_metric(1), "custom"), (external_metric(1), "external")):
        failure = evaluate(spec, error).failure
        assert failure is not None
        assert failure.message.endswith(failed.format(api))


def test_response_of_another_metric_type_is_a_bug() -> None:
    with pytest.raises(ValueError, match="PodsMetric has no response of its kind but ValuesResponse"):
        evaluate(pods_metric(1), ValuesResponse(values=(1,)))
