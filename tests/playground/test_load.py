"""The demo's load: exact integrals, shared among ready pods, queues that workers drain."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.load import Backlog, Load, Step, Traffic, Wave

WAVE = Wave(low=10, high=50, period=60, offset=5)
STEADY = Wave(low=100, high=100, period=60)


def load(wave: Wave = STEADY) -> Load:
    return Load(
        traffic={
            "router": Traffic(wave=wave, counters={"packets_total": 1}),
            "shop": Traffic(wave=wave, counters={"requests_total": 1, "packets_total": 8}),
        },
        backlogs={"orders": Backlog(wave=wave, workers="worker", drain=40)},
    )


@pytest.mark.parametrize(("time", "rate"), [(5, 10), (20, 30), (35, 50), (65, 10), (95, 50)])
def test_wave_is_lowest_at_its_offset_and_highest_half_a_period_later(time: float, rate: float) -> None:
    assert WAVE.rate(time) == pytest.approx(rate)


@given(start=st.floats(0, 1e5), length=st.floats(0, 300))
def test_amount_is_the_integral_of_the_rate(start: float, length: float) -> None:
    steps = 1000
    width = length / steps
    middle_sum = sum(WAVE.rate(start + (step + 0.5) * width) for step in range(steps)) * width
    assert WAVE.amount(start, start + length) == pytest.approx(middle_sum, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("start", "end", "amount"), [(0, 10, 100), (8, 12, 120), (10, 20, 500)])
def test_step_raises_the_rate_at_its_time(start: float, end: float, amount: float) -> None:
    assert Step(low=10, high=50, at=10).amount(start, end) == amount
    assert Step(low=10, high=50).amount(start, end) == 10 * (end - start)


@given(times=st.lists(st.floats(0, 1000), min_size=1).map(sorted))
def test_counters_do_not_depend_on_the_steps(times: list[float]) -> None:
    at_once, in_steps = load(WAVE), load(WAVE)
    for one in (at_once, in_steps):
        one.set_ready(0, {"router": ["a"]})
    for time in times:
        in_steps.advance(time)
    at_once.advance(times[-1])
    expected = at_once.counters("router", "a")["packets_total"]
    assert in_steps.counters("router", "a")["packets_total"] == pytest.approx(expected, abs=1e-6)


def test_pods_share_the_traffic() -> None:
    one = load()
    one.set_ready(0, {"router": ["a"]})
    one.set_ready(10, {"router": ["a", "b"]})
    one.advance(20)
    assert one.counters("router", "a") == {"packets_total": pytest.approx(1500)}
    assert one.counters("router", "b") == {"packets_total": pytest.approx(500)}


def test_unready_pod_keeps_its_counters_until_it_is_deleted() -> None:
    one = load()
    one.set_ready(0, {"router": ["a"]})
    one.set_ready(1, {"router": ["b"]})
    one.advance(2)
    assert one.counters("router", "a") == {"packets_total": pytest.approx(100)}
    one.remove_pod("a")
    assert one.counters("router", "a") == {"packets_total": 0}
    assert one.counters("router", "b") == {"packets_total": pytest.approx(100)}


def test_queue_depth_depends_on_the_number_of_workers() -> None:
    one = load()
    one.set_ready(0, {"worker": ["a"]})
    one.advance(10)
    assert one.depth("orders") == pytest.approx((100 - 40) * 10)
    one.set_ready(10, {"worker": ["a", "b", "c", "d"]})
    one.advance(12)
    assert one.depth("orders") == pytest.approx(600 - (160 - 100) * 2)
    one.advance(1000)
    assert one.depth("orders") == 0


def test_time_never_goes_back() -> None:
    one = load()
    one.set_ready(0, {"router": ["a"]})
    one.advance(10)
    one.advance(5)
    one.advance(10)
    assert math.isclose(one.counters("router", "a")["packets_total"], 1000)
