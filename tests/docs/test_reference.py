"""docs/reference: generated from the code, and complete."""

import re
from pathlib import Path

import click
import pytest

from adapter.cli import main as adapter
from adapter.commands.ignored_flags import IGNORED
from autoscaler.cli import main as autoscaler
from kube.process.flags import FlagSection
from kubectl_milliscale.cli import main as plugin
from tools.reference.pages import FOLDER, PAGES, text

DATA = Path(__file__).parent.parent / "data"
FLAG_PAGES = {"adapter-flags.md": adapter, "autoscaler-flags.md": autoscaler, "kubectl-flags.md": plugin}


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_those_that_are_generated(name: str) -> None:
    assert (FOLDER / name).read_text() == text(name), "run `make reference`"


def test_there_are_no_pages_that_are_not_generated() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def documented_flags(name: str) -> dict[str, set[str]]:
    """Return the flags in the tables of a page, by command."""
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (FOLDER / name).read_text(), re.MULTILINE | re.DOTALL)
    return {
        title: {
            flag
            for cell in re.findall(r"^\| (`-.*?) \|", body, re.MULTILINE)
            for flag in re.findall(r"--?[\w-]+", cell)
        }
        for title, body in sections
    }


@pytest.mark.parametrize("name", FLAG_PAGES)
def test_every_command_has_every_flag(name: str) -> None:
    group = FLAG_PAGES[name]
    context = click.Context(group)
    with_its_other_commands = "kubectl-flags.md" if group is adapter else "replay-flags.md"
    sections = documented_flags(with_its_other_commands) | documented_flags(name)
    documented = {title.split()[-1]: flags for title, flags in sections.items()}
    for command_name in group.list_commands(context):
        command = group.get_command(context, command_name)
        assert command is not None
        flags = {
            flag.strip()
            for parameter in command.params
            if isinstance(parameter, click.Option) and not isinstance(parameter, FlagSection) and not parameter.hidden
            for flag in (*parameter.opts, *parameter.secondary_opts)
            if flag.strip()
        }
        assert flags <= documented[command_name], command_name


def test_every_flag_of_prometheus_adapter_is_documented() -> None:
    flags = set(re.findall(r"--[a-z0-9-]+", (DATA / "prometheus-adapter-flags.txt").read_text()))
    documented = documented_flags("adapter-flags.md")
    assert set(IGNORED) == documented["Flags without effect"]
    assert flags <= documented["milliscale-adapter serve"] | documented["Flags without effect"] | {"--help"}
