"""The image, built once for all tests of this folder."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.image import ROOT, Image, build_image
from tools.sandbox import Sandbox
from tools.wheels import fetch_wheels


@dataclass(frozen=True)
class BuiltImage:
    """The image, and where its commands run."""

    image: Image
    sandbox: Sandbox
    wheels: Path


@pytest.fixture(scope="session")
def wheels() -> Path:
    """Return the folder with the locked wheels. They may come from the network, with the system's CAs."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("SSL_CERT_FILE") == os.devnull:
            patch.delenv("SSL_CERT_FILE")
        return fetch_wheels(ROOT / ".playground" / "wheels")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> BuiltImage:
    """Build the default image."""
    folder = tmp_path_factory.mktemp("images") / "image"
    image = build_image(folder, wheels=wheels)
    return BuiltImage(image, image.sandbox(), wheels)
