"""The krew manifest and archive."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pip
import pytest
import yaml

from tools.krew import ARCHIVE, LAUNCHER, LOCK, ROOT, TEMPLATE, write

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


def small_wheel(folder: Path, name: str, *, requires: str = "", script: str = "") -> Path:
    """Build a wheel with one module; `script` is a command of it."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": "def main():\n    print('started')\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{script} = {name}:main\n" if script else "",
        f"{info}/RECORD": "",
    }
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


# The launcher as it is, with the pip of this environment: to install one takes seconds.
START = f"""
import pathlib, runpy, sys, venv
create = venv.create
def create_with_pip(folder, *, with_pip, clear):
    assert with_pip
    create(folder, clear=clear)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "pip").symlink_to({str(Path(pip.__file__).parent)!r})
venv.create = create_with_pip
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.e2e
def test_plugin_is_installed_with_the_hashes_of_the_lock_file_only(tmp_path: Path) -> None:
    index, store = tmp_path / "index", tmp_path / "store"
    index.mkdir()
    store.mkdir()
    launcher = Path(shutil.copy(LAUNCHER, store / "kubectl-milliscale"))
    small_wheel(store, "milliscale", requires="unlocked", script="kubectl-milliscale")
    environment = {**os.environ, "PIP_FIND_LINKS": str(index), "PIP_NO_INDEX": "1"}

    def start(library: str, content: bytes | None = None) -> subprocess.CompletedProcess[str]:
        wheel = small_wheel(index, library)
        checksum = hashlib.sha256(content or wheel.read_bytes()).hexdigest()
        (store / LOCK.name).write_text(f"{library}==1.0 \\\n    --hash=sha256:{checksum}\n")
        command = [sys.executable, "-c", START, str(launcher)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    done = start("library")
    assert (done.stdout, done.returncode) == ("started\n", 0), done.stderr
    installed = store / "venv" / "installed"
    installed.unlink()
    done = start("other", b"what was locked")
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert done.returncode == 1
    assert not installed.exists()


def test_lock_file_of_the_plugin_has_the_versions_that_are_tested() -> None:
    def versions(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", path.read_text(), re.MULTILINE))

    locked = versions(LOCK)
    assert {"prometheus-api-client", "aiohttp"} <= locked.keys()
    assert versions(ROOT / "requirements.lock").items() <= locked.items()
    assert locked.items() <= versions(ROOT / "requirements-dev.lock").items()


def test_executable_of_the_archive_starts_the_installed_plugin(tmp_path: Path, wheel: Path) -> None:
    write(tmp_path / "krew", wheel=wheel, url=URL, time=0)
    store, commands = tmp_path / "store", tmp_path / "bin"
    store.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "krew" / ARCHIVE, "-C", store], check=True)
    assert sorted(path.name for path in store.iterdir()) == [
        "LICENSE",
        "kubectl-milliscale",
        wheel.name,
        "requirements-kubectl.lock",
    ]
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
