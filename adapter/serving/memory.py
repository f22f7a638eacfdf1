"""Answers as they went out, for who asks the same again while they are still what would be answered.

An answer is kept for the user who had it, no longer than the user's right to it is known, and no longer than the values
in it are fresh. What is kept are bytes: the head up to its date, and the rest with the body.

How much is kept is bounded in bytes, those of the questions included, since who asks decides how long they are. What
came first goes first: when it has ended and the next answer comes, or when there is too much. As answers hold for much
the same time, what came first is what ends first.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import NamedTuple

from adapter.security.authentication import User
from adapter.serving.telemetry import RequestLabels

__all__ = ["AnswerMemory", "Asked", "Remembered"]

# What the entry itself takes, beside the texts in it.
_ENTRY_BYTES = 512


class Asked(NamedTuple):
    """What an answer is remembered for.

    Attributes:
        user: who asked.
        target: the path and query.
        wishes: the headers that change what is answered.
    """

    user: User
    target: bytes
    wishes: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Remembered:
    """An answer.

    Attributes:
        before_date: the status line and headers, up to the value of Date.
        after_date: what follows it: the end of the head, and the body.
        until: when it ends, on the loop's clock.
        labels: what it is counted under.
        sampled_at: when they were sampled, in seconds since the epoch, with how many there are of each time.
    """

    before_date: bytes
    after_date: bytes
    until: float
    labels: RequestLabels
    sampled_at: tuple[tuple[float, int], ...]


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class _Entry:
    answer: Remembered
    size: int


class AnswerMemory:
    """Answers by what was asked by whom."""

    def __init__(self, *, max_bytes: int, clock: Callable[[], float] = _loop_time) -> None:
        """Nothing is remembered where `max_bytes` is 0; `clock` is the one that answers end on."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[Asked, _Entry] = OrderedDict()
        self._size = 0
        self.generation = 0
        """How often everything was forgotten. Who begins to make an answer notes it, for `put`."""
        self._date = b""
        self._date_of = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, asked: Asked, answer: Remembered, *, generation: int) -> None:
        """Remember an answer that was begun in this generation, unless it is too long, or to be forgotten already."""
        size = _size(asked, answer)
        if generation != self.generation or size > self._max_bytes // 4:
            return
        self._drop(asked)
        now = self._clock()
        while self._entries:
            first, entry = next(iter(self._entries.items()))
            if entry.answer.until > now and self._size + size <= self._max_bytes:
                break
            self._drop(first)
        self._entries[asked] = _Entry(answer, size)
        self._size += size

    def get(self, asked: Asked) -> Remembered | None:
        """The answer to what is asked, if it still holds."""
        found = self._entries.get(asked)
        return found.answer if found is not None and found.answer.until > self._clock() else None

    def forget(self) -> None:
        """Keep nothing of what came before now, nor of what is under way."""
        self.generation += 1
        self._entries.clear()
        self._size = 0

    def _drop(self, asked: Asked) -> None:
        entry = self._entries.pop(asked, None)
        if entry is not None:
            self._size -= entry.size

    def date(self, now: float) -> bytes:
        """The value of the Date header; `now` is in seconds since the epoch."""
        if int(now) != self._date_of:
            self._date_of = int(now)
            self._date = formatdate(self._date_of, usegmt=True).encode()
        return self._date


def _size(asked: Asked, answer: Remembered) -> int:
    user = asked.user
    question = (user.name, user.groups, user.uid, user.extra, asked.target, asked.wishes)
    return _ENTRY_BYTES + _bytes((question, answer.before_date, answer.after_date, answer.sampled_at))


def _bytes(thing: object) -> int:
    """What a text or number takes, or a tuple with all that is in it."""
    return sys.getsizeof(thing) + (sum(map(_bytes, thing)) if isinstance(thing, tuple) else 0)
