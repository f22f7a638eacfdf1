"""Pages in a browser, with what they requested and what went wrong on them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from playwright.async_api import Browser, ConsoleMessage, Page, ViewportSize, async_playwright, expect

from playground.chromium import Chromium
from tests.eventually import PATIENCE

Scheme = Literal["light", "dark"]

DESKTOP: Final[ViewportSize] = {"width": 1200, "height": 900}
PHONE: Final[ViewportSize] = {"width": 360, "height": 740}
"""The size of a small phone's window."""

_LOOPBACK_ONLY: Final = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"


@asynccontextmanager
async def start_browser(chromium: Chromium) -> AsyncIterator[Browser]:
    """Run Chromium without a window, and with no network but 127.0.0.1."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium.path,
            env={**os.environ, **chromium.environment},
            args=[_LOOPBACK_ONLY, "--disable-gpu"],
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(frozen=True, slots=True)
class Tab:
    """A page in a browser context of its own."""

    page: Page
    """Playwright's page."""
    requests: list[str] = field(default_factory=list)
    """The URL of each request, those of event streams included."""
    problems: list[str] = field(default_factory=list)
    """Exceptions, and the errors and warnings of the console."""

    async def texts(self, selector: str) -> list[str]:
        """Return the text of all elements of a CSS selector."""
        return await self.page.locator(selector).all_text_contents()

    async def is_live(self) -> None:
        """Wait until the page has its event stream."""
        await expect(self.page.locator("#live").get_by_role("status")).to_have_text("Live")

    def foreign_requests(self, origin: str) -> list[str]:
        """Return the requests to other origins; `origin` ends in a slash."""
        return [url for url in self.requests if not url.startswith((origin, "data:"))]


@asynccontextmanager
async def open_tab(browser: Browser, **options: Any) -> AsyncIterator[Tab]:
    """Open an empty page.

    Args:
        browser: the browser.
        options: of playwright's `new_context`: color_scheme, viewport, client_certificates, ...
    """
    context = await browser.new_context(**{"viewport": DESKTOP, **options})
    context.set_default_timeout(1000 * PATIENCE)
    tab = Tab(await context.new_page())

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            tab.problems.append(message.text)

    context.on("request", lambda request: tab.requests.append(request.url))
    context.on("console", on_console)
    context.on("weberror", lambda error: tab.problems.append(str(error.error)))
    try:
        yield tab
    finally:
        await context.close()
