"""How sure a saving is: the coverage of the interval, and what passes for a gain, by simulated days."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from replay.hpa_files import parse_hpa_document
from replay.results import Figures
from replay.simulation import Settings
from replay.tune import tuning
from replay.tune.evaluation import DAY_MS, Days, Problem, Run, TuneOptions
from replay.tune.goal import LEAST_DAYS_OF_INTERVAL, Goal, saved_interval
from replay.tune.search import Search
from replay.tune.tuning import Verdict, verdict_on
from tests.replay.builders import hpa_document, load_of, pods_metric

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


def test_saving_of_one_percent_is_rarely_recommended_after_bolder_choices_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the way to the boldest target that keeps the limits, it is tried on the same unseen days again."""
    days, step_back, stepped_back = 4, Search.step_back, []

    def counted(search: Search, *, at_most: int) -> bool:
        stepped_back.append(step_back(search, at_most=at_most))
        return stepped_back[-1]

    def share(target: float) -> float:
        return 0.025 * (target - 70) / 20

    monkeypatch.setattr(Search, "step_back", counted)
    file = parse_hpa_document(hpa_document(pods_metric(average="70")), "hpa.yaml")
    load, settings = load_of(rps=[1.0] * days, step_ms=DAY_MS), Settings(capacity={"rps": 100.0})
    options = TuneOptions(goal=Goal(max_overload=0.001), fields=["target"], jobs=1)
    recommended = []
    for case in range(CASES // 5):
        replayed: list[Run] = []

        def evaluate(_: Problem, run: Run, case: int = case, replayed: list[Run] = replayed) -> tuple[Figures, ...]:
            replayed.append(run)
            target = run.candidate.get("target", 70.0)
            noise = normal(days, Random(f"{case} {target}")) if run.candidate else [0.0] * days
            above = [3 * max(target - 84, 0), 0.0, 0.0, 0.0]  # one day has a surge
            pods = [100 * (1 - share(target) - SPREAD * each) for each in noise]
            return tuple(
                Figures(*each, 5, 1, DAY_MS) for each in zip(pods, [((x, 1000.0),) for x in above], strict=True)
            )

        monkeypatch.setattr(tuning, "evaluate", evaluate)
        tuned = tuning.tune(Problem(file=file, load=load, settings=settings, options=options))
        assert tuned.replays == sum(run.offset_ms == 0 for run in replayed), "the report counts all that were tried"
        if tuned.recommended:
            recommended.append(tuned.recommended.candidate["target"])
    assert stepped_back.count(True) > 10
    assert sum(share(target) <= 0.01 for target in recommended) <= 0.05 * CASES // 5


@pytest.mark.parametrize(("days", "saved"), [(4, 0.15), (7, 0.1), (14, 0.06)])
def test_clear_saving_is_mostly_recommended(days: int, saved: float) -> None:
    assert verdicts(saved, days, normal).count(Verdict.BETTER) / CASES >= 0.9


@pytest.mark.parametrize("days", [1, 2, 3])
def test_less_than_four_days_are_too_few(days: int) -> None:
    assert set(verdicts(0.3, days, normal)) == {Verdict.TOO_FEW_DAYS}
