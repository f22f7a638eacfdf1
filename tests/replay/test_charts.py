"""The lines of the charts: few points, and every peak."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.output.charts import downsample, load_charts, replicas_line, visible
from replay.output.comparison import Comparison
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
from tests.replay.comparisons import compare, peak_load


def test_short_load_is_drawn_as_it_is() -> None:
    line = downsample(series_of([1, 2, GAP, 4]), START_MS, START_MS + 4 * STEP_MS)
    assert line.times_ms == [START_MS + step * STEP_MS for step in range(5)]
    assert line.values[:2] == [1, 2]
    assert math.isnan(line.values[2])
    assert line.values[3:] == [4, 4]


@given(
    values=st.lists(st.floats(0, 1e9) | st.just(GAP), min_size=1, max_size=400),
    max_points=st.integers(min_value=9, max_value=60),
)
def test_long_load_keeps_its_peaks_in_few_points(values: list[float], max_points: int) -> None:
    line = downsample(series_of(values), START_MS, START_MS + len(values) * STEP_MS, max_points=max_points)
    assert len(line.times_ms) == len(line.values) <= max_points + 1
    assert line.times_ms == sorted(line.times_ms)
    there = [value for value in values if not math.isnan(value)]
    drawn = [value for value in line.values if not math.isnan(value)]
    if there:
        assert (max(drawn), min(drawn)) == (max(there), min(there))
    else:
        assert drawn == []


def test_a_long_gap_breaks_the_line_of_a_long_load() -> None:
    values = [5.0] * 4000 + [GAP] * 1000 + [5.0] * 4000
    line = downsample(series_of(values), START_MS, START_MS + len(values) * STEP_MS, max_points=100)
    missing = [time for time, value in zip(line.times_ms, line.values, strict=True) if math.isnan(value)]
    assert missing
    assert START_MS + 4000 * STEP_MS <= min(missing) <= START_MS + 4200 * STEP_MS


def test_replicas_have_a_point_for_each_change() -> None:
    (replayed,) = compare("70").replays
    line = replicas_line(replayed)
    assert line.times_ms == [replayed.start_ms, *(scale.time_ms for scale in replayed.scales), replayed.end_ms]
    assert line.values[0] == replayed.initial_replicas
    assert line.values[1:-1] == [scale.desired_replicas for scale in replayed.scales]
    assert line.values[-1] == line.values[-2]


def test_target_is_the_load_that_the_replicas_are_meant_for() -> None:
    comparison = compare("70", "90")
    (chart,) = load_charts(comparison)
    assert chart.title == "rps"
    for target, per_pod in zip(chart.targets, (70, 90), strict=True):
        replicas = replicas_line(comparison.replays[target.replay])
        assert target.line.values == [per_pod * each for each in replicas.values]


def test_each_metric_has_a_chart_with_its_unit_and_its_target() -> None:
    hpa = make_hpa(pods_metric(), cpu_metric(50), external_metric("depth", value="30"))
    load = load_of(rps=[100.0] * 8, cpu=[0.5] * 8, depth=[10.0] * 8, requests={"cpu": 500})
    replayed = replay_hpa(hpa, load, Settings())
    requests, cpu, depth = load_charts(Comparison(load=load, settings=Settings(), hpas=[hpa], replays=[replayed]))
    assert (requests.title, cpu.title, depth.title) == ("rps", "cpu (cores)", "depth")
    assert cpu.targets[0].line.values == pytest.approx([0.25 * each for each in replicas_line(replayed).values])
    assert set(depth.targets[0].line.values) == {30.0}


def test_times_that_cannot_be_seen_apart_are_joined() -> None:
    load = peak_load()
    assert visible([(0, 10), (20, 30), (900_000, 900_010)], load, max_points=240) == [(0, 30), (900_000, 900_010)]
    assert visible([], load) == []
