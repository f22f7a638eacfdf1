"""Versions of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube.process.files import files_version


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first")
    os.utime(path, ns=(1, 1))
    return path


def test_version_of_unchanged_files_stays_equal(file: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert files_version(file, missing) == files_version(file, missing)


def test_written_file_has_another_version(file: Path) -> None:
    before = files_version(file)
    file.write_text("longer than before")
    os.utime(file, ns=(1, 1))
    assert files_version(file) != before


def test_replaced_file_of_the_same_size_and_time_has_another_version(file: Path, tmp_path: Path) -> None:
    before = files_version(file)
    replacement = tmp_path / "replacement"
    replacement.write_text("other")
    os.utime(replacement, ns=(1, 1))
    replacement.replace(file)
    assert files_version(file) != before


def test_created_and_removed_files_have_other_versions(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    without = files_version(file, other)
    other.touch()
    assert files_version(file, other) != without
    other.unlink()
    assert files_version(file, other) == without


def test_symlink_swap_of_a_mounted_configmap_gives_another_version(tmp_path: Path) -> None:
    for directory in ("..old", "..new"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "config.yaml").write_text("rules")
        os.utime(tmp_path / directory / "config.yaml", ns=(1, 1))
    (tmp_path / "..data").symlink_to("..old")
    mounted = tmp_path / "config.yaml"
    mounted.symlink_to("..data/config.yaml")
    before = files_version(mounted)
    (tmp_path / "..tmp").symlink_to("..new")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    assert files_version(mounted) != before
