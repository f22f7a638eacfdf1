"""The adapter's pages, open while the demo's HPAs read its metrics."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from playground.bundle import Bundle
from tests.browser.tabs import Tab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser-demo"),
]


@pytest_asyncio.fixture(loop_scope="session")
async def rules(demo: Bundle, tab: Tab) -> AsyncIterator[Tab]:
    """The page of all rules. Nothing may go wrong on it, and nothing may be requested from elsewhere."""
    await tab.page.goto(demo.adapter_ui_url)
    await tab.is_live()
    yield tab
    assert tab.problems == []
    assert tab.foreign_requests(demo.adapter_ui_url) == []


async def test_overview_follows_the_requests_of_the_autoscaler(rules: Tab) -> None:
    await expect(rules.page.get_by_role("row", name="packets_per_second rules[0] packets_total")).to_contain_text("ok")
    await expect(rules.page.get_by_role("row", name="queue_depth externalRules[0] queue_depth")).to_contain_text("ok")
    server = rules.page.get_by_role("row", name="default http://127.0.0.1")
    before = await server.inner_text()
    await expect(server).not_to_have_text(before)


async def test_rule_has_its_promql_and_a_value(rules: Tab) -> None:
    await rules.page.get_by_role("link", name="packets_per_second", exact=True).click()
    await expect(rules.page.get_by_role("heading", level=1)).to_have_text("packets_per_second rules[0]")
    await expect(rules.page.get_by_role("main")).to_contain_text('sum(rate(packets_total{namespace="default"}[5s]))')
    await expect(rules.page.get_by_role("table")).to_contain_text("pods/packets_per_second")


async def test_metric_is_explained(rules: Tab) -> None:
    await rules.page.get_by_role("link", name="Explain a metric").click()
    metric = rules.page.get_by_label("Metric", exact=True)
    await metric.fill("external/queue_depth")
    await rules.page.get_by_role("button", name="Explain").click()
    await expect(rules.page.get_by_role("main")).to_contain_text("max(queue_depth{")
    await metric.fill("packets")
    await rules.page.get_by_role("button", name="Explain").click()
    await expect(metric).to_have_accessible_description(re.compile("names no metric"))


async def test_rule_is_tried_before_it_goes_into_the_file(rules: Tab) -> None:
    await rules.page.get_by_role("link", name="packets_per_second", exact=True).click()
    await rules.page.get_by_role("link", name="Try a changed version").click()
    text = rules.page.get_by_role("textbox", name="The rule, as YAML")
    changed = (await text.input_value()).replace("_per_second", "_each_second")
    await text.fill(changed)
    await rules.page.get_by_role("button", name="Check").click()
    result = rules.page.get_by_role("region", name="Result")
    await expect(result).to_contain_text("0 errors")
    await expect(result).to_contain_text("pods/packets_each_second")
    await text.fill(changed.replace("metricsQuery", "metricQuery"))
    await rules.page.get_by_role("button", name="Check").click()
    await expect(rules.page.get_by_role("alert")).to_contain_text("metricQuery")
    await expect(text).to_have_value(changed.replace("metricsQuery", "metricQuery"))
    await rules.page.get_by_role("link", name="Rules", exact=True).click()
    await expect(rules.page.get_by_role("main")).not_to_contain_text("each_second")
