"""The last decisions of every HPA in memory: how many, how much, in which order."""

import itertools

import msgspec
import pytest

from autoscaler.core.model import HPAKey
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.facts import Facts, Subject
from autoscaler.records.record import VERSION, DecisionRecord

KUBERNETES, MILLISCALE = "autoscaling/v2", "milliscale.io/v1"
_clock = itertools.count(1_767_225_600_000)


def step(
    number: int, *, name: str = "web", api_version: str = KUBERNETES, padding: int = 0, uid: str = ""
) -> tuple[Subject, Facts]:
    """A step that tells by its count which one it is, each later than the one before."""
    key = HPAKey("default", name, api_version.partition("/")[0])
    facts = Facts(
        now_ms=next(_clock),
        mode="act",
        decided_by=None,
        current_replicas=None,
        desired_replicas=number,
        reason="",
        bounds=(1, 9),
        scale=None,
        tolerance=None,
        foreign_pods=None,
        metrics=(),
        winner=None,
        fallback=None,
        normalized=None,
        held_back=None,
        written=None,
        events=(),
        error="x" * padding,
    )
    return Subject(key, api_version, uid, "Deployment/default/web"), facts


def numbers(log: DecisionLog, name: str = "web", last: int | None = None) -> list[int | None]:
    page = log.page("default", name, last=last)
    if page is None:
        return []
    return [msgspec.json.decode(each, type=DecisionRecord).desired_replicas for each in page.decisions]


def test_the_last_ones_are_kept_oldest_first() -> None:
    log = DecisionLog(3)
    for number in range(5):
        log.add(*step(number))
    assert numbers(log) == [2, 3, 4]
    assert numbers(log, last=2) == [3, 4]
    assert numbers(log, last=9) == [2, 3, 4]


def test_the_order_is_that_of_the_steps_though_the_wall_clock_was_set_back() -> None:
    log = DecisionLog(3)
    later, earlier = step(1), step(2)
    for subject, facts in (later, earlier):
        now_ms = facts.now_ms - (60_000 if facts.desired_replicas == 2 else 0)
        log.add(subject, msgspec.structs.replace(facts, now_ms=now_ms))
    assert numbers(log) == [1, 2]
    assert numbers(log, last=1) == [2]


def test_each_hpa_has_its_own() -> None:
    log = DecisionLog(2)
    log.add(*step(1, name="quiet"))
    for number in range(5):
        log.add(*step(number, name="busy"))
    assert numbers(log, "quiet") == [1]
    assert numbers(log, "absent") == []


def test_hpas_of_one_name_in_two_apis_are_on_one_page_and_counted_apart() -> None:
    log = DecisionLog(2)
    for number in range(3):
        log.add(*step(number))
        log.add(*step(10 + number, api_version=MILLISCALE))
    assert numbers(log) == [1, 11, 2, 12]
    log.forget(HPAKey("default", "web", "milliscale.io"))
    assert numbers(log) == [1, 2]
    log.forget(HPAKey("default", "web", "milliscale.io"))


def test_the_index_says_of_whom_there_are_how_many() -> None:
    log = DecisionLog(2)
    for name in ("web", "api", "web", "web"):
        log.add(*step(1, name=name))
    assert msgspec.to_builtins(log.index()) == {
        "version": VERSION,
        "hpas": [
            {"namespace": "default", "name": "api", "group": "autoscaling", "decisions": 1},
            {"namespace": "default", "name": "web", "group": "autoscaling", "decisions": 2},
        ],
    }


def test_all_together_have_a_limit_and_the_oldest_go_first() -> None:
    log = DecisionLog(100, most_bytes=5000)
    for number in range(30):
        log.add(*step(number, name=f"hpa-{number % 3}", padding=800))
    kept = sorted(number for name in ("hpa-0", "hpa-1", "hpa-2") for number in numbers(log, name) if number is not None)
    assert kept == [25, 26, 27, 28, 29]


def test_a_record_larger_than_the_limit_leaves_nothing_behind() -> None:
    log = DecisionLog(10, most_bytes=1000)
    log.add(*step(1))
    log.add(*step(2, padding=2000))
    assert numbers(log) == []
    log.add(*step(3))
    assert numbers(log) == [3]


@pytest.mark.parametrize(("most", "listening", "wanted"), [(0, False, False), (0, True, True), (1, False, True)])
def test_without_a_use_no_record_is_wanted(most: int, listening: bool, wanted: bool) -> None:
    assert DecisionLog(most, on_record=print if listening else None).wanted is wanted


def test_each_record_is_told_also_where_none_is_kept() -> None:
    told: list[bytes] = []
    log = DecisionLog(0, on_record=told.append)
    log.add(*step(7))
    assert [msgspec.json.decode(each)["desiredReplicas"] for each in told] == [7]
    assert numbers(log) == []


def test_those_of_an_hpa_made_anew_are_told_apart_by_their_uid() -> None:
    log = DecisionLog(3)
    log.add(*step(1, uid="old"))
    log.add(*step(2, uid="new"))
    page = log.page("default", "web")
    assert page is not None
    assert [msgspec.json.decode(each, type=DecisionRecord).uid for each in page.decisions] == ["old", "new"]


def test_what_was_dropped_is_not_kept_for_the_sake_of_the_order() -> None:
    log = DecisionLog(1, most_bytes=3000)
    log.add(*step(0, name="rare"))
    for number in range(1000):
        log.add(*step(number, padding=500))
    assert len(log._all) <= 4
    assert numbers(log, "rare") == [0]
    log.forget(HPAKey("default", "web"))
    log.forget(HPAKey("default", "rare"))
    assert log.index().hpas == []
