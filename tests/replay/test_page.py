"""The page of a replay, in a browser without a network."""

import base64
import gzip
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import plotly.graph_objects
import pytest

from replay.load import Series
from replay.output.comparison import Comparison, time_text
from replay.output.figure import escaped, figure
from replay.output.page import Section, page
from replay.results import Scale
from tests.replay.chromium import Page, new_page
from tests.replay.comparisons import compare

_MAX_BYTES = 6_000_000


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Page]:
    if shutil.which("chromium") is None and shutil.which("apt-get") is None:
        pytest.skip("chromium is not on PATH, and there is no apt-get to download it")
    async with new_page(tmp_path / "profile") as page:
        yield page


def written(comparison: Comparison, folder: Path) -> Path:
    path = folder / "replay.html"
    path.write_text(page(comparison), encoding="utf-8")
    return path


async def texts(browser: Page, selector: str) -> list[str]:
    found = await browser.evaluate(f"[...document.querySelectorAll('{selector}')].map((each) => each.textContent)")
    assert isinstance(found, list)
    return found


async def hover_text(browser: Page, number: int) -> str:
    """Point at a decision, and return the text that appears."""
    await browser.evaluate("document.querySelector('#chart').scrollIntoView()")
    x, y = await browser.evaluate(
        f"""(() => {{
            const box = document.querySelectorAll(".points path.point")[{number}].getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
    )
    await browser.hover(x, y)
    shown = await browser.evaluate(
        """new Promise((resolve) => {
            const look = () => {
                const label = document.querySelector(".hoverlayer .hovertext");
                label ? resolve([...label.querySelectorAll("tspan")].map((line) => line.textContent).join(" "))
                      : requestAnimationFrame(look);
            };
            look();
        })"""
    )
    assert isinstance(shown, str)
    return shown


@pytest.mark.e2e
async def test_page_draws_its_charts_without_any_address(browser: Page, tmp_path: Path) -> None:
    comparison = compare("70", "90", reality=True)
    path = written(comparison, tmp_path)
    await browser.open(path)
    assert await browser.evaluate("document.title") == "Replay of shop/web-70, shop/web-90"
    assert await texts(browser, ".legendtext") == [
        "load",
        "reality",
        "shop/web-70",
        "shop/web-90",
        "overload",
        "no metrics",
    ]
    decisions = sum(len(each.scales) for each in comparison.replays)
    assert len(await texts(browser, ".points path.point")) == decisions > 10
    assert await texts(browser, "thead th") == ["", "reality", "shop/web-70", "shop/web-90"]
    assert len(await texts(browser, "tbody tr")) == 11
    assert "time (UTC)" in await texts(browser, ".xtitle")
    assert any("a new pod is ready after 30s" in text for text in await texts(browser, "li"))

    scale = comparison.replays[-1].scales[-1]
    shown = await hover_text(browser, decisions - 1)
    assert shown.startswith(f"shop/web-90 {time_text(scale.time_ms)} UTC")
    assert shown.endswith(scale.sentence)

    assert browser.requests == [path.as_uri()]
    assert browser.problems == []


@pytest.mark.e2e
async def test_page_has_the_colors_of_the_system(browser: Page, tmp_path: Path) -> None:
    path = written(compare("70"), tmp_path)
    colors = []
    for dark in (False, True):
        await browser.open(path, dark=dark)
        colors.append(
            await browser.evaluate(
                """[getComputedStyle(document.body).backgroundColor,
                    getComputedStyle(document.querySelector(".xtitle")).fill]"""
            )
        )
    assert colors == [["rgb(255, 255, 255)", "rgb(31, 35, 40)"], ["rgb(20, 23, 28)", "rgb(223, 228, 234)"]]
    assert browser.problems == []


@pytest.mark.e2e
async def test_hostile_names_are_only_text(browser: Page, tmp_path: Path) -> None:
    name = "</script><img src=http://example.com/x onerror=alert(1)><b>$title %{x} &lt;"
    comparison = compare("70", name=name)
    (replayed,) = comparison.replays
    scales = [replace(scale, sentence=f"{name} is hostile") for scale in replayed.scales]
    comparison = replace(comparison, replays=[replace(replayed, scales=scales)])
    path = written(comparison, tmp_path)
    await browser.open(path)
    assert await browser.evaluate("document.title") == f"Replay of {name}-70"
    assert f"{name}-70" in await texts(browser, ".legendtext")
    assert await texts(browser, "thead th") == ["", f"{name}-70"]
    assert f"{name} is hostile" in await hover_text(browser, 0)
    assert await browser.evaluate("document.images.length") == 0
    assert browser.requests == [path.as_uri()]
    assert browser.problems == []


@pytest.mark.e2e
async def test_page_has_further_sections(browser: Page, tmp_path: Path) -> None:
    points = {"type": "scatter", "mode": "markers", "x": [1, 2], "y": [3, 4], "text": [escaped("<a>"), "b"]}
    section = Section(
        title="<Trade-off>",
        notes=["<i>sure</i>"],
        header=["spec", "pod-hours"],
        rows=[["<a>", "1"], ["b", "2"]],
        figure={"data": [points], "layout": {"height": 300}},
    )
    path = tmp_path / "tune.html"
    path.write_text(page(compare("70"), title="Tuned <shop/web>", sections=[section]), encoding="utf-8")
    await browser.open(path)
    assert await browser.evaluate("document.title") == "Tuned <shop/web>"
    assert await texts(browser, "h2") == ["<Trade-off>", "Time, gaps and assumptions"]
    assert await browser.evaluate("document.querySelectorAll('.figure .main-svg .xaxislayer-above').length") >= 2
    assert "<i>sure</i>" in await texts(browser, "li")
    assert [text for text in await texts(browser, "td") if text == "2"]
    assert browser.problems == []


@pytest.mark.e2e
async def test_page_says_that_it_cannot_be_drawn(browser: Page, tmp_path: Path) -> None:
    path = written(compare("70"), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace('id="figures">', 'id="figures">A'), encoding="utf-8")
    await browser.open(path)
    (text,) = await texts(browser, ".figure")
    assert text.startswith("This browser cannot draw the charts: ")
    assert len(browser.problems) == 1
    assert await texts(browser, "thead th") == ["", "shop/web-70"]


def test_figure_is_valid_for_plotly() -> None:
    built = figure(compare("70", "90", reality=True))
    plotly.graph_objects.Figure(built)
    assert max(len(trace["x"]) for trace in built["data"]) < 4000


def test_each_spec_has_a_row_of_overload_and_gaps() -> None:
    comparison = compare("98", "99", reality=True)
    built = figure(comparison)
    rows = {trace["name"]: trace for trace in built["data"] if trace.get("hoverinfo") == "x+name"}
    assert built["layout"]["yaxis3"]["ticktext"] == ["reality", "shop/web-98", "shop/web-99"]
    for name, times in (
        ("overload", [each.overloads for each in comparison.columns]),
        ("no metrics", [each.gaps for each in comparison.columns]),
    ):
        expected = [(row, start, end) for row, intervals in enumerate(times) for start, end in intervals]
        trace = rows[name]
        drawn = [
            (round(trace["y"][corner]), trace["x"][corner], trace["x"][corner + 1])
            for corner in range(0, len(trace["x"]), 6)
        ]
        assert drawn == expected
        assert drawn
    shades = [trace for trace in built["data"] if trace.get("opacity")]
    assert [trace["x"][:2] for trace in shades] == [list(each.overloads[0]) for each in comparison.replays]
    assert {trace["yaxis"] for trace in shades} == {"y4"}
    assert built["layout"]["yaxis4"]["overlaying"] == "y"


def test_a_fortnight_with_five_specs_is_a_small_page() -> None:
    comparison = compare("70", reality=True)
    (replayed,) = comparison.replays
    steps = 14 * 24 * 240
    end_ms = replayed.start_ms + steps * 15_000
    times = range(replayed.start_ms, end_ms, 15_000)
    series = Series(
        times_ms=type(comparison.load.series["rps"].times_ms)("q", times),
        values=type(comparison.load.series["rps"].values)("d", [(step * 7919) % 1000 for step in range(steps)]),
        hold_ms=15_000,
    )
    scales = [
        Scale(
            time_ms=replayed.start_ms + number * 600_000,
            replicas=number % 17,
            desired_replicas=number % 13,
            sentence=f"{number % 17} -> {number % 13}: {replayed.scales[0].sentence} ({number * 7919 % 100_003})",
        )
        for number in range(2000)
    ]
    overloads = [(scale.time_ms, scale.time_ms + 30_000) for scale in scales[::3]]
    long = replace(replayed, end_ms=end_ms, scales=scales, overloads=overloads)
    comparison = replace(
        comparison,
        load=replace(comparison.load, end_ms=end_ms, series={"rps": series}),
        hpas=[comparison.hpas[0]] * 5,
        replays=[replace(long, name=f"shop/web-{number}") for number in range(5)],
    )
    text = page(comparison)
    assert len(text.encode()) <= _MAX_BYTES
    (packed,) = re.findall(r'id="figures">([^<]+)<', text)
    (built,) = msgspec.json.decode(gzip.decompress(base64.b64decode(packed)))
    assert max(len(trace["x"]) for trace in built["data"] if trace.get("line", {}).get("shape") == "hv") <= 4001
    assert sum(trace["mode"] == "markers" and len(trace["x"]) for trace in built["data"]) == 10_000
