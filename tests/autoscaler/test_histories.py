"""The histories of HPAs between reconciliations."""

from msgspec.structs import replace

from autoscaler.core.history import History, Recommendation, ScaleEvent
from autoscaler.loop.histories import Histories, HistoryEntry
from tests.autoscaler.simulated_cluster import NOW, hpa

WEB = replace(hpa(), uid="first")


def history(replicas: int, time_ms: int = NOW) -> History:
    return History(recommendations=(Recommendation(replicas, time_ms),))


def test_history_with_the_latest_entry_wins() -> None:
    histories = Histories()
    histories.replace(WEB, history(3, NOW))
    histories.restore({WEB.key: HistoryEntry("first", history(9, NOW - 1))})
    assert histories.of(WEB) == replace(history(3, NOW), complete=False)
    scaled = replace(history(4, NOW - 5), scale_up_events=(ScaleEvent(1, NOW + 1),))
    histories.restore({WEB.key: HistoryEntry("first", scaled)})
    assert histories.of(WEB) == scaled


def test_history_is_incomplete_after_another_leader_may_have_acted() -> None:
    histories = Histories()
    histories.replace(WEB, history(3))
    histories.restore({})
    assert histories.of(WEB) == replace(history(3), complete=False)
    histories.restore({WEB.key: HistoryEntry("first", history(4, NOW + 1))})
    assert histories.of(WEB) == history(4, NOW + 1), "unless the other says that it is"


def test_a_snapshot_does_not_change_any_more() -> None:
    histories = Histories()
    histories.replace(WEB, history(3))
    snapshot = histories.snapshot()
    histories.forget(WEB.key)
    assert snapshot == {WEB.key: HistoryEntry("first", history(3))}
