"""The last decisions of every HPA in memory: how many, how much, in which order."""

import msgspec
import pytest

from autoscaler.core.model import HPAKey
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import VERSION, BoundsRecord, DecisionRecord

KUBERNETES, MILLISCALE = "autoscaling/v2", "milliscale.io/v1"


def record(number: int, *, name: str = "web", api_version: str = KUBERNETES, padding: int = 0) -> DecisionRecord:
    """A record that tells by its count which one it is."""
    return DecisionRecord(
        version=VERSION,
        time="2026-01-01T00:00:00.000Z",
        api_version=api_version,
        namespace="default",
        name=name,
        target="Deployment/default/web",
        sentence="x" * padding,
        desired_replicas=number,
        bounds=BoundsRecord(min_replicas=1, max_replicas=9),
    )


def numbers(log: DecisionLog, name: str = "web", last: int | None = None) -> list[int | None]:
    page = log.page("default", name, last=last)
    if page is None:
        return []
    return [msgspec.json.decode(each, type=DecisionRecord).desired_replicas for each in page.decisions]


def test_the_last_ones_are_kept_oldest_first() -> None:
    log = DecisionLog(3)
    for number in range(5):
        log.add(record(number))
    assert numbers(log) == [2, 3, 4]
    assert numbers(log, last=2) == [3, 4]
    assert numbers(log, last=9) == [2, 3, 4]


def test_each_hpa_has_its_own() -> None:
    log = DecisionLog(2)
    log.add(record(1, name="quiet"))
    for number in range(5):
        log.add(record(number, name="busy"))
    assert numbers(log, "quiet") == [1]
    assert numbers(log, "absent") == []


def test_hpas_of_one_name_in_two_apis_are_on_one_page_and_counted_apart() -> None:
    log = DecisionLog(2)
    for number in range(3):
        log.add(record(number))
        log.add(record(10 + number, api_version=MILLISCALE))
    assert numbers(log) == [1, 11, 2, 12]
    log.forget(HPAKey("default", "web", "milliscale.io"))
    assert numbers(log) == [1, 2]
    log.forget(HPAKey("default", "web", "milliscale.io"))


def test_the_index_says_of_whom_there_are_how_many() -> None:
    log = DecisionLog(2)
    for name in ("web", "api", "web", "web"):
        log.add(record(1, name=name))
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
        log.add(record(number, name=f"hpa-{number % 3}", padding=800))
    kept = sorted(number for name in ("hpa-0", "hpa-1", "hpa-2") for number in numbers(log, name) if number is not None)
    assert kept == [26, 27, 28, 29] or kept == [25, 26, 27, 28, 29]


def test_a_record_larger_than_the_limit_leaves_nothing_behind() -> None:
    log = DecisionLog(10, most_bytes=1000)
    log.add(record(1))
    log.add(record(2, padding=2000))
    assert numbers(log) == []
    log.add(record(3))
    assert numbers(log) == [3]


@pytest.mark.parametrize(("most", "listening", "wanted"), [(0, False, False), (0, True, True), (1, False, True)])
def test_without_a_use_no_record_is_wanted(most: int, listening: bool, wanted: bool) -> None:
    assert DecisionLog(most, on_record=print if listening else None).wanted is wanted


def test_each_record_is_told_also_where_none_is_kept() -> None:
    told: list[bytes] = []
    log = DecisionLog(0, on_record=told.append)
    log.add(record(7))
    assert [msgspec.json.decode(each)["desiredReplicas"] for each in told] == [7]
    assert numbers(log) == []
