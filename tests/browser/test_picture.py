"""The picture of README is a small one, and `make pictures` can take all pictures again."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from playground.bundle import Bundle
from tests.browser.picture import FOLDER, take_picture, take_picture_of_replay

README = Path(__file__).resolve().parents[2] / "README.md"


def size_of(picture: Path) -> tuple[int, int]:
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return int.from_bytes(header[16:20]), int.from_bytes(header[20:24])


def test_readme_shows_the_picture_beside_the_command() -> None:
    text = README.read_text()
    assert 0 < text.index("make demo") < text.index("docs/img/page.png") < text.index("##")
    assert (FOLDER / "page.png").stat().st_size < 250_000


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.xdist_group("browser-demo")
async def test_pictures_can_be_taken_again(demo: Bundle, browser: Browser, tmp_path: Path) -> None:
    await take_picture(browser, demo, tmp_path / "page.png")
    await take_picture_of_replay(browser, tmp_path / "replay.png")
    for name in ("page.png", "replay.png"):
        assert size_of(tmp_path / name) == size_of(FOLDER / name)
