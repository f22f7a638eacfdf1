"""The page of 10,000 HPAs whose statuses change as if each were reconciled every 15 seconds.

`make bench-page` measures how long the first view takes, and what a viewer costs.
"""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.pages import UIPages
from bench.page_hpas import ChangingHPAs
from playground.tasks import background
from tests.browser.checks import serious_faults
from tests.browser.serving import serve
from tests.browser.tabs import Tab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]

HPAS = 10_000
CHANGES_PER_SECOND = HPAS / 15


@pytest.fixture(scope="module")
def hpas() -> ChangingHPAs:
    return ChangingHPAs(HPAS)


def pages_of(hpas: ChangingHPAs) -> UIPages:
    return UIPages(hpas.sources(), NamespaceAccess(None))


def number_of_rows(tab: Tab) -> Locator:
    return tab.page.get_by_role("navigation", name="Pages of the list").get_by_role("status")


@pytest_asyncio.fixture(loop_scope="session")
async def url(hpas: ChangingHPAs) -> AsyncIterator[str]:
    async with serve(pages_of(hpas)) as url:
        yield url


async def test_page_has_a_hundred_rows_that_stay_current(hpas: ChangingHPAs, url: str, tab: Tab) -> None:
    async with background(hpas.run(CHANGES_PER_SECOND)):
        await tab.page.goto(url)
        await expect(number_of_rows(tab)).to_have_text(re.compile("Rows 1 to 100 of 10,?000"))
        rows = tab.page.get_by_role("row").filter(has=tab.page.get_by_role("rowheader"))
        await expect(rows).to_have_count(100)
        await expect(rows).not_to_have_text(await rows.all_inner_texts())
    assert tab.problems == []


async def test_colors_of_all_states_have_enough_contrast(url: str, tab: Tab) -> None:
    await tab.page.goto(f"{url}?q=app-0000&sort=-conditions")
    for text in ("FailedGetPodsMetric", "TooManyReplicas", "paused"):
        await expect(tab.page.get_by_role("rowgroup").last).to_contain_text(text)
    assert await serious_faults(tab.page) == []


async def test_states_filter_and_columns_sort_all_of_them(url: str, tab: Tab) -> None:
    await tab.page.goto(url)
    await tab.page.get_by_role("navigation", name="States").get_by_role("link", name="failing").click()
    await expect(number_of_rows(tab)).to_have_text("Rows 1 to 100 of 104")
    names = tab.page.get_by_role("rowheader").get_by_role("link")
    await expect(names).to_have_count(100)
    await tab.page.get_by_role("searchbox", name="Search").fill("app-09991")
    await tab.page.keyboard.press("Enter")
    await expect(names).to_have_text(["app-09991"])
    assert tab.problems == []
