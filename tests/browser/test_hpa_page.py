"""The page of one HPA: its charts, and its decisions as new ones arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Page, ViewportSize, expect

from autoscaler.records.metric_lookup import MetricNames
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.history import PrometheusHistory
from autoscaler.ui.hpa_page import PAGE_SIZE
from kube.web.explanation import Example, Explanation
from tests.autoscaler.simulated_cluster import SimulatedCluster, external_metric, hpa, pods_metric
from tests.autoscaler.ui.pages import Controller
from tests.browser.checks import focus_order, serious_faults, wider_than_window
from tests.browser.serving import serve
from tests.browser.tabs import PHONE, Tab
from tests.web_servers import served as prometheus_served

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]

DRAWN = ".chart[data-drawn=true]"


@dataclass
class Served:
    """An HPA with decisions, and the URL of its page."""

    controller: Controller
    cluster: SimulatedCluster
    url: str

    def decide(self, *values: int | str) -> DecisionRecord:
        return self.controller.reconcile(self.cluster, *values)


@pytest_asyncio.fixture(loop_scope="session")
async def served() -> AsyncIterator[Served]:
    controller = Controller()
    spec = hpa(pods_metric(100, "<b>packets</b>"), external_metric(50), maximum=9)
    cluster = SimulatedCluster(spec, replicas=3)
    async with serve(controller.pages) as url:
        served = Served(controller, cluster, f"{url}hpas/default/web")
        for value in (100, 150, 100, 120, 90):
            served.decide(value, 100)
        served.decide("<script>alert(1)</script>", 100)
        yield served


async def chart(page: Page, expression: str) -> Any:
    """Return a value of plotly's graph."""
    return await page.evaluate(f"(({{data, layout}}) => {expression})(document.querySelector('.chart'))")


async def points(page: Page) -> int:
    """The number of drawn decisions."""
    number: int = await chart(page, "data.find((trace) => trace.name === 'current').x.length")
    return number


async def test_charts_are_drawn_under_the_content_security_policy(tab: Tab, served: Served) -> None:
    response = await tab.page.goto(served.url)
    assert response is not None
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    await expect(tab.page.locator(DRAWN)).to_be_visible()
    assert await points(tab.page) == 6
    assert await tab.texts(".annotation-text") == ["replicas", "<b>packets</b>, per pod", "queue, per pod"]
    mark = await tab.page.locator(".scatterlayer .points path").first.bounding_box()
    assert mark is not None
    await tab.page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    await expect(tab.page.locator(".hoverlayer .hovertext").first).to_be_visible()
    assert tab.problems == []
    assert tab.foreign_requests(served.url.removesuffix("hpas/default/web")) == []


async def test_new_decision_appears_and_what_the_reader_has_open_stays_in_place(tab: Tab, served: Served) -> None:
    page = tab.page
    for _ in range(20):
        served.decide(100, 100)
    await page.goto(served.url)
    await expect(page.locator(DRAWN)).to_be_visible()
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await page.locator("#decisions .run").click()
    read = page.locator("#decisions details").nth(3)
    await read.locator("summary").click()
    opened = page.locator("#decisions details[open]")
    await opened.scroll_into_view_if_needed()
    before, number = await opened.bounding_box(), await page.locator("#decisions > li").count()
    assert before is not None
    zoomed = ["2001-09-09 01:48:00", "2001-09-09 01:49:00"]
    await page.evaluate("(range) => Plotly.relayout(document.querySelector('.chart'), {'xaxis.range': range})", zoomed)

    record = served.decide(150, 100)

    await expect(page.locator("#decisions > li")).to_have_count(number + 1)
    first = page.locator("#decisions > li").first
    assert await first.get_attribute("data-time") == record.time
    await expect(first.locator("summary")).to_contain_text(" ".join(record.sentence.split()[:3]))
    await expect(page.locator("#announcement")).to_have_text(record.sentence)
    after = await opened.bounding_box()
    assert after is not None
    assert after["y"] == pytest.approx(before["y"], abs=2)
    await page.wait_for_function("(n) => document.querySelector('.chart').data[3].x.length === n", arg=27)
    assert await chart(page, "layout.xaxis.range") == zoomed
    assert tab.problems == []


desk_and_phone = pytest.mark.parametrize(
    "window", [{"width": 1280, "height": 800}, {"width": 390, "height": 844}], ids=["desk", "phone"]
)


@desk_and_phone
async def test_sentence_stands_in_the_list_and_one_click_later_above_the_fold(
    tab: Tab, served: Served, window: ViewportSize
) -> None:
    record = served.decide("unable to get metric <b>packets</b>", 100)
    await tab.page.set_viewport_size(window)
    await tab.page.goto(served.url.removesuffix("hpas/default/web"))
    await expect(tab.page.locator("#rows .last-decision")).to_be_in_viewport(ratio=1)
    assert record.sentence.startswith(await tab.page.locator("#rows .last-decision strong").inner_text())
    await tab.page.get_by_role("link", name="web", exact=True).click()
    await expect(tab.page.locator(".last-decision")).to_have_text(record.sentence)
    await expect(tab.page.locator(".last-decision")).to_be_in_viewport(ratio=1)
    assert await wider_than_window(tab.page) == []
    assert tab.problems == []


@desk_and_phone
async def test_promql_behind_a_misspelled_metric_is_two_clicks_from_the_list(tab: Tab, window: ViewportSize) -> None:
    example = Example(queries=("sum(rate(hits_total[2m])) by (pod)",))
    explain = AsyncMock(return_value=Explanation(target="pods/hits_per_second", rule="rules[0]", example=example))
    names = AsyncMock(return_value={"resources": [{"name": "pods/hits_per_second"}]})
    controller = Controller(metric_names=MetricNames(names), explain_metric=explain)
    controller.reconcile(SimulatedCluster(hpa(pods_metric(100, "hits_per_secnd")), replicas=3), "no such metric")
    async with serve(controller.pages) as url:
        await tab.page.set_viewport_size(window)
        await tab.page.goto(url)
        await tab.page.get_by_role("link", name="web", exact=True).click()
        await expect(tab.page.locator(".suggestion")).to_contain_text("Did you mean hits_per_second?")
        await tab.page.locator(".suggestion").get_by_role("link", name="hits_per_second").click()
        await expect(tab.page.locator("#explanation pre")).to_have_text("sum(rate(hits_total[2m])) by (pod)")
    assert tab.problems == []


async def test_charts_of_a_day_come_from_prometheus_and_stay_with_a_new_decision(tab: Tab) -> None:
    async with prometheus_served(query_range([2.0] * 200 + [6.0] * 41)) as prometheus:
        controller = Controller(history=PrometheusHistory(prometheus, clock=lambda: 1_767_571_200.0))
        cluster = SimulatedCluster(hpa(pods_metric(100)), replicas=3)
        controller.reconcile(cluster, 100)
        async with serve(controller.pages) as url:
            await tab.page.goto(f"{url}hpas/default/web")
            await tab.page.get_by_role("link", name="1 d").click()
            await expect(tab.page.locator(DRAWN)).to_be_visible()
            await expect(tab.page.locator("figcaption")).to_contain_text("By kube-state-metrics in Prometheus")
            await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
            controller.reconcile(cluster, 100)
            await expect(tab.page.locator("#decisions > li")).to_have_count(2)
            drawn = await tab.page.locator(".chart").evaluate("each => each.data.find(one => one.name == 'current').y")
    assert (len(drawn), drawn[0], drawn[-1]) == (241, 2, 6)
    assert tab.problems == []


def query_range(values: list[float]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A Prometheus with one series of replicas."""

    async def respond(request: web.Request) -> web.StreamResponse:
        asked = await request.post()
        start, step = int(str(asked["start"])), int(str(asked["step"]))
        points = [[start + step * number, str(value)] for number, value in enumerate(values)]
        series = {"metric": {"__name__": "kube_horizontalpodautoscaler_status_current_replicas"}, "values": points}
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": [series]}})

    return respond


async def test_run_of_decisions_that_change_nothing_is_one_line_until_it_is_opened(tab: Tab, served: Served) -> None:
    scaled = await open_at(tab, served, served.decide(300, 100))
    records = [served.decide(100, 100) for _ in range(4)]
    line = tab.page.get_by_role("button", name="stays at")
    first, last = records[0].time[11:19], records[-1].time[11:19]
    await expect(line.first).to_have_text(f"stays at 9, 4 times, {first} to {last}")
    await expect(tab.page.locator("#decisions > li:visible").nth(1)).to_have_id(scaled)
    await line.first.click()
    await expect(tab.page.locator("#decisions > li:visible summary:visible").nth(3)).to_be_focused()
    served.decide(100, 100)
    await expect(tab.page.locator("#decisions > li:visible").nth(5)).to_have_id(scaled)
    assert tab.problems == []


async def open_at(tab: Tab, served: Served, record: DecisionRecord) -> str:
    """Open the page, live, and return the id of a decision on it."""
    await tab.page.goto(served.url)
    await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
    return f"decision-{record.time}"


async def test_list_begins_anew_where_decisions_between_are_missing(tab: Tab, served: Served) -> None:
    page = tab.page
    await page.goto(served.url)
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    records = [served.decide(100, 100) for _ in range(PAGE_SIZE + 10)]
    items = page.locator("#decisions > li")
    await expect(items).to_have_count(PAGE_SIZE)
    shown = [await item.get_attribute("data-time") for item in await items.all()]
    assert shown == [record.time for record in reversed(records)][:PAGE_SIZE]
    await page.get_by_role("link", name="Older decisions").click()
    assert await items.first.get_attribute("data-time") == records[9].time


async def test_long_list_loses_its_last_decisions_but_not_what_is_open(tab: Tab, served: Served) -> None:
    page = tab.page
    await page.goto(served.url)
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    record = served.decide(100, 100)  # after those that the stream begins with
    items = page.locator("#decisions > li")
    await expect(items.first).to_have_attribute("data-time", record.time)
    await page.locator("#decisions summary").nth(5).click()
    await page.evaluate(
        """() => {
            for (let number = 1; number <= 120; number++) {
                const detail = `<li id="decision-${number}" data-time="${number}"></li>`;
                document.dispatchEvent(new CustomEvent("decisions", { detail }));
            }
        }"""
    )
    await expect(items).to_have_count(101)
    assert await items.first.get_attribute("data-time") == "120"
    await expect(page.locator("#decisions details[open]")).to_have_count(1)
    older = page.get_by_role("link", name="Older decisions")
    assert (await older.get_attribute("href") or "").endswith("?before=21")


async def open_all_decisions(tab: Tab, served: Served) -> None:
    await tab.page.goto(served.url)
    await expect(tab.page.locator(DRAWN)).to_be_visible()
    for details in await tab.page.locator("#decisions summary").all():
        await details.click()


async def test_page_is_accessible(tab: Tab, served: Served) -> None:
    await open_all_decisions(tab, served)
    assert await serious_faults(tab.page) == []


async def test_decisions_open_with_the_keyboard(tab: Tab, served: Served) -> None:
    await tab.page.goto(served.url)
    names = await focus_order(tab.page, at_most=30)
    assert names[0] == "Skip to content"
    assert not [name for name in names if name.endswith("(focus not visible)")]
    assert len([name for name in names if name.startswith("2001-09-09 ")]) == 6
    assert {"HorizontalPodAutoscalers", "Only those that scale"} < set(names)
    await tab.page.locator("#decisions summary").first.focus()
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator("#decisions details[open]")).to_have_count(1)


async def test_page_fits_a_phone(tab: Tab, served: Served) -> None:
    await tab.page.set_viewport_size(PHONE)
    await open_all_decisions(tab, served)
    assert await wider_than_window(tab.page) == []


async def test_first_decision_of_an_hpa_brings_its_charts(tab: Tab, served: Served) -> None:
    served.controller.log.remove(served.cluster.hpa.key)
    await tab.page.goto(served.url)
    await expect(tab.page.get_by_text("There are no decisions on this HPA here")).to_be_visible()
    await expect(tab.page.get_by_role("heading", name="Charts")).to_be_hidden()
    await expect(tab.page.get_by_text("Live", exact=True)).to_be_visible()
    served.decide(100, 100)
    await expect(tab.page.locator(DRAWN)).to_be_visible()
    await expect(tab.page.get_by_text("One decision is in memory.")).to_be_visible()
    assert tab.problems == []
