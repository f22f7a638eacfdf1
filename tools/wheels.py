"""The wheels that the lock files name, in a folder from which pip installs without the network."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fetch_wheels(cache: Path, lock: str = "requirements.lock") -> Path:
    """Return the folder with the wheels of a lock, of what builds ours, and of pip; download what is not there.

    Args:
        cache: has a folder for the locks' content and this version of Python; others in it are removed.
        lock: the file's name.

    Raises:
        subprocess.CalledProcessError: pip cannot download a wheel, or its hash is wrong.
    """
    version = metadata.version("pip")
    digest = hashlib.sha256(f"{sys.version_info[:2]} {version}".encode())
    locks = (ROOT / lock, ROOT / "requirements-build.lock")
    for path in locks:
        digest.update(path.read_bytes())
    folder = cache / digest.hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)  # two processes may want them at the same time
        if not folder.exists():
            for other in cache.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
            partial = cache / "partial"
            _download(partial, "--require-hashes", *(f"--requirement={path}" for path in locks))
            _download(partial, f"pip=={version}")
            partial.rename(folder)
    return folder


def _download(folder: Path, *what: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--only-binary=:all:", f"--dest={folder}", *what], check=True)
