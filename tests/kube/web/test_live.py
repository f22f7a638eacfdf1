"""Pages that stay current: what their events send, and the work for them: one caller at a time, with pauses."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest
from aiohttp import web

from kube.aio.fairness import Throttle
from kube.aio.tasks import in_slices
from kube.api.status import StatusError, forbidden
from kube.web.event_stream import EventStream, ServerEvent
from kube.web.live import LivePages, Page, Rows, View
from kube.web.pages import Templates

pytestmark = pytest.mark.looptime


class Counting(Templates):
    """Renders its values, and keeps the names of the templates."""

    def __init__(self) -> None:
        self.rendered: list[str] = []

    def render(self, name: str, **values: object) -> str:
        self.rendered.append(name)
        return f"<p id={name}>{values}</p>"


class Table(Page):
    """A page whose state a test changes."""

    template = "page"
    parts = ("facts",)
    events_url = "/events"

    def __init__(self) -> None:
        self.rows = {"a": 1, "b": 2}
        self.fact = "one"
        self.more: list[ServerEvent] = []
        self.refused = False

    async def check(self) -> None:
        if self.refused:
            raise forbidden("no right")

    async def load(self, _: Throttle) -> View:
        rows = Rows(id="rows", states=dict(self.rows), render=lambda row: f"<tr>{row}</tr>", empty="<tr>none</tr>")
        return View(values={"fact": self.fact}, rows=rows, events=self.more)

    async def wait(self) -> None:
        await asyncio.sleep(1)


async def events_of(page: Page) -> AsyncIterator[ServerEvent]:
    stream = await LivePages(Counting()).respond(page, events=True)
    assert isinstance(stream, EventStream)
    return stream.events


async def test_events_have_the_present_state_and_then_changed_rows_and_parts_only() -> None:
    page = Table()
    async with aclosing(await events_of(page)) as events:  # type: ignore[type-var]
        first = [(await anext(events)).data for _ in range(2)]
        assert first == [
            '<tbody id="rows" role="rowgroup"><tr>1</tr><tr>2</tr></tbody>',
            "<p id=facts>{'fact': 'one'}</p>",
        ]
        page.rows["b"] = 3
        assert (await anext(events)).data == "<tr>3</tr>"
        page.fact = "two"
        assert "two" in (await anext(events)).data
        page.rows.clear()
        assert (await anext(events)).data == '<tbody id="rows" role="rowgroup"><tr>none</tr></tbody>'
        page.more = [ServerEvent("more", "1")]
        assert await anext(events) == page.more[0]


async def test_right_is_checked_before_the_first_and_each_further_state() -> None:
    page = Table()
    async with aclosing(await events_of(page)) as events:  # type: ignore[type-var]
        page.refused = True
        await anext(events)
        await anext(events)
        with pytest.raises(StatusError, match="no right"):
            await anext(events)
    for is_events in (False, True):
        with pytest.raises(StatusError, match="no right"):
            await LivePages(Counting()).respond(page, events=is_events)


async def test_page_has_the_url_of_its_events_and_all_rows() -> None:
    page = Table()
    response = await LivePages(Counting()).respond(page, events=False)
    assert isinstance(response, web.Response)
    assert (
        response.text == "<p id=page>{'fact': 'one', 'events': '/events', 'rows': Markup('<tr>1</tr><tr>2</tr>')}</p>"
    )
    page.events_url = ""
    with pytest.raises(StatusError) as error:
        await LivePages(Counting()).respond(page, events=True)
    assert error.value.code == 404


@pytest.mark.parametrize("in_thread", [True, False])
async def test_page_that_takes_long_is_rendered_in_a_thread(in_thread: bool) -> None:
    class Where(Templates):
        def __init__(self) -> None:
            self.threads: set[bool] = set()

        def render(self, name: str, **values: object) -> str:
            self.threads.add(threading.current_thread() is not loop_thread)
            return ""

    loop_thread, templates, page = threading.current_thread(), Where(), Table()
    page.in_thread = in_thread
    await LivePages(templates).respond(page, events=False)
    assert templates.threads == {in_thread}
    templates.threads.clear()
    stream = await LivePages(templates).respond(page, events=True)
    assert isinstance(stream, EventStream)
    assert isinstance(stream.events, AsyncGenerator)
    async with aclosing(stream.events) as events:
        await anext(events)
    assert templates.threads == {in_thread}


async def test_long_work_lets_other_tasks_run_every_few_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    monkeypatch.setattr("kube.aio.tasks.time.monotonic", lambda: next(times) * 0.002)
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(number)
            await asyncio.sleep(0)

    number, other = 0, asyncio.create_task(others())
    async for number in in_slices(range(1, 13)):  # noqa: B007  # others() reads it
        pass
    other.cancel()
    assert turns == [3, 6, 9, 12, 12]


async def test_one_caller_at_a_time_in_order_for_a_quarter_of_the_time() -> None:
    throttle, clock = Throttle(max_pause=1.0), asyncio.get_running_loop().time
    times: list[tuple[int, float, float]] = []

    async def caller(number: int) -> None:
        async with throttle.slot():
            started = clock()
            await asyncio.sleep(0.1)
            times.append((number, started, clock()))

    begin = clock()
    await asyncio.gather(*(caller(number) for number in range(3)))
    assert [(number, round(start - begin, 3), round(end - begin, 3)) for number, start, end in times] == [
        (0, 0.0, 0.1),
        (1, 0.4, 0.5),
        (2, 0.8, 0.9),
    ]
    async with throttle.slot():
        await asyncio.sleep(10)
    ended = clock()
    async with throttle.slot():
        assert clock() - ended == pytest.approx(1.0), "the longest pause"


async def test_caller_that_is_cancelled_or_fails_frees_the_slot() -> None:
    throttle = Throttle()

    async def caller() -> None:
        async with throttle.slot():
            await asyncio.sleep(100)

    holding, waiting = asyncio.create_task(caller()), asyncio.create_task(caller())
    await asyncio.sleep(1)
    waiting.cancel()
    holding.cancel()
    with pytest.raises(ZeroDivisionError):
        async with throttle.slot():
            raise ZeroDivisionError
    async with asyncio.timeout(2), throttle.slot():
        pass


async def test_users_are_served_round_robin() -> None:
    throttle, order = Throttle(), list[str]()

    async def caller(name: str) -> None:
        async with throttle.slot(name):
            order.append(name)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(caller(name) for name in ("jane", "jane", "jane", "joe")))
    assert order == ["jane", "jane", "joe", "jane"]
