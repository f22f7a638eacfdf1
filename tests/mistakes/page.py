"""docs/errors.md: the mistakes and their sentences. `python -m tests.mistakes` writes it anew."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Final

from tests.mistakes.bench import Bench
from tests.mistakes.rows import PLACES, Mistake

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"
_ROW: Final = re.compile(r"^\| (?P<did>.+) \| (`+) ?(?P<says>.+?) ?\2 \|$")
_HEAD: Final = """# Errors

What milliscale says of usual mistakes: one sentence each, which names the place and what to change. A test makes each
of these mistakes, and compares what a user reads with this page.
"""


def sentence(mistake: Mistake) -> str:
    """Make a mistake in the current directory, and return what the user reads."""
    said = mistake.make(Bench())
    return asyncio.run(_awaited(said)) if isawaitable(said) else said


async def _awaited(said: Awaitable[str]) -> str:
    return await said


def sentences() -> dict[tuple[str, str], str]:
    """Return {(title of the place, what the user did): the sentence} of the page."""
    found, title = {}, ""
    for line in PAGE.read_text().splitlines():
        title = line.removeprefix("## ") if line.startswith("## ") else title
        if row := _ROW.match(line):
            found[title, row["did"]] = row["says"]
    return found


def text(folder: Path) -> str:
    """Return the page, with the sentences of now."""
    return "\n".join([_HEAD, *_lines(folder)])


def _lines(folder: Path) -> Iterator[str]:
    for place in PLACES:
        yield from (f"## {place.title}", "", f"Shown by {place.where}.", "", "| mistake | sentence |", "|---|---|")
        for number, mistake in enumerate(place.mistakes):
            (where := folder / f"{place.title} {number}").mkdir()
            with contextlib.chdir(where):
                said = sentence(mistake)
            yield f"| {mistake.did} | `` {said} `` |" if "`" in said else f"| {mistake.did} | `{said}` |"
        yield ""
