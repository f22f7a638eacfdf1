"""What `make setup` and `make demo` print and leave behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from playground import binaries
from tools import setup_venv

LOCK = "a==1 \\\n    --hash=sha256:0\nb==2 ; python_version < '4' \\\n    --hash=sha256:1\n"


def installed(folder: Path, *, pip: int, uv: int) -> list[str]:
    """Install with programs that only write their last argument, end with these statuses; return what they wrote."""
    for name, status in (("pip", pip), ("uv", uv)):
        program = folder / name
        script = f"#!/bin/sh\neval last=\\${{$#}}\necho {name} ${{last##*/}} >> {folder}/calls\nexit {status}\n"
        program.write_text(script)
        program.chmod(0o755)
    (folder / "lock").write_text(LOCK)
    setup_venv.install([folder / "pip"], folder / "python", folder / "lock")
    return (folder / "calls").read_text().splitlines()


def test_pip_installs_uv_which_installs_the_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert installed(tmp_path, pip=0, uv=0) == ["pip requirements-uv.lock", "uv lock"]
    assert capsys.readouterr().out == "  installing uv\n  installing 2 packages\n"


def test_pip_installs_the_packages_where_uv_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert installed(tmp_path, pip=0, uv=2) == ["pip requirements-uv.lock", "uv lock", "pip lock"]
    assert "uv failed with exit status 2: installing them with pip" in capsys.readouterr().out


def test_failure_of_pip_ends_the_set_up(tmp_path: Path) -> None:
    with pytest.raises(setup_venv.SetupError, match="pip failed with exit status 3"):
        installed(tmp_path, pip=3, uv=0)


def test_program_that_cannot_be_found_ends_the_demo_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(program: binaries.Program) -> Path:
        raise binaries.MissingBinaryError(f"install {program}")

    monkeypatch.setattr(binaries, "is_installed", lambda program: program == "prometheus")
    monkeypatch.setattr(binaries, "find", find)
    assert binaries.main(["prometheus"]) == 0
    assert binaries.main(["prometheus", "kubectl"]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"kubectl is not on PATH: unpacking Debian's package under {binaries.HOME}, this once\n"
    assert printed.err == "install kubectl\n"


@pytest.mark.parametrize("name", ["milliscale", "milliscale-adapter", "milliscale-autoscaler", "kubectl-milliscale"])
def test_environment_of_a_clone_has_the_commands(name: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    setup_venv.write_scripts(tmp_path)
    script = tmp_path / "bin" / name
    interpreter, *_ = script.read_text().splitlines()
    assert interpreter == f"#!{tmp_path}/bin/python"
    # With this interpreter: the link's has none of the packages.
    command = [sys.executable, str(script), "--version"]
    ended = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=True)
    assert "version" in ended.stdout
