"""How a process runs: what it raises for itself."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from kube.process import run

async def main():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))

run(main())
"""


def test_a_process_may_have_as_many_open_files_as_the_system_lets_it() -> None:
    command = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 200; exec "$0" -c "$1"', sys.executable, PROGRAM]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "200 200\n"


def test_the_garbage_collector_passes_over_what_was_imported() -> None:
    program = """
import gc
from kube.process import run

async def main():
    print(gc.get_freeze_count() > 10 * len(gc.get_objects()))

run(main())
"""
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout == "True\n"
    )
