"""The page of a replay: one file that needs no other address."""

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.ui.figures import escaped
from replay.output.comparison import Comparison, time_text
from replay.output.page import Section, comparison_page
from tests.browser.tabs import Scheme, Tab
from tests.replay.comparisons import compare

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]


async def show(tab: Tab, path: Path) -> None:
    """Open a file, and wait until its charts are drawn, or cannot be drawn."""
    await tab.page.goto(path.as_uri())
    await tab.page.locator("[data-drawn]").wait_for()


def written(comparison: Comparison, folder: Path) -> Path:
    path = folder / "replay.html"
    path.write_text(comparison_page(comparison), encoding="utf-8")
    return path


async def hover_text(tab: Tab, number: int) -> str:
    """Point at a decision, and return the text that appears."""
    # Plotly's layer for the mouse is above the points.
    await tab.page.locator(".points path.point").nth(number).hover(force=True)
    label = tab.page.locator(".hoverlayer .hovertext").first
    await label.wait_for()
    return " ".join(await label.locator("tspan").all_text_contents())


async def test_page_draws_its_charts_without_any_address(tab: Tab, tmp_path: Path) -> None:
    comparison = compare("70", "90", reality=True)
    path = written(comparison, tmp_path)
    await show(tab, path)
    assert await tab.page.title() == "Replay of shop/web-70, shop/web-90"
    assert await tab.texts(".legendtext") == ["load", "reality", "shop/web-70", "shop/web-90", "overload", "no metrics"]
    decisions = sum(len(each.scales) for each in comparison.replays)
    assert len(await tab.texts(".points path.point")) == decisions > 10
    assert await tab.texts(":nth-match(table, 1) thead th") == ["", "reality", "shop/web-70", "shop/web-90"]
    assert len(await tab.texts(":nth-match(table, 1) tbody tr")) == 11
    assert "time (UTC)" in await tab.texts(".xtitle")
    assert any("a new pod is ready after 30s" in text for text in await tab.texts("li"))

    scale = comparison.replays[-1].scales[-1]
    shown = await hover_text(tab, decisions - 1)
    assert shown.startswith(f"shop/web-90 {time_text(scale.time_ms)} UTC")
    assert shown.endswith(scale.sentence)

    assert tab.requests == [path.as_uri()]
    assert tab.problems == []


@pytest.mark.parametrize(
    ("scheme", "background", "text"),
    [("light", "rgb(255, 255, 255)", "rgb(31, 35, 40)"), ("dark", "rgb(20, 23, 28)", "rgb(223, 228, 234)")],
)
async def test_page_has_the_colors_of_the_system(
    tab: Tab, tmp_path: Path, scheme: Scheme, background: str, text: str
) -> None:
    await tab.page.emulate_media(color_scheme=scheme)
    await show(tab, written(compare("70"), tmp_path))
    colors = await tab.page.evaluate(
        """[getComputedStyle(document.body).backgroundColor,
            getComputedStyle(document.querySelector(".xtitle")).fill]"""
    )
    assert colors == [background, text]
    assert tab.problems == []


async def test_hostile_names_are_only_text(tab: Tab, tmp_path: Path) -> None:
    name = "</script><img src=http://example.com/x onerror=alert(1)><b>$title %{x} &lt;"
    comparison = compare("70", name=name)
    (replayed,) = comparison.replays
    scales = [replace(scale, sentence=f"{name} is hostile") for scale in replayed.scales]
    comparison = replace(comparison, replays=[replace(replayed, scales=scales)])
    path = written(comparison, tmp_path)
    await show(tab, path)
    assert await tab.page.title() == f"Replay of {name}-70"
    assert f"{name}-70" in await tab.texts(".legendtext")
    assert await tab.texts("thead th") == ["", f"{name}-70"]
    assert f"{name} is hostile" in await hover_text(tab, 0)
    assert await tab.page.evaluate("document.images.length") == 0
    assert tab.requests == [path.as_uri()]
    assert tab.problems == []


async def test_page_has_further_sections(tab: Tab, tmp_path: Path) -> None:
    points = {"type": "scatter", "mode": "markers", "x": [1, 2], "y": [3, 4], "text": [escaped("<a>"), "b"]}
    section = Section(
        title="<Trade-off>",
        notes=["<i>sure</i>"],
        header=["spec", "pod-hours"],
        rows=[["<a>", "1"], ["b", "2"]],
        figure={"data": [points], "layout": {"height": 300}},
    )
    path = tmp_path / "tune.html"
    path.write_text(comparison_page(compare("70"), title="Tuned <shop/web>", sections=[section]), encoding="utf-8")
    await show(tab, path)
    assert await tab.page.title() == "Tuned <shop/web>"
    assert await tab.texts("h2") == ["<Trade-off>", "Time, gaps and assumptions"]
    assert await tab.page.locator(".figure .main-svg .xaxislayer-above").count() >= 2
    assert "<i>sure</i>" in await tab.texts("li")
    assert [text for text in await tab.texts("td") if text == "2"]
    assert tab.problems == []


async def test_page_says_that_it_cannot_be_drawn(tab: Tab, tmp_path: Path) -> None:
    path = written(compare("70"), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace('id="figures">', 'id="figures">A'), encoding="utf-8")
    await show(tab, path)
    (text,) = await tab.texts(".figure")
    assert text.startswith("This browser cannot draw the charts: ")
    assert len(tab.problems) == 1
    assert await tab.texts("thead th") == ["", "shop/web-70"]
