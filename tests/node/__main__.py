"""`make node`: build the images, and run this folder's tests in namespaces where a Kubernetes node runs, with pods.

The tests are the first process of a PID namespace, so everything that they start ends with them, however they end.
Mounts and interfaces are in a mount and a network namespace. Outside, only a temporary folder and the cgroups of pods
are made, which are removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from playground.processes import die_with
from tests.node.cgroups import remove_cgroups
from tests.node.images import ROOT, build_images
from tests.node.requirements import find_programs

FOLDER_VARIABLE = "MILLISCALE_NODE_FOLDER"
_NAMESPACES = [
    "unshare",
    "--net",
    "--mount",
    "--propagation=private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


def main() -> None:
    """Run the tests; the exit status is pytest's, 2 if something is missing."""
    programs = find_programs(os.environ)
    if isinstance(programs, list):
        sys.exit("\n".join(("make node needs", *(f"- {each}" for each in programs))))
    # /tmp may be a file system in memory, and the images are large. Paths of sockets have at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="node-", dir="/var/tmp"))
    # So that the folder is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    try:
        images = folder / "images"
        images.mkdir()
        tar = os.environ.get("BASE_TAR")
        build_images(images, base_tar=Path(tar) if tar else None)
        click.echo(f"images: {time.monotonic() - started:.0f} s")
        status = _run_tests(folder)
    finally:
        remove_cgroups(folder.name)
        shutil.rmtree(folder)
    click.echo(f"make node: {time.monotonic() - started:.0f} s")
    sys.exit(status)


def _run_tests(folder: Path) -> int:
    """Return pytest's exit status. A Ctrl-C goes to pytest, too, which stops everything in order."""
    command = [*_NAMESPACES, sys.executable, "-m", "pytest", "--verbose", *sys.argv[1:], str(ROOT / "tests" / "node")]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, FOLDER_VARIABLE: str(folder)},
        preexec_fn=partial(die_with, os.getpid()),
    )
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return child.wait()
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
