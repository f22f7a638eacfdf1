"""Read a Dockerfile and its .dockerignore: as much of their syntax as the files of this repository use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """One instruction, such as `RUN` with its command; lines that end in a backslash are joined."""

    keyword: str
    arguments: str


@dataclass(frozen=True)
class Stage:
    """The instructions after one FROM, and the name that COPY --from uses; "" without one."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


def read_stages(text: str) -> tuple[dict[str, str], list[Stage]]:
    """Return the defaults of the ARGs before the first FROM, and the stages.

    Raises:
        ValueError: an instruction, or a form of FROM, that this does not know.
    """
    defaults: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.keyword == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\w+))?", instruction.arguments)
            if match is None:
                raise ValueError(f"FROM {instruction.arguments}")
            stages.append(Stage(match[1], match[2] or "", ()))
        elif stages:
            last = stages[-1]
            stages[-1] = Stage(last.base, last.name, (*last.instructions, instruction))
        else:
            name, _, default = instruction.arguments.partition("=")
            if instruction.keyword != "ARG":
                raise ValueError(f"{instruction.keyword} before FROM")
            defaults[name] = default
    return defaults, stages


KEYWORDS = frozenset({"ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"})


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\s*\\\n\s*", " ", "\n".join(lines)).splitlines():
        keyword, _, arguments = line.partition(" ")
        if keyword not in KEYWORDS:
            raise ValueError(f"unknown instruction: {line}")
        yield Instruction(keyword, arguments.strip())


def context_files(context: Path) -> list[Path]:
    """Return the files that .dockerignore lets into a build, relative to the context, sorted."""
    patterns = [line for line in (context / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    found = []
    for folder, folders, files in os.walk(context):
        here = Path(folder).relative_to(context)
        # As git's folder: nothing below a folder that is left out can be a file of the build.
        folders[:] = [name for name in folders if not is_ignored(here / name, patterns)]
        found += [here / name for name in files if not is_ignored(here / name, patterns)]
    return sorted(found)


def is_ignored(path: Path, patterns: Iterable[str]) -> bool:
    """Return whether the patterns leave out a path: the last one that matches it or a folder above it decides."""
    ignored = False
    candidates = [path.as_posix(), *(parent.as_posix() for parent in path.parents if parent.name)]
    for pattern in patterns:
        expression = _expression(pattern.removeprefix("!").strip("/"))
        if any(expression.fullmatch(candidate) for candidate in candidates):
            ignored = not pattern.startswith("!")
    return ignored


def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts))
