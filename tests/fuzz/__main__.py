"""Fuzz the parsers with atheris, one process for each target: `make fuzz SECONDS=60 TARGETS="rules template"`.

The inputs that reach new code are kept in .fuzz/TARGET, so the next run goes on from there. An input that makes a
target fail is in .fuzz/failures/TARGET-...: copy it to tests/data/fuzz/TARGET/, and the tests run it, too.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["adapter", "autoscaler", "kube"]):
    from tests.fuzz.seeds import seeds
    from tests.fuzz.targets import TARGETS

_ROOT = Path(__file__).resolve().parent.parent.parent
_CORPUS = _ROOT / ".fuzz"
_MAX_SECONDS = 5  # for one input
_MAX_MIB = 1024


def main() -> int:
    """Fuzz each target in turn, or one in this process. Return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzz the parsers.")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (60)")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", default=sorted(TARGETS), metavar="TARGET", help=", ".join(TARGETS))
    arguments = parser.parse_args()
    for name in arguments.targets:
        if name not in TARGETS:
            parser.error(f"there is no target {name}; there are {', '.join(TARGETS)}")
    if arguments.in_process:
        _fuzz(arguments.targets[0], arguments.seconds)
    failed = [name for name in arguments.targets if not _passes(name, arguments.seconds)]
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "no target failed\n")
    return 1 if failed else 0


def _passes(name: str, seconds: int) -> bool:
    sys.stdout.write(f"--- {name}, {seconds} s\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "tests.fuzz", "--in-process", f"--seconds={seconds}", name]
    return subprocess.run(command, cwd=_ROOT, check=False).returncode == 0


def _fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which ends with it."""
    logging.disable()
    target, corpus, failures = TARGETS[name], _CORPUS / name, _CORPUS / "failures"
    corpus.mkdir(parents=True, exist_ok=True)
    failures.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = {
        "max_total_time": seconds,
        "timeout": _MAX_SECONDS,
        "rss_limit_mb": _MAX_MIB,
        "max_len": target.max_bytes,
        "print_final_stats": 1,
        "verbosity": 0,
        "artifact_prefix": f"{failures}{os.sep}{name}-",
    }
    atheris.Setup([name, *(f"-{key}={value}" for key, value in options.items()), str(corpus)], target.read)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
