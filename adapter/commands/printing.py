"""The output of commands: JSON, and the text of `check` and `explain`, unwrapped in pipes and files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import click
import msgspec
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from adapter.diagnosis.report import Finding, MetricReport, Report, RuleReport, Severity
from adapter.rules.model import shortened
from kube.values.printable import on_one_line, printable
from kube.web.explanation import Example, Explanation

_SHOWN_SERIES = 5
_PLAIN_WIDTH = 10_000
_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.ADVICE: "cyan"}
_COLUMNS = (
    "RULE",
    "SERIES FOUND",
    "FILTERED OUT BY",
    "RESOURCES",
    "METRIC",
    "OVERLAPPED BY",
    "MERGES",
    "EXAMPLE",
    "VALUE",
    "PROMQL",
)


output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)


def print_json(document: object) -> None:
    """Print a document as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_report(report: Report, *, plain: bool) -> None:
    """Print the rules with their series and metrics, then the findings.

    The rules are a table if it fits the terminal, else a list. With `plain` (the output is not a terminal) they are
    always a table.
    """
    console = _console(plain=plain)
    if report.found:
        console.print(_text(f"found in {report.found}"), soft_wrap=True)
    if report.asked_prometheus:
        table = _table(*_COLUMNS)
        for rule in report.rules:
            for row in _rows(rule):
                table.add_row(*map(_text, row))
        if Measurement.get(_console(plain=True), _console(plain=True).options, table).maximum <= console.width:
            _print_table(console, table)
        else:
            for rule in report.rules:
                _print_rule(console, rule)
        console.print()
    for rule_key, findings in itertools.groupby(report.findings, key=lambda finding: finding.rule):
        _print_findings(console, rule_key, list(findings), plain=plain)
    counts = Counter(finding.severity for finding in report.findings)
    errors, warnings = _count(counts[Severity.ERROR], "error"), _count(counts[Severity.WARNING], "warning")
    console.print(f"{errors}, {warnings}", highlight=False)


def _print_table(console: Console, table: Table) -> None:
    with console.capture() as capture:
        console.print(table)
    # rich pads the last column.
    for row_text in capture.get().splitlines():
        console.out(row_text.rstrip(), highlight=False)


def _print_rule(console: Console, rule: RuleReport) -> None:
    """Print a rule as a list: its series, their metrics, and examples of these."""
    console.print(_text(f"{rule.rule}  {on_one_line(rule.about)}", style="bold"), soft_wrap=True)
    before = None
    for row in _rows(rule):
        _, found, left_out_by, labels, metric, hidden_by, merges, example, value, queries = row
        if (found, left_out_by, labels) != before:
            before = (found, left_out_by, labels)
            why = f"left out by {left_out_by}" if left_out_by else labels
            console.print(_text(f"  {found}" + (f": {why}" if why else "")), soft_wrap=True)
        if metric:
            notes = [f"overlapped by {hidden_by}"] * bool(hidden_by) + ["merges"] * (merges == "yes")
            console.print(_text(f"    {metric}" + (f" ({', '.join(notes)})" if notes else "")), soft_wrap=True)
        if example or value:
            console.print(_text(f"      {' = '.join(filter(None, (example, value)))}"), soft_wrap=True)
        if queries:
            console.print(_text(f"      {queries}"), soft_wrap=True)


def _print_findings(console: Console, rule: str, findings: list[Finding], *, plain: bool) -> None:
    """Print the findings about one rule, below its key and seriesQuery."""
    console.print(_text(f"{rule}  {shortened(findings[0].about)}".rstrip(), style="bold"), soft_wrap=True)
    for finding in findings:
        style = _STYLES[finding.severity]
        line = Text.assemble(
            (f"{finding.severity.value}: ", style),
            _text(f"{finding.path}: " if finding.path else ""),
            _text(f"{finding.message} [{finding.code}]"),
        )
        if plain:
            console.print(Text("  ") + line, soft_wrap=True)
        else:
            console.print(Padding(line, (0, 0, 0, 2), expand=False))


def print_explanation(explanation: Explanation, *, plain: bool) -> None:
    """Print where the metric comes from and its value, or why it is missing."""
    console = _console(plain=plain)
    for line in explanation.lines():
        console.print(_text(line), soft_wrap=True)


def _text(text: str, style: str = "") -> Text:
    """Return a text without control characters, which a terminal would obey: Prometheus allows any in names."""
    return Text(printable(text, keep="\n"), style)


def _console(*, plain: bool) -> Console:
    return Console(width=_PLAIN_WIDTH, color_system=None, legacy_windows=False) if plain else Console()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _rows(rule: RuleReport) -> Iterator[tuple[str, ...]]:
    """Yield a row per metric, and per series without metrics."""
    if not rule.listed:
        yield _row(rule, found="not listed")
    elif not rule.series and not rule.metrics:
        yield _row(rule, found="no series")
    by_series = {series.name: series for series in rule.series}
    for metric in rule.metrics:
        series = by_series.get(metric.series)
        labels = ", ".join(f"{label}={resource}" for label, resource in series.labels.items()) if series else ""
        yield _row(rule, found=metric.series or "-", labels=labels, metric=metric)
    made = {metric.series for metric in rule.metrics}
    without = [series for series in rule.series if series.name not in made]
    for series in without[:_SHOWN_SERIES]:
        yield _row(rule, found=series.name, left_out_by=series.left_out_by, labels="" if series.left_out_by else "none")
    if len(without) > _SHOWN_SERIES:
        yield _row(rule, found=f"and {len(without) - _SHOWN_SERIES} more without metrics")


def _row(
    rule: RuleReport,
    *,
    found: str,
    left_out_by: str = "",
    labels: str = "",
    metric: MetricReport | None = None,
) -> tuple[str, ...]:
    if metric is None:
        return (rule.rule, found, left_out_by, labels, "", "", "", "", "", "")
    example = metric.example or Example()
    value = example.values[0].value if example.values else ("none" if example.problem else "")
    return (
        rule.rule,
        found,
        left_out_by,
        labels,
        metric.metric,
        metric.hidden_by,
        "yes" if metric.merges else "no",
        example.of,
        value,
        "; ".join(map(on_one_line, example.queries)) or example.note,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
