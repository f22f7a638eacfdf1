"""Replays in eager mode: scale-ups between reconciliations, and the age of recorded values."""

from __future__ import annotations

from array import array
from datetime import datetime
from pathlib import Path

import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.cli import main
from autoscaler.core.model import HPA
from autoscaler.records.record import DecisionRecord
from replay.load import Load, Series
from replay.recorded import recorded_load
from replay.results import Step
from replay.simulation import Settings, simulate
from tests.replay.builders import START_MS, external_metric, hpa_document, make_hpa, pods_metric
from tests.replay.live import Live

EAGER = {"milliscale.io/eager": "true"}


def load_at(points: dict[float, float], seconds: float, name: str = "queue") -> Load:
    """A load whose value changes at these seconds."""
    times = array("q", [START_MS + round(second * 1000) for second in points])
    series = Series(times_ms=times, values=array("d", points.values()), hold_ms=10**9)
    return Load(start_ms=START_MS, end_ms=START_MS + round(seconds * 1000), series={name: series})


def scales(hpa: HPA, load: Load) -> list[tuple[float, int]]:
    return [
        ((step.time_ms - START_MS) / 1000, step.desired_replicas)
        for step in simulate(hpa, load, Settings(initial_replicas=2))
        if step.desired_replicas != step.replicas
    ]


def test_a_scale_up_is_at_the_next_second_and_a_scale_down_at_its_sync() -> None:
    metric = external_metric(averageValue="10")
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    load = load_at({0: 20, 16.2: 40, 33: 10}, 60)
    assert scales(make_hpa(metric, behavior=behavior), load) == [(30, 4), (45, 1)]
    assert scales(make_hpa(metric, behavior=behavior, annotations=EAGER), load) == [(17, 4), (45, 1)]


def test_each_evaluation_may_double_the_replicas_as_each_sync_may() -> None:
    load = load_at({0: 200, 3: 900}, 90, name="rps")
    assert scales(make_hpa(pods_metric()), load) == [(15, 4), (30, 8), (45, 9)]
    assert scales(make_hpa(pods_metric(), annotations=EAGER), load) == [(3, 4), (4, 8), (5, 9)]


@settings(max_examples=30)
@given(
    levels=st.lists(st.tuples(st.floats(0.5, 40), st.integers(0, 150)), min_size=1, max_size=8),
    value=st.integers(1, 100),
    window=st.sampled_from([0, 20, 60]),
)
def test_syncs_stay_and_there_are_never_fewer_replicas(
    levels: list[tuple[float, int]], value: int, window: int
) -> None:
    policy = {"type": "Percent", "value": value, "periodSeconds": 20}
    behavior = {"scaleUp": {"policies": [policy]}, "scaleDown": {"stabilizationWindowSeconds": window}}
    points, now = {0.0: 20.0}, 0.0
    for seconds, level in levels:
        now += seconds
        points[now] = level
    load = load_at(points, 200)
    tolerance = {"milliscale.io/tolerance": "0"}
    plain, eager = (
        list(
            simulate(
                make_hpa(external_metric(averageValue="10"), behavior=behavior, annotations=each), load, Settings()
            )
        )
        for each in (tolerance, tolerance | EAGER)
    )
    syncs = {step.time_ms for step in plain}
    assert syncs <= {step.time_ms for step in eager}
    assert all(step.desired_replicas > step.replicas for step in eager if step.time_ms not in syncs)
    ends = [step.end_ms for step in eager]
    assert [step.time_ms for step in eager][1:] == ends[:-1]
    for step in plain:
        assert replicas_at(eager, step.time_ms) >= step.desired_replicas


def replicas_at(steps: list[Step], time_ms: int) -> int:
    return next(step.desired_replicas for step in reversed(steps) if step.time_ms <= time_ms)


def test_kept_values_count_from_the_time_of_their_samples() -> None:
    """For an eager HPA; the decisions that were recorded had them at their times."""
    live = Live(make_hpa(pods_metric(average="100")))
    live.run([200.0, 200.0, 600.0, 600.0, 600.0])
    aged: list[DecisionRecord] = [
        replace(each, metrics=tuple(replace(metric, age_seconds=age) for metric in each.metrics))
        for each, age in zip(live.records, (4.0, 4.0, 9.0, 40.0, None), strict=False)
    ]
    series = recorded_load(live.hpa.key, live.hpa.target, aged).series["rps"]
    times = [round(datetime.fromisoformat(each.time).timestamp() * 1000) for each in aged]
    assert list(series.times_ms) == [times[0], times[1] - 4000, times[2] - 9000, times[2] + 1, times[4]]
    assert [series.at(time) for time in times] == list(series.values)


def test_the_flag_compares_the_first_hpa_with_itself_in_eager_mode(tmp_path: Path) -> None:
    (tmp_path / "hpa.yaml").write_text(yaml.safe_dump(hpa_document(pods_metric())))
    rows = [f"{START_MS // 1000 + second},{rps}" for second, rps in ((0, 200), (16, 900), (32, 900), (48, 900))]
    (tmp_path / "load.csv").write_text("\n".join(["timestamp,rps", *rows]))
    flags = [f"--hpa={tmp_path / 'hpa.yaml'}", f"--csv={tmp_path / 'load.csv'}", "--pod-startup=1s", "--capacity=100"]
    result = CliRunner().invoke(main, ["replay", "--eager", *flags])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("eager needs")
    assert "overload falls" in result.output
