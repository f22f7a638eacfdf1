"""The figures of a replay, and the size of its page; tests/browser opens the page."""

import base64
import gzip
import math
import re
from dataclasses import replace

import msgspec
import plotly.graph_objects
from hypothesis import given
from hypothesis import strategies as st

from replay.load import Series
from replay.output.comparison import Comparison
from replay.output.figure import comparison_figure, downsample
from replay.output.page import comparison_page
from replay.results import Rescale
from replay.simulation import Settings, replay_hpa
from tests.replay.builders import (
    GAP,
    START_MS,
    STEP_MS,
    cpu_metric,
    external_metric,
    load_of,
    make_hpa,
    pods_metric,
    series_of,
)
from tests.replay.comparisons import compare

_MAX_BYTES = 6_000_000


def test_figure_is_valid_for_plotly() -> None:
    built = comparison_figure(compare("70", "90", reality=True))
    plotly.graph_objects.Figure(built)
    assert max(len(trace["x"]) for trace in built["data"]) < 4000


def test_short_load_is_drawn_as_it_is() -> None:
    points = downsample(series_of([1, 2, GAP, 4]), START_MS, START_MS + 4 * STEP_MS)
    assert [time for time, _ in points] == [START_MS + step * STEP_MS for step in range(5)]
    assert str([value for _, value in points]) == "[1.0, 2.0, nan, 4.0, 4.0]"


@given(
    values=st.lists(st.floats(0, 1e9) | st.just(GAP), min_size=1, max_size=400),
    max_points=st.integers(min_value=9, max_value=60),
)
def test_long_load_keeps_its_peaks_in_few_points(values: list[float], max_points: int) -> None:
    points = downsample(series_of(values), START_MS, START_MS + len(values) * STEP_MS, max_points=max_points)
    assert len(points) <= max_points + 1
    assert [time for time, _ in points] == sorted(time for time, _ in points)
    there = [value for value in values if not math.isnan(value)]
    drawn = [value for _, value in points if not math.isnan(value)]
    assert [max(drawn), min(drawn)] == [max(there), min(there)] if there else drawn == []


def test_long_gap_breaks_the_line_of_a_long_load() -> None:
    values = [5.0] * 4000 + [GAP] * 1000 + [5.0] * 4000
    points = downsample(series_of(values), START_MS, START_MS + len(values) * STEP_MS, max_points=100)
    missing = [time for time, value in points if math.isnan(value)]
    assert missing
    assert START_MS + 4000 * STEP_MS <= min(missing) <= START_MS + 4200 * STEP_MS


def test_each_metric_has_a_chart_with_its_unit_and_what_the_replicas_are_meant_to_serve() -> None:
    hpa = make_hpa(pods_metric(), cpu_metric(50), external_metric("depth", value="30"))
    load = load_of(rps=[100.0, 900.0] * 4, cpu=[0.5] * 8, depth=[10.0] * 8, requests={"cpu": 500})
    replayed = replay_hpa(hpa, load, Settings(), name="web")
    built = comparison_figure(Comparison(load=load, settings=Settings(), hpas=[hpa], replays=[replayed]))
    titles = [each["text"].partition(": ")[0] for each in built["layout"]["annotations"][:3]]
    assert titles == ["rps", "cpu (cores)", "depth"]
    lines = {(each["yaxis"], each["name"]): each for each in built["data"] if each.get("line", {}).get("shape") == "hv"}
    replicas = lines["y4", "web"]
    assert replicas["x"] == (replayed.start_ms, *(each.time_ms for each in replayed.scales), replayed.end_ms)
    assert len(replayed.scales) > 1
    for axis, per_pod in (("y", 100), ("y2", 0.25)):
        assert lines[axis, "web: target x replicas"]["y"] == [per_pod * each for each in replicas["y"]]
    assert lines["y3", "web: target x replicas"]["y"] == [30.0, 30.0]


def test_times_that_cannot_be_seen_apart_are_joined() -> None:
    comparison = compare("98")
    start = comparison.load.start_ms
    overloads = [(start, start + 10), (start + 20, start + 30), (start + 900_000, start + 900_010)]
    comparison = replace(comparison, replays=[replace(comparison.replays[0], overloads=overloads)])
    [shades] = [trace for trace in comparison_figure(comparison)["data"] if trace.get("opacity")]
    assert shades["x"][::6] == [start, start + 900_000]


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
