"""YAML files of users: HPAs, and the bounds of `tune`. Errors are sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from replay.load import ReplayError

_MAX_BYTES: Final = 4 * 2**20


def read_yaml(path: Path, *, what: str) -> list[Any]:
    """Return the documents of a file that should have `what`, such as "HPA"; raise ReplayError if it has no YAML."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ReplayError(f"{path}: this is no {what}: it has more than {_MAX_BYTES >> 20} MiB")
        return list(yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader))
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ReplayError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from error


def unknown_field(name: object, known: Iterable[str], *, prefix: str = "") -> ReplayError:
    """Return the error for a field that is none of those that are known."""
    known = list(known)
    similar = difflib.get_close_matches(str(name), known, 1)
    hint = f": did you mean {similar[0]}?" if similar else f"; there are: {', '.join(known)}"
    return ReplayError(f"{prefix}{name}: unknown field{hint}")
