"""Make a virtual environment from a pinned lock file; do nothing when it already matches.

    python tools/setup_venv.py [DIRECTORY LOCK]      by default: .venv requirements-dev.lock

This is what `make setup` runs, so it must work with nothing but Python's standard library. Debian ships Python
without `ensurepip` unless `python3-venv` is installed; for that case pip itself is taken, without root, from Debian's
`python3-pip-whl` package, unpacked under `.playground/`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = (".venv", "requirements-dev.lock")
UV_LOCK = ROOT / "requirements-uv.lock"
MINIMUM = (3, 11)
SCRIPT = """#!{python}
import sys

sys.path.insert(0, {root!r})
from {module} import {function}

if __name__ == "__main__":
    {function}()
"""


class SetupError(Exception):
    """Set-up cannot go on; the message says what to install or change."""


def fingerprint(lock: Path) -> str:
    """The inputs of the environment: this interpreter, and the contents of the lock files."""
    digest = hashlib.sha256(lock.read_bytes() + UV_LOCK.read_bytes())
    digest.update(f"{sys.version_info[:3]} {sys.base_prefix} {ROOT}".encode())
    return digest.hexdigest()


def run(*command: str | Path) -> None:
    """Run a set-up step; its output is shown, its failure ends the set-up."""
    try:
        subprocess.run([str(part) for part in command], check=True)
    except FileNotFoundError as error:
        raise SetupError(f"{command[0]} is not installed; install it and run make again") from error
    except subprocess.CalledProcessError as error:
        raise SetupError(f"{Path(command[0]).name} failed with exit status {error.returncode}") from error


def debian_pip() -> Path:
    """The pip wheel of Debian's python3-pip-whl, unpacked under `.playground/` (nothing is installed)."""
    print("  this Python has no pip: unpacking Debian's, python3-pip-whl, under .playground/", flush=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise SetupError("this Python has no ensurepip: install your system's venv package (python3-venv)")
    sys.path.insert(0, str(ROOT))
    from playground.debian import DebianError, unpack

    try:
        tree = unpack("python3-pip-whl", ROOT / ".playground")
    except DebianError as error:
        raise SetupError(f"{error}; or install python3-venv and run make again") from error
    return next((tree / "usr/share/python-wheels").glob("pip-*.whl"))


def make_venv(directory: Path, lock: Path) -> None:
    """Create the empty environment and install exactly what the lock file lists."""
    if directory.exists():
        shutil.rmtree(directory)
    python = directory / "bin" / "python"
    pip: list[str | Path]
    if importlib.util.find_spec("pip") is not None:  # ensurepip would need seconds
        run(sys.executable, "-m", "venv", "--without-pip", directory)
        pip = [sys.executable, "-m", "pip", "--python", python]
    elif importlib.util.find_spec("ensurepip") is not None and importlib.util.find_spec("venv") is not None:
        run(sys.executable, "-m", "venv", directory)
        pip = [python, "-m", "pip"]
    else:
        wheel = debian_pip()
        run(sys.executable, "-m", "venv", "--without-pip", directory)
        pip = [python, wheel / "pip"]
    install(pip, python, lock)


def install(pip: list[str | Path], python: Path, lock: Path) -> None:
    """Install what the lock file lists, with a line for each step.

    pip installs uv, and uv the rest: in a seventh of pip's time. uv does not read pip's settings, so where it fails,
    for example because an index is only in `pip.conf`, pip goes on.
    """
    print("  installing uv", flush=True)
    options = ["--no-deps", "--require-hashes", "--requirement"]
    # --no-compile: most modules are never imported, and the others are compiled when they are.
    with_pip = [*pip, "install", "--disable-pip-version-check", "--quiet", "--no-compile", "--only-binary=:all:"]
    run(*with_pip, *options, UV_LOCK)
    packages = len(re.findall("^[^ ]+==", lock.read_text(), re.MULTILINE))
    print(f"  installing {packages} packages", flush=True)
    uv: list[str | Path] = [python.with_name("uv"), "pip", "install", "--python", python, "--quiet", "--system-certs"]
    try:
        run(*uv, "--only-binary=:all:", *options, lock)
    except SetupError as error:
        print(f"  {error}: installing them with pip, which needs a minute", flush=True)
        run(*with_pip, *options, lock)


def write_scripts(directory: Path) -> None:
    """Write the commands of pyproject.toml, which run the modules of this clone: nothing is built or downloaded."""
    import tomllib  # an older Python, which does not have it, gets its message first

    for name, entry in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].items():
        module, function = entry.split(":")
        python = directory / "bin" / "python"
        text = SCRIPT.format(python=python, root=str(ROOT), module=module, function=function)
        path = python.with_name(name)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            path.chmod(0o755)


def main(arguments: list[str]) -> int:
    """Bring the environment up to date. Exit status 0, or 1 with one line that says what to do."""
    if sys.version_info < MINIMUM:
        print(f"milliscale needs Python {MINIMUM[0]}.{MINIMUM[1]} or newer, this is {sys.version.split()[0]}")
        return 1
    name, lock_name = arguments or DEFAULT
    directory, lock = ROOT / name, ROOT / lock_name
    stamp = directory / ".lock-sha256"
    wanted = fingerprint(lock)
    if not ((directory / "bin" / "python").exists() and stamp.exists() and stamp.read_text() == wanted):
        print(f"setting up {name} from {lock_name}, this once", flush=True)
        start = time.monotonic()
        try:
            make_venv(directory, lock)
        except SetupError as error:
            print(f"setup: {error}", file=sys.stderr)
            return 1
        stamp.write_text(wanted)
        print(f"  {name} is ready after {time.monotonic() - start:.0f} s", flush=True)
    write_scripts(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
