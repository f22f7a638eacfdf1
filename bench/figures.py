"""Figures of processes from Linux' /proc, percentiles; tables for people, and JSON lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

_TICKS = os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile of values for a share from 0 to 1; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process since its start, user and system."""
    fields = _after_name(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    """Return the resident memory."""
    return _status_mib(pid, "VmRSS")


def peak_mib(pid: int) -> float:
    """Return the peak of the resident memory."""
    return _status_mib(pid, "VmHWM")


def children(pid: int) -> list[int]:
    """Return the running children of a process."""
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    found = []
    for each in pids:
        try:
            if int(_after_name(each)[1]) == pid:
                found.append(each)
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return found


def _after_name(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    return 0.0


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
