"""Build a release in dist/, and check it: `make release`.

dist/ has the wheel, the sdist, the chart, the manifests of each overlay, the SBOM, krew's archive and manifest, and
SHA256SUMS. The same commit makes the same files. Nothing may be uncommitted, and all places must name the version of
kube/version.py; SNAPSHOT=1 builds what is there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from kube.version import VERSION
from playground.binaries import find
from tools import krew
from tools.archives import CHECKSUMS, checksums, normalize_tar
from tools.packages import build_sdist, build_wheel, copy_sources, unpack_sdist
from tools.release_check import ReleaseError, check, install, upgrade_from
from tools.render_chart import CHART, ChartError, load_helm
from tools.sbom import write_sbom
from tools.versions import commit_time, image_tag, previous_tag, release_problems, semver
from tools.wheels import fetch_wheels

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
IMAGE = "milliscale"
URL = "https://releases.example/milliscale"


def overlays() -> dict[str, Path]:
    """Return the folders of manifests/ that are installed as they are, by name."""
    folders = sorted((ROOT / "manifests" / "overlays").iterdir())
    # The example is a template for an overlay of one's own.
    return {"base": ROOT / "manifests" / "base"} | {path.name: path for path in folders if path.name != "example"}


def render_manifests(target: Path, *, image: str, tag: str) -> None:
    """Write the objects of each overlay to manifests-NAME.yaml in a folder, with an image, and crds.yaml."""
    definitions = sorted((ROOT / "manifests" / "crds").rglob("*.yaml"))
    texts = [path.read_text() for path in definitions if path.name != "kustomization.yaml"]
    (target / "crds.yaml").write_text("---\n".join(texts))
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(ROOT / "manifests", Path(scratch) / "manifests")
        wrapper = Path(scratch) / "manifests" / "release"
        wrapper.mkdir()
        for name, folder in overlays().items():
            resource = f"../{folder.relative_to(ROOT / 'manifests')}"
            images = [{"name": "milliscale", "newName": image, "newTag": tag}]
            content = {"resources": [resource], "images": images}
            (wrapper / "kustomization.yaml").write_text(yaml.safe_dump(content))
            command = [str(find("kubectl")), "kustomize", str(wrapper)]
            rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            (target / f"manifests-{name}.yaml").write_text(rendered)


def package_chart(target: Path, *, version: str, time: int) -> Path:
    """Write the chart's archive into a folder; return its path.

    Raises:
        ReleaseError: there is no Helm engine for this platform.
    """
    try:
        helm = load_helm()
    except ChartError as error:
        raise ReleaseError("The chart is packaged on x86-64 Linux, where helm-python-sdk can be installed.") from error
    chart_version = semver(version)
    path = Path(helm.package(CHART, destination=target, version=chart_version, app_version=image_tag(version)))
    normalize_tar(path, time=time)
    return path


def build(target: Path, *, time: int, image: str = IMAGE, url: str = URL) -> None:
    """Build all files of a release into an empty folder.

    Args:
        target: made if it does not exist.
        time: of files in archives, in seconds since 1970.
        image: where the image will be, without a tag.
        url: the folder where the files will be published.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sdist = build_sdist(copy_sources(folder / "sources"), target, time=time)
        wheel = build_wheel(unpack_sdist(sdist, folder / "unpacked"), target, time=time)
        package_chart(target, version=VERSION, time=time)
        render_manifests(target, image=image, tag=image_tag(VERSION))
        krew.write(target / "krew", wheel=wheel, url=f"{url}/krew/{krew.ARCHIVE}", time=time)
        python = install(wheel, folder / "environment", wheels=fetch_wheels(ROOT / ".playground" / "wheels"))
        write_sbom(target / f"milliscale-{VERSION}.cdx.json", python=python, version=VERSION)
    (target / CHECKSUMS).write_text(checksums(target))


def main() -> int:
    """Build and check. Exit status 1, with the reasons, if the clone is not a release's or a check fails."""
    parser = argparse.ArgumentParser(description="Build a release in dist/, and check it.")
    parser.add_argument("--snapshot", action="store_true", help="build what is there, committed or not")
    parser.add_argument("--image", default=IMAGE, help="where the image will be, without a tag")
    parser.add_argument("--url", default=URL, help="the folder where the files will be published")
    arguments = parser.parse_args()
    problems = [] if arguments.snapshot else release_problems()
    if problems:
        print("This is not a release (SNAPSHOT=1 builds it all the same):", *problems, sep="\n  ", file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    try:
        build(DIST, time=commit_time(), image=arguments.image, url=arguments.url)
        check(DIST, version=VERSION, image=arguments.image)
        previous = previous_tag()
        if previous is None:
            print("no release before this one in this clone: the upgrade is not tried")
        else:
            print(f"upgrade from {previous}, and back", flush=True)
            upgrade_from(previous)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"milliscale {VERSION} in {DIST}:", (DIST / CHECKSUMS).read_text(), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
