"""`make audit` never says that nothing is known where nothing was looked up."""

from __future__ import annotations

import json

import pytest

from tools.audit import report

SAFE = {"name": "aiohttp", "version": "3.14.1", "vulns": []}
VULNERABLE = {"name": "jinja2", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
SKIPPED = {"name": "yarl", "skip_reason": "not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "text"),
    [
        ([SAFE], 0, "no vulnerability of the 1 packages is known"),
        ([SAFE, VULNERABLE], 1, "jinja2 1: CVE-1, fixed in 2"),
        ([VULNERABLE, SKIPPED], 1, "1 of 2 packages could not be looked up"),
        ([SAFE, SKIPPED], 2, "not found on PyPI"),
        ([], 2, ""),
    ],
    ids=["none", "one", "one-and-skipped", "skipped", "nothing"],
)
def test_exit_status_tells_known_from_not_looked_up(
    packages: list[object], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(json.dumps({"dependencies": packages}), "") == code
    printed = capsys.readouterr()
    assert text in printed.out + printed.err


def test_failure_of_pip_audit_is_not_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("", "no network") == 2
    assert "no network" in capsys.readouterr().err
