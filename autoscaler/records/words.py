"""A step in one sentence, for people: what changes, which numbers say so, and what held the change back.

    3 -> 4: packets_per_second is 150 against a target of 100 per pod (ratio 1.5, outside tolerance 0.1) on 3 ready
    pods, so it asks for 5; held to 4 by the scale-up limit of 1 pod per 60s, counted from 3

The sentence is made from the record alone, so it can be made again from a record that was kept. It follows the order in
which the count comes about: metric, proposal, stabilisation, rate limit, bounds, write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.records.record import (
    CountedPods,
    DecisionRecord,
    LimitRecord,
    Measure,
    MetricRecord,
    ToleranceRecord,
)

_OTHERS_NAMED: Final = 3
_MILLI_DIGITS: Final = 3
_DIGITS: Final = (4, 7, 17)
"""As few as show on which side of the tolerance a ratio is; 17 tell any two doubles apart."""


def sentence(record: DecisionRecord) -> str:
    """The whole step in one sentence."""
    return "; ".join([f"{_change(record)}: {_cause(record)}", *_consequences(record)])


def metric_name(metric: MetricRecord) -> str:
    """What to call a metric."""
    name = metric.name or f"metric of type {metric.type}"
    labels = (metric.selector or {}).get("matchLabels")
    if labels:
        name += "{" + ",".join(f"{key}={value}" for key, value in labels.items()) + "}"
    if metric.container is not None:
        return f"{name} of container {metric.container}"
    if metric.described_object is not None:
        return f"{name} of {metric.described_object.kind} {metric.described_object.name}"
    return name


def measure_text(measure: Measure) -> str:
    """A value as short as it can be: `150`, `80%`, `-` where there is none."""
    if measure.average_utilization is not None:
        return f"{measure.average_utilization}%"
    quantity = measure.average_value or measure.value
    return "-" if quantity is None else quantity_text(quantity)


def quantity_text(quantity: str) -> str:
    """A quantity as people write it: `62827m` is 62.827, while `500m` stays as it is."""
    if quantity.endswith("m") and len(quantity.lstrip("-")) > _MILLI_DIGITS + 1:
        return f"{quantity[: -_MILLI_DIGITS - 1]}.{quantity[-_MILLI_DIGITS - 1 : -1].rstrip('0')}"
    return quantity


def target_text(metric: MetricRecord) -> str:
    """A target and what it is about: `100 per pod`, `60% of requests`."""
    target = metric.target
    if target.average_utilization is not None:
        return f"{target.average_utilization}% of requests"
    return f"{measure_text(target)} per pod" if target.average_value is not None else measure_text(target)


def ratio_text(metric: MetricRecord, tolerance: ToleranceRecord | None) -> str:
    """The ratio that counts, or how it became another one by assumptions."""
    if metric.ratio is None:
        return "no finite ratio"
    text = f"ratio {_number(metric.ratio, metric, tolerance)}"
    if metric.rebalanced_ratio is None or metric.rebalanced_ratio == metric.ratio:
        return text
    return f"{text}, {_number(metric.rebalanced_ratio, metric, tolerance)} {_assumption(metric)}".rstrip()


def pods_text(pods: CountedPods) -> str:
    """How the pods were counted: `3 ready pods`, `4 pods (2 ready, 2 missing)`."""
    groups = {"ready": pods.ready, "unready": pods.unready, "missing": pods.missing, "ignored": pods.ignored}
    counts = {name: group.count for name, group in groups.items() if group.count}
    if set(counts) <= {"ready"}:
        return f"{pods.ready.count} ready {_plural('pod', pods.ready.count)}"
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    total = sum(counts.values())
    return f"{total} {_plural('pod', total)} ({parts})"


def limit_text(limit: LimitRecord) -> str:
    """What limits one direction: `4 pods per 60s, counted from 3`."""
    policy = limit.policy
    if policy is None:
        return str(limit.replicas)
    size = f"{policy.value}%" if policy.type == "Percent" else f"{policy.value} {_plural('pod', policy.value)}"
    return f"{size} per {policy.period_seconds:g}s, counted from {limit.period_start_replicas}"


# --- what changes --------------------------------------------------------------------------------------------------


def _change(record: DecisionRecord) -> str:
    current, desired = record.current_replicas, record.desired_replicas
    if current is None:
        return "nothing is decided"
    return f"stays at {current}" if desired in (None, current) else f"{current} -> {desired}"


def _cause(record: DecisionRecord) -> str:
    match record.decided_by:
        case "metrics":
            return _winner_text(record)
        case "fallback":
            return _fallback_text(record)
        case "disabled":
            return "the target is scaled to 0, which switches autoscaling off until somebody scales it up"
        case "bounds":
            return f"{_broken_bound(record)}, and until the count is within bounds the metrics do not matter"
        case None:
            return _obstacle(record)


def _fallback_text(record: DecisionRecord) -> str:
    fallback = record.fallback
    assert fallback is not None, "a fallback that decides is there"
    steps = f"{fallback.failures} {_plural('step', fallback.failures)}"
    asks = f"metrics have failed for {steps} in a row, so the fallback asks for at least"
    return "; ".join([f"{asks} {fallback.replicas} replicas", *_failures(record)])


def _broken_bound(record: DecisionRecord) -> str:
    current, bounds = record.current_replicas, record.bounds
    if current is not None and current > bounds.max_replicas:
        return f"{current} is above maxReplicas {bounds.max_replicas}"
    return f"{current} is below minReplicas {bounds.min_replicas}"


def _obstacle(record: DecisionRecord) -> str:
    """Why no replica count was found."""
    failed = list(_failures(record))
    if not failed:
        # The first event is about the cause; the error around it repeats the HPA's target.
        return record.events[0].message if record.events else record.error or "no reason is known"
    proposals = [each.proposed_replicas for each in record.metrics if each.proposed_replicas is not None]
    if proposals:
        rest = f"the others ask for {max(proposals)}, and with a metric missing nothing is scaled down"
        return "; ".join([*failed, rest])
    return "; ".join(failed)


# --- why -----------------------------------------------------------------------------------------------------------


def _winner_text(record: DecisionRecord) -> str:
    assert record.winner is not None, "metrics that decide have a winner"
    metric = record.metrics[record.winner]
    text = f"{metric_name(metric)} is {_comparison(metric)} ({_verdict(metric, record.tolerance)})"
    if metric.pods is not None:
        text += f" on {pods_text(metric.pods)}"
    if metric.overruled:
        text += f", which asks for no change from {metric.proposed_replicas}, as assumptions must not turn a direction"
    elif not metric.within_tolerance or metric.proposed_replicas != record.desired_replicas:
        text += f", so it asks for {metric.proposed_replicas}"
    if record.foreign_pods is not None:
        text += f", {record.foreign_pods.count} {_plural('pod', record.foreign_pods.count)} of other owners left out"
    others = [
        f"{metric_name(each)} asks for {each.proposed_replicas}"
        for index, each in enumerate(record.metrics)
        if index != record.winner and each.failure is None
    ]
    if others:
        more = [f"{len(others) - _OTHERS_NAMED} more"] if len(others) > _OTHERS_NAMED else []
        text += f", the most of {len(others) + 1} metrics ({', '.join([*others[:_OTHERS_NAMED], *more])})"
    return text


def _comparison(metric: MetricRecord) -> str:
    """The value against the target."""
    current, target = metric.current, metric.target
    assert current is not None, "a metric that proposes has a value"
    if target.average_utilization is not None:
        return f"{current.average_utilization}% of requests against a target of {target.average_utilization}%"
    value, goal = measure_text(current), measure_text(target)
    if target.average_value is None:
        return f"{value} against a target of {goal}"
    if metric.total is None:
        return f"{value} against a target of {goal} per pod"
    share = "with no replicas" if current.average_value is None else f"{value} per replica"
    return f"{quantity_text(metric.total)}, {share}, against a target of {goal} per replica"


def _verdict(metric: MetricRecord, tolerance: ToleranceRecord | None) -> str:
    text = ratio_text(metric, tolerance)
    woken = metric.target.value is not None and metric.counted is None and not metric.within_tolerance
    if tolerance is None or woken:
        return text
    side = "within" if metric.within_tolerance else "outside"
    return f"{text}, {side} tolerance {_side(metric, tolerance):g}"


def _assumption(metric: MetricRecord) -> str:
    """What was assumed of the pods whose values could not be used."""
    pods, ratio = metric.pods, metric.ratio
    if pods is None or ratio is None or ratio == 1.0:
        return ""
    missing, unready = pods.missing.count, pods.unready.count if ratio > 1.0 else 0
    parts = [f"{count} {name}" for name, count in (("missing", missing), ("unready", unready)) if count]
    assumed = f"with {' and '.join(parts)} {_plural('pod', missing + unready)}"
    if ratio > 1.0:
        return f"{assumed} taken as idle"
    percent = metric.target.average_utilization
    return f"{assumed} taken to {'be at the target' if percent is None else f'use {max(100, percent)}% of the request'}"


def _failures(record: DecisionRecord) -> Iterator[str]:
    for metric in record.metrics:
        if metric.failure is not None:
            yield f"{metric_name(metric)} has no value ({metric.failure.message})"


# --- what follows --------------------------------------------------------------------------------------------------


def _consequences(record: DecisionRecord) -> Iterator[str]:
    if record.decided_by == "metrics":
        yield from _failures(record)
    yield from _stabilization(record)
    yield from _limits(record)
    if record.held_back is not None:
        pause = record.held_back
        why = f"annotation milliscale.io/paused is {pause.paused}"
        if pause.stale:
            why = f"the watch on {' and '.join(pause.stale)} is silent or fails"
        yield f"not scaled to {pause.replicas}, because {why}"
    written = record.written
    if written is None:
        return
    if written.scale_error is not None:
        yield f"the scale could not be written: {written.scale_error}"
    elif record.mode != "act" and record.desired_replicas not in (None, record.current_replicas):
        yield f"not written, in mode {record.mode}"
    if written.status_error is not None:
        yield f"the status could not be stored: {written.status_error}"


def _stabilization(record: DecisionRecord) -> Iterator[str]:
    given = record.stabilization
    if given is None or given.replicas == given.proposed_replicas or given.held_by is None:
        return
    earlier, window = given.held_by, f"the last {given.window_seconds:g}s"
    why = f"{earlier.replicas} was recommended at {earlier.time[11:19]}, within {window}"
    if earlier.time == record.time:
        why = f"no earlier recommendation is known, so the current count stands for {window}"
    yield f"held at {given.replicas} by stabilisation: {why}"


def _limits(record: DecisionRecord) -> Iterator[str]:
    given, limited, bounds = record.stabilization, record.limited_replicas, record.bounds
    if given is None:
        return
    if limited != given.replicas:
        match record.limit:
            case "ScaleUpLimit":
                yield f"held to {limited} {_by_rate(record.scale_up_limit, record, 'up')}"
            case "ScaleDownLimit":
                yield f"held to {limited} {_by_rate(record.scale_down_limit, record, 'down')}"
            case "TooManyReplicas":
                yield f"held to {limited} by maxReplicas {bounds.max_replicas}"
            case "TooFewReplicas":
                yield f"raised to {limited} by minReplicas {bounds.min_replicas}"
    back = record.held_back
    desired = record.desired_replicas if back is None or back.stale else back.replicas
    if desired != limited:
        yield f"raised to {desired} by minReplicas {bounds.min_replicas}, on waking from 0"


def _by_rate(limit: LimitRecord | None, record: DecisionRecord, direction: str) -> str:
    if limit is not None and limit.policy is not None:
        return f"by the scale-{direction} limit of {limit_text(limit)}"
    if record.scale_down_limit is None:
        return "because one step at most doubles the count, or goes to 4"
    return f"because scaling {direction} is disabled"


# --- numbers -------------------------------------------------------------------------------------------------------


def _side(metric: MetricRecord, tolerance: ToleranceRecord) -> float:
    """The tolerance of the direction in which the ratio points."""
    return tolerance.scale_up if _effective(metric) > 1.0 else tolerance.scale_down


def _effective(metric: MetricRecord) -> float:
    ratio = metric.ratio if metric.rebalanced_ratio is None else metric.rebalanced_ratio
    return 1.0 if ratio is None else ratio


def _number(ratio: float, metric: MetricRecord, tolerance: ToleranceRecord | None) -> str:
    """A ratio in as few digits as leave it on its side of the tolerance."""
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
