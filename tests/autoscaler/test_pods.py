"""The resource requests of a pod: container by container, or pod-level."""

import pytest
from msgspec.structs import replace

from autoscaler.core.observation import Container, MetricError, Pod
from autoscaler.core.pods import calculate_pod_requests


def a_pod(*containers: Container, **requests: int) -> Pod:
    return Pod(
        name="web-0", namespace="default", labels={}, phase="Running", containers=containers, requests=requests or None
    )


def container(name: str, **requests: int) -> Container:
    return Container(name=name, requests=requests)


def init(name: str, *, sidecar: bool = False, **requests: int) -> Container:
    return Container(name=name, requests=requests, init=True, restartable=sidecar)


def test_without_pod_level_request_the_containers_peak_counts() -> None:
    containers = (
        container("app", cpu=100),
        container("helper"),
        init("proxy", sidecar=True, cpu=50),
        init("setup", cpu=300),
    )
    assert calculate_pod_requests(a_pod(*containers, memory=1), "cpu") == 350
    assert calculate_pod_requests(a_pod(*containers[:3], memory=1), "cpu") == 150


def test_sidecars_that_have_started_count_beside_the_next_init_container() -> None:
    sidecars = (init("proxy", sidecar=True, cpu=100), init("log", sidecar=True, cpu=200))
    pod = a_pod(container("app", cpu=0), *sidecars, init("setup", cpu=50), memory=1)
    assert calculate_pod_requests(pod, "cpu") == 350


def test_container_without_a_request_counts_as_none_at_pod_level() -> None:
    assert calculate_pod_requests(a_pod(container("app", cpu=0), init("setup"), memory=1), "cpu") == 0


def test_huge_pages_can_be_requested_at_pod_level() -> None:
    assert calculate_pod_requests(a_pod(container("app"), **{"hugepages-2Mi": 5}), "hugepages-2Mi") == 5


def test_overhead_is_added_to_pod_level_requests() -> None:
    pod = replace(a_pod(container("app", cpu=100), memory=7), overhead={"cpu": 10, "memory": 20})
    assert (calculate_pod_requests(pod, "cpu"), calculate_pod_requests(pod, "memory")) == (110, 27)
    assert calculate_pod_requests(replace(pod, requests=None), "cpu") == 100


def test_resource_without_any_request_is_an_error() -> None:
    with pytest.raises(MetricError, match=r"^missing pod-level request for cpu in Pod web-0$"):
        calculate_pod_requests(a_pod(container("app"), memory=1), "cpu")
