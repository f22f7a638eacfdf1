"""Run the commands of a page with bash, in a copy of the repository's files.

kubectl is real, against a cluster, except for what needs pods: of these commands it only parses the flags. Programs
whose commands last long, or need more than this machine, are replaced by one that records its arguments.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import ROOT

RECORDED = (
    "cosign", "curl", "docker", "git", "helm", "kubectl-milliscale", "make", "milliscale", "milliscale-adapter",
    "milliscale-autoscaler", "open", "pip", "pipx", "python", "syft",
)  # fmt: skip
# What the reader fills in.
PLACEHOLDERS = {
    "ACCOUNT": "default", "DIR": "/tmp", "FILE": "config.yaml", "NAME": "web", "NAMESPACE": "shop", "METRIC": "lag",
    "PORT": "8080", "URL": "http://127.0.0.1:9090",
}  # fmt: skip
SECONDS = 500  # on a machine that is busy

_RECORDER = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" $'\\x1e' >> "$RECORDED"
"""
# The plugin is recorded; commands that need pods, or a review, are parsed (new ones only: the runbooks repeat
# themselves). The playground's API server has no schemas, reads only JSON, and no strategic merge patches.
_KUBECTL = """#!/bin/bash
case " $* " in
" milliscale "*) printf '%s\\0' kubectl "$@" $'\\x1e' >> "$RECORDED" ;;
*" port-forward "*|*" logs "*|*" rollout "*|*" top "*|*" exec "*|*" wait "*|*" can-i "*|*" create token "*)
  grep -qsxF -- "$*" "$PARSED" || { "$KUBECTL" "$@" --help > /dev/null && printf '%s\\n' "$*" >> "$PARSED"; } ;;
*" create "*) "$KUBECTL" "$@" --dry-run=client -o json | "$KUBECTL" create --validate=false -f - ;;
*" apply "*) "$KUBECTL" "$@" --validate=false --dry-run=client ;;
*" replace "*) "$KUBECTL" "$@" --validate=false ;;
*) "$KUBECTL" "$@" ;;
esac
"""
_HPA = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 5}
"""
_METRIC_RULE = """apiVersion: milliscale.io/v1
kind: MetricRule
metadata: {name: queue, namespace: shop}
spec: {type: External, metric: queue, query: sum(queue)}
"""
_FILES = {
    "rules.yaml": "rules: []\n", "config.yaml": "", "load.csv.gz": "", "hpa.yaml": _HPA, "proposed.yaml": _HPA,
    "changed.yaml": _HPA, "new.yaml": _HPA, "load.csv": "",
    "values.yaml": "image: {repository: r}\nrules: {default: false}\n",
    "image.yaml": "image: {repository: r, tag: '1'}\n", "metric-rules.yaml": _METRIC_RULE,
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """A command after it has run: status, output, errors, and the programs that were recorded, with their arguments."""

    command: str
    status: int
    output: str
    errors: str
    recorded: Sequence[tuple[str, ...]]


def prepare(folder: Path) -> None:
    """Copy what commands read or change, and create the files that the pages name."""
    for name in ("manifests", "charts"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("Dockerfile", "Makefile", "pyproject.toml", "tests", "docs", "playground", "adapter", "autoscaler"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "milliscale").symlink_to(folder)  # of `git clone`
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    for name in RECORDED:
        _executable(programs / name, _RECORDER)
    _executable(programs / "kubectl", _KUBECTL)
    _executable(programs / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # with PyYAML
    (programs / "activate").touch()
    (folder / ".venv-demo").symlink_to(folder / ".venv")
    for name, text in _FILES.items():
        (folder / name).write_text(text)


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


async def run(commands: Sequence[str], folder: Path, *, kubectl: Path, kubeconfig: Path) -> list[Ran]:
    """Run the commands of one page, in one shell, as a reader would."""
    if not any(command.startswith("cp -r manifests/overlays/example") for command in commands):
        shutil.copytree(folder / "manifests/overlays/example", folder / "manifests/overlays/mine")
    script = ["set -o pipefail\n"]
    for number, command in enumerate(commands):
        text = re.sub(rf"\b({'|'.join(PLACEHOLDERS)})\b", lambda found: PLACEHOLDERS[found[1]], command)
        text = text.replace("--kubeconfig=...", f"--kubeconfig={kubeconfig}")
        outputs = f"{folder}/.ran-{number}"
        script.append(f"export RECORDED={outputs}.recorded; : > $RECORDED\n")
        script.append(
            f"{{\n{text.rstrip()}\n}} > {outputs}.output 2> {outputs}.errors\necho $? > {outputs}.status\nwait\n"
        )
    environment = {
        "PATH": f"{folder}/.venv/bin:{os.defpath}",
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig),
        "KUBECTL": str(kubectl),
        "PARSED": str(folder / ".parsed"),
        "GOGC": os.environ["GOGC"],
        "LC_ALL": "C.UTF-8",
    }
    process = await asyncio.create_subprocess_exec(
        "bash",
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        _, errors = await process.communicate("".join(script).encode())
    assert process.returncode == 0, errors.decode()
    return [_ran(folder / f".ran-{number}", command) for number, command in enumerate(commands)]


def _ran(path: Path, command: str) -> Ran:
    def read(kind: str) -> str:
        return Path(f"{path}.{kind}").read_text()

    recorded = [tuple(call.rstrip("\0").lstrip("\0").split("\0")) for call in read("recorded").split("\x1e\0") if call]
    return Ran(command, int(read("status")), read("output"), read("errors"), recorded)
