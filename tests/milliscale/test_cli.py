"""The console script `milliscale`."""

import click
import pytest

from milliscale.cli import main
from tests.imports import imported


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_each_command_is_there(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Command)
    assert command.name == name or name in ("adapter", "autoscaler")


def test_commands_are_imported_when_they_are_used() -> None:
    program = "from milliscale.cli import main; main(['--version'], standalone_mode=False)"
    assert imported(program, "adapter", "autoscaler", "replay", "kubectl_milliscale", "aiohttp") == set()
