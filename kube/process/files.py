"""Detect that files have changed."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

# Polled with stat(2), not watched with inotify (as by the library watchfiles): a mounted ConfigMap or Secret changes by
# the swap of a symlink in a parent directory, which a watch on the file does not see; network file systems report no
# events; and nodes limit the number of inotify instances. One stat costs about a microsecond.


FilesVersion: TypeAlias = tuple[tuple[int, ...] | None, ...]
"""Of each file: device, inode, modification and change time in nanoseconds, size; None if it cannot be read."""


def files_version(*paths: Path) -> FilesVersion:
    """Return the version of some files: it differs after one was written, replaced, created or removed.

    Take the version before you read the files. Then a change during the read results in another version next time.
    Follows symlinks; blocks for one stat(2) per file.
    """
    return tuple(map(_stat, paths))


def _stat(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
