"""Find Chromium, a browser: on PATH, or Debian's package with its libraries, unpacked under `.playground/`.

The package is the one without windows: a page takes a third of the CPU time there.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from playground.binaries import HOME, MissingBinaryError
from playground.debian import DebianError, unpack

_PACKAGE = "chromium-headless-shell"
_ADVICE = "install Chromium so that `chromium` is on PATH"


@dataclass(frozen=True, slots=True)
class Chromium:
    """The program, and the variables with which it must be started."""

    path: Path
    environment: dict[str, str]


def find_chromium(*, home: Path = HOME) -> Chromium:
    """Return Chromium. Blocks while the package is downloaded, once. Raises MissingBinaryError."""
    on_path = shutil.which(_PACKAGE) or shutil.which("chromium")
    if on_path is not None:
        return Chromium(Path(on_path), {})
    try:
        tree = unpack(_PACKAGE, home, dependencies=True)
    except DebianError as error:
        raise MissingBinaryError(f"chromium is not on PATH and {error}; {_ADVICE}") from error
    path = tree / "usr/lib/chromium" / _PACKAGE
    if not path.exists():
        raise MissingBinaryError(f"Debian's package {_PACKAGE} has no {path.relative_to(tree)}; {_ADVICE}")
    libraries = tree / "usr/lib" / f"{os.uname().machine}-linux-gnu"
    return Chromium(path, {"LD_LIBRARY_PATH": f"{libraries}:{libraries / 'pulseaudio'}"})
