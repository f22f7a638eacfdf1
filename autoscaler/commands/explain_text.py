"""Print decisions to a terminal; in a pipe the same text without colors and line breaks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoscaler.records.explanation import METRIC_HEADINGS, details, heading, metric_cells
from autoscaler.records.record import DecisionRecord
from kube.values.printable import printable


def print_records(
    console: Console, records: Sequence[DecisionRecord], hints: Sequence[str] = (), sources: Sequence[str] = ()
) -> None:
    """Print the sentences of all records, oldest first, and the details of the last.

    Hints follow its sentence, and where its metrics come from follows these.
    """
    *earlier, latest = records
    for record in earlier:
        console.print(_text(f"{record.time}  {record.sentence}"), soft_wrap=True)
    if earlier:
        console.print()
    console.print(_text(heading(latest), style="bold"), soft_wrap=True)
    for line in (latest.sentence, *hints):
        console.print(_text(line), soft_wrap=True)
    if latest.metrics:
        console.print()
        console.print(_metrics_table(latest))
    for line in sources:
        console.print(_text(line), soft_wrap=True)
    console.print()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in details(latest):
        table.add_row(_text(name), _text(text))
    console.print(table)


def _metrics_table(record: DecisionRecord) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in METRIC_HEADINGS:
        table.add_column(title, overflow="fold")
    for index, metric in enumerate(record.metrics):
        is_winner = index == record.winner
        style = "bold green" if is_winner else "red" if metric.failure is not None else ""
        table.add_row(*map(_text, metric_cells(metric, is_winner=is_winner)), style=style)
    return table


def _text(text: str, style: str = "") -> Text:
    """Return a text without control characters, which could do anything in a terminal; names in it are its users'."""
    return Text(printable(text, keep="\n"), style)
