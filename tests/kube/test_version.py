"""The version, where it is known and where it is not."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from kube.process import installed_version

CLONE = Path(__file__).parents[2]
# A clone, run by an interpreter into which only the libraries are installed.
PROGRAM = """
import runpy, sys
from importlib import metadata

def version(name):
    if name == "milliscale":
        raise metadata.PackageNotFoundError(name)
    return known(name)

known, metadata.version = metadata.version, version
sys.argv = [sys.argv[1], "--version"]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("process", ["adapter", "autoscaler"])
def test_a_process_that_is_not_installed_has_an_unknown_version(process: str) -> None:
    command = [sys.executable, "-c", PROGRAM, process]
    answer = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"python -m {process}, version unknown\n", "")


def test_installed_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"milliscale": "1.2.3"}.__getitem__)
    assert installed_version() == "1.2.3"
