"""The version's spellings, the places that name it, and what forbids a release."""

import os
import subprocess
from pathlib import Path

import pytest

from kube.version import VERSION
from tools.versions import (
    image_tag,
    previous_tag,
    release_problems,
    semver,
    stale_versions,
)

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n## [0.1.0] - 2026-11-22\n"


class Clone:
    """A repository with one commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        (folder / "CHANGELOG.md").write_text(CHANGELOG)
        (folder / "README.md").write_text("docker build -t registry.example/milliscale:0.2.0 .\n")
        for name in ("Dockerfile", "docs", "manifests", "charts"):
            (folder / name).mkdir() if name.islower() else (folder / name).touch()
        self.commit()

    def git(self, *arguments: str) -> None:
        identity = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", *arguments], cwd=self.folder, env=environment, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=a change")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone")


@pytest.mark.parametrize("tags", [(), ("v0.2.0",), ("vendored", "v0.2.0")])
def test_commit_of_a_release_may_have_its_tag(clone: Clone, tags: tuple[str, ...]) -> None:
    for tag in tags:
        clone.git("tag", tag)
    assert release_problems("0.2.0", clone.folder) == []


def test_previous_tag_is_not_that_of_the_commit_itself(clone: Clone) -> None:
    clone.git("tag", "v0.1.0")
    clone.commit()
    clone.git("tag", "v0.2.0")
    assert previous_tag(clone.folder) == "v0.1.0"


@pytest.mark.parametrize(
    ("version", "chart", "image"),
    [
        ("0.2.0", "0.2.0", "0.2.0"),
        ("0.2.0rc1", "0.2.0-rc.1", "0.2.0-rc.1"),
        ("0.2.1.dev3+gabc", "0.2.1-dev.3+gabc", "0.2.1-dev.3-gabc"),
        ("0.1.dev3+gabc", "0.1.0-dev.3+gabc", "0.1.0-dev.3-gabc"),
    ],
)
def test_chart_and_image_have_their_own_spelling(version: str, chart: str, image: str) -> None:
    assert (semver(version), image_tag(version)) == (chart, image)


def test_changes_that_are_not_committed_are_no_release(clone: Clone) -> None:
    (clone.folder / "new.py").touch()
    assert release_problems("0.2.0", clone.folder) == ["The clone has changes that are not committed."]


def test_tag_changelog_and_places_must_have_the_version(clone: Clone) -> None:
    clone.git("tag", "v0.1.0")
    assert release_problems("0.3.0", clone.folder) == [
        "kube/version.py has 0.3.0, and the commit has the tag v0.1.0.",
        "kube/version.py has 0.3.0, and the newest release of CHANGELOG.md is 0.2.0.",
        "Another version: README.md:1: 0.2.0",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "`docker build -t registry.example/milliscale:0.1.0 .`",
        'newTag: "0.1.0"',
        "--set image.tag=0.1.0`.",
        "helm install milliscale-0.1.0.tgz",
        "pip install milliscale-0.1.0-py3-none-any.whl",
        'appVersion: "0.1.0"',
        "version: 0.1.0",
    ],
)
def test_place_that_names_another_version_is_found(clone: Clone, text: str) -> None:
    (clone.folder / "docs" / "install.md").write_text(f"first line\n{text}\n")
    assert stale_versions("0.2.0", clone.folder) == ["docs/install.md:2: 0.1.0"]
    assert stale_versions("0.1.0", clone.folder) == ["README.md:1: 0.2.0"]


def test_all_places_name_the_version() -> None:
    assert stale_versions(VERSION) == []
