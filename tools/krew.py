"""Build the krew archive and manifest of the kubectl plugin in dist/krew: `make krew URL=https://...`.

The archive has the package's wheel, the lock file of its libraries, and an executable that installs both. It can be
installed before it is published:

    kubectl krew install --manifest=dist/krew/milliscale.yaml --archive=dist/krew/kubectl-milliscale.tar.gz
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from pathlib import Path

from tools.archives import normalize_tar, sha256
from tools.packages import build_wheel, copy_sources
from tools.versions import commit_time, semver

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "plugins" / "milliscale.yaml"
LAUNCHER = ROOT / "tools" / "krew_launcher.py"
LOCK = ROOT / "requirements-kubectl.lock"
ARCHIVE = "kubectl-milliscale.tar.gz"
URL = f"https://releases.example/milliscale/{ARCHIVE}"


def write(folder: Path, *, wheel: Path, url: str, time: int) -> Path:
    """Write the archive and the manifest into a folder; return the manifest.

    Args:
        folder: made if it does not exist.
        wheel: the package; its name has the version.
        url: where the archive will be published.
        time: of all files, in seconds since 1970.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / ARCHIVE
    with tarfile.open(archive, "w:gz") as tar:
        for path, name, mode in (
            (LAUNCHER, "kubectl-milliscale", 0o755),
            (wheel, wheel.name, 0o644),
            (LOCK, LOCK.name, 0o644),
            (ROOT / "LICENSE", "LICENSE", 0o644),
        ):
            entry = tar.gettarinfo(path, name)
            entry.mode = mode
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with path.open("rb") as file:
                tar.addfile(entry, file)
    normalize_tar(archive, time=time)
    filled_in = {
        "  version: ": f"v{semver(wheel.name.split('-')[1])}",
        "    uri: ": url,
        "    sha256: ": f'"{sha256(archive)}"',
    }
    lines = [line for line in TEMPLATE.read_text().splitlines() if not line.startswith("#")]
    for prefix, value in filled_in.items():
        (index,) = (index for index, line in enumerate(lines) if line.startswith(prefix))
        lines[index] = prefix + value
    manifest = folder / TEMPLATE.name
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def main() -> None:
    """Build both."""
    parser = argparse.ArgumentParser(description="Build the krew archive and manifest of the kubectl plugin.")
    parser.add_argument("--url", default=URL, help="where the archive will be published")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        time = commit_time()
        source = copy_sources(Path(scratch) / "source")
        wheel = build_wheel(source, Path(scratch) / "wheel", time=time)
        manifest = write(ROOT / "dist" / "krew", wheel=wheel, url=arguments.url, time=time)
    print(f"wrote {manifest} and {manifest.with_name(ARCHIVE)}")


if __name__ == "__main__":
    main()
