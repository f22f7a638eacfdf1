"""Replays to show: an hour with a peak, a gap, and the replicas that there were."""

from __future__ import annotations

import math
from dataclasses import replace

from replay.load import Load
from replay.output.comparison import Comparison
from replay.output.comparison import compare as replay_all
from replay.simulation import Settings
from tests.replay.builders import GAP, load_of, make_hpa, pods_metric, series_of

STEPS = 240


def peak_load(*, reality: bool = False) -> Load:
    """An hour of 200 requests per second with a peak of 1700, and a gap of two minutes."""
    values = [200 + 1500 * math.exp(-(((step - 80) / 20) ** 2)) for step in range(STEPS)]
    values[160:168] = [GAP] * 8
    load = load_of(rps=values)
    return replace(load, replicas=series_of([12.0] * 60 + [20.0] * 180)) if reality else load


def compare(
    *averages: str,
    reality: bool = False,
    name: str = "shop/web",
    load: Load | None = None,
    pod_cost: float | None = None,
) -> Comparison:
    """Replay one spec for each target; each pod can serve 100."""
    load = load or peak_load(reality=reality)
    settings = Settings(capacity={"rps": 100.0}, pod_cost=pod_cost)
    hpas = {f"{name}-{average}": make_hpa(pods_metric(average=average)) for average in averages}
    return replay_all(hpas, load, settings)
