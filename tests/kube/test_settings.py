"""--setting: values of a tree of settings."""

from __future__ import annotations

from dataclasses import dataclass, field

import click
import pytest
from click.testing import CliRunner

from kube.process.flags import GoCommand
from kube.process.settings import setting_option, settings_of, with_setting
from tools.reference.settings import setting_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    retry_seconds: float = 1.5
    queued: int = 10
    queue_bytes: int = 32 * 2**20
    per_second: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    writes: Writes = field(default_factory=Writes)
    other: Writes = field(default_factory=Writes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("writes.retry_seconds=1m30s", Writes(retry_seconds=90.0)),
        ("writes.retry_seconds=250ms", Writes(retry_seconds=0.25)),
        ("writes.queued=7", Writes(queued=7)),
        ("writes.queue_bytes=64Mi", Writes(queue_bytes=64 * 2**20)),
        ("writes.queue_bytes=1e6", Writes(queue_bytes=1_000_000)),
        ("writes.per_second=0.5", Writes(per_second=0.5)),
    ],
)
def test_a_value_is_in_the_notation_of_its_unit(text: str, expected: Writes) -> None:
    assert with_setting(Tree(), text) == Tree(writes=expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("writes.queued", "'writes.queued' is not a setting; write GROUP.NAME=VALUE"),
        ("writes.queue=7", "unknown setting 'writes.queue'; did you mean 'writes.queued'?"),
        ("writes=7", "unknown setting 'writes'"),
        ("x=7", "unknown setting 'x'"),
        ("=7", "unknown setting ''"),
        ("writes.retry_seconds=5", 'writes.retry_seconds: missing unit in duration "5": write for example 5s'),
        ("writes.queued=7.5", "writes.queued: '7.5' is not a whole number"),
        ("writes.queued=", "writes.queued: '' is not a whole number"),
        ("writes.per_second=fast", "writes.per_second: 'fast' is not a number"),
        ("writes.queue_bytes=5 MB", "writes.queue_bytes: quantities must match the regular expression"),
        ("writes.queued=0", "writes.queued: 0 must be greater than zero"),
        ("writes.retry_seconds=-1s", "writes.retry_seconds: -1s must be greater than zero"),
        ("writes.per_second=nan", "writes.per_second: nan must be greater than zero"),
        ("writes.per_second=inf", "writes.per_second: inf must be greater than zero"),
    ],
)
def test_an_error_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        with_setting(Tree(), text)
    assert str(raised.value).startswith(message)


def test_a_default_is_shown_as_it_is_given() -> None:
    tree = Tree()
    shown = {path: setting_text(path, value) for path, value in settings_of(tree)}
    assert shown == {
        f"{group}.{name}": value
        for group in ("writes", "other")
        for name, value in {
            "retry_seconds": "1.5s",
            "queued": "10",
            "queue_bytes": "32Mi",
            "per_second": "5",
        }.items()
    }
    for path, value in shown.items():
        assert with_setting(tree, f"{path}={value}") == tree


def test_settings_of_the_command_line_replace_defaults_and_the_last_of_a_name_counts() -> None:
    @click.command(cls=GoCommand)
    @setting_option(Tree(other=Writes(queued=3)))
    def command(settings: Tree) -> None:
        click.echo(f"{settings.writes.queued} {settings.other.queued} {settings.other.per_second:g}")

    run = CliRunner().invoke
    assert run(command, []).output == "10 3 5\n"
    given = ["--setting=writes.queued=1", "--setting", "other.per_second=9", "--setting=writes.queued=2"]
    assert run(command, given).output == "2 3 9\n"
    refused = run(command, ["--setting=writes.queued=1", "--setting=write.queued=x"])
    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        "Error: Invalid value for '--setting': unknown setting 'write.queued'; did you mean 'writes.queued'?\n"
    )
