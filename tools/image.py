"""Do the Dockerfile's steps without a container engine: `make image` builds twice and compares.

The instructions are read from the Dockerfile. Each stage is a folder that stands for the root of its file system. Its
base image is an environment of this Python, and commands see no other variables. Packages come from a folder of wheels,
which was filled from the lock files before. Stages use the same folder, one after the other, because a virtual
environment contains its own path.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.dockerfile import Instruction, Stage, context_files, read_stages
from tools.sandbox import Sandbox, best_sandbox
from tools.wheels import fetch_wheels

ROOT = Path(__file__).resolve().parent.parent
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Image:
    """What a container would have."""

    root: Path
    """The folder that stands for the root of the file system."""
    environment: dict[str, str]
    user: int
    command: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.root / "opt" / "milliscale" / "bin" / "python"

    def sandbox(self) -> Sandbox:
        """Return where its commands run: as its user, with a writable folder beside the read-only root."""
        return best_sandbox(user=self.user, read_only=self.root, writable=self.root.with_name("tmp"))

    def command_line(self, sandbox: Sandbox, command: list[str]) -> list[str]:
        """Return a command line that runs one of its commands in a sandbox, with the image's environment alone."""
        environment = {**self.environment, "TMPDIR": str(sandbox.writable)}
        variables = [f"{name}={value}" for name, value in environment.items()]
        return sandbox.command_line(["env", "--ignore-environment", f"--chdir={self.root}", *variables, *command])


class StepError(Exception):
    """A RUN ended with an error; the message has the command and its output."""


def build_image(folder: Path, *, wheels: Path, arguments: dict[str, str] | None = None, context: Path = ROOT) -> Image:
    """Do all steps of the context's Dockerfile in a folder, and return the last stage.

    Args:
        folder: empty or missing; the image is `root` in it.
        wheels: what pip may install.
        arguments: --build-arg of docker; BASE has no effect.
        context: the folder with Dockerfile and .dockerignore. Only what .dockerignore lets pass can be copied.

    Raises:
        ValueError: the Dockerfile has something that this does not know.
        StepError: a RUN failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copied = folder / "context"
    for path in context_files(context):
        (copied / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(context / path, copied / path)
    _, stages = read_stages((context / "Dockerfile").read_text())
    finished: dict[str, Path] = {}
    steps = None
    for number, stage in enumerate(stages):
        root = folder / "root"
        if root.exists():
            finished[stages[number - 1].name] = root.rename(folder / f"stage-{number - 1}")
        steps = _Steps(folder, stage, wheels=wheels, context=copied, finished=finished, arguments=arguments or {})
    if steps is None:
        raise ValueError("no FROM in the Dockerfile")
    steps.make_read_only()
    return Image(steps.root, steps.environment, steps.user, steps.command)


def tree_digests(root: Path) -> dict[str, str]:
    """Return the kind, mode and content's digest (a link: its target) of each path below a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = f"{mode:o} {hashlib.sha256(content).hexdigest()}"
    return found


class _Steps:
    """The state between the instructions of one stage; making it does them."""

    def __init__(
        self,
        folder: Path,
        stage: Stage,
        *,
        wheels: Path,
        context: Path,
        finished: dict[str, Path],
        arguments: dict[str, str],
    ) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.user = 0
        self.command: tuple[str, ...] = ()
        self._base = folder / "base"
        self._workdir = self.root
        self._context = context
        self._finished = finished
        self._arguments = arguments
        self._make_base(wheels)
        self.environment = {"PATH": f"{self._base / 'bin'}:{_SYSTEM_PATH}"}
        self._variables = {  # for RUN only: ARGs, and where pip finds packages
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        for instruction in stage.instructions:
            self._do(instruction)

    def _make_base(self, wheels: Path) -> None:
        """Make the base image's environment; later stages and builds in this place get a copy of it."""
        fresh = self._base.parent.with_name("base-fresh")
        if self._base.exists():
            shutil.rmtree(self._base)
        if fresh.exists():
            shutil.copytree(fresh, self._base, symlinks=True, copy_function=os.link)
            return
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self._base], check=True)
        install = ["install", "--quiet", "--no-compile", "--no-index", f"--find-links={wheels}", "pip"]
        pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
        subprocess.run([*pip, "--python", self._base / "bin" / "python", *install], check=True)
        shutil.copytree(self._base, fresh, symlinks=True)

    def _do(self, instruction: Instruction) -> None:
        arguments = instruction.arguments
        match instruction.keyword:
            case "WORKDIR":
                self._workdir = self._path(arguments)
                self._workdir.mkdir(parents=True, exist_ok=True)
            case "ENV":
                for name, value in re.findall(r'(\w+)=(".*?"|\S+)', arguments):
                    self.environment[name] = self._inside(value.strip('"')).replace("$PATH", self.environment["PATH"])
            case "ARG":
                name, _, default = arguments.partition("=")
                self._variables[name] = self._arguments.get(name, default)
            case "COPY":
                self._copy(arguments)
            case "RUN":
                self._run(["/bin/sh", "-c", self._inside(arguments)])
            case "USER":
                self.user = int(arguments.partition(":")[0])
            case "CMD":
                self.command = tuple(json.loads(arguments))

    def _run(self, command: list[str]) -> None:
        environment = self.environment | self._variables
        done = subprocess.run(
            command, cwd=self._workdir, env=environment, umask=0o022, capture_output=True, check=False, text=True
        )
        if done.returncode != 0:
            raise StepError(f"{command[-1]}\n{done.stdout}{done.stderr}")

    def _path(self, text: str) -> Path:
        return self.root / text.lstrip("/") if text.startswith("/") else self._workdir / text

    def _inside(self, text: str) -> str:
        """Return a text whose absolute paths are below this stage's folder."""
        return re.sub(r"(?<![^\s=:\"'])/(?=\w)", f"{self.root}/", text)

    def _copy(self, arguments: str) -> None:
        match = re.fullmatch(r"(?:--from=(\w+) )?(.+) (\S+)", arguments)
        if match is None:
            raise ValueError(f"COPY {arguments}")
        stage, sources, target = match[1], match[2].split(), self._path(match[3])
        for name in sources:
            source = (self._finished[stage] if stage else self._context) / name.lstrip("/")
            if source.is_dir():
                # Links are quicker, and no later step writes to files of a finished stage.
                copy = os.link if stage else _copy_file
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=copy)
            elif source.is_file() and match[3].endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
                _copy_file(str(source), str(target / source.name))
            else:
                raise ValueError(f"COPY {arguments}: {name} is not there, or the target is not a folder")

    def make_read_only(self) -> None:
        """Take the right to write from all files and folders of the stage."""
        for path in [self.root, *self.root.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)


def _copy_file(source: str, target: str) -> None:
    shutil.copy2(source, target, follow_symlinks=False)
    if not Path(target).is_symlink():
        Path(target).chmod(Path(target).stat().st_mode | 0o200)


def main() -> int:
    """Build twice, run the second image's default command, and compare the files. Exit status 1: they differ."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--lock", dest="LOCK", default="requirements.lock", help="the LOCK of the build")
    arguments = parser.parse_args()
    wheels = fetch_wheels(ROOT / ".playground" / "wheels", arguments.LOCK)
    with tempfile.TemporaryDirectory() as scratch:
        # Paths are part of a virtual environment: the second build is where the first was.
        folder = Path(scratch) / "image"
        build_image(folder, wheels=wheels, arguments=vars(arguments)).root.parent.rename(Path(scratch) / "first")
        image = build_image(folder, wheels=wheels, arguments=vars(arguments))
        builds = [tree_digests(Path(scratch) / "first" / "root"), tree_digests(image.root)]
        sandbox = image.sandbox()
        print(f"{image.command[0]} runs as: {sandbox.isolation.value}")
        subprocess.run(image.command_line(sandbox, list(image.command)), check=True)
    different = sorted(path for path in {*builds[0], *builds[1]} if builds[0].get(path) != builds[1].get(path))
    print(f"{len(builds[0])} paths, {len(different)} differ between two builds", *different, sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
