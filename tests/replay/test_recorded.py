"""The load of kept decisions: with the same spec, a replay makes the same decisions."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from autoscaler.core.quantities import milli_value, quantity_text
from autoscaler.records.record import DecisionRecord
from replay.load import Load, ReplayError
from replay.output.comparison import Comparison, notes
from replay.recorded import recorded_load
from replay.results import Replayed
from replay.simulation import Settings, replay_hpa, replay_reality
from tests.replay.builders import cpu_metric, external_metric, make_hpa, object_metric, pods_metric
from tests.replay.live import REQUESTS, Live

BEHAVIOR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 30,
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}],
        "tolerance": "0.05",
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 120,
        "policies": [{"type": "Percent", "value": 20, "periodSeconds": 90}],
    },
}
ONE_PERIOD = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 120}]},
    "scaleDown": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 120}], "stabilizationWindowSeconds": 60},
}
THREE_SECONDS = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 3}], "stabilizationWindowSeconds": 1},
    "scaleDown": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 3}], "stabilizationWindowSeconds": 3},
}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "90"}}}


def wave(count: int, *, low: float, high: float, period: int = 40) -> list[float]:
    middle, size = (low + high) / 2, (high - low) / 2
    return [middle + size * math.sin(2 * math.pi * index / period) for index in range(count)]


def load_of(live: Live, records: list[DecisionRecord] | None = None) -> Load:
    return recorded_load(live.hpa.key, live.hpa.target, live.records if records is None else records)


def replayed(live: Live, load: Load, hpa: HPA | None = None) -> Replayed:
    return replay_hpa(hpa or live.hpa, load, Settings(config=live.config), name="present")


def notes_of(live: Live, load: Load, hpa: HPA | None = None) -> list[str]:
    settings = Settings(config=live.config)
    replays = [replayed(live, load, hpa)]
    return notes(Comparison(load=load, settings=settings, hpas=[hpa or live.hpa], replays=replays))


def real_scales(records: list[DecisionRecord]) -> list[tuple[str, int, int | None]]:
    scaled = [each for each in records if each.written is not None and each.written.replicas is not None]
    return [(each.time, each.current_replicas or 0, each.desired_replicas) for each in scaled]


def scales(replayed: Replayed, records: list[DecisionRecord]) -> list[tuple[str, int, int | None]]:
    times = {round(1000 * _seconds(each.time)): each.time for each in records}
    return [(times[each.time_ms], each.replicas, each.desired_replicas) for each in replayed.scales]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# --- the same spec


@pytest.mark.parametrize("behavior", [None, BEHAVIOR], ids=["defaults", "behavior"])
@pytest.mark.parametrize(
    "metrics",
    [
        [pods_metric(average="100")],
        [object_metric(value="100")],
        [external_metric(averageValue="100")],
        [cpu_metric(50)],
        [MEMORY],
        [pods_metric(average="100"), cpu_metric(60), external_metric(value="150"), object_metric(value="200")],
    ],
    ids=["Pods", "Object", "External", "cpu", "memory", "several"],
)
def test_same_spec_makes_the_same_decisions(metrics: list[dict[str, Any]], behavior: Any) -> None:
    live = Live(make_hpa(*metrics, behavior=behavior), failures=0.03)
    live.run(wave(150, low=100, high=1500))
    load = load_of(live)

    again = replayed(live, load)

    assert len(again.scales) > 5
    assert scales(again, live.records) == real_scales(live.records)
    assert "present: all 150 decisions are the same as the autoscaler's." in notes_of(live, load)


def test_scale_that_could_not_be_written_is_repeated() -> None:
    live = Live(make_hpa(), seed=4, refusals=0.3)
    live.run(wave(80, low=100, high=1500))
    assert any(each.written is not None and each.written.scale_error for each in live.records)
    load = load_of(live)
    assert scales(replayed(live, load), live.records) == real_scales(live.records)
    assert "present: all 80 decisions are the same as the autoscaler's." in notes_of(live, load)


def test_early_scale_ups_are_those_of_the_recording() -> None:
    """Values of cpu are old: an evaluation between two decisions would scale up before the real one did."""
    live = Live(make_hpa(cpu_metric(50), annotations={"milliscale.io/eager": "true"}), seed=3)
    live.run(wave(80, low=100, high=1500))
    ups = [(each.desired_replicas or 0) > (each.current_replicas or 0) for each in live.records]
    load = load_of(live, [replace(each, eager=up) for each, up in zip(live.records, ups, strict=True)])
    assert "present: all 80 decisions are the same as the autoscaler's." in notes_of(live, load)


def test_recommendation_exactly_as_old_as_the_window_counts_as_it_did() -> None:
    live = Live(make_hpa(), seed=18, replicas=6)
    for total in [600.0] * 3 + [100.0] * 30:
        live.reconcile(total)
        live.now_ms += 15_000
    (scaled,) = real_scales(live.records)
    # The last 6 was recommended 30 s after the start.
    assert _seconds(scaled[0]) - _seconds(live.records[2].time) == 315.0
    assert scales(replayed(live, load_of(live)), live.records) == [scaled]


@pytest.mark.parametrize("behavior", [None, THREE_SECONDS], ids=["defaults", "behavior"])
@pytest.mark.parametrize("seed", range(3))
def test_windows_that_end_within_a_millisecond_of_a_decision_end_as_they_did(seed: int, behavior: Any) -> None:
    config = Config(downscale_stabilization_ms=3000)
    live = Live(make_hpa(behavior=behavior), seed=seed, config=config, interruptions=0.1)
    for total in wave(300, low=100, high=1500, period=20):
        live.fraction_ms = live.random.uniform(-0.6, 0.6)
        live.reconcile(total)
        live.now_ms += live.random.choice([999, 1000, 1001])

    notes = notes_of(live, load_of(live))

    assert "present: all 300 decisions are the same as the autoscaler's." in notes


@pytest.mark.parametrize("behavior", [None, BEHAVIOR, ONE_PERIOD], ids=["defaults", "behavior", "one period"])
def test_later_beginning_has_the_history_that_mattered(behavior: Any) -> None:
    live = Live(make_hpa(behavior=behavior), seed=5, failures=0.1)
    live.run(wave(120, low=100, high=1500))
    for first in range(5, 80, 7):
        records = live.records[first:]
        again = replayed(live, load_of(live, records))
        assert scales(again, records) == real_scales(records)


# --- another spec


def test_other_spec_gets_the_recorded_pods_until_the_replicas_differ_and_then_those_of_the_model() -> None:
    live = Live(make_hpa(pods_metric(average="100")), seed=6)
    live.run([200.0] * 10 + [600.0] * 30)
    load = load_of(live)
    changed = make_hpa(pods_metric(average="50"))

    again = replayed(live, load, changed)

    assert (again.scales[0].replicas, again.scales[0].desired_replicas) == (2, 4)
    assert again.scales[-1].desired_replicas == 12
    first = load.decisions[0]
    assert again.scales[0].time_ms == first.time_ms
    assert notes_of(live, load, changed)[1].endswith(
        "on, the decisions differ from the autoscaler's: 4 replicas instead of 2."
    )


def test_real_recommendation_of_the_first_decision_is_not_called_the_current_replicas() -> None:
    live = Live(make_hpa(pods_metric(average="100")), seed=6, replicas=1)
    live.run([200.0] * 3)
    changed = make_hpa(pods_metric(average="50"), behavior={"scaleUp": {"stabilizationWindowSeconds": 60}})
    first = replayed(live, load_of(live), changed).scales[0]
    assert (first.replicas, first.desired_replicas) == (1, 2)
    time = live.records[0].time[11:19]
    assert first.sentence.endswith(f"kept at 2 by the stabilization window of 60s: 2 was recommended at {time}")


def test_reality_is_the_recorded_replicas() -> None:
    live = Live(make_hpa(), seed=7)
    live.run(wave(60, low=100, high=1500))
    reality = replay_reality(load_of(live), Settings())
    assert reality is not None
    assert reality.initial_replicas == 2
    # A scale is written just after its decision.
    assert [(each.time_ms - 1, each.replicas, each.desired_replicas) for each in reality.scales] == [
        (round(1000 * _seconds(time)), before, after) for time, before, after in real_scales(live.records)
    ]


def test_same_decisions_have_the_overload_of_reality() -> None:
    live = Live(make_hpa(), seed=7)
    live.run(wave(60, low=100, high=1500))
    load, settings = load_of(live), Settings(capacity={"rps": 100.0})
    again, reality = replay_hpa(live.hpa, load, settings).summary, replay_reality(load, settings)
    assert reality is not None
    assert again.overload_seconds
    assert again.overload_seconds == reality.summary.overload_seconds
    assert again.overload_requests == pytest.approx(reality.summary.overload_requests)


def test_metric_that_failed_is_a_gap() -> None:
    live = Live(make_hpa(), seed=8, failures=0.2)
    live.run([200.0] * 40)
    series = load_of(live).series["rps"]
    failed = [each.metrics[0].failure is not None for each in live.records]
    assert any(failed)
    assert [math.isnan(series.at(time)) for time in series.times_ms] == failed


def test_metric_keeps_its_value_while_the_bounds_decide() -> None:
    live = Live(make_hpa(min_replicas=5), seed=9)
    live.run([500.0] * 3)
    assert [bool(each.metrics) for each in live.records] == [False, True, True]
    load = load_of(live)
    assert list(load.series["rps"].times_ms) == [each.time_ms for each in load.decisions[1:]]
    assert replayed(live, load).scales[0].desired_replicas == 5


def test_requests_are_those_of_the_pods() -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    memory = {"type": "Resource", "resource": {"name": "memory", "target": target}}
    live = Live(make_hpa(cpu_metric(50), memory), seed=10)
    live.run([each * 2**20 for each in wave(80, low=100, high=1500)])
    load = load_of(live)
    assert load.requests == REQUESTS
    (note,) = load.notes
    assert note.startswith("Values were 5.0s old (median; at most 5.0s) when a decision used them; ")


def test_latest_requests_keep_the_utilization_of_earlier_pods() -> None:
    live = Live(make_hpa(cpu_metric(50)), seed=10)
    live.run(wave(40, low=100, high=1500))
    (metric,) = live.records[-1].metrics
    assert metric.pods_requests is not None
    doubled = replace(metric, pods_requests=quantity_text(2 * milli_value(metric.pods_requests), binary=False))
    load = load_of(live, [*live.records[:-1], replace(live.records[-1], metrics=(doubled,))])
    assert load.requests == {"cpu": 2 * REQUESTS["cpu"]}
    again = [each for each in scales(replayed(live, load), live.records) if each[0] != live.records[-1].time]
    assert again == [each for each in real_scales(live.records) if each[0] != live.records[-1].time]


# --- notes and errors


def test_note_says_that_the_replicas_were_changed_by_others() -> None:
    live = Live(make_hpa(), seed=11, mode="dry-run")
    live.run([200.0] * 5 + [900.0] * 20)
    (note,) = [each for each in notes_of(live, load_of(live)) if each.startswith("present: ")]
    assert "the real replicas differ, 2 instead of 4, for another reason than decisions" in note


def test_note_says_that_the_spec_was_changed() -> None:
    live = Live(make_hpa(pods_metric(average="100")), seed=12)
    live.run([200.0] * 5)
    before = live.records[-1].time
    live.hpa = replace(live.hpa, spec=make_hpa(pods_metric(average="50")).spec)
    live.run([200.0] * 5)
    assert load_of(live).notes == [
        f"The HPA was changed after {before}: the real decisions until then are those of another spec."
    ]


def test_decisions_from_before_the_clock_was_set_back_are_left_out() -> None:
    live = Live(make_hpa(), seed=14)
    live.run([200.0] * 6)
    load = load_of(live, [*live.records[3:], *live.records[:3]])
    assert len(load.decisions) == 3


def test_too_few_decisions_are_an_error() -> None:
    live = Live(make_hpa(), seed=15)
    live.run([200.0])
    with pytest.raises(ReplayError, match="there are 1 kept decisions on shop/web, and a replay needs two or more"):
        load_of(live)
    live.run([200.0] * 5)
    with pytest.raises(ReplayError, match="0 kept decisions on shop/web between --from and --to"):
        recorded_load(live.hpa.key, live.hpa.target, live.records, to_ms=0)


def test_decisions_on_another_target_are_an_error() -> None:
    live = Live(make_hpa(), seed=16)
    live.run([200.0] * 3)
    with pytest.raises(ReplayError, match="are about Deployment/shop/web, and the HPA's target is Deployment/shop/b"):
        recorded_load(live.hpa.key, "Deployment/shop/b", live.records)


def test_decisions_on_an_earlier_hpa_of_the_same_name_are_left_out() -> None:
    live = Live(make_hpa(), seed=16)
    live.run([200.0] * 6)
    records = [replace(each, uid="old" if index < 4 else "new") for index, each in enumerate(live.records)]
    load = load_of(live, records)
    assert [each.record.uid for each in load.decisions] == ["new", "new"]
    assert load.notes == ["4 decisions on an earlier HPA of this name, which was deleted, are left out."]
    with pytest.raises(ReplayError, match="all kept decisions on shop/web are on an earlier HPA of this name; wait"):
        recorded_load(live.hpa.key, live.hpa.target, records[:4], uid="new")


def test_metric_that_was_not_recorded_is_an_error() -> None:
    live = Live(make_hpa(), seed=17)
    live.run([200.0] * 3)
    with pytest.raises(ReplayError, match="the load has no metric queue; it has: rps"):
        replayed(live, load_of(live), make_hpa(external_metric(value="3")))
