"""What `make setup` and `make demo` print and leave behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from playground import binaries
from tools import setup_venv

LOCK = "a==1 \\\n    --hash=sha256:0\nb==2 ; python_version < '4' \\\n    --hash=sha256:1\n"


def pip(folder: Path, *, status: int) -> list[str | Path]:
    """Return the command of a fake pip, which prints what pip does and ends with a status."""
    lines = ["Collecting a==1 (from -r lock)", "  Downloading a.whl", "Installing collected packages: a, b"]
    (folder / "pip.py").write_text(f"print(*{lines!r}, sep='\\n')\nraise SystemExit({status})\n")
    return [sys.executable, folder / "pip.py"]


def test_installation_has_a_line_for_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lock").write_text(LOCK)
    setup_venv.install(pip(tmp_path, status=0), tmp_path / "lock")
    assert capsys.readouterr().out == "  downloading 2 packages\n  installing them\n"


def test_failure_of_pip_ends_the_set_up(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    with pytest.raises(setup_venv.SetupError, match="pip failed with exit status 3"):
        setup_venv.install(pip(tmp_path, status=3), tmp_path / "lock")


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
