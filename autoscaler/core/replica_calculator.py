"""The replica count that one metric asks for, and the arithmetic that all metrics share.

Ratios are IEEE doubles built from integers, as in Kubernetes. Where a double does not fit an integer, the result there
depends on the processor; here a count is held at the nearest 32-bit integer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoscaler.core.integers import MAX_INT32, MAX_INT64, clamp_int32, divide, int32, int64, mean, total
from autoscaler.core.observation import Pod, PodListError, PodSample
from autoscaler.core.pods import PodGroups, PodTiming, RequestError, calculate_pod_requests, group_pods, is_pod_ready

Pods: TypeAlias = "Sequence[Pod] | PodListError"


class ReplicaError(ValueError):
    """No replica count can be computed from this metric; the text says why, as Kubernetes does."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The metrics API gave no usable answer (`message`: the metrics client's text)."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """How far a ratio may be from 1 without effect."""

    scale_down: float
    scale_up: float

    def covers(self, ratio: float) -> bool:
        """Whether `ratio` is close enough to 1: bounds included, in doubles."""
        return 1.0 - self.scale_down <= ratio <= 1.0 + self.scale_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The replica count that one metric asks for, and how it came about."""

    replicas: int
    usage: int | None
    """Milli-value for the HPA's status: the average for per-pod targets, else the total. None: not a number."""
    total: int | None = None
    """Milli-value of the whole, where the metric is not one of pods."""
    ratio: float
    """Usage to target, of the pods with usable values."""
    utilization: int | None = None
    """Percent of the requests (utilization targets only)."""
    rebalanced_ratio: float | None = None
    """The ratio with missing and unready pods filled in, where that was necessary."""
    within_tolerance: bool = False
    counted: int | None = None
    """How many pods the ratio was multiplied by; None if it was not."""
    overruled: bool = False
    """The product was not used: what was assumed for some pods turned the direction, or it is no number."""
    pods: PodGroups | None = None
    """None where the pods were not looked at."""


def listed_pods(pods: Pods) -> Sequence[Pod]:
    """The pods.

    Raises:
        ReplicaError: they could not be listed, or there are none.
    """
    if isinstance(pods, PodListError):
        raise ReplicaError(f"unable to get pods while calculating replica count: {pods.message}")
    if not pods:
        raise ReplicaError("no pods returned by selector while calculating replica count")
    return pods


def ratio_of(dividend: float, divisor: float) -> float:
    """The IEEE quotient: x/0 is infinite, 0/0 is not a number. Integers become doubles first."""
    dividend, divisor = float(dividend), float(divisor)
    if divisor != 0.0:
        return dividend / divisor
    return math.nan if dividend == 0.0 else math.copysign(math.inf, dividend)


def rounded_up(count: float, *, otherwise: int) -> int:
    """`count` rounded up, held within 32 bits; `otherwise` if it is not a number."""
    if math.isnan(count):
        return otherwise
    return clamp_int32(count if math.isinf(count) else math.ceil(count))


def resource_utilization(
    metrics: Mapping[str, PodSample] | Unavailable,
    pods: Pods,
    *,
    resource: str,
    container: str | None,
    target_utilization: int,
    current_replicas: int,
    tolerance: Tolerances,
    timing: PodTiming,
) -> Proposal:
    """Usage of `resource` against `target_utilization` percent of what the pods (or one container) request.

    Raises:
        ReplicaError: no usable values, no pods, or a pod without a request.
    """
    samples = _resource_samples(metrics, resource)
    listed = listed_pods(pods)
    groups = group_pods(listed, samples, resource=resource, timing=timing)
    usable = _usable_values(samples, groups)
    try:
        # All pods, even those that are left out: one that states no request fails the metric.
        requests = {pod.name: calculate_pod_requests(pod, resource, container) for pod in listed}
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
    tolerance: Tolerances,
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
    tolerance: Tolerances,
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
    tolerance: Tolerances,
    timing: PodTiming,
) -> Proposal:
    groups = group_pods(listed_pods(pods), samples, resource=resource, timing=timing)
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
    tolerance: Tolerances,
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


def object_value(
    value: int | Unavailable,
    pods: Pods,
    *,
    metric: str,
    target_usage: int,
    current_replicas: int,
    tolerance: Tolerances,
) -> Proposal:
    """An object's metric against `target_usage`; `metric` names it in texts ("NAME: KIND on NAMESPACE OBJECT").

    Raises:
        ReplicaError: no value, or pods are to be counted and there are none.
    """
    usage = _object_usage(value, metric)
    return _total(usage, pods, target_usage, current_replicas, tolerance)


def object_average(
    value: int | Unavailable, *, metric: str, target_usage: int, status_replicas: int, tolerance: Tolerances
) -> Proposal:
    """An object's metric, divided by the replicas that the scale's status counts, against `target_usage`.

    Raises:
        ReplicaError: no value.
    """
    usage = _object_usage(value, metric)
    return _per_replica(usage, target_usage, status_replicas, tolerance)


def external_value(
    values: Sequence[int] | Unavailable,
    pods: Pods,
    *,
    metric: str,
    target_usage: int,
    current_replicas: int,
    tolerance: Tolerances,
) -> Proposal:
    """The sum of an external metric's series against `target_usage`.

    `metric` names it in texts ("NAMESPACE/NAME/SELECTOR").

    Raises:
        ReplicaError: no values, or pods are to be counted and there are none.
    """
    usage = 0
    for value in _external_values(values, metric):
        usage += value
        if usage > MAX_INT64:  # Kubernetes stops adding here
            usage = MAX_INT64
            break
        usage = int64(usage)
    return _total(usage, pods, target_usage, current_replicas, tolerance)


def external_average(
    values: Sequence[int] | Unavailable,
    *,
    metric: str,
    target_usage: int,
    status_replicas: int,
    tolerance: Tolerances,
) -> Proposal:
    """The sum of an external metric's series, divided by the scale's status replicas, against `target_usage`.

    Raises:
        ReplicaError: no values.
    """
    usage = 0
    for value in _external_values(values, metric):
        usage = int64(usage + value)
        if usage < 0:  # Kubernetes takes any negative sum for an overflow, in this form of the target only
            usage = MAX_INT64
            break
    proposal = _per_replica(usage, target_usage, status_replicas, tolerance)
    return replace(proposal, usage=usage) if float(usage) >= MAX_INT64 else proposal


def _object_usage(value: int | Unavailable, metric: str) -> int:
    if isinstance(value, Unavailable):
        raise ReplicaError(f"unable to get metric {metric}/{value.message}")
    return value


def _external_values(values: Sequence[int] | Unavailable, metric: str) -> Sequence[int]:
    if isinstance(values, Unavailable):
        raise ReplicaError(f"unable to get external metric {metric}: {values.message}")
    return values


def _total(usage: int, pods: Pods, target_usage: int, current_replicas: int, tolerance: Tolerances) -> Proposal:
    ratio = ratio_of(usage, target_usage)
    if current_replicas == 0:
        return Proposal(replicas=rounded_up(ratio, otherwise=0), usage=usage, total=usage, ratio=ratio)
    if tolerance.covers(ratio):
        return Proposal(replicas=current_replicas, usage=usage, total=usage, ratio=ratio, within_tolerance=True)
    try:
        ready = tuple(pod.name for pod in listed_pods(pods) if is_pod_ready(pod))
    except ReplicaError as error:
        raise ReplicaError(f"unable to calculate ready pods: {error}") from None
    return Proposal(
        replicas=rounded_up(ratio * len(ready), otherwise=current_replicas),
        usage=usage,
        total=usage,
        ratio=ratio,
        counted=len(ready),
        overruled=math.isnan(ratio),
        pods=PodGroups(ready=ready),
    )


def _per_replica(usage: int, target_usage: int, status_replicas: int, tolerance: Tolerances) -> Proposal:
    ratio = ratio_of(usage, float(target_usage) * float(status_replicas))
    within = tolerance.covers(ratio)
    replicas = status_replicas
    if not within:
        replicas = rounded_up(ratio_of(usage, target_usage), otherwise=status_replicas)
    return Proposal(
        replicas=replicas,
        usage=_average_of_replicas(usage, status_replicas),
        total=usage,
        ratio=ratio,
        within_tolerance=within,
    )


def _average_of_replicas(usage: int, status_replicas: int) -> int | None:
    """`usage` per replica, rounded up; None without replicas."""
    if status_replicas == 0:
        return None
    return min(math.ceil(float(usage) / float(status_replicas)), MAX_INT64)
