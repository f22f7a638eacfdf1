"""Which pods' metric values can be reckoned with.

A pod that has just started burns cpu without serving anybody; a pod that is not ready, or of which nothing is known,
must not count like one that is. The groups and their timing rules are those of Kubernetes 1.36. Only cpu depends on
readiness, since only cpu is known to be unusual at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.core.observation import Pod, PodSample


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTiming:
    """What decides whether a pod's cpu value can be trusted yet (milliseconds)."""

    now_ms: int
    cpu_initialization_period_ms: int
    initial_readiness_delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroups:
    """The selected pods by the use that can be made of them: names, in listing order."""

    ready: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """No value for them in the metrics API's answer."""
    ignored: tuple[str, ...] = ()
    """Deleted or failed."""


def group_pods(
    pods: Iterable[Pod], samples: Mapping[str, PodSample], *, resource: str | None, timing: PodTiming
) -> PodGroups:
    """Sort `pods` by what can be made of their `samples` of `resource` (None: a custom metric)."""
    ready: list[str] = []
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    for pod in pods:
        sample = samples.get(pod.name)
        if pod.deleted or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif sample is None:
            missing.append(pod.name)
        elif resource == "cpu" and _is_starting(pod, sample, timing):
            unready.append(pod.name)
        else:
            ready.append(pod.name)
    return PodGroups(ready=tuple(ready), unready=tuple(unready), missing=tuple(missing), ignored=tuple(ignored))


def is_pod_ready(pod: Pod) -> bool:
    """Whether the pod counts where only serving pods do; a deleted one still does."""
    return pod.phase == "Running" and pod.ready is not None and pod.ready.status == "True"


def _is_starting(pod: Pod, sample: PodSample, timing: PodTiming) -> bool:
    """Whether a pod's cpu is still that of its start, so that it says nothing about the load."""
    if pod.ready is None or pod.start_ms is None:
        return True
    not_ready = pod.ready.status == "False"
    if pod.start_ms + timing.cpu_initialization_period_ms > timing.now_ms:
        return not_ready or sample.timestamp_ms < pod.ready.last_transition_ms + sample.window_ms
    never_was_ready = pod.start_ms + timing.initial_readiness_delay_ms > pod.ready.last_transition_ms
    return not_ready and never_was_ready


class RequestError(ValueError):
    """A request that utilization needs is not stated; the text names the container and the pod."""


def calculate_pod_requests(pod: Pod, resource: str, container: str | None = None) -> int:
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
