"""One browser for the tests of a worker, and one demo for those of its pages."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from playground.binaries import MissingBinaryError
from playground.bundle import Bundle, run_bundle
from playground.chromium import find_chromium
from playground.scenario import demo_load
from tests.browser.demo import TIMING
from tests.browser.tabs import Tab, open_tab, start_browser
from tests.eventually import PATIENCE

expect.set_options(timeout=1000 * PATIENCE)


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


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bundle]:
    """Scales its applications all the time. It is not started where there is no browser."""
    async with run_bundle(tmp_path_factory.mktemp("demo"), load=demo_load(period=20), timing=TIMING) as bundle:
        yield bundle
