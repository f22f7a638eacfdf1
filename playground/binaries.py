"""Find Prometheus, promtool and kubectl: on PATH, or from Debian's packages, unpacked under `HOME`.

`python -m playground.binaries prometheus kubectl` unpacks what is missing. Standard library only: `make demo` runs it
while its environment is made.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Final, Literal, get_args

from playground.debian import DebianError, tree_of, unpack
from playground.errors import PlaygroundError

Program = Literal["prometheus", "promtool", "kubectl"]


def _home() -> Path:
    package = Path(__file__).resolve().parent
    if (package / "manifests").is_symlink():  # a clone
        return package.parent / ".playground"
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the specification ignores a relative path
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "milliscale"


HOME: Final = _home()
"""The folder of everything that the playground writes or downloads.

In a clone `.playground`, which `make clean` removes; of an installed package `milliscale` in the user's cache folder.
"""

_PACKAGES: Final[dict[Program, str]] = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "kubectl": "kubernetes-client",
}

_ADVICE: Final[dict[Program, str]] = {
    "prometheus": "install Prometheus (https://prometheus.io/download/) so that `prometheus` is on PATH",
    "promtool": "install Prometheus (https://prometheus.io/download/) so that `promtool` is on PATH",
    "kubectl": "install kubectl (https://kubernetes.io/docs/tasks/tools/) so that it is on PATH",
}


class MissingBinaryError(PlaygroundError):
    """A program is neither on PATH nor available from Debian; the message says what to install."""


def is_installed(program: Program, *, home: Path = HOME) -> bool:
    """Return whether `find` needs no download."""
    return shutil.which(program) is not None or _unpacked(program, home).exists()


def unpacking(program: Program) -> str:
    """Return the line to print before `find` downloads a program."""
    return f"{program} is not on PATH: unpacking Debian's package under {HOME}, this once"


def find(program: Program, *, home: Path = HOME) -> Path:
    """Return the program's path: from PATH, or else from Debian's package unpacked under `home`.

    Blocks while the package is downloaded, once. Raises MissingBinaryError.
    """
    on_path = shutil.which(program)
    if on_path is not None:
        return Path(on_path)
    try:
        unpack(_PACKAGES[program], home)
    except DebianError as error:
        raise MissingBinaryError(f"{program} is not on PATH and {error}; {_ADVICE[program]}") from error
    path = _unpacked(program, home)
    if not path.exists():
        raise MissingBinaryError(f"Debian's package {_PACKAGES[program]} has no {program}; {_ADVICE[program]}")
    return path


async def find_async(program: Program, *, home: Path = HOME) -> Path:
    """Call `find` in a thread."""
    return await asyncio.to_thread(find, program, home=home)


def _unpacked(program: Program, home: Path) -> Path:
    return tree_of(_PACKAGES[program], home) / "usr/bin" / program


def main(names: list[str]) -> int:
    """Unpack what is missing, with a line for each program. Exit status 1 if one cannot be found."""
    for program in (each for each in get_args(Program) if each in names and not is_installed(each)):
        print(unpacking(program), flush=True)  # noqa: T201
        try:
            find(program)
        except MissingBinaryError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
