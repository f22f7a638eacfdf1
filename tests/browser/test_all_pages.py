"""Each page, for everyone: with a screen reader, with a keyboard, in the dark, on a phone."""

import pytest
from playwright.async_api import expect

from playground.bundle import Bundle
from tests.browser.checks import focus_order, serious_faults, wider_than_window
from tests.browser.tabs import PHONE, Tab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser-demo"),
]

PAGES = {
    "list": "autoscaler:",
    "absent": "autoscaler:hpas/default/absent",
    "explained": "autoscaler:metric?metric=pods/packets_per_second&namespace=default",
    "rules": "adapter:",
    "rule": "adapter:rules/rules[0]",
    "objects": "adapter:objects",
    "metric": "adapter:metric?metric=pods/packets_per_second",
    "try": "adapter:try",
}
"""{name: process and path} of the pages; those of one HPA have tests of their own, with more on them."""


def address(demo: Bundle, page: str) -> str:
    process, _, path = PAGES[page].partition(":")
    return {"autoscaler": demo.autoscaler_ui_url, "adapter": demo.adapter_ui_url}[process] + path


@pytest.mark.parametrize("page", PAGES)
async def test_pages_have_no_serious_accessibility_fault(demo: Bundle, tab: Tab, page: str) -> None:
    await tab.page.goto(address(demo, page))
    assert await serious_faults(tab.page) == []


async def test_pages_fit_a_phone(demo: Bundle, tab: Tab) -> None:
    await tab.page.set_viewport_size(PHONE)
    for page in PAGES:
        await tab.page.goto(address(demo, page))
        assert await wider_than_window(tab.page) == [], page


@pytest.mark.parametrize(
    ("page", "reached"),
    [
        ("list", ["Namespace", "router", "shop", "worker"]),
        ("rules", ["Search in rules and metrics", "packets_per_second", "queue_depth"]),
        ("try", ["The rule, as YAML", "Check"]),
    ],
)
async def test_the_keyboard_reaches_everything_and_the_focus_is_visible(
    demo: Bundle, tab: Tab, page: str, reached: list[str]
) -> None:
    await tab.page.goto(address(demo, page))
    names = await focus_order(tab.page, at_most=30)
    assert names[0] == "Skip to content"
    assert [name for name in names if "not visible" in name] == []
    # A rule with a problem, which a busy machine can cause, is linked a second time.
    assert [name for name in dict.fromkeys(names) if name in reached] == reached


async def test_skip_link_leads_to_the_content(demo: Bundle, tab: Tab) -> None:
    await tab.page.goto(demo.autoscaler_ui_url)
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.get_by_role("main")).to_be_focused()
