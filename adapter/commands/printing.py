"""The output of commands: JSON, and the text of `check` and `explain`, whose lines are not wrapped."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import click
import msgspec
from rich.console import Console
from rich.text import Text

from adapter.diagnosis.report import Finding, MetricReport, Report, RuleReport, Severity
from adapter.rules.model import shortened
from kube.values.printable import on_one_line, printable
from kube.web.explanation import Explanation

_SHOWN_SERIES = 5
_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.ADVICE: "cyan"}

output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)


def print_json(document: object) -> None:
    """Print a document as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_report(report: Report) -> None:
    """Print the rules with their series and metrics, then the findings."""
    console = Console(soft_wrap=True)
    if report.found:
        console.print(_text(f"found in {report.found}"))
    if report.asked_prometheus:
        for rule in report.rules:
            console.print(_text(f"{rule.rule}  {on_one_line(rule.about)}", style="bold"))
            for line in _lines(rule):
                console.print(_text(line))
        console.print()
    for rule_key, findings in itertools.groupby(report.findings, key=lambda finding: finding.rule):
        _print_findings(console, rule_key, list(findings))
    counts = Counter(finding.severity for finding in report.findings)
    errors, warnings = _count(counts[Severity.ERROR], "error"), _count(counts[Severity.WARNING], "warning")
    console.print(f"{errors}, {warnings}", highlight=False)


def _lines(rule: RuleReport) -> Iterator[str]:
    """Yield a rule's series with their metrics and examples of these, then some of the series without metrics."""
    if not rule.listed:
        yield "  not listed"
    elif not rule.series and not rule.metrics:
        yield "  no series"
    labels = {
        one.name: ", ".join(f"{label}={resource}" for label, resource in one.labels.items()) for one in rule.series
    }
    for name, metrics in itertools.groupby(rule.metrics, key=lambda metric: metric.series):
        yield f"  {name or '-'}{f': {labels[name]}' if labels.get(name) else ''}"
        for metric in metrics:
            yield from _metric_lines(metric)
    made = {metric.series for metric in rule.metrics}
    without = [series for series in rule.series if series.name not in made]
    for series in without[:_SHOWN_SERIES]:
        yield f"  {series.name}: {f'left out by {series.left_out_by}' if series.left_out_by else 'none'}"
    if len(without) > _SHOWN_SERIES:
        yield f"  and {len(without) - _SHOWN_SERIES} more without metrics"


def _metric_lines(metric: MetricReport) -> Iterator[str]:
    notes = [f"overlapped by {metric.hidden_by}"] * bool(metric.hidden_by) + ["merges"] * metric.merges
    yield f"    {metric.metric}" + (f" ({', '.join(notes)})" if notes else "")
    example = metric.example
    if example is not None:
        value = example.values[0].text if example.values else "none" if example.problem else ""
        queries = "; ".join(map(on_one_line, example.queries)) or example.note
        yield from (f"      {line}" for line in (" = ".join(filter(None, (example.of, value))), queries) if line)


def _print_findings(console: Console, rule: str, findings: list[Finding]) -> None:
    """Print the findings about one rule, below its key and seriesQuery."""
    console.print(_text(f"{rule}  {shortened(findings[0].about)}".rstrip(), style="bold"))
    for finding in findings:
        severity = Text(f"  {finding.severity.value}: ", _STYLES[finding.severity])
        path = f"{finding.path}: " if finding.path else ""
        console.print(severity + _text(f"{path}{finding.message} [{finding.code}]"))


def print_explanation(explanation: Explanation) -> None:
    """Print where the metric comes from and its value, or why it is missing."""
    print_lines(explanation.lines())


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without control characters."""
    for line in lines:
        click.echo(printable(line, keep="\n"))


def _text(text: str, style: str = "") -> Text:
    """Return a text without control characters, which a terminal would obey: Prometheus allows any in names."""
    return Text(printable(text, keep="\n"), style)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
