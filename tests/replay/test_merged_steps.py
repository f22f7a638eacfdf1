"""A merged replay skips reconciliations that change nothing: its decisions and figures are the same."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from replay.load import Load, Series
from replay.results import Moments, Step, Totals
from replay.shadow import Shadow, seen_scales
from replay.simulation import Settings, simulate
from tests.replay.builders import cpu_metric, external_metric, hpa_document, load_of, make_hpa, pods_metric, series_of

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
    "only up": {"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"selectPolicy": "Disabled"}},
}
METRICS: dict[str, dict[str, Any]] = {
    "rps": pods_metric(average="500m"),
    "queue": external_metric(averageValue="500m"),
    "cpu": cpu_metric(60),
}


def random_load(name: str, seed: int, *, samples: int = 1) -> Load:
    """Reconciliations every 15 s of a load that often stays for minutes, with jumps and gaps.

    With one sample a minute, values are repeated. With more, each is another one.
    """
    random = Random(seed)
    value, values = 5.0, []
    for _ in range(250):
        if random.random() < 0.3:
            value = max(value * random.choice([0.6, 0.9, 0.97, 1.03, 1.1, 1.8]), 0.2)
        if random.random() < 0.02:
            values += [math.nan] * samples
        else:
            values += [value] if samples == 1 else [value * random.gauss(1, 0.04) for _ in range(samples)]
    step_ms = 60_000 // samples
    load = load_of({name: [0.0] * len(values)}, step_ms=step_ms, requests={"cpu": 500})
    return Load(
        start_ms=load.start_ms + 7_000,
        end_ms=load.end_ms - 11_000,
        series={name: series_of(values, step_ms=step_ms)},
        requests=load.requests,
    )


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(("least", "most"), [(1, 40), (3, 12)], ids=["wide", "narrow"])
def test_merged_replay_is_the_same(name: str, behavior: str, least: int, most: int, samples: int) -> None:
    hpa = make_hpa(METRICS[name], behavior=BEHAVIORS[behavior], min_replicas=least, max_replicas=most)
    settings, load = Settings(capacity={name: 0.8}), random_load(name, most, samples=samples)
    every, merged = simulated_both(hpa, load, settings)
    assert len(scales_of(merged)) > 5 or most == 12 or behavior == "only up", "most of the time is at a bound then"
    assert len(merged) < 0.85 * len(every)


def simulated_both(
    hpa: HPA, load: Load, settings: Settings, *, new_shadow: Callable[[], Shadow | None] = lambda: None
) -> list[list[Step]]:
    """Return all reconciliations and the merged ones, which have the same decisions and figures."""
    every, merged = (list(simulate(hpa, load, settings, merge=each, shadow=new_shadow())) for each in (False, True))
    found, expected = totals_of(merged, hpa), totals_of(every, hpa)
    assert msgspec.structs.asdict(found.summary()) == pytest.approx(msgspec.structs.asdict(expected.summary()))
    assert (found.scales, found.overloads, found.gaps) == (expected.scales, expected.overloads, expected.gaps)
    assert moments_of(merged, settings) == moments_of(every, settings)
    assert scales_of(merged) == scales_of(every)
    by_time = {step.time_ms: step for step in every}
    assert [compared(step) for step in merged] == [compared(by_time[step.time_ms]) for step in merged]
    return [every, merged]


def totals_of(steps: list[Step], hpa: HPA) -> Totals:
    totals = Totals(max_replicas=hpa.spec.max_replicas)
    for step in steps:
        totals.add(step)
    return totals


def moments_of(steps: list[Step], settings: Settings) -> list[tuple[int, int, int]]:
    moments = Moments(list(settings.capacity.values()))
    for step in steps:
        moments.add(step)
    return [(each.start_ms, each.end_ms, each.decision.now_ms) for each in moments.worst]


def compared(step: Step) -> tuple[object, ...]:
    """What a step has in common with the one of all reconciliations, without the slots of recommendations."""
    decision, normalized = step.decision, step.decision.normalized
    if normalized is not None:
        normalized = msgspec.structs.replace(normalized, recommendations=())
    events = decision.next_history.scale_up_events, decision.next_history.scale_down_events
    reasons = decision.evaluations, normalized, decision.rescale_reason, decision.status, decision.error, events
    return step.replicas, step.ready, step.desired_replicas, decision.scale_to, *reasons


def shadow_of(load: Load) -> Shadow:
    assert load.replicas is not None
    return Shadow(seen_scales(load.replicas, load.start_ms, load.end_ms), late_ms=15_000)


def with_replicas(load: Load, done: list[Step]) -> Load:
    """The load with the replicas that scrapes see after each reconciliation."""
    times, replicas = array("q", [each.time_ms for each in done]), array("d", [each.desired_replicas for each in done])
    return replace(load, replicas=Series(times_ms=times, values=replicas, hold_ms=15_000))


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("metric", [pods_metric(average="500m"), cpu_metric(80)], ids=["pods", "cpu"])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_shadow_with_the_settings_of_reality_makes_no_mistake(
    behavior: str, metric: dict[str, Any], merge: bool
) -> None:
    hpa = make_hpa(metric, behavior=BEHAVIORS[behavior], max_replicas=40)
    load = random_load("rps" if "pods" in metric else "cpu", 3)
    done = list(simulate(hpa, load, Settings()))
    load = with_replicas(load, done)
    shadow = shadow_of(load)
    followed = list(simulate(hpa, load, Settings(), merge=merge, shadow=shadow))
    assert (shadow.mistakes, shadow.scales) == (0, len(scales_of(done)))
    assert scales_of(followed) == scales_of(done) != []
    other = shadow_of(load)
    for _ in simulate(hpa, load, Settings(config=Config(tolerance=0.25)), merge=merge, shadow=other):
        pass
    assert other.mistakes > 0


def test_merged_shadow_makes_the_same_mistakes() -> None:
    load = random_load("rps", 3, samples=4)
    load = with_replicas(load, list(simulate(make_hpa(pods_metric(average="450m"), max_replicas=40), load, Settings())))
    hpa = make_hpa(pods_metric(average="500m"), behavior=BEHAVIORS["windows"], max_replicas=40)
    shadows: list[Shadow] = []

    def new_shadow() -> Shadow:
        shadows.append(shadow_of(load))
        return shadows[-1]

    every, merged = simulated_both(hpa, load, Settings(), new_shadow=new_shadow)
    assert len(merged) < len(every)
    assert shadows[0].mistakes == shadows[1].mistakes > 0


def test_one_of_two_metrics_fails() -> None:
    """A gap in the one that decides keeps the replicas; a gap in the other one does not."""
    rps, cpu = random_load("rps", 1, samples=4), random_load("cpu", 2, samples=4)
    both = replace(rps, series={**rps.series, **cpu.series}, requests=cpu.requests)
    every, merged = simulated_both(
        make_hpa(pods_metric(average="500m"), cpu_metric(80), max_replicas=40), both, Settings()
    )
    assert any(step.decision.error and step.decision.normalized for step in every)
    assert len(merged) < len(every)


def test_gap_of_a_load_whose_forecast_goes_on() -> None:
    load, settings = random_load("rps", 3, samples=4), Settings(capacity={"rps": 0.8})
    values = load.series["rps"].values
    higher = series_of([5.0 if math.isnan(value) else value for value in values])
    every, merged = simulated_both(
        make_hpa(pods_metric(average="500m"), max_replicas=40), replace(load, seen={"rps": higher}), settings
    )
    assert any(step.has_gap for step in every)
    assert len(merged) < len(every)


def test_negative_sum_of_an_external_metric_is_the_highest_value() -> None:
    """It proposes as many replicas as a huge value, but those between propose fewer."""
    hpa = make_hpa(external_metric(averageValue="1m"), max_replicas=10)
    load = load_of(queue=[-1.0] * 40 + [3e6] * 40 + [0.002] * 40)
    _, merged = simulated_both(hpa, load, Settings())
    assert merged[-1].desired_replicas == 2


def scales_of(steps: list[Step]) -> list[tuple[int, int]]:
    return [(each.time_ms, each.decision.scale_to) for each in steps if each.decision.scale_to is not None]


def test_constant_load_is_a_few_steps_which_end_where_asked() -> None:
    load = random_load("rps", 0)
    constant = Load(start_ms=load.start_ms, end_ms=load.end_ms, series={"rps": series_of([5.0] * 400, step_ms=60_000)})
    hpa = make_hpa(*hpa_document(pods_metric(average="500m"))["spec"]["metrics"])
    ends = [constant.start_ms + 3_600_000, constant.start_ms + 7_201_000]
    steps = list(simulate(hpa, constant, Settings(), merge=True, ends_ms=ends))
    assert len(steps) < 10
    assert {constant.start_ms + 3_600_000, constant.start_ms + 7_215_000} <= {step.time_ms for step in steps}
    assert sum(step.end_ms - step.time_ms for step in steps) == load.end_ms - load.start_ms
