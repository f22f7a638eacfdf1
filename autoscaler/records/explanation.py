"""What an explanation of a decision says beside its sentence, as `explain` and the pages show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.core.stabilization import RateLimit
from autoscaler.records.reaction import reaction_text
from autoscaler.records.record import DecisionRecord, MetricRecord
from autoscaler.records.sentence import limit_text, measure_text, metric_name, pods_text, target_text
from kube.values.durations import format_duration

METRIC_HEADINGS: Final = ("METRIC", "VALUE", "TARGET", "RATIO", "TOLERANCE", "PODS", "AGE", "PROPOSED")


def heading(record: DecisionRecord) -> str:
    """Return the HPA, its target and the time."""
    return f"{record.namespace}/{record.name} ({record.api_version}), {record.target}, {record.time}"


def metric_cells(metric: MetricRecord, *, is_winner: bool) -> Iterator[str]:
    """Yield a text for each of METRIC_HEADINGS; of a metric that failed, the last one is the reason."""
    yield f"{metric_name(metric)} *" if is_winner else metric_name(metric)
    yield "-" if metric.current is None else measure_text(metric.current)
    yield target_text(metric)
    if metric.failure is not None:
        yield from ("-", "-", "-", _age(metric), metric.failure.reason)
        return
    ratios = [each for each in (metric.ratio, metric.rebalanced_ratio) if each is not None]
    yield " -> ".join(f"{each:.4g}" for each in ratios) or "-"
    yield "within" if metric.within_tolerance else "outside"
    yield "-" if metric.pods is None else pods_text(metric.pods)
    yield _age(metric)
    yield str(metric.proposed_replicas)


def _age(metric: MetricRecord) -> str:
    """Return how old the newest value was, and its window: `3.4s of 1m0s`."""
    age = "-" if metric.age_seconds is None else f"{metric.age_seconds:.1f}s"
    return age if metric.window_seconds is None else f"{age} of {format_duration(metric.window_seconds)}"


def details(record: DecisionRecord) -> Iterator[tuple[str, str]]:
    """Yield (name, text), in the order of the computation."""
    if record.current_replicas is not None:
        yield "current", str(record.current_replicas)
    if record.tolerance is not None:
        yield "tolerance", f"{record.tolerance.scale_down:g} down, {record.tolerance.scale_up:g} up"
    if record.stabilization is not None:
        given = record.stabilization
        yield "proposed", str(given.proposed_replicas)
        earlier = given.recommendation
        because = "" if earlier is None else f", {earlier.replicas} recommended at {earlier.time}"
        yield "stabilized", f"{given.replicas} ({given.reason}; window {given.window_seconds:g}s{because})"
    if record.scale_up_limit is not None:
        yield "scale-up limit", _limit(record.scale_up_limit)
        yield "scale-down limit", "-" if record.scale_down_limit is None else _limit(record.scale_down_limit)
    yield "bounds", f"{record.bounds.min_replicas} to {record.bounds.max_replicas}"
    if record.limited_replicas is not None:
        yield "limited", f"{record.limited_replicas} ({record.limit})"
    yield "desired", "-" if record.desired_replicas is None else str(record.desired_replicas)
    if record.reason:
        yield "reason", record.reason
    yield "written", _written(record)
    if record.reaction is not None:
        yield "reaction", reaction_text(record.reaction)
    for event in record.events:
        yield "event", f"{event.type} {event.reason}: {_without_repeated(event.message, record)}"
    if record.error is not None:
        yield "error", _without_repeated(record.error, record)


def _without_repeated(text: str, record: DecisionRecord) -> str:
    """Return a text without the errors of metrics, which the sentence has already."""
    for metric in record.metrics:
        if metric.failure is not None and metric.failure.message:
            text = text.replace(metric.failure.message, "see above")
    return text


def _limit(limit: RateLimit) -> str:
    return str(limit.replicas) if limit.policy is None else f"{limit.replicas} ({limit_text(limit)})"


def _written(record: DecisionRecord) -> str:
    written = record.written
    if written is None:
        return "nothing: only computed"
    parts = [f"scale to {written.replicas}"] if written.replicas is not None else []
    parts += ["status"] if written.status else []
    early = ", eager: before its sync" if record.eager else ""
    return f"{', '.join(parts) or 'nothing'} (mode {record.mode}{early})"
