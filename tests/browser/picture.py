"""The picture of README: the page of an HPA of the demo. `make pictures` takes it again, in two minutes."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, expect

from playground.bundle import Bundle, run_bundle
from playground.chromium import find_chromium
from playground.scenario import PERIOD, demo_load
from tests.browser.tabs import open_tab, start_browser

PICTURE: Final = Path(__file__).resolve().parents[2] / "docs" / "img" / "page.png"
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


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            start_browser(await asyncio.to_thread(find_chromium)) as browser,
            run_bundle(Path(folder), load=demo_load(period=PERIOD)) as demo,
        ):
            while demo.workload.elapsed < _WAVES * PERIOD:
                demo.check()
                await asyncio.sleep(1)
            await take_picture(browser, demo, PICTURE)
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    asyncio.run(_main())
