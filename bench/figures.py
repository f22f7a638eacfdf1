"""Figures of processes from Linux' /proc, and percentiles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

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
