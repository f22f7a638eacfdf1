"""The autoscaler's pages, open while the demo's applications are scaled."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from playground.bundle import Bundle, Timing, run_bundle
from playground.scenario import demo_load

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser-demo"),
]

TIMING = Timing(sync_period=1, relist_interval=1, downscale_stabilization=3)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bundle(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bundle]:
    """The demo; not started where there is no browser."""
    folder = tmp_path_factory.mktemp("bundle")
    async with run_bundle(folder, load=demo_load(period=20), timing=TIMING) as bundle:
        yield bundle
