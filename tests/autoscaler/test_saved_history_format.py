"""The format of the saved history: all entries that can still count are restored."""

import gzip
import json
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.config import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.decide import decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import LONG_AGO_MS, History, Recommendation, ScaleEvent
from autoscaler.core.model import HPAKey
from autoscaler.core.observation import Observation
from autoscaler.loop.histories import HistoryEntry, SavedHistoryError, decode, encode
from tests.autoscaler.simulated_cluster import NOW, behavior, normalize, percent, rules
from tests.conformance import reconcile_traces
from tests.conformance.runner import RECORDED

WEB = HPAKey("default", "web")
OTHER = HPAKey("default", "web", "milliscale.io")
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

counts = st.integers(0, 2**31 - 1)
recent = st.integers(NOW - MAX_STABILIZATION_WINDOW_MS, NOW)
ancient = st.integers(0, NOW - MAX_STABILIZATION_WINDOW_MS - 1)
recommendations = st.lists(st.builds(Recommendation, counts, recent | ancient), max_size=6)
events = st.lists(st.builds(ScaleEvent, counts, recent | ancient, st.booleans()), max_size=4)
histories = st.builds(
    History,
    recommendations=recommendations.map(tuple),
    scale_up_events=events.map(tuple),
    scale_down_events=events.map(tuple),
    metric_failures=st.integers(0, 1000),
    complete=st.booleans(),
)
names = st.text("abc-.é\U0001f600", min_size=1, max_size=20)
keys = st.builds(HPAKey, names, names, st.sampled_from(["autoscaling", "milliscale.io"]))
memories = st.dictionaries(keys, st.builds(HistoryEntry, st.text(max_size=36), histories), max_size=4)


def saved_and_restored(history: History, now_ms: int = NOW) -> History:
    content = encode({WEB: HistoryEntry("u", history)}, now_ms=now_ms)[0]
    return decode(content, now_ms=now_ms)[WEB].history


def without_what_cannot_count(history: History) -> History:
    oldest = NOW - MAX_STABILIZATION_WINDOW_MS

    def event(each: ScaleEvent) -> ScaleEvent:
        return each if each.time_ms >= oldest else ScaleEvent(0, LONG_AGO_MS, outdated=True)

    return History(
        recommendations=tuple(
            each if each.time_ms >= oldest else Recommendation(0, LONG_AGO_MS) for each in history.recommendations
        ),
        scale_up_events=tuple(map(event, history.scale_up_events)),
        scale_down_events=tuple(map(event, history.scale_down_events)),
        metric_failures=history.metric_failures,
        complete=history.complete,
    )


@given(memories)
def test_entries_that_can_count_are_restored_in_their_slots(memory: dict[HPAKey, HistoryEntry]) -> None:
    restored = decode(encode(memory, now_ms=NOW)[0], now_ms=NOW)
    assert restored == {
        key: HistoryEntry(each.uid, without_what_cannot_count(each.history)) for key, each in memory.items()
    }


def test_recorded_decisions_are_the_same_with_a_restart_before_each_reconciliation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarts = 0

    def decide_after_a_restart(observation: Observation, history: History, now_ms: int) -> Decision:
        nonlocal restarts
        restarts += 1
        return decide(observation, saved_and_restored(history, now_ms), now_ms)

    monkeypatch.setattr(reconcile_traces, "decide", decide_after_a_restart)
    with gzip.open(RECORDED / "reconcile_traces.jsonl.gz", "rt") as lines:
        # Every twentieth trace: compression takes long.
        found = [reconcile_traces.check(json.loads(line)) for line in islice(lines, 0, None, 20)]
    assert not any(found)
    assert restarts > len(found) > 0


def test_a_time_ahead_of_this_machines_clock_counts_as_now() -> None:
    content = encode({WEB: HistoryEntry("u", History(recommendations=(Recommendation(9, NOW),)))}, now_ms=NOW)[0]
    earlier = NOW - 90 * SECOND
    assert decode(content, now_ms=earlier)[WEB].history.recommendations == (Recommendation(9, earlier),)


MACHINE, ANOTHER = 40 * MINUTE, 7 * SECOND
"""The monotonic clocks of two machines."""


@pytest.mark.parametrize(
    ("wall_clock_moves", "age"),
    [(MINUTE, 3 * MINUTE), (-HOUR, 2 * MINUTE), (HOUR, HOUR + 2 * MINUTE)],
    ids=["as time passes", "set back", "set forward"],
)
def test_restored_entries_have_aged_by_the_wall_clock(wall_clock_moves: int, age: int) -> None:
    history = History(
        recommendations=(Recommendation(3, MACHINE - 2 * MINUTE), Recommendation(4, LONG_AGO_MS)),
        scale_up_events=(ScaleEvent(2, MACHINE - 2 * MINUTE),),
    )
    content = encode({WEB: HistoryEntry("u", history)}, now_ms=NOW, monotonic_ms=MACHINE)[0]
    restored = decode(content, now_ms=NOW + wall_clock_moves, monotonic_ms=ANOTHER)[WEB].history
    assert restored.recommendations == (Recommendation(3, ANOTHER - age), Recommendation(0, LONG_AGO_MS))
    assert restored.scale_up_events == (ScaleEvent(2, ANOTHER - age),)


def test_a_slot_that_is_too_old_counts_nowhere_on_a_machine_that_has_just_started() -> None:
    history = History(recommendations=(Recommendation(0, LONG_AGO_MS), Recommendation(5, ANOTHER - SECOND)))
    normalized = normalize(
        proposed_replicas=8,
        current_replicas=5,
        min_replicas=1,
        max_replicas=20,
        behavior=behavior(up=rules(percent(1000, 1), window=60)),
        downscale_stabilization_ms=0,
        history=history,
        now_ms=ANOTHER,
    )
    assert normalized.desired_replicas == 5, "the lowest recommendation of the last minute"


def test_saved_history_is_readable_with_standard_tools() -> None:
    history = History(
        recommendations=(Recommendation(3, NOW - 15_000), Recommendation(4, NOW), Recommendation(1, 0)),
        scale_up_events=(ScaleEvent(2, NOW - 15_000),),
    )
    content = encode({WEB: HistoryEntry("uid-1", history)}, now_ms=NOW)[0]
    assert json.loads(gzip.decompress(content)) == {
        "version": 1,
        "saved_ms": NOW,
        "hpas": [
            [
                "default",
                "web",
                "autoscaling",
                "uid-1",
                [[3, -15_000], [4, 15_000], None],
                [[2, -15_000, False]],
                [],
                0,
                True,
            ]
        ],
    }


# --- too large -----------------------------------------------------------------------------------------------------


def many(number: int) -> dict[HPAKey, HistoryEntry]:
    """HPAs, of which every tenth holds a scale-down back; each has been heard of a second before the next."""
    return {
        HPAKey("default", f"hpa-{index:05}"): HistoryEntry(
            f"{index * 7919:032x}",
            History(
                recommendations=(
                    Recommendation(9 if index % 10 == 0 else 3, NOW - 20 * MINUTE - index),
                    Recommendation(3, NOW - (number - index) * SECOND),
                )
            ),
        )
        for index in range(number)
    }


def test_histories_that_limit_scale_downs_are_left_out_last() -> None:
    memory = many(500)
    limit = len(encode(memory, now_ms=NOW)[0]) // 3
    content, left_out = encode(memory, now_ms=NOW, limit_bytes=limit)
    restored = decode(content, now_ms=NOW)
    assert limit // 2 < len(content) <= limit
    assert left_out == 500 - len(restored) > 0
    assert {key for key in memory if int(key.name[-5:]) % 10 == 0} <= restored.keys()
    steady = sorted(key for key in restored if int(key.name[-5:]) % 10)
    assert steady[0].name > "hpa-00300", "of the steady ones, the latest"


def every_second(seed: int, *, seconds: int = 3600) -> History:
    """Recommendations at a sync period of a second, at a load that is never the same."""
    random = Random(seed)
    times = (NOW - (seconds - number) * SECOND + random.randrange(50) for number in range(1, seconds))
    return History(recommendations=tuple(Recommendation(random.randrange(100), time) for time in times))


def test_long_histories_do_not_displace_many_short_ones() -> None:
    """Twelve HPAs with as much history as there can be beside 500 with some, of ten namespaces."""
    others = {
        HPAKey(f"team-{index % 10}", f"hpa-{index}"): HistoryEntry(
            f"{index * 7919:032x}",
            History(recommendations=(Recommendation(9, NOW - MINUTE - index), Recommendation(3, NOW - index))),
        )
        for index in range(500)
    }
    long = {HPAKey("long", f"hpa-{index}"): HistoryEntry("u", every_second(index)) for index in range(12)}
    needed = len(encode(others, now_ms=NOW)[0])
    content, left_out = encode({**long, **others}, now_ms=NOW, limit_bytes=2 * needed)
    restored = decode(content, now_ms=NOW)
    assert others.keys() <= restored.keys()
    assert left_out > 0


def test_long_histories_do_not_displace_a_few_short_ones() -> None:
    short = {key: each for key, each in many(100).items() if int(key.name[-5:]) % 10 == 0}
    long = {HPAKey("default", f"a-{index}"): HistoryEntry("u", every_second(index)) for index in range(3)}
    limit = 2 * len(encode(short, now_ms=NOW)[0])
    assert decode(encode({**long, **short}, now_ms=NOW, limit_bytes=limit)[0], now_ms=NOW).keys() == short.keys()


def test_nothing_is_saved_if_no_hpa_fits() -> None:
    content, left_out = encode(many(3), now_ms=NOW, limit_bytes=10)
    assert left_out == 3
    assert decode(content, now_ms=NOW) == {}


def test_five_thousand_hpas_with_full_windows_fit_into_a_config_map() -> None:
    def full(index: int) -> History:
        times = (NOW - 15_000 * slot - (index * 37 + slot * 101) % 900 for slot in range(21))
        return History(recommendations=tuple(Recommendation(3 + index % 3, each) for each in times))

    memory = {HPAKey(f"team-{i % 50}", f"service-{i}"): HistoryEntry(f"{i * 7919:032x}", full(i)) for i in range(5000)}
    assert encode(memory, now_ms=NOW)[1] == 0


# --- unusable ------------------------------------------------------------------------------------------------------


def packed(**changes: object) -> bytes:
    entry = ["default", "web", "autoscaling", "u", [[3, 0]], [], [], 0]
    return gzip.compress(json.dumps({"version": 1, "saved_ms": NOW, "hpas": [entry], **changes}).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cut off"),
        (b"no gzip at all", "damaged"),
        (packed()[:-9], "cut off"),
        (gzip.compress(b"\xff\xfe", mtime=0), "damaged"),
        (gzip.compress(b"[" * 100_000, mtime=0), "damaged"),
        (gzip.compress(b"{}", mtime=0), "damaged"),
        (packed(version=2), "it is of version 2, and this release reads version 1"),
        (packed(version=2, hpas={"in": "a new form"}), "it is of version 2"),
        (packed(saved_ms="yesterday"), "damaged"),
        (packed(hpas=[["default", "web"]]), "damaged"),
        (packed(hpas=[["default", "web", "autoscaling", "u", [[-1, 0]], [], [], 0]]), "damaged"),
        (packed(hpas=[["default", "web", "autoscaling", "u", [[2**31, 0]], [], [], 0]]), "damaged"),
    ],
)
def test_invalid_content_is_refused_with_a_reason(content: bytes, why: str) -> None:
    with pytest.raises(SavedHistoryError, match=why):
        decode(content, now_ms=NOW)


def test_a_small_text_that_unpacks_to_gigabytes_is_refused() -> None:
    bomb = gzip.compress(bytes(80 * 2**20), compresslevel=1)
    with pytest.raises(SavedHistoryError, match="too large"):
        decode(bomb, now_ms=NOW)


@pytest.mark.parametrize(("difference", "time_ms"), [(10**12, NOW), (10**400, NOW), (-(10**20), LONG_AGO_MS)])
def test_odd_times_become_times_that_exist(difference: int, time_ms: int) -> None:
    content = packed(hpas=[["default", "web", "autoscaling", "u", [[3, difference]], [], [], 0]])
    assert decode(content, now_ms=NOW)[WEB].history.recommendations == (Recommendation(3, time_ms),)


def test_a_field_that_a_later_release_added_is_passed_over() -> None:
    content = packed(hpas=[["default", "web", "autoscaling", "u", [[3, 0]], [], [], 0, True, "news"]], note="hello")
    assert decode(content, now_ms=NOW)[WEB].uid == "u"
