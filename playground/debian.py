"""Download and unpack Debian packages into a folder, without root and without installing them.

`apt-get` uses package lists and a cache in that folder, so the system stays unchanged. Standard library only:
tools/setup_venv.py uses this before anything is installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COMMAND_TIMEOUT = 600.0
"""Seconds that a download may take."""


class DebianError(Exception):
    """A package cannot be downloaded or unpacked."""


def tree_of(package: str, folder: Path) -> Path:
    """Return the folder in which `unpack` puts a package."""
    return folder.resolve() / "debian" / package


def unpack(package: str, folder: Path, *, dependencies: bool = False) -> Path:
    """Download `package`, unpack it under `folder/debian/<package>`, and return that folder; once.

    With `dependencies`, the packages that it depends on and that are not installed are unpacked there, too. Blocks
    during the download; concurrent processes wait for the first one. Raises DebianError if apt or dpkg is missing or
    fails.
    """
    tree = tree_of(package, folder)
    home = tree.parent
    if tree.exists():
        return tree
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise DebianError(f"there is no {tool} to download Debian's package {package}")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / ".lock"):
            if not tree.exists():  # another process was first
                _download_and_unpack(package, home, tree, dependencies=dependencies)
    except OSError as error:
        raise DebianError(f"cannot unpack Debian's package {package}: {error}") from error
    return tree


def _download_and_unpack(package: str, home: Path, tree: Path, *, dependencies: bool) -> None:
    # Renamed at the end, so that an interrupted run leaves no partial tree.
    with tempfile.TemporaryDirectory(dir=home, prefix=f".{package}-") as scratch:
        archives = Path(scratch, "archives")
        (archives / "partial").mkdir(parents=True)
        options = [*_private_apt(home / "apt"), "-o", f"Dir::Cache::Archives={archives}"]
        command = ["apt-get", *options, "download", package]
        if dependencies:
            command[-2:] = ["install", "--yes", "--download-only", "--no-install-recommends", package]
        try:
            _run(command, cwd=str(archives))
        except DebianError:  # no package lists yet, or lists that name a version that is gone
            _run(["apt-get", *options, "update"], cwd=scratch)
            _run(command, cwd=str(archives))
        for archive in archives.glob("*.deb"):
            _run(["dpkg", "-x", str(archive), "tree"], cwd=scratch)
        (Path(scratch) / "tree").rename(tree)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _private_apt(home: Path) -> list[str]:
    (home / "lists/partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::Lists": home / "lists",
        "Dir::Cache": home,
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    return ["-qq", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]


def _run(command: list[str], *, cwd: str) -> None:
    what = " ".join([command[0], *command[-2:]])
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise DebianError(f"{what}: not finished after {_COMMAND_TIMEOUT:.0f} s") from error
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise DebianError(f"{what}: {reason[-1] if reason else 'failed'}")
