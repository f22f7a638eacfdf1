"""The what-if of one HPA: a form that is filled in, sent, and answered with charts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from replay.what_if import what_if
from tests.autoscaler.ui.pages import Controller
from tests.browser.checks import focus_order, serious_faults, wider_than_window
from tests.browser.serving import serve
from tests.browser.tabs import PHONE, Tab, open_tab
from tests.replay.builders import cpu_metric, make_hpa, pods_metric
from tests.replay.live import Live
from tests.replay.test_recorded import wave

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]

DRAWN = ".chart[data-drawn=true]"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url() -> AsyncIterator[str]:
    """The page of an HPA with decisions."""
    live = Live(make_hpa(pods_metric("packets_per_second"), cpu_metric(80)), seed=1)
    live.run(wave(80, low=100, high=1500))
    controller = Controller(kept=1000, what_if=what_if)
    controller.add(live.hpa)
    for record in live.records:
        controller.log.add(record)
    async with serve(controller.pages) as first:
        yield f"{first}hpas/shop/web"


async def test_form_leads_to_the_result(tab: Tab, url: str) -> None:
    page = tab.page
    await page.goto(url)
    await page.get_by_role("link", name="What if").first.click()
    target = page.get_by_label("Target of packets_per_second")
    await expect(target).to_have_value("100")
    await target.fill("150")
    await page.get_by_label("Stabilization window of scale down").fill("60")
    await page.get_by_role("button", name="Replay").click()

    await expect(page.locator(DRAWN)).to_be_visible()
    await expect(page.get_by_role("columnheader", name="changed spec")).to_be_visible()
    await expect(target).to_have_value("150")
    await expect(page.get_by_role("row", name="pod-hours")).to_contain_text("%")
    await expect(page.locator("pre")).to_contain_text("averageValue: '150'")
    assert "target.0=150" in page.url
    assert tab.problems == []
    assert tab.foreign_requests(url.removesuffix("hpas/shop/web")) == []


async def test_error_is_announced_beside_its_field(tab: Tab, url: str) -> None:
    page = tab.page
    await page.goto(f"{url}/what-if")
    await page.get_by_label("maxReplicas").fill("0")
    await page.get_by_role("button", name="Replay").click()
    await expect(page.get_by_role("alert")).to_have_text("The changed spec is not valid, see the fields below.")
    described = page.get_by_label("maxReplicas")
    await expect(described).to_have_attribute("aria-invalid", "true")
    await expect(described).to_have_accessible_description(
        "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas` "
        "spec.maxReplicas: Required value: must be set and greater than 0"
    )


@pytest.mark.parametrize("query", ["", "?target.0=150", "?target.0=-1"], ids=["form", "result", "errors"])
async def test_page_is_accessible(tab: Tab, url: str, query: str) -> None:
    await tab.page.goto(f"{url}/what-if{query}")
    if query == "?target.0=150":
        await expect(tab.page.locator(DRAWN)).to_be_visible()
        await tab.page.get_by_text("decisions that scale").click()
    assert await serious_faults(tab.page) == []


@pytest.mark.parametrize("query", ["?target.0=150", "?target.0=-1&down.window=9999"], ids=["result", "errors"])
async def test_page_fits_a_phone(tab: Tab, url: str, query: str) -> None:
    await tab.page.set_viewport_size(PHONE)
    await tab.page.goto(f"{url}/what-if{query}")
    assert await wider_than_window(tab.page) == []


async def test_form_can_be_used_with_the_keyboard(tab: Tab, url: str) -> None:
    await tab.page.goto(f"{url}/what-if")
    names = await focus_order(tab.page, at_most=40)
    assert not [name for name in names if name.endswith("(focus not visible)")]
    assert names.index("minReplicas") < names.index("The rest of behavior, as YAML") < names.index("Replay")


async def test_result_is_complete_without_scripts(browser: Browser, url: str) -> None:
    async with open_tab(browser, java_script_enabled=False) as tab:
        await tab.page.goto(f"{url}/what-if?target.0=150")
        await expect(tab.page.get_by_role("row", name="pod-hours")).to_be_visible()
