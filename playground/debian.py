"""Debian packages without installing them: downloaded and unpacked into a folder, no root, no daemon started.

`apt-get` is pointed at package lists and a cache of its own under that folder, so it works for any user, also where
the system's lists were never fetched, and leaves the system as it was. Standard library only: the set-up uses this
before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["DebianError", "unpack"]


class DebianError(Exception):
    """A package could not be brought; the message says why and what to install instead."""


def unpack(package: str, folder: Path) -> Path:
    """Download `package` and unpack it under `folder/debian/<package>`; done once, then reused.

    Returns the root of the unpacked tree. Raises DebianError where apt or dpkg is missing or fails.
    """
    tree = folder / "debian" / package
    if tree.exists():
        return tree
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise DebianError(f"no {tool} here to bring {package}")
    (folder / "debian").mkdir(parents=True, exist_ok=True)
    # Unpacked beside its final name and renamed at the end: an interrupted run leaves nothing half done behind.
    with tempfile.TemporaryDirectory(dir=folder / "debian", prefix=f".{package}-") as scratch:
        options = _private_apt(folder / "debian")
        try:
            _run(["apt-get", *options, "download", package], cwd=scratch)
        except DebianError:
            _run(["apt-get", *options, "update"], cwd=scratch)
            _run(["apt-get", *options, "download", package], cwd=scratch)
        archive = next(Path(scratch).glob("*.deb"))
        _run(["dpkg", "-x", str(archive), "tree"], cwd=scratch)
        try:
            (Path(scratch) / "tree").rename(tree)
        except OSError:
            if not tree.exists():  # otherwise another process was first, with the same content
                raise
    return tree


def _private_apt(folder: Path) -> list[str]:
    for name in ("lists/partial", "archives/partial"):
        (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::Lists": folder / "apt" / "lists",
        "Dir::Cache": folder / "apt",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    return ["-qq", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]


def _run(command: list[str], *, cwd: str) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise DebianError(f"{' '.join(command[:1] + command[-2:])}: {reason[-1] if reason else 'failed'}")
