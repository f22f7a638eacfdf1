"""The replica count that one metric proposes: Kubernetes' replica calculator as pure functions.

Values are integers in thousandths that wrap at 64 bits, quotients of them are truncated towards zero, and ratios are
doubles built from those integers. Proposals depend on these details. One deviation: if a double does not fit into an
integer, Kubernetes' result depends on the CPU architecture; here a count is limited to 32 bits, and an undefined
average is None.

Upstream: podautoscaler.ReplicaCalculator, podautoscaler/metrics.GetResourceUtilizationRatio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from autoscaler.core.integers import MAX_INT32, MAX_INT64, clamp_int32, divide, int32, int64, mean, total
from autoscaler.core.model import Behavior
from autoscaler.core.observation import MetricError, Pod, PodSample, ReadError
from autoscaler.core.pods import PodGroups, calculate_requests, group_pods, is_pod_ready

Samples: TypeAlias = Mapping[str, PodSample]
_Fetched = TypeVar("_Fetched")
_UsageRatio: TypeAlias = Callable[[Mapping[str, int]], tuple[float, int | None, int]]


class Tolerances(Struct, frozen=True, kw_only=True, rename="camel"):
    """The deviations of a ratio from 1 that are ignored."""

    scale_down: float
    scale_up: float

    @classmethod
    def of(cls, behavior: Behavior | None, default: float) -> Tolerances:
        """Return those of an HPA with this behavior. Upstream: podautoscaler.tolerancesForHpa."""
        down = None if behavior is None else behavior.scale_down.tolerance
        up = None if behavior is None else behavior.scale_up.tolerance
        return cls(
            scale_down=default if down is None else down.quantity.as_float(),
            scale_up=default if up is None else up.quantity.as_float(),
        )

    def is_within(self, ratio: float) -> bool:
        """Return True if `ratio` is close enough to 1: bounds included, in doubles."""
        return 1.0 - self.scale_down <= ratio <= 1.0 + self.scale_up


class Proposal(Struct, frozen=True, kw_only=True):
    """The replica count that one metric proposes, and the numbers behind it."""

    replicas: int
    usage: int | None
    """Milli-value for the HPA's status: the average for per-pod targets, else the total. None: not a number."""
    total: int | None = None
    """Milli-value of the total; None for metrics of pods."""
    pods_total: int | None = None
    """Milli-value of the sum over the ready pods; None if the metric is not one of pods."""
    pods_requests: int | None = None
    """Milli-value of what the ready pods request together (utilization targets only)."""
    ratio: float
    """Usage to target, of the pods with usable values."""
    utilization: int | None = None
    """Percent of the requests (utilization targets only)."""
    rebalanced_ratio: float | None = None
    """The ratio with assumed values for missing and unready pods, if any were assumed."""
    within_tolerance: bool = False
    counted: int | None = None
    """How many pods the ratio was multiplied by; None if it was not."""
    overruled: bool = False
    """The product was not used: assumed values reversed the direction, or it is not a number."""
    pods: PodGroups | None = None
    """None if the pods did not matter."""


class ReplicaCalculator(Struct, frozen=True, kw_only=True):
    """Computes proposals for one HPA. All metrics of the HPA share its fields.

    Each method takes a fetched metric or the error of the fetch, and raises `MetricError` with Kubernetes' text if no
    replica count can be computed. Targets are milli-values or percent.
    """

    pods: Sequence[Pod] | ReadError
    spec_replicas: int
    """The current replica count: `spec.replicas` of the scale."""
    status_replicas: int
    """`status.replicas` of the scale."""
    tolerances: Tolerances
    now_ms: int
    cpu_initialization_period_ms: int
    initial_readiness_delay_ms: int

    # --- metrics of pods

    def get_resource_replicas(
        self, metrics: Samples | MetricError, *, resource: str, container: str | None, target_utilization: int
    ) -> Proposal:
        """Compare usage with percent of the requests. Upstream: podautoscaler.GetResourceReplicas."""
        samples = _fetched(metrics, f"unable to get metrics for resource {resource}: ")
        groups, values = self._group(samples, resource)
        # Of all pods, even ignored ones: a pod without a request fails the metric.
        requests = calculate_requests(self._listed_pods(), resource, container)
        fallback = max(100, target_utilization)
        proposal = self._propose(
            values,
            groups,
            lambda usage: _resource_utilization_ratio(usage, requests, target_utilization),
            missing={name: divide(int64(requests[name] * fallback), 100) for name in groups.missing},
        )
        return replace(proposal, pods_requests=total(requests[name] for name in groups.ready))

    def get_raw_resource_replicas(
        self, metrics: Samples | MetricError, *, resource: str, target_usage: int
    ) -> Proposal:
        """Compare the average usage of a resource with a value. Upstream: podautoscaler.GetRawResourceReplicas."""
        samples = _fetched(metrics, f"unable to get metrics for resource {resource}: ")
        return self._calc_plain_metric_replicas(samples, resource, target_usage)

    def get_metric_replicas(self, metrics: Samples | MetricError, *, metric_name: str, target_usage: int) -> Proposal:
        """Compare the average of a custom metric of the pods. Upstream: podautoscaler.GetMetricReplicas."""
        samples = _fetched(metrics, f"unable to get metric {metric_name}: ")
        return self._calc_plain_metric_replicas(samples, None, target_usage)

    def _calc_plain_metric_replicas(self, samples: Samples, resource: str | None, target_usage: int) -> Proposal:
        """Upstream: podautoscaler.calcPlainMetricReplicas."""

        def usage_ratio(values: Mapping[str, int]) -> tuple[float, None, int]:
            usage = mean(values.values())
            return _ratio(usage, target_usage), None, usage

        groups, values = self._group(samples, resource)
        return self._propose(values, groups, usage_ratio, missing=dict.fromkeys(groups.missing, target_usage))

    def _group(self, samples: Samples, resource: str | None) -> tuple[PodGroups, dict[str, int]]:
        """Return the groups, and the values of pods that are not unready or ignored; unknown pods count too."""
        groups = group_pods(
            self._listed_pods(),
            samples,
            resource=resource,
            now_ms=self.now_ms,
            cpu_initialization_period_ms=self.cpu_initialization_period_ms,
            initial_readiness_delay_ms=self.initial_readiness_delay_ms,
        )
        left_out = {*groups.ignored, *groups.unready}
        values = {name: sample.value for name, sample in samples.items() if name not in left_out}
        if not values:
            raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
        return groups, values

    def _listed_pods(self) -> Sequence[Pod]:
        if isinstance(self.pods, ReadError):
            raise MetricError(f"unable to get pods while calculating replica count: {self.pods.message}")
        if not self.pods:
            raise MetricError("no pods returned by selector while calculating replica count")
        return self.pods

    def _propose(
        self, values: Mapping[str, int], groups: PodGroups, usage_ratio: _UsageRatio, *, missing: Mapping[str, int]
    ) -> Proposal:
        """Compute a proposal, with assumed values for missing and unready pods that dampen the change.

        Args:
            values: the usable values by pod.
            groups: the groups of the pods.
            usage_ratio: returns (ratio, utilization, average) of values.
            missing: the values to assume for missing pods when scaling down; 0 when scaling up.
        """
        ratio, utilization, usage = usage_ratio(values)
        proposal = Proposal(
            replicas=self.spec_replicas,
            usage=usage,
            pods_total=total(values[name] for name in groups.ready),
            utilization=utilization,
            ratio=ratio,
            pods=groups,
        )
        scale_up_with_unready = bool(groups.unready) and ratio > 1.0
        if not groups.missing and not scale_up_with_unready:
            if self.tolerances.is_within(ratio):
                return replace(proposal, within_tolerance=True)
            counted = len(groups.ready)
            replicas = _rounded_up(ratio * counted, otherwise=self.spec_replicas)
            return replace(proposal, replicas=replicas, counted=counted, overruled=math.isnan(ratio))
        filled = dict(values)
        if ratio < 1.0:
            filled.update(missing)
        elif ratio > 1.0:
            filled.update(dict.fromkeys(groups.missing, 0))
        if scale_up_with_unready:
            filled.update(dict.fromkeys(groups.unready, 0))
        rebalanced, _, _ = usage_ratio(filled)
        proposal = replace(proposal, rebalanced_ratio=rebalanced)
        if self.tolerances.is_within(rebalanced):
            return replace(proposal, within_tolerance=True)
        replicas = _rounded_up(rebalanced * len(filled), otherwise=self.spec_replicas)
        turned = (ratio < 1.0 < rebalanced) or (rebalanced < 1.0 < ratio)
        against = (rebalanced < 1.0 and replicas > self.spec_replicas) or (
            rebalanced > 1.0 and replicas < self.spec_replicas
        )
        # Upstream, a count beyond 32 bits becomes negative, which reverses the direction.
        overruled = turned or against or replicas == MAX_INT32 or math.isnan(rebalanced)
        return replace(
            proposal,
            replicas=self.spec_replicas if overruled else replicas,
            counted=len(filled),
            overruled=overruled,
        )

    # --- Object and External metrics; `metric` names the metric in errors

    def get_object_metric_replicas(self, value: int | MetricError, *, metric: str, target_usage: int) -> Proposal:
        """Compare an object's metric with a value. Upstream: podautoscaler.GetObjectMetricReplicas."""
        return self._usage_ratio_replicas(_fetched(value, f"unable to get metric {metric}/"), target_usage)

    def get_object_per_pod_metric_replicas(
        self, value: int | MetricError, *, metric: str, target_usage: int
    ) -> Proposal:
        """Compare an object's metric per replica. Upstream: podautoscaler.GetObjectPerPodMetricReplicas."""
        return self._per_pod_replicas(_fetched(value, f"unable to get metric {metric}/"), target_usage)

    def get_external_metric_replicas(
        self, values: Sequence[int] | MetricError, *, metric: str, target_usage: int
    ) -> Proposal:
        """Compare the sum of a metric's series with a value. Upstream: podautoscaler.GetExternalMetricReplicas."""
        usage = 0
        for value in _fetched(values, f"unable to get external metric {metric}: "):
            usage += value
            if usage > MAX_INT64:  # upstream ignores the rest of the series
                usage = MAX_INT64
                break
            usage = int64(usage)
        return self._usage_ratio_replicas(usage, target_usage)

    def get_external_per_pod_metric_replicas(
        self, values: Sequence[int] | MetricError, *, metric: str, target_usage: int
    ) -> Proposal:
        """Compare the sum of a metric's series per replica. Upstream: podautoscaler.GetExternalPerPodMetricReplicas."""
        usage = 0
        for value in _fetched(values, f"unable to get external metric {metric}: "):
            usage = int64(usage + value)
            if usage < 0:  # upstream treats any negative sum as an overflow, with this target only
                usage = MAX_INT64
                break
        proposal = self._per_pod_replicas(usage, target_usage)
        return replace(proposal, usage=usage) if float(usage) >= MAX_INT64 else proposal

    def _usage_ratio_replicas(self, usage: int, target_usage: int) -> Proposal:
        """Upstream: podautoscaler.getUsageRatioReplicaCount."""
        ratio = _ratio(usage, target_usage)
        proposal = Proposal(replicas=self.spec_replicas, usage=usage, total=usage, ratio=ratio)
        if self.spec_replicas == 0:
            return replace(proposal, replicas=_rounded_up(ratio, otherwise=0))
        if self.tolerances.is_within(ratio):
            return replace(proposal, within_tolerance=True)
        try:
            ready = tuple(pod.name for pod in self._listed_pods() if is_pod_ready(pod))
        except MetricError as error:
            raise MetricError(f"unable to calculate ready pods: {error}") from None
        return replace(
            proposal,
            replicas=_rounded_up(ratio * len(ready), otherwise=self.spec_replicas),
            counted=len(ready),
            overruled=math.isnan(ratio),
            pods=PodGroups(ready=ready),
        )

    def _per_pod_replicas(self, usage: int, target_usage: int) -> Proposal:
        count = self.status_replicas
        ratio = _ratio(usage, float(target_usage) * float(count))
        within = self.tolerances.is_within(ratio)
        average = None if count == 0 else min(math.ceil(float(usage) / float(count)), MAX_INT64)
        return Proposal(
            replicas=count if within else _rounded_up(_ratio(usage, target_usage), otherwise=count),
            usage=average,
            total=usage,
            ratio=ratio,
            within_tolerance=within,
        )


def _fetched(metric: _Fetched | MetricError, prefix: str) -> _Fetched:
    if isinstance(metric, MetricError):
        raise MetricError(f"{prefix}{metric}")
    return metric


def _resource_utilization_ratio(
    values: Mapping[str, int], requests: Mapping[str, int], target_utilization: int
) -> tuple[float, int, int]:
    """Return (ratio, percent, average) over the pods that have both a value and a request.

    Upstream: podautoscaler/metrics.GetResourceUtilizationRatio.
    """
    known = [name for name in values if name in requests]
    requested = total(requests[name] for name in known)
    if requested == 0:
        raise MetricError("no metrics returned matched known pods")
    used = total(values[name] for name in known)
    utilization = int32(divide(int64(used * 100), requested))
    return _ratio(utilization, target_utilization), utilization, divide(used, len(known))


def _ratio(dividend: float, divisor: float) -> float:
    """Return the IEEE quotient: x/0 is infinite, 0/0 is not a number. Integers become doubles first."""
    dividend, divisor = float(dividend), float(divisor)
    if divisor != 0.0:
        return dividend / divisor
    return math.nan if dividend == 0.0 else math.copysign(math.inf, dividend)


def _rounded_up(count: float, *, otherwise: int) -> int:
    """Return `count` rounded up, limited to 32 bits; `otherwise` if it is not a number."""
    if math.isnan(count):
        return otherwise
    return clamp_int32(count if math.isinf(count) else math.ceil(count))
