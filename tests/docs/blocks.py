"""The code blocks of the documentation."""

import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {"console", "sh", "yaml", "json", "promql", "text", "mermaid"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its page (relative to the root), the line of its first line of text, its language and text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return every page."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "playground/README.md"]
    return sorted(path for path in files if path.name != "CHANGELOG.md")


def blocks(language: str) -> list[Block]:
    """Return all blocks of a language."""
    return [block for block in all_blocks() if block.language == language]


@functools.cache
def all_blocks() -> tuple[Block, ...]:
    """Return all fenced blocks of all pages. A block in a list is indented; its text is returned without that."""
    found = []
    for path in pages():
        text = path.read_text()
        for match in re.finditer(r"^( *)```(\S*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            indent, language, body = match.groups()
            body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
            found.append(Block(str(path.relative_to(ROOT)), text.count("\n", 0, match.start(3)) + 1, language, body))
    return tuple(found)


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block, each with the output after it; a command may have several lines.

    In a console block a prompt precedes each command; in a block of sh there is no output.
    """
    found: list[tuple[str, str]] = []
    lines = iter(block.text.splitlines(keepends=True))
    for line in lines:
        if block.language == "sh" and (line.isspace() or line.startswith("#")):
            continue
        if block.language == "console" and not line.startswith("$ "):
            assert found, f"{block.place} begins with output"
            found[-1] = (found[-1][0], found[-1][1] + line)
            continue
        command = line.removeprefix("$ ")
        while not _is_complete(command):
            command += next(lines)
        found.append((command, ""))
    return found


@functools.cache
def _is_complete(command: str) -> bool:
    if command.endswith("\\\n"):
        return False
    parsed = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
    # A quote or a loop that goes on in the next line; other errors appear when the command is run.
    return "unexpected end of file" not in parsed.stderr and "unexpected EOF" not in parsed.stderr
