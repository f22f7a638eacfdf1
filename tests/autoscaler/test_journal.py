"""The flags about what is told of decisions."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from autoscaler.commands.journal import journal_options
from autoscaler.loop.debug import DebugAccess
from autoscaler.loop.options import Journal
from autoscaler.records.audit import AuditSettings

given: list[Journal] = []


@click.command()
@journal_options
def command(journal: Journal) -> None:
    given.append(journal)


@pytest.fixture(autouse=True)
def nothing_given() -> None:
    given.clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_by_default_20_decisions_are_kept_and_shown_inside_the_pod() -> None:
    assert run().exit_code == 0
    assert given == [Journal(kept=20, access=DebugAccess.LOCAL, audit=None)]


def test_every_flag_counts() -> None:
    result = run(
        "--kept-decisions=3",
        "--debug-endpoints=all",
        "--audit-log=/var/log/decisions.jsonl",
        "--audit-log-maxsize=7",
        "--audit-log-maxbackup=2",
    )
    assert result.exit_code == 0, result.output
    audit = AuditSettings(path=Path("/var/log/decisions.jsonl"), max_bytes=7 * 2**20, backups=2)
    assert given == [Journal(kept=3, access=DebugAccess.ALL, audit=audit)]


def test_an_audit_file_is_limited_by_default() -> None:
    assert run("--audit-log=decisions.jsonl").exit_code == 0
    assert given[0].audit == AuditSettings(path=Path("decisions.jsonl"), max_bytes=100 * 2**20, backups=10)


@pytest.mark.parametrize(
    ("argument", "part"),
    [
        ("--kept-decisions=-1", "0<=x<=1000"),
        ("--kept-decisions=many", "not a valid integer"),
        ("--debug-endpoints=some", "'local', 'all', 'off'"),
        ("--audit-log-maxsize=0", "x>=1"),
        ("--audit-log-maxbackup=-1", "x>=0"),
        ("--audit-log=/", "is a directory"),
    ],
)
def test_a_wrong_value_is_one_clear_line_and_status_2(argument: str, part: str) -> None:
    result = run(argument)
    assert result.exit_code == 2
    assert part in result.output.splitlines()[-1]
    assert given == []
