"""A decision in one sentence: what changes, the numbers behind it, and what limited the change.

    3 -> 4: packets_per_second is 150 against a target of 100 per pod (ratio 1.5, outside tolerance 0.1) on 3 ready
    pods, so it proposes 5; limited to 4 by the scale-up policy of 1 pod per 60s, counted from 3

The sentence is made from the record alone, so it can be made from a record that was stored. It follows the order of the
computation: metric, proposal, stabilization, rate limit, bounds, write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from autoscaler.core.replica_calculator import Tolerances
from autoscaler.core.stabilization import RateLimit
from autoscaler.records.record import (
    DecisionRecord,
    Measure,
    MetricRecord,
    PodGroupsRecord,
)

_OTHERS_NAMED: Final = 3
_MILLI_DIGITS: Final = 3
_DIGITS: Final = (4, 7, 17)
"""A ratio gets as few of these as show whether it is within the tolerance; 17 tell any two doubles apart."""


def with_sentence(record: DecisionRecord) -> DecisionRecord:
    """Return the record with its sentence filled in."""
    return replace(record, sentence="; ".join([f"{_change(record)}: {_cause(record)}", *_limits(record)]))


def metric_name(metric: MetricRecord) -> str:
    """Return how texts name a metric: `queue{queue=mail}`, `cpu of container app`, `requests of Service front`."""
    name = metric.name or f"metric of type {metric.type}"
    if metric.selector is not None and metric.selector.match_labels:
        name += "{" + ",".join(f"{key}={value}" for key, value in metric.selector.match_labels.items()) + "}"
    if metric.container is not None:
        return f"{name} of container {metric.container}"
    if metric.described_object is not None:
        return f"{name} of {metric.described_object.kind} {metric.described_object.name}"
    return name


def measure_text(measure: Measure) -> str:
    """Return a value in short: `150`, `80%`, `-` if there is none."""
    if measure.average_utilization is not None:
        return f"{measure.average_utilization}%"
    quantity = measure.average_value or measure.value
    return "-" if quantity is None else decimal_text(quantity)


def decimal_text(quantity: str) -> str:
    """Return a quantity in decimal notation if it exceeds 1: `62827m` is 62.827, `500m` remains `500m`."""
    if quantity.endswith("m") and len(quantity.lstrip("-")) > _MILLI_DIGITS + 1:
        return f"{quantity[: -_MILLI_DIGITS - 1]}.{quantity[-_MILLI_DIGITS - 1 : -1].rstrip('0')}"
    return quantity


def target_text(metric: MetricRecord) -> str:
    """Return a target with its reference: `100 per pod`, `60% of requests`."""
    target = metric.target
    if target.average_utilization is not None:
        return f"{target.average_utilization}% of requests"
    return f"{measure_text(target)} per pod" if target.average_value is not None else measure_text(target)


def ratio_text(metric: MetricRecord, tolerance: Tolerances | None) -> str:
    """Return the ratio, and the rebalanced one that replaces it."""
    if metric.ratio is None:
        return "no finite ratio"
    text = f"ratio {_number(metric.ratio, metric, tolerance)}"
    if metric.rebalanced_ratio is None or metric.rebalanced_ratio == metric.ratio:
        return text
    return f"{text}, {_number(metric.rebalanced_ratio, metric, tolerance)} {_assumption(metric)}".rstrip()


def pods_text(pods: PodGroupsRecord) -> str:
    """Return the pods by group: `3 ready pods`, `4 pods (2 ready, 2 missing)`."""
    groups = {"ready": pods.ready, "unready": pods.unready, "missing": pods.missing, "ignored": pods.ignored}
    counts = {name: group.count for name, group in groups.items() if group.count}
    if set(counts) <= {"ready"}:
        return f"{pods.ready.count} ready {_plural('pod', pods.ready.count)}"
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    total = sum(counts.values())
    return f"{total} {_plural('pod', total)} ({parts})"


def limit_text(limit: RateLimit) -> str:
    """Return the rate limit of one direction: `4 pods per 60s, counted from 3`."""
    policy = limit.policy
    if policy is None:
        return str(limit.replicas)
    size = f"{policy.value}%" if policy.type == "Percent" else f"{policy.value} {_plural('pod', policy.value)}"
    return f"{size} per {policy.period_seconds:g}s, counted from {limit.period_start_replicas}"


# --- what changes --------------------------------------------------------------------------------------------------


def _change(record: DecisionRecord) -> str:
    current, desired = record.current_replicas, record.desired_replicas
    if current is None:
        return "no replica count"
    return f"stays at {current}" if desired in (None, current) else f"{current} -> {desired}"


def _cause(record: DecisionRecord) -> str:
    match record.decided_by:
        case "metrics":
            return _winner_text(record)
        case "fallback":
            return _fallback_text(record)
        case "disabled":
            return "the target is scaled to 0, which disables autoscaling until it is scaled up"
        case "bounds":
            return f"{_violated_bound(record)}; metrics are not evaluated until the replicas are within the bounds"
        case None:
            return _missing_count_text(record)


def _fallback_text(record: DecisionRecord) -> str:
    fallback = record.fallback
    assert fallback is not None, "the fallback decided"
    failed = f"metrics failed in {fallback.failures} {_plural('sync', fallback.failures)} in a row"
    return "; ".join([f"{failed}, the fallback proposes at least {fallback.replicas} replicas", *_failures(record)])


def _violated_bound(record: DecisionRecord) -> str:
    current, bounds = record.current_replicas, record.bounds
    if current is not None and current > bounds.max_replicas:
        return f"{current} is above maxReplicas {bounds.max_replicas}"
    return f"{current} is below minReplicas {bounds.min_replicas}"


def _missing_count_text(record: DecisionRecord) -> str:
    """Why no replica count was found."""
    failed = list(_failures(record))
    if not failed:
        # The first event has the cause alone; the error repeats the HPA's target, too.
        return record.events[0].message if record.events else record.error or "unknown error"
    proposals = [each.proposed_replicas for each in record.metrics if each.proposed_replicas is not None]
    if proposals:
        rest = f"the other metrics propose {max(proposals)}, and no target is scaled down while a metric fails"
        return "; ".join([*failed, rest])
    return "; ".join(failed)


# --- why -----------------------------------------------------------------------------------------------------------


def _winner_text(record: DecisionRecord) -> str:
    assert record.winner is not None, "the metrics decided"
    metric = record.metrics[record.winner]
    text = f"{metric_name(metric)} is {_comparison(metric)} ({_verdict(metric, record.tolerance)})"
    if metric.pods is not None:
        text += f" on {pods_text(metric.pods)}"
    if metric.overruled:
        unchanged = f", but it proposes no change from {metric.proposed_replicas}"
        text += f"{unchanged}: assumed values must not reverse the direction"
    elif not metric.within_tolerance or metric.proposed_replicas != record.desired_replicas:
        text += f", so it proposes {metric.proposed_replicas}"
    if record.foreign_pods is not None:
        text += f", {record.foreign_pods.count} {_plural('pod', record.foreign_pods.count)} of other owners not counted"
    others = [
        f"{metric_name(each)} proposes {each.proposed_replicas}"
        for index, each in enumerate(record.metrics)
        if index != record.winner and each.failure is None
    ]
    if others:
        more = [f"{len(others) - _OTHERS_NAMED} more"] if len(others) > _OTHERS_NAMED else []
        text += f", the highest of {len(others) + 1} metrics ({', '.join([*others[:_OTHERS_NAMED], *more])})"
    return text


def _comparison(metric: MetricRecord) -> str:
    """Return the value and the target."""
    current, target = metric.current, metric.target
    assert current is not None, "the metric has a value"
    if target.average_utilization is not None:
        return f"{current.average_utilization}% of requests against a target of {target.average_utilization}%"
    value, goal = measure_text(current), measure_text(target)
    if target.average_value is None:
        return f"{value} against a target of {goal}"
    if metric.total is None:
        return f"{value} against a target of {goal} per pod"
    share = "with no replicas" if current.average_value is None else f"{value} per replica"
    return f"{decimal_text(metric.total)}, {share}, against a target of {goal} per replica"


def _verdict(metric: MetricRecord, tolerance: Tolerances | None) -> str:
    text = ratio_text(metric, tolerance)
    from_zero = metric.target.value is not None and metric.counted_pods is None and not metric.within_tolerance
    if tolerance is None or from_zero:
        return text
    side = "within" if metric.within_tolerance else "outside"
    limit = tolerance.scale_up if _effective(metric) > 1.0 else tolerance.scale_down
    return f"{text}, {side} tolerance {limit:g}"


def _assumption(metric: MetricRecord) -> str:
    """Return which values were assumed for missing and unready pods."""
    pods, ratio = metric.pods, metric.ratio
    if pods is None or ratio is None or ratio == 1.0:
        return ""
    missing, unready = pods.missing.count, pods.unready.count if ratio > 1.0 else 0
    parts = [f"{count} {name}" for name, count in (("missing", missing), ("unready", unready)) if count]
    assumed = f"with {' and '.join(parts)} {_plural('pod', missing + unready)} assumed"
    if ratio > 1.0:
        return f"{assumed} at 0"
    percent = metric.target.average_utilization
    return f"{assumed} at {'the target' if percent is None else f'{max(100, percent)}% of the request'}"


def _failures(record: DecisionRecord) -> Iterator[str]:
    for metric in record.metrics:
        if metric.failure is not None:
            yield f"{metric_name(metric)} failed ({metric.failure.message})"


# --- what limits the change ----------------------------------------------------------------------------------------


def _limits(record: DecisionRecord) -> Iterator[str]:
    if record.decided_by == "metrics":
        yield from _failures(record)
    yield from _stabilization(record)
    yield from _rates_and_bounds(record)
    blocked, written = record.blocked, record.written
    if blocked is not None:
        why = f"annotation milliscale.io/paused is {blocked.paused}"
        if blocked.stale:
            why = f"the watch on {' and '.join(blocked.stale)} is silent, fails or is incomplete"
        yield f"not scaled to {blocked.replicas}, because {why}"
    if written is None:
        return
    if written.scale_error is not None:
        yield f"the scale could not be updated: {written.scale_error}"
    elif record.mode != "act" and record.desired_replicas not in (None, record.current_replicas):
        yield f"not applied in mode {record.mode}"
    if written.status_error is not None:
        yield f"the status could not be updated: {written.status_error}"


def _stabilization(record: DecisionRecord) -> Iterator[str]:
    given = record.stabilization
    if given is None or given.replicas == given.proposed_replicas or given.recommendation is None:
        return
    earlier = given.recommendation
    why = f"{earlier.replicas} was recommended at {earlier.time[11:19]}"
    # A replay of kept decisions begins with what was recommended at that time, not with the current replicas.
    if earlier.time == record.time and earlier.replicas == record.current_replicas:
        why = "no earlier recommendation is known, so it starts with the current replicas"
    yield f"kept at {given.replicas} by the stabilization window of {given.window_seconds:g}s: {why}"


def _rates_and_bounds(record: DecisionRecord) -> Iterator[str]:
    given, limited, bounds = record.stabilization, record.limited_replicas, record.bounds
    if given is None:
        return
    if limited != given.replicas:
        match record.limit:
            case "ScaleUpLimit":
                yield f"limited to {limited} {_rate(record.scale_up_limit, record, 'up')}"
            case "ScaleDownLimit":
                yield f"limited to {limited} {_rate(record.scale_down_limit, record, 'down')}"
            case "TooManyReplicas":
                yield f"limited to {limited} by maxReplicas {bounds.max_replicas}"
            case "TooFewReplicas":
                yield f"raised to {limited} by minReplicas {bounds.min_replicas}"
    blocked = record.blocked
    desired = record.desired_replicas if blocked is None or blocked.stale else blocked.replicas
    if desired != limited:
        yield f"raised to {desired} by minReplicas {bounds.min_replicas}, when scaled up from 0"


def _rate(limit: RateLimit | None, record: DecisionRecord, direction: str) -> str:
    if limit is not None and limit.policy is not None:
        return f"by the scale-{direction} policy of {limit_text(limit)}"
    if record.scale_down_limit is None:
        return "because without behavior a sync at most doubles the replicas, or goes to 4"
    return f"because scaling {direction} is disabled"


# --- numbers -------------------------------------------------------------------------------------------------------


def _effective(metric: MetricRecord) -> float:
    ratio = metric.ratio if metric.rebalanced_ratio is None else metric.rebalanced_ratio
    return 1.0 if ratio is None else ratio


def _number(ratio: float, metric: MetricRecord, tolerance: Tolerances | None) -> str:
    """Return a ratio with as few digits as leave it within or outside of the tolerance."""
    if tolerance is None or ratio != _effective(metric):
        return f"{ratio:.{_DIGITS[0]}g}"
    low, high = 1.0 - tolerance.scale_down, 1.0 + tolerance.scale_up
    for digits in _DIGITS:
        text = f"{ratio:.{digits}g}"
        if (low <= float(text) <= high) == (low <= ratio <= high):
            break
    return text


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
