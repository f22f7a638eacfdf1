"""A merged replay skips reconciliations that only repeat the decision before them: its figures are the same."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from autoscaler.core.config import Config
from replay.load import Load, Series
from replay.results import Step, Totals
from replay.simulation import Settings, simulate
from tests.replay.builders import cpu_metric, hpa_document, load_of, make_hpa, pods_metric, series_of

BEHAVIORS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "windows": {
        "scaleUp": {"stabilizationWindowSeconds": 90},
        "scaleDown": {"stabilizationWindowSeconds": 200, "tolerance": "0.02"},
    },
    "policies": {
        "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 100}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 10, "periodSeconds": 280}],
        },
    },
}


def random_load(name: str, seed: int) -> Load:
    """A value a minute that often stays, with jumps and gaps, at reconciliations every 15 s."""
    random = Random(seed)
    value, values = 5.0, []
    for _ in range(250):
        if random.random() < 0.3:
            value = max(value * random.choice([0.6, 0.9, 0.97, 1.03, 1.1, 1.8]), 0.2)
        values.append(math.nan if random.random() < 0.02 else value)
    load = load_of({name: [0.0] * len(values)}, step_ms=60_000, requests={"cpu": 500})
    return Load(
        start_ms=load.start_ms + 7_000,
        end_ms=load.end_ms - 11_000,
        series={name: series_of(values, step_ms=60_000)},
        requests=load.requests,
    )


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("name", ["rps", "cpu"])
@pytest.mark.parametrize(("least", "most"), [(1, 40), (3, 12)], ids=["wide", "narrow"])
def test_merged_replay_has_the_same_figures(name: str, behavior: str, least: int, most: int) -> None:
    metric = cpu_metric(60) if name == "cpu" else pods_metric(average="500m")
    hpa = make_hpa(metric, behavior=BEHAVIORS[behavior], min_replicas=least, max_replicas=most)
    settings, load = Settings(capacity={name: 0.5}), random_load(name, most)
    figures, counts, scales = [], [], []
    for merge in (False, True):
        totals = Totals(max_replicas=most)
        steps = list(simulate(hpa, load, settings, merge=merge))
        for step in steps:
            totals.add(step)
        found = totals.summary()
        figures.append([found.seconds, found.pod_hours, found.scale_events, found.flaps, found.overload_seconds])
        figures[-1] += [found.overload_ratio, found.at_max_seconds, found.no_metrics_seconds]
        counts.append(len(steps))
        scales.append(
            [(each.time_ms, each.desired_replicas) for each in steps if each.desired_replicas != each.replicas]
        )
    assert figures[0] == pytest.approx(figures[1])
    assert scales[0] == scales[1]
    assert len(scales[0]) > 5 or most == 12, "most of the time is at a bound then"
    assert counts[1] < counts[0]


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("behavior", ["none", "windows"])
def test_shadow_of_the_same_spec_decides_what_was_done(behavior: str, merge: bool) -> None:
    """It finds a change at the reconciliation after it, which is too late for policies, and for CPU of young pods."""
    hpa = make_hpa(pods_metric(average="500m"), behavior=BEHAVIORS[behavior], max_replicas=40)
    load = random_load("rps", 3)
    done = list(simulate(hpa, load, Settings()))
    times, replicas = array("q", [each.time_ms for each in done]), array("d", [each.replicas for each in done])
    recorded = replace(load, replicas=Series(times_ms=times, values=replicas, hold_ms=15_000))
    shadow = list(simulate(hpa, recorded, Settings(), merge=merge, shadow=True))
    assert scales_of(shadow) == scales_of(done) != []
    other = Settings(config=Config(tolerance=0.25, downscale_stabilization_ms=0))
    assert scales_of(list(simulate(hpa, recorded, other, merge=merge, shadow=True))) != scales_of(done)


def scales_of(steps: list[Step]) -> list[tuple[int, int]]:
    return [(each.time_ms, each.decision.scale_to) for each in steps if each.decision.scale_to is not None]


def test_constant_load_is_a_few_steps() -> None:
    load = random_load("rps", 0)
    constant = Load(start_ms=load.start_ms, end_ms=load.end_ms, series={"rps": series_of([5.0] * 400, step_ms=60_000)})
    hpa = make_hpa(*hpa_document(pods_metric(average="500m"))["spec"]["metrics"])
    steps = list(simulate(hpa, constant, Settings(), merge=True))
    assert len(steps) <= 420
    assert sum(step.end_ms - step.time_ms for step in steps) == load.end_ms - load.start_ms
