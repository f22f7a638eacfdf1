"""The other spellings of a version, the places that name it, and what must be true before a release."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from packaging.version import Version

from kube.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
NAMING_IT = ("README.md", "Dockerfile", "docs", "manifests", "charts")
"""Where people read a version, or install one."""

_RELEASED = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)
# Image tags, kustomize's and the chart's versions, names of files of a release.
_NAMED = re.compile(
    r"(?:milliscale[:-]v?|newTag: \"?|image\.tag=|^version: |^appVersion: \"?)(\d+\.\d+\.\d+\S*?)"
    r"(?=[\"',;`)\s]|-py3|\.t|\.cdx|$)",
    re.MULTILINE,
)


def semver(version: str) -> str:
    """Return a version of PEP 440 in the form that Helm and krew need: 1.2.0rc1 is 1.2.0-rc.1."""
    parsed = Version(version)
    pre, dev = parsed.pre, parsed.dev
    before = [*([f"{pre[0]}.{pre[1]}"] if pre else []), *([f"dev.{dev}"] if dev is not None else [])]
    numbers = f"{parsed.major}.{parsed.minor}.{parsed.micro}"
    return numbers + (f"-{'.'.join(before)}" if before else "") + (f"+{parsed.local}" if parsed.local else "")


def image_tag(version: str) -> str:
    """Return the tag of an image with a version; a tag cannot have a plus sign."""
    return semver(version).replace("+", "-")


def latest_release(root: Path = ROOT) -> str:
    """Return the newest version of CHANGELOG.md."""
    return str(_RELEASED.findall((root / "CHANGELOG.md").read_text())[0])


def stale_versions(version: str, root: Path = ROOT) -> list[str]:
    """Return the places that name another version of milliscale, as PATH:LINE: VERSION."""
    found = []
    for name in NAMING_IT:
        top = root / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.suffix not in {"", ".md", ".yaml", ".json", ".txt"} or not path.is_file():
                continue
            text = path.read_text()
            for match in _NAMED.finditer(text):
                if match[1] != version:
                    line = text.count("\n", 0, match.start()) + 1
                    found.append(f"{path.relative_to(root)}:{line}: {match[1]}")
    return found


def release_problems(version: str = VERSION, root: Path = ROOT) -> list[str]:
    """Return what forbids a release of a clone, as sentences; an empty list if nothing does.

    The commit need not have a tag, which no archive has; a tag of a version must be that of the release.
    """
    problems = []
    if _git(root, "status", "--porcelain"):
        problems.append("The clone has changes that are not committed.")
    tags = [tag for tag in _git(root, "tag", "--points-at", "HEAD").split() if re.fullmatch(r"v\d.*", tag)]
    if tags not in ([], [f"v{version}"]):
        problems.append(f"kube/version.py has {version}, and the commit has the tag {' and '.join(tags)}.")
    if latest_release(root) != version:
        problems.append(
            f"kube/version.py has {version}, and the newest release of CHANGELOG.md is {latest_release(root)}."
        )
    problems += [f"Another version: {place}" for place in stale_versions(version, root)]
    return problems


def commit_time(root: Path = ROOT) -> int:
    """Return when the commit was made, in seconds since 1970."""
    return int(_git(root, "log", "-1", "--format=%ct"))


def previous_tag(root: Path = ROOT) -> str | None:
    """Return the tag of the release before this commit; None if the clone has none."""
    try:
        return _git(root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").strip()
    except subprocess.CalledProcessError:
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout
