"""What a pod requests of a resource, as the HPA of Kubernetes 1.36 reckons it for utilization targets.

Usually the sum over the containers, sidecars included, and every one of them must state a request. A pod with
pod-level requests is reckoned as the scheduler does it instead, unless one container is singled out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.core.observation import Pod


class RequestError(ValueError):
    """A request that utilization needs is not stated; the text names the container and the pod."""


def pod_requests(pod: Pod, resource: str, container: str | None = None) -> int:
    """The milli-value that `pod`, or only its `container`, requests of `resource`.

    Raises:
        RequestError: a container states no request, or there is no such container.
    """
    if container is None and pod.requests is not None and any(map(_pod_level, pod.requests)):
        return _scheduled_requests(pod, pod.requests, resource)
    total = 0
    for candidate in pod.containers:
        if candidate.init and not candidate.restartable:
            continue
        if container is not None and candidate.name != container:
            continue
        if resource not in candidate.requests:
            raise RequestError(f"missing request for {resource} in container {candidate.name} of Pod {pod.name}")
        total += candidate.requests[resource]
        if container is not None:
            return total
    if container is not None:
        raise RequestError(f"container {container} not found in Pod {pod.name}")
    return total


def _pod_level(resource: str) -> bool:
    """Whether Kubernetes supports pod-level requests of `resource`."""
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def _scheduled_requests(pod: Pod, pod_level: Mapping[str, int], resource: str) -> int:
    """Pod-level requests where stated, else the containers' peak: at start or when running; plus overhead."""
    overhead = pod.overhead or {}
    if resource in pod_level and _pod_level(resource):
        return pod_level[resource] + overhead.get(resource, 0)
    if resource not in overhead and not any(resource in container.requests for container in pod.containers):
        raise RequestError(f"missing pod-level request for {resource} in Pod {pod.name}")
    running = sum(_stated(resource, (c.requests for c in pod.containers if not c.init or c.restartable)))
    starting, sidecars = 0, 0
    for container in pod.containers:
        if not container.init:
            continue
        request = container.requests.get(resource, 0)
        starting = max(starting, sidecars + request)
        if container.restartable:
            sidecars += request
    return max(running, starting) + overhead.get(resource, 0)


def _stated(resource: str, requests: Iterable[Mapping[str, int]]) -> Iterable[int]:
    return (request[resource] for request in requests if resource in request)
