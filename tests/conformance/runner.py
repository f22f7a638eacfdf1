"""Read files of recorded cases, and check each case."""

import gzip
import importlib
import importlib.util
import json
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent.parent / "data"

CORPUS = (
    "hpa_validation",
    "label_selectors",
    "normalize",
    "quantity",
    "reconcile_traces",
    "replica_calculator",
)

_SUFFIXES = (".jsonl", ".jsonl.gz")
_FLAGS = ("platformDependent", "milliValueWrong", "valueWrong")

Check = Callable[[dict[str, Any]], str | None]


class Skip(Exception):
    """Raised by a check if the recorded result is meaningless."""


class NoCheckError(LookupError):
    """There is no module that checks this file."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case in which our result differs."""

    line: int
    case: str
    difference: str


@dataclass(slots=True)
class Outcome:
    """The results of one file; `flagged` of the cases were compared without the numbers that the recording flags."""

    passed: int = 0
    skipped: int = 0
    flagged: int = 0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.passed} passed, {len(self.failures)} failed"
        if self.skipped:
            text += f", {self.skipped} skipped"
        if self.flagged:
            text += f" ({self.flagged} compared but for numbers flagged in the recording)"
        return text


def corpus_names(directory: Path) -> list[str]:
    """Return the names (without suffixes) of the recorded files and, in another directory, of those there; sorted."""
    found = () if directory == RECORDED else directory.iterdir()
    others = {path.name.removesuffix(".gz").removesuffix(".jsonl") for path in found if path.name.endswith(_SUFFIXES)}
    return sorted({*CORPUS, *others})


def find_file(directory: Path, name: str) -> Path | None:
    """Return the file of cases called `name`, plain or gzipped, if it is there."""
    return next((path for suffix in _SUFFIXES if (path := directory / f"{name}{suffix}").is_file()), None)


def load_check(name: str) -> Check:
    """Return the function that checks the cases of the file `name`.

    Raises:
        NoCheckError: there is no such module.
    """
    module = f"tests.conformance.{name}"
    if not name.isidentifier() or importlib.util.find_spec(module) is None:
        raise NoCheckError(f"no tests/conformance/{name}.py")
    check: Check | None = getattr(importlib.import_module(module), "check", None)
    if check is None:
        raise NoCheckError(f"tests/conformance/{name}.py has no check()")
    return check


def run_file(path: Path, check: Check) -> Outcome:
    """Check every case of a file. An exception is a failure of its case only."""
    outcome = Outcome()
    for line, text in _lines(path):
        try:
            case = json.loads(text)
            found = check(case)
        except Skip:
            outcome.skipped += 1
            continue
        except Exception:  # noqa: BLE001 - our code may fail in any way; the other cases are still of interest
            found = traceback.format_exc(limit=-3)
            case = {}
        outcome.flagged += _is_flagged(case)
        if found is None:
            outcome.passed += 1
        else:
            outcome.failures.append(Failure(line, text, found))
    return outcome


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            if text.strip():
                yield number, text.strip()


def _is_flagged(case: dict[str, Any]) -> bool:
    return any(part.get(flag) for part in (case, *case.get("steps", ())) for flag in _FLAGS)
