"""The autoscaler's pages, open while the demo's applications are scaled."""

import asyncio
import json
import re
import statistics
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from kube.values.durations import format_duration
from playground.bundle import Bundle
from tests.browser.demo import TIMING, Scales, delays, record_replicas
from tests.browser.tabs import Tab, open_tab
from tests.eventually import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser-demo"),
]

HPAS = ["router", "shop", "worker"]


@pytest_asyncio.fixture(loop_scope="session")
async def demo_tab(demo: Bundle, tab: Tab) -> AsyncIterator[Tab]:
    """The page of all HPAs, live. Nothing may go wrong on it, and nothing may be requested from elsewhere."""
    await tab.page.goto(demo.autoscaler_ui_url)
    await tab.is_live()
    yield tab
    assert tab.problems == []
    assert tab.foreign_requests(demo.autoscaler_ui_url) == []


def row(tab: Tab, hpa: str) -> Locator:
    return tab.page.get_by_role("row").filter(has=tab.page.get_by_role("link", name=hpa, exact=True))


def decisions(tab: Tab) -> Locator:
    return tab.page.get_by_role("region", name="Decisions").get_by_role("listitem")


async def test_list_shows_every_hpa_with_its_metric_replicas_and_conditions(demo_tab: Tab) -> None:
    await expect(demo_tab.page.get_by_role("heading", level=1)).to_have_text("HorizontalPodAutoscalers")
    for hpa, metric, target in zip(
        HPAS, ["packets_per_second", "requests_per_second", "queue_depth"], ["100", "50", "50"], strict=True
    ):
        await expect(row(demo_tab, hpa)).to_contain_text(metric)
        await expect(row(demo_tab, hpa)).to_contain_text(re.compile(rf"\d / {target}"))
        await expect(row(demo_tab, hpa)).to_contain_text("ScalingActive")


async def test_a_scale_appears_within_two_seconds_without_a_reload(demo: Bundle, demo_tab: Tab) -> None:
    requests = list(demo_tab.requests)
    await record_replicas(demo_tab)
    scales = Scales()
    async with scales.watch(demo):

        async def measured() -> list[float]:
            demo.check()
            assert len(scales.seen) > 8
            return await delays(demo_tab, scales.seen[:8])

        seconds = await eventually(measured, every=0.5)
    assert statistics.median(seconds) < 2, seconds
    assert demo_tab.requests == requests, "the page was loaded once"


async def test_search_and_order_are_in_the_url(demo_tab: Tab) -> None:
    await demo_tab.page.get_by_role("searchbox", name="Search").fill("queue_depth")
    await demo_tab.page.get_by_role("button", name="Search").click()
    await expect(row(demo_tab, "worker")).to_be_visible()
    await expect(row(demo_tab, "router")).to_have_count(0)
    assert "q=queue_depth" in demo_tab.page.url
    await demo_tab.page.goto(demo_tab.page.url.split("?")[0])
    await demo_tab.page.get_by_role("columnheader", name="HPA").get_by_role("link").click()
    names = demo_tab.page.get_by_role("rowheader").get_by_role("link")
    await expect(names).to_have_text(HPAS[::-1])
    await demo_tab.page.reload()
    await expect(names).to_have_text(HPAS[::-1])


async def test_hpa_page_has_charts_and_each_decision_as_explain_words_it(demo: Bundle, demo_tab: Tab) -> None:
    await demo_tab.page.get_by_role("link", name="router", exact=True).click()
    await expect(demo_tab.page.get_by_role("heading", level=1)).to_have_text("default/router")
    await expect(demo_tab.page.locator(".chart[data-drawn=true] .main-svg").first).to_be_visible()
    await expect(demo_tab.page.locator(".chart .lines path").first).to_be_attached()

    printed = await run_autoscaler("explain", "default/router", f"--server={demo.autoscaler_url}")
    time = printed.splitlines()[0].rpartition(", ")[2]
    await demo_tab.page.goto(f"{demo_tab.page.url}?decision={time}")  # open, not in a folded run of decisions
    decision = demo_tab.page.locator(f"[id='decision-{time}']")
    shown = (await decision.locator(".explanation").inner_text()).removesuffix("Link to this decision")
    # Where explain has an address, the page has a link.
    lines = [line for line in printed.splitlines() if not line.startswith("rule, PromQL and graph of ")]
    words = " ".join(lines).split()
    assert shown.split() == words


async def run_autoscaler(*arguments: str | Path) -> str:
    """Return what a command of the autoscaler prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", *arguments), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()


async def test_new_decisions_appear_above_what_the_reader_has_open(demo: Bundle, demo_tab: Tab) -> None:
    await demo_tab.page.goto(f"{demo.autoscaler_ui_url}hpas/default/router?show=scaling")
    opened = demo_tab.page.locator(f"[id='{await decisions(demo_tab).first.get_attribute('id')}']")
    await opened.locator("summary").click()
    await expect(decisions(demo_tab).first).not_to_have_id(await opened.get_attribute("id") or "")
    await expect(opened.locator("details")).to_have_attribute("open", "")


async def test_what_if_scales_as_the_command_replay_does(demo: Bundle, demo_tab: Tab, tmp_path: Path) -> None:
    await demo_tab.page.goto(f"{demo.autoscaler_ui_url}hpas/default/router?show=scaling")
    await expect(decisions(demo_tab).nth(8)).to_be_visible()
    await demo_tab.page.get_by_role("link", name="What if").first.click()
    await demo_tab.page.get_by_label("Target of packets_per_second").fill("130")
    # Without it, it is what the decisions show, and the demo makes further ones until the command reads them.
    await demo_tab.page.get_by_label("Time until a new pod is ready").fill("1s")
    await demo_tab.page.get_by_role("button", name="Replay").click()
    result = demo_tab.page.get_by_role("region", name="Result")
    await result.get_by_text("that scale, with the changed spec").click()
    shown = await result.locator("ol.scales").get_by_role("listitem").all_inner_texts()
    hpa = tmp_path / "changed.yaml"
    hpa.write_text(await result.locator("pre").inner_text())

    window = f"--horizontal-pod-autoscaler-downscale-stabilization={format_duration(TIMING.downscale_stabilization)}"
    flags = (f"--server={demo.autoscaler_url}", window, "--pod-startup=1s", "--output=json")
    printed = await run_autoscaler("replay", "--hpa", hpa, *flags)
    (replay,) = json.loads(printed)["replays"]
    scales = [step for step in replay["steps"] if step["desiredReplicas"] != step["replicas"]]
    assert len(shown) >= 3
    # The demo has gone on in the meantime.
    assert shown == [f"{step['time'][:19].replace('T', ' ')} {step['sentence']}" for step in scales[: len(shown)]]


async def test_pages_can_be_read_without_scripts(demo: Bundle, browser: Browser) -> None:
    async with open_tab(browser, java_script_enabled=False) as tab:
        await tab.page.goto(demo.autoscaler_ui_url)
        await row(tab, "router").get_by_role("link", name="router").click()
        await decisions(tab).first.locator("summary").click()
        await expect(decisions(tab).first).to_contain_text("packets_per_second")
        assert tab.problems == []
