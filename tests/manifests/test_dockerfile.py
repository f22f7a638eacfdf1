"""The Dockerfile and .dockerignore. tests/release/test_image.py does the Dockerfile's steps."""

import tomllib
from pathlib import Path

import pytest

from tools.dockerfile import Stage, context_files, is_ignored, read_stages

ROOT = Path(__file__).parent.parent.parent
ARGUMENTS, (BUILD, FINAL) = read_stages((ROOT / "Dockerfile").read_text())


def arguments(stage: Stage, keyword: str) -> list[str]:
    """Return the arguments of each instruction of a kind."""
    return [each.arguments for each in stage.instructions if each.keyword == keyword]


def copied() -> list[str]:
    """Return what the build takes from this repository."""
    return [source for each in arguments(BUILD, "COPY") for source in each.split()[:-1]]


def test_copied_paths_are_those_that_dockerignore_lets_pass() -> None:
    passed = [[*map(str, path.parents), str(path)] for path in context_files(ROOT)]
    assert [paths[-1] for paths in passed if not set(copied()) & set(paths)] == []
    assert [source for source in copied() if not any(source in paths for paths in passed)] == []


def test_image_has_both_processes_and_not_the_playground() -> None:
    assert {"adapter", "autoscaler", "kube"} <= set(copied())
    assert not {"playground", "tests"} & set(copied())


def test_packages_are_installed_from_a_lock_with_hashes_or_from_a_folder() -> None:
    commands = [part for each in arguments(BUILD, "RUN") for part in each.split("&&") if "pip" in part.split()]
    installing = [part for part in commands if "install" in part.split() or "wheel" in part.split()]
    assert len(installing) == 4
    for part in installing:
        locks = ("requirements", "${LOCK}")
        from_lock = any(f"--require-hashes --only-binary :all: -r {lock}" in part for lock in locks)
        assert from_lock or "--no-index --no-deps" in part
        assert "--no-cache-dir" in part


def test_last_stage_has_only_the_environment_and_is_not_root() -> None:
    assert arguments(FINAL, "COPY") == ["--from=build /opt/milliscale /opt/milliscale"]
    assert not any(word in command for command in arguments(FINAL, "RUN") for word in ("pip install", "apt-get", "gcc"))
    (user,) = arguments(FINAL, "USER")
    assert all(int(number) > 0 for number in user.split(":"))


def test_base_image_of_both_stages_is_one_build_argument() -> None:
    assert BUILD.base == FINAL.base == "${BASE}"
    assert ARGUMENTS["BASE"].startswith("python:3.")


def test_default_command_exists() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (command,) = arguments(FINAL, "CMD")
    assert command.split('"')[1] in scripts


def test_caches_are_not_copied() -> None:
    assert not [path for path in context_files(ROOT) if "__pycache__" in path.parts]


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("tests/a.py", True),
        ("README.md", True),
        ("kube/a.py", False),
        ("kube/deep/a.py", False),
        ("kube/__pycache__/a.pyc", True),
        ("__pycache__/a.pyc", True),
        ("kube/deep/a.log", True),
        ("kube/deep/kept.log", False),
        ("kube2/a.py", True),
    ],
)
def test_last_pattern_that_matches_a_path_or_a_folder_above_it_decides(path: str, ignored: bool) -> None:
    patterns = ["*", "!kube", "**/__pycache__", "kube/**/*.log", "!kube/*/kept.log"]
    assert is_ignored(Path(path), patterns) is ignored


@pytest.mark.parametrize("text", ["ENTRYPOINT x", "FROM a AS b c", "ENV A=1\nFROM a", "FROM a\nADD b ./"])
def test_instruction_that_the_steps_do_not_know_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_stages(text)


def test_lines_of_an_instruction_are_joined() -> None:
    _, (stage,) = read_stages("FROM a\nRUN one \\\n    # why\n    && two\n")
    assert [each.arguments for each in stage.instructions] == ["one && two"]
