"""What is installed is what was locked: each distribution has a hash, and no lock file names another index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = sorted(ROOT.glob("requirements*.lock"))
# A name, a version, a marker for the platform, and hashes: no option, address or comment.
REQUIREMENT = re.compile(
    r"[a-z0-9][a-z0-9._-]*==[^\s:]+( ;( [a-z_.]+| [<>=!]=?| '[^':]*')+)?( +--hash=sha256:[0-9a-f]{64})+"
)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_each_requirement_has_a_version_and_a_hash(lock: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", lock.read_text())
    assert text
    for line in text.splitlines():
        assert REQUIREMENT.fullmatch(line), line


def test_lock_of_clouds_has_their_libraries_and_the_versions_that_are_tested() -> None:
    def versions(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))

    clouds = versions("requirements-clouds.lock")
    assert {"botocore", "azure-identity", "google-auth", "requests"} <= clouds.keys()
    assert versions("requirements.lock").items() <= clouds.items() <= versions("requirements-dev.lock").items()


def test_images_and_environments_are_installed_with_hashes_only() -> None:
    assert "--require-hashes" in (ROOT / "Dockerfile").read_text()
    assert "--require-hashes" in (ROOT / "tools" / "setup_venv.py").read_text()
