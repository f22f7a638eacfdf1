"""Build images with buildah, on the machine's network: from the project's Dockerfile, and two for the scenarios."""

from __future__ import annotations

import ast
import configparser
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = Path(__file__).parent / "images"
REPOSITORY: Final = "registry.example/milliscale"
TAGS: Final = ("0.0.1", "0.0.2")
"""Of the project's image, to upgrade from one to the other. Both are the same build."""
PAUSE: Final = "registry.example/pause:1"
APPLICATIONS: Final = "registry.example/applications:1"

_BASE: Final = "docker.io/library/python:3.13-slim"
# Debian's python3-venv has pip as a wheel.
_PIP: Final = "pip --version || { set -- /usr/share/python-wheels/pip-*.whl && python3 $1/pip install --no-index $1; }"


class BuildError(Exception):
    """buildah failed; the message is what it printed."""


def build_images(folder: Path, *, base_tar: Path | None) -> list[Path]:
    """Build all images; return an archive of each.

    Args:
        folder: for the archives, and the images' layers.
        base_tar: a root file system with Python, which stands for the Dockerfile's base image. None: it is pulled.

    Raises:
        BuildError: a build failed.
    """
    buildah = _Buildah(folder)
    if base_tar is not None:
        buildah.base(base_tar)
    pip = [f"--volume={source}:{target}:ro" for source, target in _pip_files(folder).items()]
    ours = f"{REPOSITORY}:{TAGS[0]}"
    buildah.build(ROOT, ours, *pip)
    context = folder / "context"
    shutil.copytree(FILES, context)
    subprocess.run(["gcc", "-static", "-O2", "-o", "pause", "pause.c"], cwd=context, check=True)
    shutil.copy(_program("prometheus"), context)
    for image in (PAUSE, APPLICATIONS):
        name = image.rpartition("/")[2].partition(":")[0]
        buildah.build(context, image, f"--file={context / name}.Dockerfile")
    return [buildah.archive(image) for image in (PAUSE, APPLICATIONS, ours)]


class _Buildah:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = [
            # If it is interrupted, its mounts end with it.
            *("unshare", "--mount"),
            "buildah",
            f"--root={folder / 'storage'}",
            f"--runroot={folder / 'storage-run'}",
            "--storage-driver=overlay",
        ]

    def base(self, tar: Path) -> None:
        """Make the Dockerfile's base image from a root file system."""
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, str(tar), "/")
        self._run("run", "--isolation=chroot", container, "sh", "-c", _PIP)
        self._run("config", "--env=PATH=/usr/local/bin:/usr/bin:/bin", container)
        self._run("commit", "--quiet", "--rm", container, _BASE)

    def build(self, context: Path, image: str, *arguments: str) -> None:
        # chroot: needs no container runtime.
        self._run("bud", "--quiet", "--isolation=chroot", *arguments, f"--tag={image}", str(context))

    def archive(self, image: str) -> Path:
        path = self._folder / f"{image.rpartition('/')[2].replace(':', '-')}.tar"
        self._run("push", "--quiet", image, f"docker-archive:{path}:{image}")
        return path

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._command, *arguments], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"buildah {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()


def _pip_files(folder: Path) -> Mapping[Path, str]:
    """Return the files of this machine's pip configuration, and where pip in a build finds them.

    That is one file with all settings, also those of the environment: an index, a proxy, the CA of a proxy that
    inspects TLS. What they name of this machine is there under the same path.
    """
    settings = dict(_pip_settings())
    config = configparser.RawConfigParser()
    config["global"] = settings
    path = folder / "pip.conf"
    with path.open("w") as file:
        config.write(file)
    words = [word for value in settings.values() for word in value.split()]
    named = [Path(word) for word in words if word.startswith("/")]
    # The links of an index lead to a folder beside it.
    named += [Path(word.removeprefix("file://")).parent for word in words if word.startswith("file:///")]
    return {path: "/etc/pip.conf", **{each: str(each) for each in named if each.exists()}}


def _pip_settings() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, stdout=subprocess.PIPE, text=True
    )
    for line in listed.stdout.splitlines():  # section.name='value'
        key, _, value = line.partition("=")
        yield key.rpartition(".")[2], str(ast.literal_eval(value))


def _program(name: str) -> Path:
    found = shutil.which(name)
    assert found is not None, f"{name} is among the requirements"
    return Path(found)
