"""The figures of a replay, and the size of its page; tests/browser opens the page."""

import base64
import gzip
import re
from dataclasses import replace

import msgspec
import plotly.graph_objects

from replay.load import Series
from replay.output.figure import comparison_figure
from replay.output.page import comparison_page
from replay.results import Rescale
from tests.replay.comparisons import compare

_MAX_BYTES = 6_000_000


def test_figure_is_valid_for_plotly() -> None:
    built = comparison_figure(compare("70", "90", reality=True))
    plotly.graph_objects.Figure(built)
    assert max(len(trace["x"]) for trace in built["data"]) < 4000


def test_each_spec_has_a_row_of_overload_and_gaps() -> None:
    comparison = compare("98", "99", reality=True)
    built = comparison_figure(comparison)
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
        Rescale(
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
    text = comparison_page(comparison)
    assert len(text.encode()) <= _MAX_BYTES
    (packed,) = re.findall(r'id="figures">([^<]+)<', text)
    (built,) = msgspec.json.decode(gzip.decompress(base64.b64decode(packed)))
    assert max(len(trace["x"]) for trace in built["data"] if trace.get("line", {}).get("shape") == "hv") <= 4001
    assert sum(trace["mode"] == "markers" and len(trace["x"]) for trace in built["data"]) == 10_000
