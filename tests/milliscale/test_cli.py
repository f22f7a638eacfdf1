"""The console script `milliscale`."""

import subprocess
import sys

import click
import pytest

from milliscale.cli import main


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
