"""Coalescing is paused if it costs more than it saves."""

from __future__ import annotations

from adapter.planning.coalescing_costs import CoalescingGroup, Pause
from tests.adapter.coalescing_rules import SUM, rule


def test_different_requests_are_counted_up_to_a_limit() -> None:
    group = group_with(20_000, alone=0.01)
    assert len(group._requests) == 10_000


def request(group: CoalescingGroup, names: int, *, now: float, alone: float) -> None:
    """So many different requests, each of which is sent alone unless there is a result."""
    for name in range(names):
        if group.note(f"web-{name}", now=now):
            group.hit(f"web-{name}")
        else:
            group.sent_alone(alone)


def group_with(names: int, *, alone: float) -> CoalescingGroup:
    group = CoalescingGroup(rule(SUM), "packets_total", "sum(x)")
    for name in range(names):
        group.note(f"web-{name}", now=0.0)
        group.sent_alone(alone)
    return group


def test_coalescing_starts_with_two_different_requests() -> None:
    group = CoalescingGroup(rule(SUM), "packets_total", "sum(x)")
    assert not group.note("web-0", now=0.0)
    assert not group.note("web-0", now=1.0)
    assert group.note("web-1", now=2.0)
    assert group.note("web-0", now=3.0)
    assert group.note("web-0", now=63.0), "there were two in the minute before"
    assert not group.note("web-0", now=124.0)


def test_merge_always_coalesces_from_the_first_request_whatever_it_costs() -> None:
    group = CoalescingGroup(rule(SUM, "always"), "packets_total", "sum(x)")
    assert group.note("web-0", now=0.0)
    group.sent_alone(0.001)
    group.fetched(100.0, now=1.0)
    assert group.note("web-0", now=2.0)
    assert group.note("web-0", now=100.0)


def test_results_that_serve_enough_requests_pay() -> None:
    group = group_with(20, alone=0.010)
    for now in range(0, 600, 5):
        group.fetched(0.050, now=now)
        request(group, 20, now=now, alone=0.010)
        assert group.paused is None


def test_query_that_costs_more_than_fifty_requests_pauses_at_once() -> None:
    group = group_with(3, alone=0.020)
    group.fetched(0.9, now=1.0)
    assert group.paused is None
    group.fetched(12.0, now=1.0)
    assert group.paused is Pause.COST


def test_short_query_is_not_judged_by_the_requests_of_the_first_seconds() -> None:
    group = group_with(20, alone=0.001)
    group.fetched(0.1, now=0.2)
    assert group.paused is None
    group.fetched(0.1, now=4.7)
    assert group.paused is Pause.COST


def test_query_may_cost_as_much_as_a_hundred_requests_in_a_minute() -> None:
    group = group_with(100, alone=0.020)
    group.fetched(1.9, now=1.0)
    assert group.paused is None


def test_coalescing_without_hits_is_paused_after_a_minute() -> None:
    """As with three HPAs every 15 s, each time when the result has just expired."""
    group = group_with(3, alone=0.010)
    for now in (0, 15, 30, 45):
        group.fetched(0.012, now=now)
    assert group.paused is None
    group.note("web-0", now=61.0)
    assert group.paused is Pause.COST


def test_pauses_double_up_to_a_quarter_of_an_hour_and_reset_once_coalescing_pays() -> None:
    group, now, pauses = group_with(3, alone=0.010), 0.0, []
    for _ in range(6):
        group.pause(Pause.FAILURE, now=now)
        start = now
        while not group.note(f"web-{now}", now=now):
            now += 1.0
        pauses.append(now - start)
    assert pauses == [60, 120, 240, 480, 900, 900]
    group.fetched(0.001, now=now)
    request(group, 3, now=now, alone=0.010)
    group.note("web-0", now=now + 61)
    group.pause(Pause.FAILURE, now=now + 61)
    assert not group.note("web-0", now=now + 61 + 59)
    assert group.note("web-0", now=now + 61 + 60) or group.paused is None
