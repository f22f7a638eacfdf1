"""docs/replay.md says what the program does."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.commands import replay

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "data" / "traces"
PAGE = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
FILES = dict(zip(("hpa.yaml", "proposed.yaml"), re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), strict=False))
"""The HPAs of the page's example."""


def test_example_prints_the_table_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "load.csv.gz").symlink_to(TRACES / "ms_db_app.csv.gz")
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(
        r"^\$ python -m autoscaler replay (.* --hpa proposed\.yaml --capacity .*\n.*)$", PAGE, re.MULTILINE
    )
    (printed, _) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)

    result = CliRunner().invoke(replay, command.replace("\\\n", " ").split(), catch_exceptions=False)

    assert result.exit_code == 0, result.output
    assert [line.rstrip() for line in result.stdout.splitlines()] == printed.splitlines()
    assert (tmp_path / "replay.html").stat().st_size > 1_000_000
