"""Archives and checksums that depend on nothing but the contents."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

CHECKSUMS = "SHA256SUMS"


def normalize_tar(path: Path, *, time: int) -> None:
    """Write a .tar.gz again: sorted, without owners, with plain modes and one time (in seconds since 1970)."""
    content = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as new:
        for entry in sorted(old, key=lambda each: each.name):
            entry.mtime, entry.pax_headers = time, {}
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    with path.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=time) as packed:
        packed.write(content.getvalue())


def checksums(folder: Path) -> str:
    """Return the lines of SHA256SUMS for all other files below a folder, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    return "".join(f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def sha256(path: Path) -> str:
    """Return a file's digest in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
