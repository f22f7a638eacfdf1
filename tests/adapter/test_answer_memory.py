"""What the memory of answers holds: never more than it may, whatever makes it long, and nothing that has ended."""

from __future__ import annotations

import tracemalloc

import pytest

from adapter.security.authentication import User
from adapter.serving.memory import AnswerMemory, Asked, Remembered
from adapter.serving.telemetry import RequestLabels

MIB = 1024 * 1024
BOB = User("bob", ("readers",))


def asked(number: int, *, user: User = BOB, more: str = "") -> Asked:
    wishes = ((b"accept", b"application/json"), (b"user-agent", b"%d" % number))
    return Asked(user, b"/apis/x/%d?%s" % (number, more.encode()), wishes)


def answer(body: bytes = b"{}", *, until: float, times: int = 1) -> Remembered:
    return Remembered(
        before_date=b"HTTP/1.1 200 OK\r\nDate: ",
        after_date=b"\r\n\r\n" + body,
        until=until,
        labels=RequestLabels("get"),
        sampled_at=tuple((float(number), 1) for number in range(times)),
    )


@pytest.mark.parametrize("what", ["nothing", "target", "user", "body", "times"])
def test_its_bound_is_one_of_bytes_whatever_makes_an_answer_long(what: str) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        memory = AnswerMemory(max_bytes=2 * MIB, clock=lambda: 0.0)
        for number in range(5_000):
            user = User(f"{number}-" + "u" * 4_000) if what == "user" else User(f"{number}")
            memory.put(
                asked(number, user=user, more="x" * 4_000 if what == "target" else ""),
                answer(
                    b"%d" % number + bytes(4_000 if what == "body" else 0),
                    until=60.0,
                    times=50 if what == "times" else 1,
                ),
                generation=0,
            )
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert memory.get(asked(4_999, user=user, more="x" * 4_000 if what == "target" else "")) is not None
    assert MIB < held < 2 * MIB


def test_what_has_ended_goes_when_the_next_one_comes() -> None:
    time = 0.0
    memory = AnswerMemory(max_bytes=64 * MIB, clock=lambda: time)
    for number in range(100):
        memory.put(asked(number), answer(until=5.0), generation=0)
    assert len(memory) == 100
    time = 5.0
    assert memory.get(asked(0)) is None
    memory.put(asked(100), answer(until=10.0), generation=0)
    assert len(memory) == 1
    assert memory.get(asked(100)) is not None


def test_one_answer_takes_a_quarter_at_most() -> None:
    memory = AnswerMemory(max_bytes=MIB, clock=lambda: 0.0)
    memory.put(asked(0), answer(bytes(MIB // 4), until=5.0), generation=0)
    memory.put(asked(1), answer(bytes(MIB // 5), until=5.0), generation=0)
    assert [memory.get(asked(number)) is not None for number in (0, 1)] == [False, True]
