"""CPU time and memory of a process; tables for people, and JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.figures import cpu_seconds, peak_mib, rss_mib


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a process since its start, its resident memory and the peak of that, in MiB."""

    cpu_seconds: float
    rss: float
    peak: float

    @classmethod
    def of(cls, pid: int) -> Cost:
        """Read the costs of a process."""
        return cls(cpu_seconds(pid), rss_mib(pid), peak_mib(pid))


def show(title: str, rows: Sequence[msgspec.Struct]) -> None:
    """Print a table with a column for each field."""
    table = Table(title=title, title_justify="left")
    names = list(rows[0].__struct_fields__)
    for name in names:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(getattr(row, name)) for name in names))
    Console(width=220).print(table)


def write_lines(path: Path, rows: Sequence[msgspec.Struct]) -> None:
    """Append the rows to a file as JSON lines."""
    with path.open("ab") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
