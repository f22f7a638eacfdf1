"""The checks of pages find what they look for."""

import pytest

from tests.browser.checks import focus_order, serious_faults, wider_than_window
from tests.browser.tabs import Tab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]

HEAD = "<!doctype html><html lang=en><title>Test</title><main><h1>Test</h1>"


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<input>", "light: label (critical)"),
        ("<style>p { color: #999; background: #fff }</style><p>pale</p>", "light: color-contrast (serious)"),
        ("<style>@media (prefers-color-scheme: dark) { p { color: #eee } }</style><p>pale", "dark: color-contrast"),
        ("<a href=/></a>", "light: link-name (serious)"),
    ],
)
async def test_serious_faults_are_found(tab: Tab, html: str, fault: str) -> None:
    await tab.page.set_content(HEAD + html)
    first, *_ = await serious_faults(tab.page)
    assert first.startswith(fault)


async def test_page_that_scrolls_sideways_is_found(tab: Tab) -> None:
    wide = "<div style='width: 3000px'>wide</div>"
    await tab.page.set_content(f"{HEAD}<div style='overflow-x: auto'>{wide}</div>")
    assert await wider_than_window(tab.page) == []
    await tab.page.set_content(f"{HEAD}<section>{wide}</section>")
    assert (await wider_than_window(tab.page))[-1].startswith('<div style="width: 3000px">')


async def test_focus_that_is_not_visible_is_found(tab: Tab) -> None:
    await tab.page.set_content(f"{HEAD}<a href=/a>first</a> <a href=/b style='outline: none'>second</a>")
    assert await focus_order(tab.page, at_most=5) == ["first", "second (focus not visible)"]
