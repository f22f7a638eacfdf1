"""Wheel and sdist: their contents, and the same files from each build. test_image.py installs the wheel."""

import asyncio
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube.version import VERSION
from playground.binaries import find
from playground.processes import ChildProcess
from tests.e2e.tools import processes_with
from tests.eventually import PATIENCE
from tools.packages import build_sdist, build_wheel, copy_sources, package_files, unpack_sdist

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("packages"), pytest.mark.timeout(600)]

TIME = 1_700_000_000


@dataclass(frozen=True)
class Packages:
    """An sdist, and the wheel that was built from it."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("packages")
    sdist = build_sdist(copy_sources(folder / "sources"), folder, time=TIME)
    return Packages(sdist, build_wheel(unpack_sdist(sdist, folder / "unpacked"), folder, time=TIME))


def files_of_packages() -> set[str]:
    """Return the files that belong to a package of this clone."""
    return {path.as_posix() for path in package_files() if len(path.parts) > 1}


def test_wheel_has_all_files_of_the_packages_and_no_others(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == files_of_packages()
    assert {"adapter/py.typed", "kube/web/static/live.js", "playground/manifests/base/rules.yaml"} <= names


def test_sdist_has_all_files_of_the_packages(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as sdist:
        entries = [entry for entry in sdist if entry.isfile()]
        names = {entry.name.partition("/")[2] for entry in entries}
    assert packages.sdist.name == f"milliscale-{VERSION}.tar.gz"
    assert files_of_packages() | {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert {(entry.mtime, entry.uid, entry.uname, entry.mode) for entry in entries} == {(TIME, 0, "", 0o644)}


def test_second_build_makes_the_same_sdist(packages: Packages, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again = build_sdist(copy_sources(tmp_path / "sources"), tmp_path / "again", time=TIME)
    finally:
        os.umask(before)
    assert again.read_bytes() == packages.sdist.read_bytes()


def test_sources_make_the_same_wheel_as_the_sdist(packages: Packages, tmp_path: Path) -> None:
    wheel = build_wheel(copy_sources(tmp_path / "sources"), tmp_path / "again", time=TIME)
    assert wheel.read_bytes() == packages.wheel.read_bytes()


def test_server_of_the_demo_has_its_schemas_in_the_wheel(packages: Packages, tmp_path: Path) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        wheel.extractall(tmp_path)
    program = """
from playground.apiserver.openapi import document
print(sorted(document("autoscaling", "v2")["components"]["schemas"]["HorizontalPodAutoscaler"]["properties"]))
"""
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert shown == "['apiVersion', 'kind', 'metadata', 'spec', 'status']\n"


async def test_demo_of_the_wheel_ends_after_its_seconds_and_leaves_no_process(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        wheel.extractall(tmp_path / "installed")
    monkeypatch.setenv("PATH", ":".join(str(find(name).parent) for name in ("prometheus", "kubectl")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "milliscale", "demo", "--seconds=1"]
    async with await ChildProcess.start("demo", command, log=tmp_path / "log", directory=tmp_path) as demo:
        async with asyncio.timeout(PATIENCE):
            status = await demo.wait()
    output = (tmp_path / "log").read_text()
    assert status == 1, output
    assert "not every HPA has scaled up and down" in output
    for name in ("router", "shop", "worker"):
        assert name in output.partition("scaled up")[2]
    assert "  milliscale explain default/typo\n" in output
    assert (tmp_path / "cache/milliscale/demo/demo.log").exists()
    assert processes_with(str(tmp_path)) == {}
