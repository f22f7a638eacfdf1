"""What pods request, and the totals of metrics of pods, from recorded averages and utilizations.

Both are truncated to whole numbers (thousandths and percent). The numbers here are ones that give the recorded
averages, utilizations and ratios, so decisions that are computed from them are the recorded ones.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from autoscaler.records.record import MetricRecord
from kube.values.quantity import milli_value
from replay.recorded import PodCounts

_MEMORY: Final = "memory"
_Range = tuple[float, float]


def calculate_requests(metrics: Iterable[MetricRecord]) -> dict[str, int]:
    """Return {resource or CONTAINER/resource: milli-value}: the roundest number that fits all recorded values.

    Only resources with a target in percent have one.
    """
    ranges: dict[str, list[_Range]] = defaultdict(list)
    for metric in metrics:
        current = metric.current
        if current is None or current.average_value is None:
            continue
        usage, percent = milli_value(current.average_value), current.average_utilization or 0
        if percent > 0:
            # Usage and utilization are truncated: the real ones are less than 1 higher.
            ranges[_name(metric)].append((100 * usage / (percent + 1), 100 * (usage + 1) / percent))
    return {name: _request(found, binary=name.endswith(_MEMORY)) for name, found in ranges.items()}


def total_usage(metric: MetricRecord, pods: PodCounts, requests: Mapping[str, int]) -> int | None:
    """Return the total of the ready pods in thousandths; None if the record has no average."""
    if metric.current is None or metric.current.average_value is None:
        return None
    least = milli_value(metric.current.average_value) * pods.ready
    total, request, percent = least, requests.get(_name(metric)), metric.target.average_utilization
    if percent is None and metric.target.average_value is not None:
        target = milli_value(metric.target.average_value)
        total = max(least, _rebalanced(metric, pods, target, unit=1.0, assumed=target))
    elif percent is not None and request is not None:
        unit = request / 100
        total = max(
            math.ceil((metric.current.average_utilization or 0) * unit * pods.ready),
            _rebalanced(metric, pods, percent, unit=unit, assumed=request * max(100, percent) // 100),
        )
    return total if least < total < least + pods.ready else least


def _rebalanced(metric: MetricRecord, pods: PodCounts, target: int, *, unit: float, assumed: int) -> int:
    """Return the least total with the recorded ratio after values were assumed for unready and missing pods.

    Args:
        metric: the record.
        pods: the number of pods in each group.
        target: milli-value or percent.
        unit: the milli-values of one unit of the target.
        assumed: the milli-value that missing pods are assumed to have when scaling down.
    """
    if metric.ratio is None or metric.rebalanced_ratio is None or metric.ratio == 1.0:
        return 0
    average = round(metric.rebalanced_ratio * target)
    if metric.ratio > 1.0:
        return math.ceil(average * unit * (pods.ready + pods.missing + pods.unready))
    return math.ceil(average * unit * (pods.ready + pods.missing)) - pods.missing * assumed


def _name(metric: MetricRecord) -> str:
    return metric.name if metric.container is None else f"{metric.container}/{metric.name}"


def _request(ranges: list[_Range], *, binary: bool) -> int:
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low >= high:
        # Not all pods request the same.
        return max(1, round(statistics.median((low + high) / 2 for low, high in ranges)))
    for unit in _units(binary=binary):
        number = (math.floor(low / unit) + 1) * unit
        if number < high:
            return number
    return max(1, round((low + high) / 2))


def _units(*, binary: bool) -> Iterator[int]:
    """Yield units from large to small: 1, 0.5 and 0.25 of powers of ten; of bytes, powers of two first."""
    if binary:
        yield from (1000 * 2**exponent for exponent in range(50, 9, -1))
    for exponent in range(18, 1, -1):
        yield from (10**exponent, 10**exponent // 2, 10**exponent // 4)
    yield from (10, 5, 1)
