"""Pods for the replica calculator: their groups and their requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from autoscaler.core.observation import MetricError, Pod, PodSample


class PodGroups(Struct, frozen=True, kw_only=True):
    """The names of the selected pods by group, in listing order."""

    ready: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """The metrics API returned no value for them."""
    ignored: tuple[str, ...] = ()
    """Deleted or failed."""


def group_pods(
    pods: Iterable[Pod],
    samples: Mapping[str, PodSample],
    *,
    resource: str | None,
    now_ms: int,
    cpu_initialization_period_ms: int,
    initial_readiness_delay_ms: int,
) -> PodGroups:
    """Classify pods as ready, unready, missing or ignored. Upstream: podautoscaler.groupPods.

    Readiness matters for cpu only, since a starting pod uses cpu without serving requests.

    Args:
        pods: the pods of the target.
        samples: {pod name: sample} of the metric.
        resource: the resource's name; None for a custom metric.
        now_ms: the current time, in milliseconds since the Unix epoch.
        cpu_initialization_period_ms: in this time after a pod's start, its cpu counts only while it is ready.
        initial_readiness_delay_ms: within this time after a pod's start, a change to unready means never ready.
    """
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
        elif resource == "cpu" and _is_cpu_unready(
            pod, sample, now_ms, cpu_initialization_period_ms, initial_readiness_delay_ms
        ):
            unready.append(pod.name)
        else:
            ready.append(pod.name)
    return PodGroups(ready=tuple(ready), unready=tuple(unready), missing=tuple(missing), ignored=tuple(ignored))


def _is_cpu_unready(
    pod: Pod, sample: PodSample, now_ms: int, cpu_initialization_period_ms: int, initial_readiness_delay_ms: int
) -> bool:
    if pod.ready is None or pod.start_ms is None:
        return True
    not_ready = pod.ready.status == "False"
    if pod.start_ms + cpu_initialization_period_ms > now_ms:
        return not_ready or sample.timestamp_ms < pod.ready.last_transition_ms + sample.window_ms
    never_was_ready = pod.start_ms + initial_readiness_delay_ms > pod.ready.last_transition_ms
    return not_ready and never_was_ready


def is_pod_ready(pod: Pod) -> bool:
    """Return True if the pod runs and is ready, even if it is deleted. Upstream: podautoscaler.getReadyPodsCount."""
    return pod.phase == "Running" and pod.ready is not None and pod.ready.status == "True"


# --- requests ------------------------------------------------------------------------------------------------------


def calculate_requests(pods: Iterable[Pod], resource: str, container: str | None) -> dict[str, int]:
    """Return {pod name: requested milli-value}. Upstream: podautoscaler.calculateRequests.

    Raises:
        MetricError: a container has no request, or the container does not exist.
    """
    return {pod.name: calculate_pod_requests(pod, resource, container) for pod in pods}


def calculate_pod_requests(pod: Pod, resource: str, container: str | None = None) -> int:
    """Return the milli-value that `pod`, or only its `container`, requests of `resource`.

    Usually the sum over the containers, sidecars included, each of which must have a request. Pod-level requests take
    precedence, unless a container is named.
    Upstream: podautoscaler.calculatePodLevelRequests, podautoscaler.calculatePodRequestsFromContainers.

    Raises:
        MetricError: a container has no request, or the container does not exist.
    """
    if container is None and pod.requests is not None and any(map(_supports_pod_level, pod.requests)):
        return _pod_level_requests(pod, pod.requests, resource)
    total = 0
    for candidate in pod.containers:
        if candidate.init and not candidate.restartable:
            continue
        if container is not None and candidate.name != container:
            continue
        if resource not in candidate.requests:
            raise MetricError(f"missing request for {resource} in container {candidate.name} of Pod {pod.name}")
        total += candidate.requests[resource]
        if container is not None:
            return total
    if container is not None:
        raise MetricError(f"container {container} not found in Pod {pod.name}")
    return total


def _supports_pod_level(resource: str) -> bool:
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def _pod_level_requests(pod: Pod, pod_level: Mapping[str, int], resource: str) -> int:
    """Return the pod-level request, else the containers' peak, at start or when running; plus overhead.

    Upstream: resourcehelper.PodRequests.
    """
    overhead = pod.overhead or {}
    if resource in pod_level and _supports_pod_level(resource):
        return pod_level[resource] + overhead.get(resource, 0)
    if resource not in overhead and not any(resource in container.requests for container in pod.containers):
        raise MetricError(f"missing pod-level request for {resource} in Pod {pod.name}")
    running = sum(each.requests.get(resource, 0) for each in pod.containers if not each.init or each.restartable)
    starting, sidecars = 0, 0
    for container in pod.containers:
        if container.init:
            request = container.requests.get(resource, 0)
            starting = max(starting, sidecars + request)
            if container.restartable:
                sidecars += request
    return max(running, starting) + overhead.get(resource, 0)
