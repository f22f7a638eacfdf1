"""How sure a saving is: the coverage of the interval, and what passes for a gain, by simulated days."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from replay.tune.evaluation import DAY_MS, Days, Figures
from replay.tune.goal import LEAST_DAYS_OF_INTERVAL, Goal, saved_interval
from replay.tune.tuning import Verdict, verdict_on

CASES = 1000
SPREAD = 0.03
"""The standard deviation of the share saved on a day."""


def normal(days: int, random: Random) -> list[float]:
    return [random.gauss(0, 1) for _ in range(days)]


def skewed(days: int, random: Random) -> list[float]:
    return [1 - random.expovariate(1) for _ in range(days)]


def weekends(days: int, random: Random) -> list[float]:
    first = random.randrange(7)
    return [random.gauss(0, 0.5) + (1.2 if (first + day) % 7 >= 5 else -0.48) for day in range(days)]


def correlated(days: int, random: Random) -> list[float]:
    noise = normal(days, random)
    for day in range(1, days):
        noise[day] = 0.3 * noise[day - 1] + math.sqrt(1 - 0.3**2) * noise[day]
    return noise


Noise = Callable[[int, Random], list[float]]


def cases(saved: float, days: int, noise: Noise) -> Iterator[tuple[list[float], list[float]]]:
    """Yield the pod-hours of a spec, and those of the given one, on some days, of which a share is saved on average."""
    random = Random(1)
    for _ in range(CASES):
        given = [100 * math.exp(random.gauss(0, 0.25)) for _ in range(days)]
        shares = [saved + SPREAD * each for each in noise(days, random)]
        yield [before * (1 - share) for before, share in zip(given, shares, strict=True)], given


@pytest.mark.parametrize("noise", [normal, skewed, weekends, correlated])
@pytest.mark.parametrize("days", [LEAST_DAYS_OF_INTERVAL, 11, 14, 28])
def test_interval_holds_the_true_saving_in_nine_of_ten_cases(noise: Noise, days: int) -> None:
    intervals = [saved_interval(*case) for case in cases(0.1, days, noise)]
    assert sum(low <= 0.1 <= high for low, high in intervals) / CASES >= 0.9


def test_interval_is_not_as_wide_as_everything() -> None:
    widths = sorted(high - low for low, high in (saved_interval(*case) for case in cases(0.1, 14, normal)))
    assert widths[CASES // 2] < 0.05


def figures(pod_hours: Sequence[float]) -> list[Figures]:
    return [Figures(each, ((0.0, 1000.0),), 5, 1, DAY_MS) for each in pod_hours]


def verdicts(saved: float, days: int, noise: Noise) -> list[Verdict]:
    split = Days(
        starts_ms=tuple(range(0, days * DAY_MS, DAY_MS)), end_ms=days * DAY_MS, counted_from_ms=0, are_days=True
    )
    return [
        verdict_on(Goal(max_overload=0.001), split, figures(found), figures(given))
        for found, given in cases(saved, days, noise)
    ]


@pytest.mark.parametrize("noise", [normal, skewed, weekends, correlated])
@pytest.mark.parametrize("days", [4, 7, 14])
def test_saving_of_one_percent_is_rarely_recommended(noise: Noise, days: int) -> None:
    assert verdicts(0.01, days, noise).count(Verdict.BETTER) / CASES <= 0.05


@pytest.mark.parametrize(("days", "saved"), [(4, 0.15), (7, 0.1), (14, 0.06)])
def test_clear_saving_is_mostly_recommended(days: int, saved: float) -> None:
    assert verdicts(saved, days, normal).count(Verdict.BETTER) / CASES >= 0.9


@pytest.mark.parametrize("days", [1, 2, 3])
def test_less_than_four_days_are_too_few(days: int) -> None:
    assert set(verdicts(0.3, days, normal)) == {Verdict.TOO_FEW_DAYS}
