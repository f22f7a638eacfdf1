"""Print decisions to a terminal; in a pipe the same text without colors and line breaks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoscaler.records.explanation import METRIC_HEADINGS, MetricRow, explain_record
from autoscaler.records.record import DecisionRecord
from kube.values.printable import printable


def print_records(
    console: Console, records: Sequence[DecisionRecord], hints: Sequence[str] = (), links: Sequence[str] = ()
) -> None:
    """Print the sentences of all records, oldest first, and the details of the last.

    Hints follow its sentence, and links its metrics.
    """
    *earlier, latest = records
    for record in earlier:
        console.print(_text(f"{record.time}  {record.sentence}"), soft_wrap=True)
    if earlier:
        console.print()
    explanation = explain_record(latest)
    console.print(_text(explanation.heading, style="bold"), soft_wrap=True)
    for line in (explanation.sentence, *hints):
        console.print(_text(line), soft_wrap=True)
    if explanation.metrics:
        console.print()
        console.print(_metrics_table(explanation.metrics))
    for link in links:
        console.print(_text(link), soft_wrap=True)
    console.print()
    details = Table(box=None, pad_edge=False, show_header=False)
    details.add_column(style="bold")
    details.add_column(overflow="fold")
    for name, text in explanation.details:
        details.add_row(_text(name), _text(text))
    console.print(details)


def _metrics_table(rows: Sequence[MetricRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in METRIC_HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        style = "bold green" if row.is_winner else "red" if row.failed else ""
        table.add_row(*map(_text, row.cells), style=style)
    return table


def _text(text: str, style: str = "") -> Text:
    """Return a text without control characters, which could do anything in a terminal; names in it are its users'."""
    return Text(printable(text, keep="\n"), style)
