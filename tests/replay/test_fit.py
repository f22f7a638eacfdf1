"""The settings of a controller that a replay is not told are found by the real replicas."""

from __future__ import annotations

import functools
import math
import random
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.core.config import Config
from replay.controller_flags import fit
from replay.load import Load, Series
from replay.reality import startup_of
from replay.simulation import Settings, replay_hpa, replay_reality
from tests.replay.builders import START_MS, cpu_metric, external_metric, make_hpa, pods_metric
from tests.replay.live import REQUESTS, REQUESTS_PER_CORE, Live

SAMPLE_MS = 15_000


HPA = make_hpa(pods_metric(average="100"), max_replicas=60)


def traffic(minutes: int, seed: int) -> list[float]:
    """Requests per second of each minute: a day's wave, noise, and surges."""
    rng = random.Random(seed)
    surges = [rng.randrange(minutes) for _ in range(minutes // 90)]
    noise, values = 0.0, []
    for minute in range(minutes):
        noise = 0.95 * noise + rng.gauss(0, 0.02)
        surge = 0.5 if any(start <= minute < start + 8 for start in surges) else 0.0
        values.append(900 * (1 + 0.6 * math.sin(2 * math.pi * minute / 1440) + noise + surge))
    return values


def reality(
    live: Live, minutes: int, *, period: float, seed: int = 1, noise: float = 0.0, busy: float = math.inf
) -> Load:
    """Run a controller on the traffic, and return the load as a scraper sees it every 15 seconds.

    Of each two hours, only the first `busy` minutes have traffic.
    """
    rng, end_ms = random.Random(seed), START_MS + minutes * 60_000
    per_minute = [value * (minute % 120 < busy) for minute, value in enumerate(traffic(minutes, seed))]
    totals = [value * rng.gauss(1, noise) for value in per_minute for _ in range(60_000 // SAMPLE_MS)]
    replicas: list[tuple[int, int]] = []
    ready: list[tuple[int, int]] = []
    while live.now_ms < end_ms:
        for at_ms in sorted({live.now_ms, *(pod.ready_ms for pod in live.pods if pod.ready_ms < live.now_ms)}):
            there = [pod for pod in live.pods if pod.deleted_ms is None]
            ready.append((at_ms, sum(pod.ready_ms <= at_ms for pod in there)))
        live.reconcile(totals[(live.now_ms - START_MS) // SAMPLE_MS])
        replicas.append((live.now_ms, live.replicas))
        live.now_ms += round(1000 * period) + live.random.randrange(1, 60)
    times = range(START_MS, end_ms, SAMPLE_MS)
    return Load(
        start_ms=START_MS,
        end_ms=end_ms,
        series={"rps": sampled([(START_MS + SAMPLE_MS * index, value) for index, value in enumerate(totals)], times)},
        requests=REQUESTS,
        replicas=sampled(replicas, times),
        ready_replicas=sampled(sorted(ready), times),
    )


def sampled(values: Sequence[tuple[int, float]], times: range) -> Series:
    found, index = array("d"), 0
    for time in times:
        while index + 1 < len(values) and values[index + 1][0] <= time:
            index += 1
        found.append(values[index][1])
    return Series(times_ms=array("q", times), values=found, hold_ms=SAMPLE_MS)


@functools.cache
def recorded() -> Load:
    """Four hours of a controller with the default settings."""
    return reality(Live(HPA, seed=2, replicas=9), 240, period=15.0)


def test_unchanged_spec_needs_what_reality_had_without_a_flag() -> None:
    """Where pods are ready within a minute; see also test_reality."""
    config = Config(tolerance=0.15, downscale_stabilization_ms=240_000)
    live = Live(HPA, seed=2, config=config, replicas=9)
    load = reality(live, 150, period=15.0)
    startup = startup_of(load)
    assert startup is not None
    assert 20_000 < startup.milliseconds <= 60_000, "a pod is ready after a minute at most"

    settings, note = fit(live.hpa, load, Settings(pod_startup_ms=startup.milliseconds), {"step"})

    assert note.startswith("The real replicas are explained by ")
    assert settings.config == config
    replayed, real = replay_hpa(live.hpa, load, settings).summary, replay_reality(load, settings)
    assert real is not None
    assert replayed.pod_hours == pytest.approx(real.summary.pod_hours, rel=0.01)
    assert abs(replayed.scale_events - real.summary.scale_events) <= 1


def test_given_flags_are_kept_and_replicas_of_another_spec_are_not_explained() -> None:
    load = replace(recorded(), end_ms=START_MS + 5_400_000)
    other = make_hpa(pods_metric(average="140"), max_replicas=60)
    given = Settings(config=Config(tolerance=0.2))
    settings, note = fit(other, load, given, {"tolerance"})
    assert settings == replace(given, explains_reality=False)
    assert note.startswith("No usual settings of a controller explain the 3 scale events in the first 1h30m: give the ")
    assert fit(HPA, load, given, {"tolerance", "step", "downscale_stabilization_ms"}) == (given, "")


@pytest.mark.parametrize(
    "is_gap",
    [
        lambda index: 60 <= index < 180,  # half an hour
        lambda index: index < 240,  # it begins later
    ],
    ids=["one", "first"],
)
def test_gap_of_the_recorded_replicas_does_not_count(is_gap: Callable[[int], bool]) -> None:
    load = recorded()
    assert load.replicas is not None
    values = [math.nan if is_gap(index) else value for index, value in enumerate(load.replicas.values)]
    load = replace(load, replicas=replace(load.replicas, values=array("d", values)))
    settings, note = fit(HPA, load, Settings(), {"tolerance", "step"})
    assert re.match(
        r"The real replicas are explained by downscale stabilization 5m \([01] wrong for \d scale events in ", note
    )
    assert settings == Settings()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (
            {
                "behavior": {
                    "scaleUp": {"tolerance": "0.1"},
                    "scaleDown": {"tolerance": "0.1", "stabilizationWindowSeconds": 300},
                }
            },
            "sync period",
        ),
        ({"annotations": {"milliscale.io/sync-period": "15s", "milliscale.io/tolerance": "0.1"}}, "downscale"),
        (
            {
                "behavior": {"scaleUp": {"tolerance": "0.1"}, "scaleDown": {"stabilizationWindowSeconds": 300}},
                "annotations": {"milliscale.io/sync-period": "15s"},
            },
            "tolerance",  # of the other direction
        ),
    ],
    ids=["behavior", "annotations", "one direction"],
)
def test_settings_that_the_hpa_has_itself_are_not_the_controllers(options: dict[str, Any], found: str) -> None:
    load = replace(recorded(), end_ms=START_MS + 7_200_000)
    _, note = fit(make_hpa(pods_metric(average="100"), max_replicas=60, **options), load, Settings(), ())
    assert note.startswith(f"The real replicas are explained by {found} ")
    assert ", " not in note.partition("(")[0]


def test_readiness_delay_counts_for_metrics_of_cpu() -> None:
    live = Live(make_hpa(cpu_metric(60), max_replicas=60), seed=2, replicas=9)
    load = reality(live, 90, period=15.0)
    cores = array("d", [value / REQUESTS_PER_CORE for value in load.series["rps"].values])
    load = replace(load, series={"cpu": replace(load.series["rps"], values=cores)})
    assert "initial readiness delay " in fit(live.hpa, load, Settings(), {"step", "tolerance"})[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda index, replicas: replicas + 1,  # as many scale events
        lambda index, replicas: replicas + (index % 400 == 5) - (index % 400 == 6),  # as many pod-hours
    ],
    ids=["more pods", "more scale events"],
)
def test_replicas_of_something_else_are_not_explained(change: Callable[[int, float], float]) -> None:
    load = recorded()
    assert load.replicas is not None
    values = array("d", [change(index, value) for index, value in enumerate(load.replicas.values)])
    load = replace(load, replicas=replace(load.replicas, values=values))
    settings, note = fit(HPA, load, Settings(), {"tolerance", "downscale_stabilization_ms"})
    assert settings == Settings(explains_reality=False)
    assert note.startswith("No usual settings of a controller explain the ")


def test_without_real_replicas_the_defaults_are_not_assumed_in_silence() -> None:
    settings, note = fit(HPA, replace(recorded(), replicas=None), Settings(), {"tolerance"})
    assert settings == Settings()
    assert note.startswith("Assumed: the controller has the default settings, but for those given")
    given = {"tolerance", "step", "downscale_stabilization_ms"}
    assert fit(HPA, replace(recorded(), replicas=None), Settings(), given) == (Settings(), "")


def test_replicas_that_do_not_change_say_nothing_and_one_scale_event_is_explained() -> None:
    load = replace(recorded(), end_ms=START_MS + 20 * 60_000)
    settings, note = fit(HPA, load, Settings(), ())
    assert settings == Settings()
    assert note.startswith("The real replicas do not change in the first 20m, so they do not show")
    load = replace(load, end_ms=START_MS + 40 * 60_000)
    settings, note = fit(HPA, load, Settings(config=Config(tolerance=0.5)), {"downscale_stabilization_ms", "step"})
    assert settings.config.tolerance < 0.5
    assert note.startswith("The real replicas are explained by tolerance 0.")
    assert "(0 wrong for 1 scale event in the first 40m)" in note


@pytest.mark.parametrize(("minutes", "events", "explained"), [(60, 5, True), (40, 3, False)])
def test_two_of_five_scale_events_may_have_another_cause(minutes: int, events: int, explained: bool) -> None:
    load = recorded()
    assert load.replicas is not None
    values = load.replicas.values[:]
    values[100] += 1  # two scale events that no setting explains
    load = replace(load, end_ms=START_MS + minutes * 60_000, replicas=replace(load.replicas, values=values))
    _, note = fit(HPA, load, Settings(), {"tolerance", "downscale_stabilization_ms"})
    assert note.startswith("The real replicas are explained by") is explained
    assert f"{events} scale events in the first" in note


def test_a_rise_in_a_gap_of_the_recording_says_nothing_about_the_start_of_pods() -> None:
    load = recorded()
    assert load.replicas is not None
    assert load.ready_replicas is not None
    few, many = array("d", [5.0] * 60), array("d", [8.0] * 60)
    values = few + array("d", [math.nan] * 480) + many  # two hours
    times = load.replicas.times_ms[: len(values)]
    series = Series(times_ms=times, values=values, hold_ms=SAMPLE_MS)
    assert startup_of(replace(load, end_ms=times[-1], replicas=series, ready_replicas=series)) is None


@pytest.mark.parametrize(
    ("period", "window_ms", "tolerance", "minutes", "busy"),
    [
        (15, 120_000, 0.05, 180, math.inf),
        (30, 60_000, 0.05, 180, math.inf),
        (60, 300_000, 0.1, 180, math.inf),
        (20, 120_000, 0.05, 600, 40),
    ],
)
def test_settings_are_found_where_replicas_follow_noise(
    period: int, window_ms: int, tolerance: float, minutes: int, busy: float
) -> None:
    """The controller sees one of one, two and four samples, and which one is not known."""
    config = Config(tolerance=tolerance, downscale_stabilization_ms=window_ms)
    hpa = make_hpa(external_metric("rps", averageValue="100"), max_replicas=60)
    live = Live(hpa, seed=3, config=config, replicas=9, startup_seconds=20)
    load = reality(live, minutes, period=period, noise=0.04, busy=busy)
    settings, note = fit(hpa, load, Settings(pod_startup_ms=20_000), ())
    assert note.startswith("The real replicas are explained by ")
    assert settings.config == config
