"""What the metrics APIs' answers amount to: the values to compute with, or why there are none.

The judgement and the words are those of the metrics client in Kubernetes 1.36: an empty answer is a failure, a pod of
which one container has no value has none itself, and a failed call names the API that failed.
"""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.core.integers import int64
from autoscaler.core.model import ResourceMetric
from autoscaler.core.observation import (
    AnswerError,
    ExternalAnswer,
    ObjectAnswer,
    PodSample,
    PodsAnswer,
    PodUsage,
    ResourceAnswer,
)
from autoscaler.core.proposal import Unavailable


def resource_samples(
    answer: ResourceAnswer | AnswerError, metric: ResourceMetric
) -> Mapping[str, PodSample] | Unavailable:
    """Each pod's usage of the resource, or that of one container: {pod name: sample}."""
    if isinstance(answer, AnswerError):
        return _failed("resource", answer)
    if not answer.pods:
        return _empty("resource")
    samples: dict[str, PodSample] = {}
    for pod in answer.pods:
        value = _pod_value(pod, metric)
        if value is not None:
            samples[pod.name] = PodSample(value=value, timestamp_ms=pod.timestamp_ms, window_ms=pod.window_ms)
    return samples


def pods_samples(answer: PodsAnswer | AnswerError) -> Mapping[str, PodSample] | Unavailable:
    """Each pod's value of a custom metric: {pod name: sample}."""
    if isinstance(answer, AnswerError):
        return _failed("custom", answer)
    return answer.pods or _empty("custom")


def object_value(answer: ObjectAnswer | AnswerError) -> int | Unavailable:
    """The object's value, in thousandths."""
    return _failed("custom", answer) if isinstance(answer, AnswerError) else answer.value


def external_values(answer: ExternalAnswer | AnswerError) -> tuple[int, ...] | Unavailable:
    """The values of all series, in thousandths."""
    if isinstance(answer, AnswerError):
        return _failed("external", answer)
    return answer.values or _empty("external")


def _pod_value(pod: PodUsage, metric: ResourceMetric) -> int | None:
    """The container's value, or the sum over all containers; None if a value that counts is not there.

    Of a container that is named twice the first entry is the container's value, and the sum has both.
    Upstream: metrics.getContainerMetrics, metrics.getPodMetrics
    """
    containers = list(pod.containers)
    if metric.container is not None:
        containers = [each for each in containers if each.name == metric.container][:1]
    values = [each.usage[metric.name] for each in containers if metric.name in each.usage]
    return int64(sum(values)) if values and len(values) == len(containers) else None


def _failed(api: str, error: AnswerError) -> Unavailable:
    return Unavailable(f"unable to fetch metrics from {api} metrics API: {error.message}")


def _empty(api: str) -> Unavailable:
    return Unavailable(f"no metrics returned from {api} metrics API")
