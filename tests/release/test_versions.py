"""Versions from git's tags, and what forbids a release."""

import os
import subprocess
from pathlib import Path

import pytest

from tools.versions import (
    ROOT,
    current_version,
    image_tag,
    latest_release,
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


def test_version_of_a_tagged_commit_is_the_tags(clone: Clone) -> None:
    clone.git("tag", "v0.2.0")
    assert current_version(clone.folder) == "0.2.0"
    assert release_problems(clone.folder) == []


def test_version_after_a_tag_is_a_development_version(clone: Clone) -> None:
    clone.git("tag", "v0.2.0")
    clone.commit()
    assert current_version(clone.folder).startswith("0.2.1.dev1+g")


def test_version_without_tags_is_a_development_version(clone: Clone) -> None:
    assert current_version(clone.folder).startswith("0.0.1.dev1+g")
    assert previous_tag(clone.folder) is None


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


def test_commit_without_a_tag_is_no_release(clone: Clone) -> None:
    assert release_problems(clone.folder) == ["The commit must have one tag, such as v1.2.3; it has 0."]


def test_changes_that_are_not_committed_are_no_release(clone: Clone) -> None:
    clone.git("tag", "v0.2.0")
    (clone.folder / "new.py").touch()
    assert release_problems(clone.folder) == ["The clone has changes that are not committed."]


def test_tag_must_be_the_newest_release_of_the_changelog(clone: Clone) -> None:
    clone.git("tag", "v0.3.0")
    assert release_problems(clone.folder) == [
        "The newest release in CHANGELOG.md is 0.2.0, and the tag is v0.3.0.",
        "Another version: README.md:1: 0.2.0",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "`docker build -t registry.example/milliscale:0.1.0 .`",
        'newTag: "0.1.0"',
        "--build-arg VERSION=0.1.0 ",
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


def test_all_places_name_the_newest_release_of_the_changelog() -> None:
    assert stale_versions(latest_release(ROOT)) == []
