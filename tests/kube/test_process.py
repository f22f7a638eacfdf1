"""kube.process.runtime."""

from __future__ import annotations

import inspect
import io
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapter.cli import main as adapter
from autoscaler.cli import main as autoscaler
from kube.cache.store import Store
from kube.controller.election import LeaderElector
from kube.process.runtime import boot_clock, setup_logging
from kube.version import VERSION
from kubectl_milliscale.cli import main as kubectl_milliscale

CLONE = Path(__file__).parents[2]


def test_run_raises_the_limit_on_open_files_and_freezes_imported_modules() -> None:
    program = """
import gc, resource
from kube.process.runtime import run

async def main():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_freeze_count() > 10 * len(gc.get_objects()))

run(main())
"""
    command = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 200; exec "$0" -c "$1"', sys.executable, program]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "200 200 True\n"


def test_error_of_a_connection_that_is_being_closed_is_not_logged_but_others_are() -> None:
    program = """
import asyncio
from kube.process.runtime import run

async def main():
    for message, error in (
        ("Fatal error on SSL protocol", RuntimeError("unable to perform operation on <x>; the handler is closed")),
        ("Fatal error on SSL protocol", RuntimeError("another one")),
        ("another message", RuntimeError("unable to perform operation on <x>; the handler is closed")),
    ):
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    logged = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    assert [line.partition(":")[0] for line in logged] == [
        "Fatal error on SSL protocol",
        "RuntimeError",
        "another message",
        "RuntimeError",
    ]
    assert "another one" in done.stderr


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what is logged to stderr from now on."""
    stderr = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    setup_logging(0)
    return stderr


def test_log_record_is_one_line(log: io.StringIO) -> None:
    logging.getLogger("adapter.test").warning("rule %s", "a\nERROR forged\r")
    logging.getLogger("adapter.test").debug("hidden")
    assert log.getvalue().count("\n") == 1
    assert log.getvalue().endswith("WARNING adapter.test: rule a\\nERROR forged\\r\n")


def test_log_has_no_control_characters_for_a_terminal(log: io.StringIO) -> None:
    logging.getLogger("adapter.test").warning("rule %s", "a\x1b[31m\x07\x7f\x9b\u2028\té")
    assert log.getvalue().endswith("rule a\\x1b[31m\\x07\\x7f\\x9b\\u2028\té\n")
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        logging.getLogger("adapter.test").exception("failed")
    assert log.getvalue().endswith("\nValueError: \\x1b[2J\n")


def test_log_has_no_characters_that_change_the_direction_of_the_text(log: io.StringIO) -> None:
    logging.getLogger("test").warning("%s", "a\u202eb\u2066c")
    assert log.getvalue().endswith("a\\u202eb\\u2066c\n")


def test_log_line_has_a_longest_length(log: io.StringIO) -> None:
    logging.getLogger("test").warning("%s", "a" * 1_000_000)
    assert log.getvalue().endswith("aaa... (1000000 characters)\n")
    assert len(log.getvalue()) < 9000


def test_clone_that_is_not_installed_has_its_version() -> None:
    command = [sys.executable, "-m", "milliscale", "--version"]
    response = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=True)
    assert response.stdout.endswith(f"version {VERSION}\n")
    for main in (adapter, autoscaler, kubectl_milliscale):
        assert CliRunner().invoke(main, ["--version"]).output.endswith(f"version {VERSION}\n")


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")
def test_boot_clock_includes_the_time_of_a_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 100.0, time.CLOCK_MONOTONIC: 40.0}.__getitem__)
    assert boot_clock() == 100.0


@pytest.mark.parametrize("user", [Store, LeaderElector])
def test_staleness_and_leases_use_the_boot_clock(user: type) -> None:
    assert inspect.signature(user).parameters["clock"].default is boot_clock
