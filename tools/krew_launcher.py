#!/usr/bin/env python3
"""Start the kubectl plugin as krew installs it; in the archive it is the executable kubectl-milliscale.

The first start installs the wheel beside this file into a virtual environment there, which krew removes with the
plugin: its libraries from the Python package index, with the versions and hashes of the lock file beside it. Standard
library only.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

HOME = Path(__file__).resolve().parent  # krew's link on PATH leads here
ENVIRONMENT = HOME / "venv"
COMMAND = ENVIRONMENT / "bin" / "kubectl-milliscale"
LOCK = "requirements-kubectl.lock"
INSTALLED = ENVIRONMENT / "installed"
MINIMUM = (3, 11)


def main() -> None:
    """Install the plugin if that has not been done, and become it."""
    if not INSTALLED.exists():
        install()
    os.execv(COMMAND, [str(COMMAND), *sys.argv[1:]])  # noqa: S606  # no shell is needed


def install() -> None:
    """Install the locked libraries, and the wheel, whose checksum krew has verified with the archive's."""
    if sys.version_info < MINIMUM:
        sys.exit("error: kubectl milliscale needs Python 3.11 or later as python3")
    (wheel,) = HOME.glob("*.whl")
    sys.stderr.write(f"installing {wheel.name} into {ENVIRONMENT}\n")
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    libraries = ["--require-hashes", "--requirement", str(HOME / LOCK)]
    for arguments in (libraries, ["--no-deps", "--no-index", str(wheel)]):
        if subprocess.run([*pip, *arguments], check=False, stdout=sys.stderr).returncode != 0:
            sys.exit("error: the libraries of kubectl milliscale cannot be installed; see above")
    INSTALLED.touch()


if __name__ == "__main__":
    main()
