"""The table of a replay: specs and reality side by side."""

from __future__ import annotations

from typing import Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kube.values.printable import printable
from replay.output.comparison import Cell, Comparison, notes, rows, verdicts, worst_moments

_UNLIMITED: Final = 1000
"""Columns of a file or a pipe."""


def console_of(file: TextIO) -> Console:
    """Return a console that writes in color and within its width on a terminal, otherwise plain."""
    width = None if file.isatty() else _UNLIMITED
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def print_table(comparison: Comparison, file: TextIO) -> None:
    """Print the figures and the notes."""
    console, terminal = console_of(file), file.isatty()
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), pad_edge=False)
    table.add_column("")
    for column in comparison.columns:
        table.add_column(Text(printable(column.name)), justify="right", overflow="fold")
    for row in rows(comparison):
        table.add_row(row.label, *map(_text, row.cells))
    for sentence in verdicts(comparison):
        console.print(Text(printable(sentence), style="bold"), soft_wrap=not terminal)
    console.print()
    console.print(table)
    console.print()
    for title, moments in worst_moments(comparison):
        console.print(Text(printable(title)))
        for moment in moments:
            console.print(Text(printable(f"  {'  '.join(moment)}")), soft_wrap=not terminal)
        console.print()
    for note in notes(comparison):
        console.print(Text(printable(note)), soft_wrap=not terminal)


def _text(cell: Cell) -> Text:
    text = Text(cell.text)
    if cell.change:
        style = {True: "green", False: "red", None: ""}[cell.better]
        text.append(f" ({cell.change})", style=style)
    return text
