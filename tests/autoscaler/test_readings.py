"""What the metrics APIs' answers amount to."""

from autoscaler.core.metrics import external_values, pods_samples, resource_samples, single_value
from autoscaler.core.model import ResourceMetric
from autoscaler.core.observation import (
    ContainerUsage,
    ExternalResponse,
    MetricError,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
)
from autoscaler.core.replica_calculator import Unavailable
from tests.autoscaler.worlds import NOW


def usage(name: str, **containers: dict[str, int]) -> PodUsage:
    return PodUsage(
        name=name,
        timestamp_ms=NOW,
        window_ms=15_000,
        containers=tuple(ContainerUsage(name=each, usage=values) for each, values in containers.items()),
    )


def values(answer: ResourceResponse, metric: ResourceMetric) -> dict[str, int]:
    samples = resource_samples(answer, metric)
    assert not isinstance(samples, Unavailable)
    return {name: sample.value for name, sample in samples.items()}


ANSWER = ResourceResponse(
    (
        usage("web-0", app={"cpu": 100, "memory": 7}, proxy={"cpu": 20}),
        usage("web-1", app={"cpu": 200}),
        usage("web-2"),
    )
)


def test_a_pods_usage_is_the_sum_of_its_containers_if_each_has_one() -> None:
    assert values(ANSWER, ResourceMetric("cpu")) == {"web-0": 120, "web-1": 200}
    assert values(ANSWER, ResourceMetric("memory")) == {}


def test_one_container_is_taken_where_it_is() -> None:
    assert values(ANSWER, ResourceMetric("cpu", "proxy")) == {"web-0": 20}
    assert values(ANSWER, ResourceMetric("memory", "app")) == {"web-0": 7}


def test_of_a_container_that_is_named_twice_the_first_entry_counts() -> None:
    entries = ({"cpu": 100}, {"cpu": 20, "memory": 5})
    containers = tuple(ContainerUsage(name="app", usage=each) for each in entries)
    twice = ResourceResponse((PodUsage(name="web-0", timestamp_ms=NOW, window_ms=15_000, containers=containers),))
    assert values(twice, ResourceMetric("cpu", "app")) == {"web-0": 100}
    assert values(twice, ResourceMetric("memory", "app")) == {}
    assert values(twice, ResourceMetric("cpu")) == {"web-0": 120}


def test_a_sample_keeps_its_time_and_window() -> None:
    samples = resource_samples(ANSWER, ResourceMetric("cpu"))
    assert not isinstance(samples, Unavailable)
    assert samples["web-1"] == PodSample(value=200, timestamp_ms=NOW, window_ms=15_000)


def test_empty_answers_are_failures_of_the_api_that_gave_them() -> None:
    empty = "no metrics returned from {} metrics API"
    assert resource_samples(ResourceResponse(()), ResourceMetric("cpu")) == Unavailable(empty.format("resource"))
    assert pods_samples(PodsResponse({})) == Unavailable(empty.format("custom"))
    assert external_values(ExternalResponse(values=(), timestamp_ms=0)) == Unavailable(empty.format("external"))


def test_failed_calls_name_the_api() -> None:
    error = MetricError("timed out")
    failed = "unable to fetch metrics from {} metrics API: timed out"
    assert resource_samples(error, ResourceMetric("cpu")) == Unavailable(failed.format("resource"))
    assert pods_samples(error) == Unavailable(failed.format("custom"))
    assert single_value(error) == Unavailable(failed.format("custom"))
    assert external_values(error) == Unavailable(failed.format("external"))
