"""Programs come from PATH, otherwise from Debian's packages, otherwise a message says what to install."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from playground.binaries import MissingBinaryError, Program, find, find_async


def test_program_on_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert find("kubectl", home=tmp_path / "home") == program
    assert not (tmp_path / "home").exists()


def test_unpacked_package_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = tmp_path / "debian/prometheus/usr/bin/promtool"
    unpacked.parent.mkdir(parents=True)
    unpacked.touch()
    monkeypatch.setenv("PATH", "")
    assert find("promtool", home=tmp_path) == unpacked


@pytest.mark.parametrize("program", ["prometheus", "kubectl"])
def test_error_without_apt_names_the_package(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingBinaryError, match=f"{program} is not on PATH .*no apt-get.*; install .*https://"):
        find(program, home=tmp_path)


def test_error_quotes_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in {"apt-get": "echo 'E: no network' >&2; exit 100", "dpkg": "exit 0"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingBinaryError, match="E: no network"):
        find("kubectl", home=tmp_path)
    assert list((tmp_path / "debian").glob(".kubernetes-client-*")) == [], "a failed download leaves nothing behind"


def test_error_if_the_folder_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("apt-get", "dpkg"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(MissingBinaryError, match="cannot unpack"):
        find("kubectl", home=tmp_path / "file")


@pytest.mark.parametrize("program", ["prometheus", "promtool", "kubectl"])
def test_found_programs_run(program: Program) -> None:
    path = asyncio.run(find_async(program))
    assert os.access(path, os.X_OK)
    flags = ["version", "--client"] if program == "kubectl" else ["--version"]
    response = subprocess.run([path, *flags], check=True, capture_output=True, text=True)
    assert "version" in (response.stdout + response.stderr).lower()
