"""The last decisions of every HPA: their number, their size, their order."""

import asyncio
import itertools
import random
from datetime import UTC, datetime

import msgspec
import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop.histories import SavedHistoryError, decode_decisions, encode_decisions
from autoscaler.records.decision_log import DecisionLog, uncompressed
from autoscaler.records.record import VERSION, BoundsRecord, DecisionRecord

KUBERNETES, MILLISCALE = "autoscaling/v2", "milliscale.io/v1"
_seconds = itertools.count()


def record(
    number: int, *, name: str = "web", api_version: str = KUBERNETES, padding: int = 0, uid: str = ""
) -> DecisionRecord:
    """Return a record with `number` as its replicas, later than the one before."""
    time = datetime.fromtimestamp(1_767_225_600 + next(_seconds), UTC)
    return DecisionRecord(
        version=VERSION,
        time=time.isoformat(),
        api_version=api_version,
        namespace="default",
        name=name,
        uid=uid,
        target="Deployment/default/web",
        desired_replicas=number,
        bounds=BoundsRecord(min_replicas=1, max_replicas=9),
        error=random.Random(number).randbytes(padding).hex(),  # a text that is compressed to `padding` bytes
    )


def numbers(log: DecisionLog, name: str = "web", last: int | None = None) -> list[int | None]:
    page = asyncio.run(log.page("default", name, last=last))
    if page is None:
        return []
    return [each.desired_replicas for each in page.decisions]


def test_last_records_are_kept_oldest_first() -> None:
    log = DecisionLog(3)
    for number in range(5):
        log.add(record(number))
    assert numbers(log) == [2, 3, 4]
    assert numbers(log, last=2) == [3, 4]
    assert numbers(log, last=9) == [2, 3, 4]


def test_order_is_kept_when_the_wall_clock_is_set_back() -> None:
    log = DecisionLog(3)
    earlier, later = record(2), record(1)
    log.add(later)
    log.add(earlier)
    assert numbers(log) == [1, 2]
    assert numbers(log, last=1) == [2]


def test_each_hpa_has_its_own_limit() -> None:
    log = DecisionLog(2)
    log.add(record(1, name="quiet"))
    for number in range(5):
        log.add(record(number, name="busy"))
    assert numbers(log, "quiet") == [1]
    assert numbers(log, "absent") == []


def test_hpas_of_one_name_in_two_apis_share_a_page_but_not_a_limit() -> None:
    log = DecisionLog(2)
    for number in range(3):
        log.add(record(number))
        log.add(record(10 + number, api_version=MILLISCALE))
    assert numbers(log) == [1, 11, 2, 12]
    log.remove(HPAKey("default", "web", "milliscale.io"))
    assert numbers(log) == [1, 2]
    log.remove(HPAKey("default", "web", "milliscale.io"))


def test_records_of_one_hpa_are_read_by_their_numbers() -> None:
    log = DecisionLog(2)
    for number in range(3):
        log.add(record(number))
        log.add(record(10 + number, api_version=MILLISCALE))
    key = HPAKey("default", "web", "milliscale.io")
    kept = log.numbers(key)
    assert [each and each.desired_replicas for each in map(log.get, kept)] == [11, 12]
    log.add(record(13, api_version=MILLISCALE))
    assert log.get(kept[0]) is None, "it was dropped"
    assert log.numbers(key)[0] == kept[1]
    assert log.numbers(HPAKey("default", "absent")) == ()


def test_index_has_the_number_of_records_per_hpa() -> None:
    log = DecisionLog(2)
    for name in ("web", "api", "web", "web"):
        log.add(record(1, name=name))
    assert msgspec.to_builtins(list(log.index())) == [
        {"namespace": "default", "name": "api", "group": "autoscaling", "decisions": 1},
        {"namespace": "default", "name": "web", "group": "autoscaling", "decisions": 2},
    ]


def test_index_has_the_desired_replicas_of_the_last_decisions() -> None:
    log = DecisionLog(3)
    for number in (9, 5, 6, 7):
        log.add(record(number))
    log.add(msgspec.structs.replace(record(0), desired_replicas=None))
    assert [each.desired_replicas for each in log.index(last=2)] == [[7, None]]
    assert [each.desired_replicas for each in log.index(last=20)] == [[6, 7, None]]


def test_index_goes_on_when_an_hpa_is_deleted_meanwhile() -> None:
    log = DecisionLog(1)
    log.add(record(1, name="api"))
    log.add(record(1, name="web"))
    index = log.index(last=1)
    assert next(index).name == "api"
    log.remove(HPAKey("default", "web"))
    assert list(index) == []


def test_memory_limit_drops_the_oldest_records_of_any_hpa() -> None:
    log = DecisionLog(100, max_bytes=5900)
    for number in range(30):
        log.add(record(number, name=f"hpa-{number % 3}", padding=700))
    kept = sorted(number for name in ("hpa-0", "hpa-1", "hpa-2") for number in numbers(log, name) if number is not None)
    assert kept == [25, 26, 27, 28, 29]


def test_record_larger_than_the_limit_is_dropped() -> None:
    log = DecisionLog(10, max_bytes=1000)
    log.add(record(1))
    log.add(record(2, padding=2000))
    assert numbers(log) == []
    log.add(record(3))
    assert numbers(log) == [3]


@pytest.mark.parametrize(("most", "listening", "enabled"), [(0, False, False), (0, True, True), (1, False, True)])
def test_log_is_enabled_if_records_are_kept_or_passed_on(most: int, listening: bool, enabled: bool) -> None:
    assert DecisionLog(most, on_record=print if listening else None).enabled is enabled


def test_each_record_is_passed_on_though_none_is_kept() -> None:
    lines: list[bytes] = []
    log = DecisionLog(0, on_record=lines.append)
    log.add(record(7))
    assert [msgspec.json.decode(each)["desiredReplicas"] for each in lines] == [7]
    assert numbers(log) == []


def test_dropped_records_are_removed_from_the_order() -> None:
    log = DecisionLog(1, max_bytes=3000)
    log.add(record(0, name="rare"))
    for number in range(1000):
        log.add(record(number, padding=500))
    assert len(log._records) == 2
    assert numbers(log, "rare") == [0]
    log.remove(HPAKey("default", "web"))
    log.remove(HPAKey("default", "rare"))
    assert list(log.index()) == []


# --- saved for the next process --------------------------------------------------------------------------------------


def saved(log: DecisionLog, *, limit_bytes: int = 100_000) -> bytes:
    records = [uncompressed(data) for data in log.newest_first(max_bytes=10**6)]
    return encode_decisions(records, limit_bytes=limit_bytes)


def test_next_process_keeps_the_saved_decisions_of_hpas_of_which_it_has_none() -> None:
    before, after = DecisionLog(3), DecisionLog(2)
    for number in range(3):
        before.add(record(number))
        before.add(record(number, name="api"))
    after.add(record(9, name="api"))
    after.restore(decode_decisions(saved(before)))
    assert (numbers(after), numbers(after, "api")) == ([1, 2], [9])


def test_restored_decisions_are_not_written_to_the_audit_file_again() -> None:
    before, lines = DecisionLog(3), list[bytes]()
    before.add(record(1))
    for kept in (0, 3):
        after = DecisionLog(kept, on_record=lines.append)
        after.restore(decode_decisions(saved(before)))
        assert numbers(after) == [1][:kept]
    assert lines == []


def test_as_many_of_the_newest_decisions_are_saved_as_fit() -> None:
    log = DecisionLog(20)
    for number in range(20):
        log.add(record(number, padding=1000))
    content = saved(log, limit_bytes=10_000)
    kept = [each.desired_replicas for each in decode_decisions(content)]
    assert len(content) <= 10_000
    assert 5 < len(kept) < 10
    assert kept == list(range(20))[-len(kept) :]
    assert saved(log, limit_bytes=100) == b""


def test_decisions_that_this_release_cannot_read_are_left_out() -> None:
    other = msgspec.structs.replace(record(1), version=VERSION + 1)
    lines = [b"{", msgspec.json.encode(other), msgspec.json.encode(record(2)), b"[" * 5_000]
    assert [each.desired_replicas for each in decode_decisions(encode_decisions(lines, limit_bytes=9_999))] == [2]
    with pytest.raises(SavedHistoryError):
        decode_decisions(b"no gzip")
