"""What holds for each page: accessibility, the width of a phone, the keyboard."""

from __future__ import annotations

from typing import Any, Final

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

_SERIOUS: Final = ("serious", "critical")
_CHARTS: Final = ".main-svg"
_RULES_OF_COLORS: Final = ["color-contrast", "link-in-text-block"]


async def serious_faults(page: Page) -> list[str]:
    """Return the faults that axe-core finds and calls serious or critical, first in light colors, then in dark ones.

    In dark colors, which the page has afterwards, nothing else is different, so that only the rules of colors are
    checked again. axe-core is spared the drawings of charts, which have hundreds of elements, and of which it
    understands nothing.
    """
    await page.emulate_media(color_scheme="light")
    await page.evaluate(Axe().axe_script)
    faults = [f"light: {fault}" for fault in await _serious_faults(page, {})]
    await page.emulate_media(color_scheme="dark")
    return faults + [f"dark: {fault}" for fault in await _serious_faults(page, {"runOnly": _RULES_OF_COLORS})]


async def _serious_faults(page: Page, options: dict[str, Any]) -> list[str]:
    # All that it has seen is a MiB, which a page takes longer to send than to find.
    found: list[dict[str, Any]] = await page.evaluate(
        "async ([context, options]) => (await axe.run(context, options)).violations",
        [{"exclude": [[_CHARTS]]}, {"resultTypes": ["violations"], **options}],
    )
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['html']} {node.get('failureSummary', '')}"
        for rule in found
        if rule["impact"] in _SERIOUS
        for node in rule["nodes"]
    ]


async def wider_than_window(page: Page) -> list[str]:
    """Return some of the elements that make the page scroll sideways."""
    found: list[str] = await page.evaluate(
        """() => {
            const root = document.documentElement, width = root.clientWidth;
            if (root.scrollWidth <= width) return [];
            const scrolls = (element) => getComputedStyle(element).overflowX !== "visible";
            const visit = (element) => {
                const wide = element.getBoundingClientRect().right > width + 1 ? [element] : [];
                return scrolls(element) ? wide : [...wide, ...[...element.children].flatMap(visit)];
            };
            const wide = visit(document.body).slice(-5).map((element) => element.outerHTML.slice(0, 200));
            return wide.length ? wide : [`the page is ${root.scrollWidth} pixels wide`];
        }"""
    )
    return found


async def focus_order(page: Page, *, at_most: int) -> list[str]:
    """Press Tab from the beginning of the page, and return the names of the elements that get the focus.

    An element without a visible focus is returned as "NAME (focus not visible)".
    """
    names: list[str] = []
    for _ in range(at_most):
        await page.keyboard.press("Tab")
        name = await page.evaluate(
            """() => {
                const element = document.activeElement;
                if (!element || element === document.body) return "";
                const label = element.labels?.[0]?.textContent ?? element.getAttribute("aria-label");
                const name = (label ?? element.textContent ?? element.tagName).trim().replace(/\\s+/g, " ");
                const style = getComputedStyle(element);
                const visible = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
                    || style.boxShadow !== "none";
                return visible ? name : `${name} (focus not visible)`;
            }"""
        )
        if not name:  # the end of the page
            break
        names.append(name)
    return names
