"""What is remembered of HPAs from step to step."""

from dataclasses import replace

from autoscaler.core.history import History, Recommendation, ScaleEvent
from autoscaler.loop.histories import Histories, HistoryEntry
from tests.autoscaler.worlds import NOW, hpa

WEB = replace(hpa(), uid="first")


def history(replicas: int, time_ms: int = NOW) -> History:
    return History(recommendations=(Recommendation(replicas, time_ms),))


def test_an_hpa_made_anew_under_the_same_name_starts_with_nothing() -> None:
    memory = Histories()
    memory.keep(WEB, history(3))
    assert memory.of(WEB) == history(3)
    assert memory.of(replace(WEB, uid="second")) == History()


def test_what_is_forgotten_is_gone() -> None:
    memory = Histories()
    memory.keep(WEB, history(3))
    memory.forget(WEB.key)
    assert memory.of(WEB) == History()
    assert len(memory) == 0


def test_of_two_memories_the_one_that_was_added_to_later_wins() -> None:
    memory = Histories()
    memory.keep(WEB, history(3, NOW))
    memory.restore({WEB.key: HistoryEntry("first", history(9, NOW - 1))})
    assert memory.of(WEB) == replace(history(3, NOW), complete=False)
    scaled = replace(history(4, NOW - 5), scale_up_events=(ScaleEvent(1, NOW + 1),))
    memory.restore({WEB.key: HistoryEntry("first", scaled)})
    assert memory.of(WEB) == scaled


def test_what_was_known_before_another_may_have_acted_is_not_complete_any_more() -> None:
    memory = Histories()
    memory.keep(WEB, history(3))
    memory.restore({})
    assert memory.of(WEB) == replace(history(3), complete=False)
    memory.restore({WEB.key: HistoryEntry("first", history(4, NOW + 1))})
    assert memory.of(WEB) == history(4, NOW + 1), "unless the other says that it is"


def test_each_change_is_counted_and_a_look_is_none() -> None:
    memory = Histories()
    seen = [memory.changes]
    memory.keep(WEB, history(3))
    seen.append(memory.changes)
    memory.forget(WEB.key)
    seen.append(memory.changes)
    memory.restore({WEB.key: HistoryEntry("first", history(3))})
    seen.append(memory.changes)
    memory.restore({})
    seen.append(memory.changes)
    assert len(set(seen)) == len(seen)
    memory.of(WEB)
    memory.snapshot()
    memory.restore({WEB.key: HistoryEntry("first", history(3))})
    assert memory.changes == seen[-1]


def test_a_snapshot_does_not_change_any_more() -> None:
    memory = Histories()
    memory.keep(WEB, history(3))
    snapshot = memory.snapshot()
    memory.forget(WEB.key)
    assert snapshot == {WEB.key: HistoryEntry("first", history(3))}
