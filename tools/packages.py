"""Build the sdist and the wheel: the same sources, version and time make the same files. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.archives import normalize_tar
from tools.dockerfile import context_files

ROOT = Path(__file__).resolve().parent.parent


_DEMO_MANIFESTS = ("base", "crds", "crds/metric-rules", "components/metric-rules", "components/autoscaler-ui")


def package_files() -> list[Path]:
    """Return the files of wheel and sdist, relative to the project: those of the image, and the playground's."""
    playground = ROOT / "playground"
    left_out = {"__pycache__", "README.md"}
    code = [path for path in playground.rglob("*") if path.is_file() and left_out.isdisjoint(path.parts)]
    manifests = [path for name in _DEMO_MANIFESTS for path in (playground / "manifests" / name).glob("*.yaml")]
    of_image = [path for path in context_files(ROOT) if path.parts[0] != "tools"]
    return [*of_image, *(path.relative_to(ROOT) for path in [*code, *manifests])]


def copy_sources(target: Path) -> Path:
    """Copy what the packages are made of: that of the image, and the playground; return the target."""
    for path in package_files():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target / path)
        (target / path).chmod(0o644)  # modes are part of a wheel, and differ with the umask of a clone
    return target


def build_sdist(source: Path, target: Path, *, time: int) -> Path:
    """Build the sdist of a source folder into a target folder; return its path.

    Args:
        source: has pyproject.toml; the build writes to it.
        target: made if it does not exist.
        time: of all files, in seconds since 1970.
    """
    _build("sdist", source, target, time=time)
    (path,) = target.glob("*.tar.gz")
    normalize_tar(path, time=time)
    return path


def build_wheel(source: Path, target: Path, *, time: int) -> Path:
    """Build the wheel of a source folder into a target folder; return its path."""
    _build("wheel", source, target, time=time)
    (path,) = target.glob("*.whl")
    return path


def unpack_sdist(path: Path, target: Path) -> Path:
    """Unpack an sdist; return the folder of its sources."""
    target.mkdir()
    subprocess.run(["tar", "-xzf", path, "--no-same-owner", "-C", target], check=True)
    (folder,) = target.iterdir()
    return folder


def _build(kind: str, source: Path, target: Path, *, time: int) -> None:
    """Call the backend of pyproject.toml, which this environment has: PEP 517."""
    target.mkdir(parents=True, exist_ok=True)
    call = f"from setuptools import build_meta; build_meta.build_{kind}({str(target.absolute())!r})"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
    command = [sys.executable, "-c", call]
    done = subprocess.run(
        command, cwd=source, env=environment, umask=0o022, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
