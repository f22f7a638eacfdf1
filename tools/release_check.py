"""Check the files of a release, in environments that have nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tools.archives import CHECKSUMS, checksums, sha256
from tools.krew import ARCHIVE
from tools.packages import build_wheel, unpack_sdist
from tools.render_chart import load_helm
from tools.sbom import sbom_error
from tools.versions import image_tag, semver
from tools.wheels import fetch_wheels

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("milliscale", "milliscale-adapter", "milliscale-autoscaler", "kubectl-milliscale")


class ReleaseError(Exception):
    """The release cannot be built, or a file of it is wrong; the message says which."""


def install(wheel: Path, folder: Path, *, wheels: Path) -> Path:
    """Install a wheel and the locked packages into a new environment; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(python)]
    pip += ["install", "--quiet", "--no-compile", "--no-index"]
    subprocess.run([*pip, f"--find-links={wheels}", "--require-hashes", "-r", ROOT / "requirements.lock"], check=True)
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    return python


def versions_of(python: Path) -> dict[str, str]:
    """Return what --version of each console script prints, without variables and in another folder."""
    return {
        script: subprocess.run(
            [python.with_name(script), "--version"], cwd="/", env={}, check=True, capture_output=True, text=True
        ).stdout.split()[-1]
        for script in SCRIPTS
    }


def check(dist: Path, *, version: str, image: str) -> None:
    """Check all files of a release.

    Raises:
        ReleaseError: one of them is wrong.
    """
    if (dist / CHECKSUMS).read_text() != checksums(dist):
        raise ReleaseError(f"{CHECKSUMS} is wrong")
    wheel = dist / f"milliscale-{version}-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = install(wheel, folder / "environment", wheels=fetch_wheels(ROOT / ".playground" / "wheels"))
        if set(versions_of(python).values()) != {version}:
            raise ReleaseError(f"the wheel's commands are of {versions_of(python)}")
        source = unpack_sdist(dist / f"milliscale-{version}.tar.gz", folder / "sdist")
        time = int((source / "pyproject.toml").stat().st_mtime)
        if build_wheel(source, folder / "again", time=time).read_bytes() != wheel.read_bytes():
            raise ReleaseError("the sdist makes another wheel")
    check_chart(dist / f"milliscale-{semver(version)}.tgz", version=version)
    for path in dist.glob("manifests-*.yaml"):
        found = images(path.read_text())
        if found != {f"{image}:{image_tag(version)}"}:
            raise ReleaseError(f"{path.name} has the images {found}")
    problem = sbom_error((dist / f"milliscale-{version}.cdx.json").read_text())
    if problem is not None:
        raise ReleaseError(f"the SBOM is not valid: {problem}")
    plugin = yaml.safe_load((dist / "krew" / "milliscale.yaml").read_text())["spec"]
    if (plugin["version"], plugin["platforms"][0]["sha256"]) != (
        f"v{semver(version)}",
        sha256(dist / "krew" / ARCHIVE),
    ):
        raise ReleaseError("krew's manifest is not of this archive and version")


def images(text: str) -> set[str]:
    """Return the images of all containers of some manifests."""
    specs = (each.get("spec", {}) for each in yaml.safe_load_all(text) if each)
    pods = [spec["template"]["spec"] for spec in specs if "template" in spec]
    return {container["image"] for pod in pods for container in pod["containers"]}


def check_chart(path: Path, *, version: str, image: str = "milliscale") -> None:
    """Render a chart's archive with an image, and compare the image's tag.

    Raises:
        ReleaseError: it has another tag.
    """
    with load_helm().Chart.load(path) as chart:
        rendered = chart.render({"image": {"repository": image}}, name="milliscale", namespace="milliscale")
    found = {image for name, text in rendered.items() if name.endswith(".yaml") for image in images(text)}
    if {image.rpartition(":")[2] for image in found} != {image_tag(version)}:
        raise ReleaseError(f"the chart has the images {found}")


def upgrade_from(tag: str) -> None:
    """Run the upgrade test with the real processes of another release beside those of this clone.

    Raises:
        ReleaseError: the test fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sources, environment = Path(scratch) / "sources", Path(scratch) / "environment"
        sources.mkdir()
        archive = subprocess.run(["git", "archive", "--format=tar", tag], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", sources], input=archive.stdout, check=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        pip += ["--python", str(environment / "bin" / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--require-hashes", "-r", str(sources / "requirements.lock")], check=True)
        # pip takes what builds the wheel from the release's own pyproject.toml.
        subprocess.run([*pip, "--no-deps", str(sources)], check=True)
        command = [sys.executable, "-m", "pytest", "--quiet", "tests/release/test_upgrade.py"]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "OLD": str(environment)}, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"the upgrade from {tag} fails")
