"""The site: it builds without warnings, needs nothing from another address, and shows what the pages mean."""

import asyncio
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import expect

from playground.binaries import MissingBinaryError
from playground.chromium import find_chromium
from tests.browser.tabs import start_browser
from tests.eventually import PATIENCE
from tests.web_servers import served

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # Strict: links, anchors and pages that do not exist are errors.
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


class _Page(HTMLParser):
    """The addresses that a browser loads, and the text outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.prose = ""
        self._code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._code += tag in ("code", "script", "style")
        if tag == "strong":
            self.prose += "**"  # "**1. Check**" begins no list
        for name, value in attributes:
            if value and (name == "src" or (tag == "link" and name == "href")):
                self.loaded.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("code", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.prose += data


def pages(site: Path) -> dict[str, _Page]:
    return {str(path.relative_to(site)): _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


@pytest.mark.xdist_group("site")
def test_pages_load_nothing_from_another_address(site: Path) -> None:
    loaded = {address for page in pages(site).values() for address in page.loaded}
    assert loaded
    assert not [address for address in loaded if re.match(r"\w+:|//", address)]
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import )[\"']?https?:", styles)
    # The theme loads mermaid from a CDN if a page has an element of this class.
    assert not [path for path in site.rglob("*.html") if 'class="mermaid' in path.read_text()]


@pytest.mark.xdist_group("site")
def test_diagrams_are_drawn(site: Path) -> None:
    drawn = (site / "architecture.html").read_text().count('<figure class="diagram"><svg')
    assert drawn == (ROOT / "docs/architecture.md").read_text().count("```mermaid")


@pytest.mark.xdist_group("site")
def test_lists_tables_and_code_are_recognized(site: Path) -> None:
    # GitHub recognizes them where Python's Markdown does not: without an empty line before, or with less indentation.
    for name, page in pages(site).items():
        left = re.findall(r"^(?:\s*(?:[-*]|\d{1,2}\.) \S.*|.*```.*|\s*\|.*\|)$", page.prose, re.MULTILINE)
        assert not left, name


@pytest.mark.e2e
@pytest.mark.xdist_group("site")
async def test_site_finds_words_and_copies_commands_without_prompts(site: Path) -> None:
    try:
        chromium = await asyncio.to_thread(find_chromium)
    except MissingBinaryError as error:
        pytest.skip(str(error))
    app = web.Application()
    app.router.add_static("/", site)
    async with served(app) as url, start_browser(chromium) as browser:
        context = await browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(f"{url}/index.html")
        block = page.locator(".highlight", has_text="make demo")
        await block.hover()
        await block.locator(".md-clipboard, [data-clipboard-target]").first.click()
        assert await page.evaluate("navigator.clipboard.readText()") == "make demo"
        await page.locator("[data-md-component=search-query]").press_sequentially("seriesFilters")
        found = page.locator(".md-search-result__link").first
        await expect(found).to_have_attribute("href", re.compile("rules"), timeout=1000 * PATIENCE)
