"""The Dockerfile, as far as it can be checked without a container engine."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BUILD, FINAL = re.split(r"(?=^FROM )", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
ALLOWED = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]


def copied() -> list[str]:
    """What the build takes from this repository."""
    return [source for line in re.findall(r"^COPY (.*)$", BUILD, flags=re.MULTILINE) for source in line.split()[:-1]]


def test_copied_paths_exist_and_pass_dockerignore() -> None:
    assert all((ROOT / source).exists() for source in copied())
    assert sorted(copied()) == sorted(ALLOWED)


def test_image_has_both_processes_and_not_the_playground() -> None:
    assert {"adapter", "autoscaler", "kube"} <= set(copied())
    assert not {"playground", "tests"} & set(copied())


def test_dependencies_are_installed_from_the_lock_with_hashes() -> None:
    assert "--require-hashes" in BUILD
    assert "-r requirements.lock" in BUILD
    assert "--no-deps ." in BUILD


def test_last_stage_has_only_the_environment_and_is_not_root() -> None:
    assert re.findall(r"^COPY (.*)$", FINAL, flags=re.MULTILINE) == ["--from=build /opt/milliscale /opt/milliscale"]
    assert not re.search(r"pip install|apt-get|gcc", FINAL)
    (user,) = re.findall(r"^USER (\d+):\d+$", FINAL, flags=re.MULTILINE)
    assert int(user) > 0


def test_stages_share_their_base_image() -> None:
    assert re.findall(r"^FROM (\S+)", BUILD) == re.findall(r"^FROM (\S+)", FINAL)


def test_default_command_exists() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (command,) = re.findall(r'^CMD \["([^"]+)"', FINAL, flags=re.MULTILINE)
    assert command in scripts


def test_caches_are_not_copied() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert any(fnmatch("kube/__pycache__", pattern) for pattern in ignored[ignored.index("!kube") :])
    assert BUILD.count("pip --python") == BUILD.count("--no-cache-dir")
