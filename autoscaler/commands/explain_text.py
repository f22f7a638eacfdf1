"""Print decisions to a terminal; in a pipe the same text without colors and line breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoscaler.core.stabilization import RateLimit
from autoscaler.records.record import DecisionRecord, MetricRecord
from autoscaler.records.sentence import limit_text, measure_text, metric_name, pods_text, target_text


def print_records(console: Console, records: Sequence[DecisionRecord]) -> None:
    """Print the sentences of all records, oldest first, and the details of the last."""
    *earlier, latest = records
    for record in earlier:
        console.print(Text(f"{record.time}  {record.sentence}"), soft_wrap=True)
    if earlier:
        console.print()
    heading = f"{latest.namespace}/{latest.name} ({latest.api_version}), {latest.target}, {latest.time}"
    console.print(Text(heading, style="bold"), soft_wrap=True)
    console.print(Text(latest.sentence), soft_wrap=True)
    if latest.metrics:
        console.print()
        console.print(_metrics_table(latest))
    console.print()
    details = Table(box=None, pad_edge=False, show_header=False)
    details.add_column(style="bold")
    details.add_column(overflow="fold")
    for name, text in _details(latest):
        details.add_row(Text(name), Text(text))
    console.print(details)


def _metrics_table(record: DecisionRecord) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("METRIC", "VALUE", "TARGET", "RATIO", "TOLERANCE", "PODS", "PROPOSED"):
        table.add_column(heading, overflow="fold")
    for index, metric in enumerate(record.metrics):
        style = "bold green" if index == record.winner else "red" if metric.failure is not None else ""
        table.add_row(*(Text(cell) for cell in _row(metric, winner=index == record.winner)), style=style)
    return table


def _row(metric: MetricRecord, *, winner: bool) -> Iterator[str]:
    yield f"{metric_name(metric)} *" if winner else metric_name(metric)
    yield "-" if metric.current is None else measure_text(metric.current)
    yield target_text(metric)
    if metric.failure is not None:
        yield from ("-", "-", "-", metric.failure.reason)
        return
    ratios = [each for each in (metric.ratio, metric.rebalanced_ratio) if each is not None]
    yield " -> ".join(f"{each:.4g}" for each in ratios) or "-"
    yield "within" if metric.within_tolerance else "outside"
    yield "-" if metric.pods is None else pods_text(metric.pods)
    yield str(metric.proposed_replicas)


def _details(record: DecisionRecord) -> Iterator[tuple[str, str]]:
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
    for event in record.events:
        yield "event", f"{event.type} {event.reason}: {event.message}"
    if record.error is not None:
        yield "error", record.error


def _limit(limit: RateLimit) -> str:
    return str(limit.replicas) if limit.policy is None else f"{limit.replicas} ({limit_text(limit)})"


def _written(record: DecisionRecord) -> str:
    written = record.written
    if written is None:
        return "nothing: only computed"
    parts = [f"scale to {written.replicas}"] if written.replicas is not None else []
    parts += ["status"] if written.status else []
    return f"{', '.join(parts) or 'nothing'} (mode {record.mode})"
