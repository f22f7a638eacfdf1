"""What a pod requests: container by container, or as a whole."""

from dataclasses import replace

import pytest

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


def test_containers_and_sidecars_are_added_up_and_init_containers_are_not() -> None:
    pod = a_pod(container("app", cpu=100), init("setup", cpu=900), init("proxy", sidecar=True, cpu=50))
    assert calculate_pod_requests(pod, "cpu") == 150


def test_zero_is_a_request() -> None:
    assert calculate_pod_requests(a_pod(container("app", cpu=0)), "cpu") == 0


def test_every_container_must_state_a_request() -> None:
    with pytest.raises(MetricError, match=r"^missing request for cpu in container proxy of Pod web-0$"):
        calculate_pod_requests(a_pod(container("app", cpu=100), container("proxy", memory=1)), "cpu")


def test_one_container_alone() -> None:
    pod = a_pod(container("app", cpu=100), container("proxy"), cpu=900)
    assert calculate_pod_requests(pod, "cpu", "app") == 100
    with pytest.raises(MetricError, match=r"^container ghost not found in Pod web-0$"):
        calculate_pod_requests(pod, "cpu", "ghost")


def test_pod_level_requests_win() -> None:
    assert calculate_pod_requests(a_pod(container("app"), cpu=900), "cpu") == 900


def test_a_resource_without_a_pod_level_request_is_what_the_containers_need_at_their_peak() -> None:
    containers = (
        container("app", cpu=100),
        container("helper"),
        init("proxy", sidecar=True, cpu=50),
        init("setup", cpu=300),
    )
    assert calculate_pod_requests(a_pod(*containers, memory=1), "cpu") == 350
    assert calculate_pod_requests(a_pod(*containers[:3], memory=1), "cpu") == 150


def test_overhead_belongs_to_the_pod_as_a_whole() -> None:
    pod = replace(a_pod(container("app", cpu=100), memory=7), overhead={"cpu": 10, "memory": 20})
    assert (calculate_pod_requests(pod, "cpu"), calculate_pod_requests(pod, "memory")) == (110, 27)
    assert calculate_pod_requests(replace(pod, requests=None), "cpu") == 100


def test_nobody_requests_it() -> None:
    with pytest.raises(MetricError, match=r"^missing pod-level request for cpu in Pod web-0$"):
        calculate_pod_requests(a_pod(container("app"), memory=1), "cpu")
