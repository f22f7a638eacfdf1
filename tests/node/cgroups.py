"""The cgroups of the node's pods, in one that no other kubelet of the machine has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_SHARES: Final = "10240"
_END_SECONDS: Final = 30.0


def make_cgroups(name: str) -> None:
    """Make a cgroup in each hierarchy of version 1, or in the single one of version 2, which has not been tried."""
    for root in _roots():
        cgroup = root / name
        if root == _CGROUPS:
            (root / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids")
        cgroup.mkdir()
        if (cgroup / "cpuset.sched_load_balance").exists():
            # Empty in a new cgroup of version 1, which takes no process then.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (cgroup / setting).write_text((root / setting).read_text())
        if (cgroup / "cpu.shares").exists():
            # By default all pods together have the CPU time of one of the machine's other processes.
            (cgroup / "cpu.shares").write_text(_SHARES)


def remove_cgroups(name: str) -> None:
    """Remove them, and all below, when their last processes have ended. Raises OSError if they do not end."""
    deadline = time.monotonic() + _END_SECONDS
    for root in _roots():
        for folder, _, _ in os.walk(root / name, topdown=False):
            while True:
                try:
                    Path(folder).rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)


def _roots() -> Iterator[Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        yield _CGROUPS
    else:
        yield from (each.parent for each in _CGROUPS.glob("*/cgroup.procs") if not each.parent.is_symlink())
