"""The krew manifest and archive."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.krew import ARCHIVE, ROOT, TEMPLATE, write

URL = "https://releases.example/v1.2.3/kubectl-milliscale.tar.gz"
FIELDS = {"version", "shortDescription", "description", "caveats", "homepage", "platforms"}
PLATFORM_FIELDS = {"uri", "sha256", "selector", "files", "bin"}


def check(manifest: dict[str, Any]) -> None:
    """Check a manifest by the rules of krew's internal/index/validation, and for unknown fields."""
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert set(spec) <= FIELDS
    assert spec["shortDescription"]
    assert not set("\r\n") & set(spec["shortDescription"])
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"])
    assert spec["platforms"]
    for platform in spec["platforms"]:
        assert set(platform) <= PLATFORM_FIELDS
        assert platform["uri"]
        assert platform["bin"]
        assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
        expressions = platform["selector"]["matchExpressions"]
        assert {one["key"] for one in expressions} <= {"os", "arch"}
        assert all(one["operator"] == "In" and one["values"] for one in expressions)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "milliscale-1.2.3-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def test_manifest_is_valid() -> None:
    manifest = yaml.safe_load(TEMPLATE.read_text())
    check(manifest)
    # krew's file name must be the plugin's.
    assert manifest["metadata"]["name"] == TEMPLATE.stem == "milliscale"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert manifest["spec"]["platforms"][0]["bin"] in scripts


def test_built_manifest_has_the_version_the_url_and_the_checksum(tmp_path: Path, wheel: Path) -> None:
    manifest = yaml.safe_load(write(tmp_path / "krew", wheel=wheel, url=URL, time=0).read_text())
    check(manifest)
    assert manifest["spec"]["version"] == "v1.2.3"
    (platform,) = manifest["spec"]["platforms"]
    checksum = hashlib.sha256((tmp_path / "krew" / ARCHIVE).read_bytes()).hexdigest()
    assert (platform["uri"], platform["sha256"]) == (URL, checksum)


def test_executable_of_the_archive_starts_the_installed_plugin(tmp_path: Path, wheel: Path) -> None:
    write(tmp_path / "krew", wheel=wheel, url=URL, time=0)
    store, commands = tmp_path / "store", tmp_path / "bin"
    store.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "krew" / ARCHIVE, "-C", store], check=True)
    assert sorted(path.name for path in store.iterdir()) == ["LICENSE", "kubectl-milliscale", wheel.name]
    installed = store / "venv" / "bin" / "kubectl-milliscale"
    installed.parent.mkdir(parents=True)
    installed.write_text('#!/bin/sh\necho "$@"\n')
    installed.chmod(0o755)
    (store / "venv" / "installed").touch()
    commands.mkdir()
    link = commands / "kubectl-milliscale"
    link.symlink_to(store / "kubectl-milliscale")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    started = subprocess.run([link, "status", "-A"], capture_output=True, text=True, check=True, env={"PATH": path})
    assert started.stdout == "status -A\n"
