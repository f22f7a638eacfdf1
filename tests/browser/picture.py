"""The pictures of docs/img: the page of an HPA of the demo, and that of a replay. `make pictures` takes two minutes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, expect

from playground.bundle import Bundle, run_bundle
from playground.chromium import find_chromium
from playground.scenario import PERIOD, demo_load
from tests.browser.tabs import open_tab, start_browser
from tests.replay.test_docs import FILES, TRACES

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "img"
_SIZE: Final = {"width": 1200, "height": 1420}
_WAVES: Final = 2.3
"""How much of the load the picture shows."""


async def take_picture(browser: Browser, demo: Bundle, path: Path) -> None:
    """Write a picture of the page of the HPA router, with its charts and the newest decisions."""
    async with open_tab(browser, viewport=_SIZE, reduced_motion="reduce") as tab:
        await tab.page.goto(f"{demo.autoscaler_ui_url}hpas/default/router?show=scaling")
        await tab.is_live()
        await expect(tab.page.locator(".chart[data-drawn=true] .main-svg").first).to_be_visible()
        await expect(tab.page.get_by_role("region", name="Decisions").get_by_role("listitem").first).to_be_visible()
        await tab.page.screenshot(path=path, animations="disabled", caret="hide")


async def take_picture_of_replay(browser: Browser, path: Path) -> None:
    """Write a picture of the charts of the example in docs/replay.md."""
    with tempfile.TemporaryDirectory() as folder:
        page = await asyncio.to_thread(_write_replay, Path(folder))
        async with open_tab(browser, viewport=_SIZE) as tab:
            await tab.page.goto(page.as_uri())
            await expect(tab.page.locator("body[data-drawn=true]")).to_be_visible()
            await tab.page.locator("#chart").screenshot(path=path, animations="disabled")


def _write_replay(folder: Path) -> Path:
    page, trace = folder / "replay.html", TRACES / "ms_db_app.csv.gz"
    flags = ["--from=2018-04-25T04:00:00Z", "--to=2018-04-25T12:00:00Z", "--capacity=100", "--pod-startup=30s"]
    for name, text in FILES.items():
        (folder / name).write_text(text)
        flags.append(f"--hpa={folder / name}")
    command = [sys.executable, "-m", "autoscaler", "replay", f"--csv={trace}", *flags, f"--html={page}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return page


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            start_browser(await asyncio.to_thread(find_chromium)) as browser,
            run_bundle(Path(folder), load=demo_load(period=PERIOD)) as demo,
        ):
            while demo.workload.elapsed < _WAVES * PERIOD:
                demo.check()
                await asyncio.sleep(1)
            await take_picture(browser, demo, FOLDER / "page.png")
            await take_picture_of_replay(browser, FOLDER / "replay.png")


if __name__ == "__main__":
    asyncio.run(_main())
