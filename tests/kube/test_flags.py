"""Flags that behave like Go's."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kube.process.flags import GoCommand, bool_option, flag_section, kubeconfig_options, list_option, verbosity_option


@click.command(cls=GoCommand)
@flag_section("Name flags")
@bool_option("--on")
@list_option("--names", default=("a", "b"))
@flag_section("Global flags")
@verbosity_option
def command(*, on: bool, names: tuple[str, ...], verbosity: int) -> None:
    click.echo(f"{on} {','.join(names)} {verbosity}")


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ([], "False a,b 0"),
        (["--on"], "True a,b 0"),
        (["--on=true"], "True a,b 0"),
        (["--on=F"], "False a,b 0"),
        (["--on", "--v=3"], "True a,b 3"),
        (["-v=4"], "False a,b 4"),
        (["-v", "5"], "False a,b 5"),
        (["--names=x, y", "--names=z,"], "False x,y,z 0"),
    ],
)
def test_go_style_flags_are_accepted(arguments: list[str], read: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert (result.exit_code, result.output.strip()) == (0, read)


@pytest.mark.parametrize("arguments", [["--on=maybe"], ["-v=-1"], ["-v=x"], ["--v="], ["--off"]])
def test_invalid_flags_are_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2


def test_help_shows_flags_by_section() -> None:
    lines = CliRunner().invoke(command, ["--help"]).output.splitlines()
    words = [line.split()[0] for line in lines if line.endswith("flags:") or line.lstrip().startswith("-")]
    assert words == ["Name", "--on", "--names", "Global", "-v,", "--help"]


def test_section_is_not_a_flag() -> None:
    result = CliRunner().invoke(command, ["--section-name-flags=x"])
    assert (result.exit_code, "No such option" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [([], "None None"), (["--kubeconfig=", "--context="], "None None"), (["--kubeconfig=a/b", "--context=c"], "a/b c")],
)
def test_empty_kubeconfig_and_context_are_the_defaults_as_in_kubectl(arguments: list[str], read: str) -> None:
    @click.command()
    @kubeconfig_options
    def printed(kubeconfig: Path | None, context: str | None) -> None:
        click.echo(f"{kubeconfig} {context}")

    assert CliRunner().invoke(printed, arguments).output == f"{read}\n"
