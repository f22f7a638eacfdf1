"""One browser for all tests of a worker."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from playground.binaries import MissingBinaryError
from playground.chromium import find_chromium
from tests.browser.tabs import Tab, open_tab, start_browser


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    try:
        chromium = await asyncio.to_thread(find_chromium)
    except MissingBinaryError as error:
        pytest.skip(str(error))
    async with start_browser(chromium) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    async with open_tab(browser) as tab:
        yield tab
