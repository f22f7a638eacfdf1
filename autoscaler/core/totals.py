"""How many replicas a metric of the whole asks for: Object and External metrics.

Sums wrap or stop at 64 bits where Kubernetes' do (see `autoscaler.core.replicas`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autoscaler.core.integers import MAX_INT64, int64
from autoscaler.core.pod_groups import PodGroups, is_ready
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


def object_value(
    value: int | Unavailable,
    pods: Pods,
    *,
    metric: str,
    target_usage: int,
    current_replicas: int,
    tolerance: Tolerance,
) -> Proposal:
    """An object's metric against `target_usage`; `metric` names it in texts ("NAME: KIND on NAMESPACE OBJECT").

    Raises:
        ReplicaError: no value, or pods are to be counted and there are none.
    """
    usage = _object_usage(value, metric)
    return _total(usage, pods, target_usage, current_replicas, tolerance)


def object_average(
    value: int | Unavailable, *, metric: str, target_usage: int, status_replicas: int, tolerance: Tolerance
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
    tolerance: Tolerance,
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
    tolerance: Tolerance,
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


def _total(usage: int, pods: Pods, target_usage: int, current_replicas: int, tolerance: Tolerance) -> Proposal:
    ratio = ratio_of(usage, target_usage)
    if current_replicas == 0:
        return Proposal(replicas=rounded_up(ratio, otherwise=0), usage=usage, total=usage, ratio=ratio)
    if tolerance.covers(ratio):
        return Proposal(replicas=current_replicas, usage=usage, total=usage, ratio=ratio, within_tolerance=True)
    try:
        ready = tuple(pod.name for pod in some_pods(pods) if is_ready(pod))
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


def _per_replica(usage: int, target_usage: int, status_replicas: int, tolerance: Tolerance) -> Proposal:
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
