"""Shared by the manifests' tests."""

import re
import subprocess

import pytest

from playground.binaries import find


@pytest.fixture(scope="session")
def overlays_can_be_rendered() -> None:
    """Skip where kubectl is too old for patches with a target and for components; the base renders there, too."""
    version = subprocess.run(
        [find("kubectl"), "version", "--client"], check=True, capture_output=True, text=True
    ).stdout
    found = re.search(r'Minor:"(\d+)', version) or re.search(r"v1\.(\d+)", version)
    assert found is not None
    if int(found[1]) < 21:
        pytest.skip(f"kubectl 1.{found[1]} is too old for the overlays; they need 1.21")
