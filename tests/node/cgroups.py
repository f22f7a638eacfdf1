"""The cgroups of the node's pods, in one that no other kubelet of the machine has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_SHARES: Final = "10240"


def make_cgroups(name: str) -> None:
    """Make a cgroup in each hierarchy of version 1, or in the single one of version 2."""
    for root in _roots():
        (root / name).mkdir(exist_ok=True)
        for setting in (
            "cpuset.cpus",
            "cpuset.mems",
        ):  # empty in a new cgroup of version 1, which then takes no process
            if (root / "cpuset.sched_load_balance").exists():
                (root / name / setting).write_text((root / setting).read_text())
        # By default all pods together would get the CPU time of one of the machine's other processes.
        if (root / name / "cpu.shares").exists():
            (root / name / "cpu.shares").write_text(_SHARES)


def remove_cgroups(name: str) -> None:
    """Remove them, and all below, when their last processes have ended."""
    for root in _roots():
        for folder, _, _ in os.walk(root / name, topdown=False):
            while True:
                try:
                    Path(folder).rmdir()
                except OSError:
                    time.sleep(0.1)
                else:
                    break


def _roots() -> Iterator[Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        yield _CGROUPS
    else:
        yield from (each.parent for each in _CGROUPS.glob("*/cgroup.procs") if not each.parent.is_symlink())
