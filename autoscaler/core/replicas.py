"""How many replicas a metric of pods asks for: the arithmetic of Kubernetes' replica calculator.

Values are integers in thousandths and wrap at 64 bits, quotients of them are truncated towards zero, and ratios are
IEEE doubles built from those truncated integers: a proposal often hangs on exactly that, so exact arithmetic would
disagree with Kubernetes. The one deviation: where a double does not fit an integer, Kubernetes' result depends on the
processor; here a count is held at the nearest 32-bit integer and an average that does not exist is None.

A failure of the metrics API or of the pod listing is passed in as a value and comes out as `ReplicaError`, whose text
is the one that Kubernetes 1.36 shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autoscaler.core.integers import MAX_INT32, divide, int32, int64, mean, total
from autoscaler.core.observation import PodSample
from autoscaler.core.pod_groups import PodGroups, PodTiming, group_pods
from autoscaler.core.proposal import (
    Pods,
    Proposal,
    ReplicaError,
    Tolerance,
    Unavailable,
    ratio_of,
    rounded_up,
    some_pods,
)
from autoscaler.core.requests import RequestError, pod_requests


def resource_utilization(
    metrics: Mapping[str, PodSample] | Unavailable,
    pods: Pods,
    *,
    resource: str,
    container: str | None,
    target_utilization: int,
    current_replicas: int,
    tolerance: Tolerance,
    timing: PodTiming,
) -> Proposal:
    """Usage of `resource` against `target_utilization` percent of what the pods (or one container) request.

    Raises:
        ReplicaError: no usable values, no pods, or a pod without a request.
    """
    samples = _resource_samples(metrics, resource)
    listed = some_pods(pods)
    groups = group_pods(listed, samples, resource=resource, timing=timing)
    usable = _usable_values(samples, groups)
    try:
        # All pods, even those that are left out: one that states no request fails the metric.
        requests = {pod.name: pod_requests(pod, resource, container) for pod in listed}
    except RequestError as error:
        raise ReplicaError(str(error)) from None

    ratio, utilization, usage = _utilization_ratio(usable, requests, target_utilization)
    fallback = max(100, target_utilization)
    fill = {name: divide(int64(requests[name] * fallback), 100) for name in groups.missing}
    filled = _fill_in(usable, groups, ratio, missing_on_scale_down=fill)
    rebalanced = None if filled is None else _utilization_ratio(filled, requests, target_utilization)[0]
    return _propose(
        ratio=ratio,
        rebalanced_ratio=rebalanced,
        usage=usage,
        utilization=utilization,
        metric_count=len(usable if filled is None else filled),
        groups=groups,
        current_replicas=current_replicas,
        tolerance=tolerance,
    )


def resource_average(
    metrics: Mapping[str, PodSample] | Unavailable,
    pods: Pods,
    *,
    resource: str,
    target_usage: int,
    current_replicas: int,
    tolerance: Tolerance,
    timing: PodTiming,
) -> Proposal:
    """Average usage of `resource` per pod against `target_usage`.

    Raises:
        ReplicaError: no usable values or no pods.
    """
    samples = _resource_samples(metrics, resource)
    return _average(samples, pods, resource, target_usage, current_replicas, tolerance, timing)


def pods_average(
    metrics: Mapping[str, PodSample] | Unavailable,
    pods: Pods,
    *,
    metric_name: str,
    target_usage: int,
    current_replicas: int,
    tolerance: Tolerance,
    timing: PodTiming,
) -> Proposal:
    """Average of a custom metric of the pods against `target_usage`.

    Raises:
        ReplicaError: no usable values or no pods.
    """
    if isinstance(metrics, Unavailable):
        raise ReplicaError(f"unable to get metric {metric_name}: {metrics.message}")
    return _average(metrics, pods, None, target_usage, current_replicas, tolerance, timing)


def _resource_samples(metrics: Mapping[str, PodSample] | Unavailable, resource: str) -> Mapping[str, PodSample]:
    if isinstance(metrics, Unavailable):
        raise ReplicaError(f"unable to get metrics for resource {resource}: {metrics.message}")
    return metrics


def _average(
    samples: Mapping[str, PodSample],
    pods: Pods,
    resource: str | None,
    target_usage: int,
    current_replicas: int,
    tolerance: Tolerance,
    timing: PodTiming,
) -> Proposal:
    groups = group_pods(some_pods(pods), samples, resource=resource, timing=timing)
    usable = _usable_values(samples, groups)
    usage = mean(usable.values())
    ratio = ratio_of(usage, target_usage)
    filled = _fill_in(usable, groups, ratio, missing_on_scale_down=dict.fromkeys(groups.missing, target_usage))
    rebalanced = None if filled is None else ratio_of(mean(filled.values()), target_usage)
    return _propose(
        ratio=ratio,
        rebalanced_ratio=rebalanced,
        usage=usage,
        metric_count=len(usable if filled is None else filled),
        groups=groups,
        current_replicas=current_replicas,
        tolerance=tolerance,
    )


def _usable_values(samples: Mapping[str, PodSample], groups: PodGroups) -> dict[str, int]:
    """The values to reckon with; those of unknown pods are among them, as in Kubernetes."""
    left_out = {*groups.ignored, *groups.unready}
    values = {name: sample.value for name, sample in samples.items() if name not in left_out}
    if not values:
        raise ReplicaError("did not receive metrics for targeted pods (pods might be unready)")
    return values


def _fill_in(
    usable: Mapping[str, int], groups: PodGroups, ratio: float, *, missing_on_scale_down: Mapping[str, int]
) -> dict[str, int] | None:
    """The values with an assumption for each pod that has none, against the direction of the change.

    None where nothing has to be assumed: no pod is missing, and none is unready while the load is above target.
    """
    unready_on_scale_up = bool(groups.unready) and ratio > 1.0
    if not groups.missing and not unready_on_scale_up:
        return None
    filled = dict(usable)
    if ratio < 1.0:
        filled.update(missing_on_scale_down)
    elif ratio > 1.0:
        filled.update(dict.fromkeys(groups.missing, 0))
    if unready_on_scale_up:
        filled.update(dict.fromkeys(groups.unready, 0))
    return filled


def _propose(
    *,
    ratio: float,
    rebalanced_ratio: float | None,
    usage: int,
    utilization: int | None = None,
    metric_count: int,
    groups: PodGroups,
    current_replicas: int,
    tolerance: Tolerance,
) -> Proposal:
    effective = ratio if rebalanced_ratio is None else rebalanced_ratio
    within = tolerance.covers(effective)
    counted, overruled = None, False
    if within:
        replicas = current_replicas
    elif rebalanced_ratio is None:
        counted = len(groups.ready)
        overruled = math.isnan(ratio)
        replicas = rounded_up(ratio * counted, otherwise=current_replicas)
    else:
        counted = metric_count
        replicas = rounded_up(rebalanced_ratio * counted, otherwise=current_replicas)
        turned = (ratio < 1.0 < rebalanced_ratio) or (rebalanced_ratio < 1.0 < ratio)
        against = (rebalanced_ratio < 1.0 and replicas > current_replicas) or (
            rebalanced_ratio > 1.0 and replicas < current_replicas
        )
        # Beyond 32 bits a count turns negative in Kubernetes, and so against the direction.
        overruled = turned or against or replicas == MAX_INT32 or math.isnan(rebalanced_ratio)
        if overruled:
            replicas = current_replicas
    return Proposal(
        replicas=replicas,
        usage=usage,
        utilization=utilization,
        ratio=ratio,
        rebalanced_ratio=rebalanced_ratio,
        within_tolerance=within,
        counted=counted,
        overruled=overruled,
        pods=groups,
    )


def _utilization_ratio(
    values: Mapping[str, int], requests: Mapping[str, int], target_utilization: int
) -> tuple[float, int, int]:
    """(ratio, percent, average) over the pods that have both a value and a request."""
    known = [name for name in values if name in requests]
    requested = total(requests[name] for name in known)
    if requested == 0:
        raise ReplicaError("no metrics returned matched known pods")
    used = total(values[name] for name in known)
    utilization = int32(divide(int64(used * 100), requested))
    return ratio_of(utilization, target_utilization), utilization, divide(used, len(known))
