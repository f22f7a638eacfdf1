"""The console script `milliscale`, and the commands that `make setup` puts into the environment."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from milliscale.cli import main
from tools import setup_venv


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_each_command_is_there(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Command)
    assert command.name == name or name in ("adapter", "autoscaler")


def test_commands_are_imported_when_they_are_used() -> None:
    code = (
        "import sys; from milliscale.cli import main; main(['--version'], standalone_mode=False);"
        "print({name.partition('.')[0] for name in sys.modules}"
        " & {'adapter', 'autoscaler', 'replay', 'kubectl_milliscale', 'aiohttp'})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize("name", ["milliscale", "milliscale-adapter", "milliscale-autoscaler", "kubectl-milliscale"])
def test_environment_of_a_clone_has_the_commands(name: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    setup_venv.write_scripts(tmp_path)
    script = tmp_path / "bin" / name
    interpreter, *_ = script.read_text().splitlines()
    assert interpreter == f"#!{tmp_path}/bin/python"
    # With this interpreter: the link's has none of the packages.
    command = [sys.executable, str(script), "--version"]
    ended = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=True)
    assert "version" in ended.stdout
