"""Server-sent events change an open page, and leave alone what the reader does on it."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import expect

from kube.api.status import not_found
from kube.web.event_stream import EventStream, ServerEvent
from kube.web.pages import PageRequest, StaticFiles, Templates
from tests.browser.checks import serious_faults, wider_than_window
from tests.browser.serving import serve
from tests.browser.tabs import PHONE, Tab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]


class LivePages:
    """A page with `content`, whose elements have ids; `send` sends an event to each open page."""

    def __init__(self, content: str) -> None:
        self.content = content
        self.static = StaticFiles(["kube.web"])
        self.templates = Templates("tests.browser", process="test", static=self.static.url)
        self._queues: set[asyncio.Queue[ServerEvent]] = set()

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        match request.segments:
            case ():
                return self.templates.page("live.html", content=self.content, events="/events")
            case ("events",):
                return EventStream(self._events())
        raise not_found("there is no such page")

    def send(self, event: ServerEvent) -> None:
        for queue in self._queues:
            queue.put_nowait(event)

    def change(self, content: str) -> None:
        self.content = content
        self.send(ServerEvent("replace", content))

    async def _events(self) -> AsyncIterator[ServerEvent]:
        queue: asyncio.Queue[ServerEvent] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield ServerEvent("replace", self.content)
            while True:
                yield await queue.get()
        finally:
            self._queues.discard(queue)


def paragraph(text: str) -> str:
    return f'<p id="text">{text}</p>'


@pytest.fixture
def pages() -> LivePages:
    return LivePages(paragraph("one"))


@pytest_asyncio.fixture(loop_scope="session")
async def url(pages: LivePages) -> AsyncIterator[str]:
    async with serve(pages) as url:
        yield url


async def test_event_replaces_an_element(pages: LivePages, url: str, tab: Tab) -> None:
    await tab.page.goto(url)
    await tab.is_live()
    pages.change(paragraph("two &lt;b&gt;"))
    await expect(tab.page.locator("#text")).to_have_text("two <b>")
    assert tab.problems == []
    assert tab.foreign_requests(url) == []


async def test_focus_open_details_and_typed_text_stay(pages: LivePages, url: str, tab: Tab) -> None:
    def content(number: int) -> str:
        return (
            f'<div id="row"><a href="/a">first {number}</a><a href="/b">second {number}</a>'
            f'<details id="more"><summary>more</summary>details {number}</details>'
            f'<label>name <input id="name" value="{number}"></label></div>'
        )

    pages.content = content(1)
    await tab.page.goto(url)
    await tab.is_live()
    await tab.page.get_by_text("more").click()
    await tab.page.get_by_label("name").fill("typed")
    pages.change(content(2))
    await expect(tab.page.get_by_text("details 2")).to_be_visible()
    await expect(tab.page.get_by_label("name")).to_have_value("typed")
    await expect(tab.page.get_by_label("name")).to_be_focused()

    await tab.page.get_by_role("link", name="second 2").focus()
    pages.change(content(3))
    await expect(tab.page.get_by_role("link", name="second 3")).to_be_focused()
    assert tab.problems == []


async def test_click_counts_although_an_event_comes_before_the_button_is_released(
    pages: LivePages, url: str, tab: Tab
) -> None:
    def content(number: int) -> str:
        return f'<p id="text"><a href="#there">link {number}</a></p>'

    pages.content = content(1)
    await tab.page.goto(url)
    await tab.is_live()
    await tab.page.evaluate("document.addEventListener('later', () => { document.title = 'later' })")
    await tab.page.get_by_role("link", name="link 1").hover()
    await tab.page.mouse.down()
    pages.change(content(2))
    pages.send(ServerEvent("later", ""))
    await expect(tab.page).to_have_title("later")
    await expect(tab.page.locator("#text")).to_have_text("link 1")
    await tab.page.mouse.up()
    await expect(tab.page.locator("#text")).to_have_text("link 2")
    assert tab.page.url.endswith("#there")
    assert tab.problems == []


async def test_page_shows_the_present_state_after_the_server_was_away(pages: LivePages, tab: Tab) -> None:
    async with serve(pages) as url:
        await tab.page.goto(url)
        await tab.is_live()
    await expect(tab.page.get_by_role("status")).to_have_text("Disconnected, trying again")
    pages.content = paragraph("two")
    async with serve(pages, port=urlsplit(url).port or 0):
        await expect(tab.page.locator("#text")).to_have_text("two")
        await tab.is_live()


async def test_paused_page_stays_as_it_is_until_it_is_resumed(pages: LivePages, url: str, tab: Tab) -> None:
    await tab.page.goto(url)
    await tab.is_live()
    pause = tab.page.get_by_role("button", name="Pause updates")
    await pause.click()
    await expect(tab.page.get_by_role("status")).to_have_text("Paused")
    pages.change(paragraph("two"))
    await expect(tab.page.locator("#text")).to_have_text("one")
    await pause.click()
    await expect(tab.page.locator("#text")).to_have_text("two")


async def test_reload_loads_the_page_again(pages: LivePages, url: str, tab: Tab) -> None:
    await tab.page.goto(url)
    await tab.is_live()
    async with tab.page.expect_navigation():
        pages.send(ServerEvent("reload", ""))
    await tab.is_live()


async def test_other_events_reach_the_scripts_of_the_page(pages: LivePages, url: str, tab: Tab) -> None:
    await tab.page.goto(url)
    await tab.is_live()
    detail = asyncio.create_task(
        tab.page.evaluate(
            """() => new Promise((resolve) => {
                document.addEventListener("points", (event) => resolve(event.detail));
                document.body.dataset.listening = "true";
            })"""
        )
    )
    await tab.page.locator("[data-listening]").wait_for()
    pages.send(ServerEvent("points", '{"x": 1}\n{"x": 2}'))
    assert await detail == '{"x": 1}\n{"x": 2}'


async def test_frame_of_all_pages_is_accessible(url: str, tab: Tab) -> None:
    await tab.page.set_viewport_size(PHONE)
    await tab.page.goto(url)
    await tab.is_live()
    assert await serious_faults(tab.page) == []
    assert await wider_than_window(tab.page) == []
    await tab.page.goto(f"{url}nothing")
    await expect(tab.page.get_by_role("heading")).to_have_text("404 Not found")
    assert await serious_faults(tab.page) == []
