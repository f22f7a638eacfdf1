"""Chromium comes from PATH, otherwise from Debian's package; otherwise the error names it."""

from pathlib import Path

import pytest

from playground.binaries import MissingBinaryError
from playground.chromium import find_chromium


def test_program_on_path_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_chromium(home=tmp_path / "home")
    assert (found.path, found.environment) == (program, {})


def test_unpacked_package_is_started_with_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "debian/chromium-headless-shell/usr/lib/chromium/chromium-headless-shell"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setenv("PATH", "")
    found = find_chromium(home=tmp_path)
    assert found.path == program
    assert found.environment["LD_LIBRARY_PATH"].startswith(f"{tmp_path}/debian/chromium-headless-shell/usr/lib/")


def test_error_without_apt_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingBinaryError, match=r"chromium is not on PATH .*no apt-get.*; install Chromium"):
        find_chromium(home=tmp_path)


def test_package_without_the_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "debian/chromium-headless-shell").mkdir(parents=True)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingBinaryError, match=r"has no usr/lib/chromium/chromium-headless-shell; install Chromium"):
        find_chromium(home=tmp_path)
