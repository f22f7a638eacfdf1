"""docs/replay.md says what the program does."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.commands import replay
from tests.replay.pictures import FILES, FOLDER, PAGE, PICTURES, TRACES


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_up_to_date(name: str, tmp_path: Path) -> None:
    PICTURES[name](tmp_path / name)
    assert (tmp_path / name).read_text() == (FOLDER / name).read_text(), "run `make pictures`"


def test_pictures_are_small_and_shown() -> None:
    for path in FOLDER.glob("*.svg"):
        assert path.name in PICTURES
        assert path.stat().st_size < 150_000
        assert f"img/{path.name}" in PAGE


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
