"""Answers as they went out, for who asks the same again while they are still what would be answered.

An answer is kept for the user who had it, no longer than the user's right to it is known, and no longer than the values
in it are fresh. What is kept are bytes: the head up to its date, and the rest with the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from email.utils import formatdate

from cachetools import LRUCache

from adapter.serving.telemetry import RequestLabels

__all__ = ["AnswerMemory", "Remembered"]


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


class AnswerMemory:
    """Answers by what was asked by whom."""

    def __init__(self, *, max_bytes: int) -> None:
        """Nothing is remembered where `max_bytes` is 0."""
        self._answers: LRUCache[Hashable, Remembered] = LRUCache(max_bytes, getsizeof=_size)
        self.generation = 0
        """How often everything was forgotten. Who begins to make an answer notes it, for `put`."""
        self._date = b""
        self._date_of = 0

    def put(self, key: Hashable, answer: Remembered, *, generation: int) -> None:
        """Remember an answer that was begun in this generation, unless it is too long, or to be forgotten already."""
        if generation == self.generation and _size(answer) <= self._answers.maxsize // 4:
            self._answers[key] = answer

    def get(self, key: Hashable) -> Remembered | None:
        """The answer for a key, if it still holds."""
        found = self._answers.get(key)
        if found is None:
            return None
        if found.until > asyncio.get_running_loop().time():
            return found
        del self._answers[key]
        return None

    def forget(self) -> None:
        """Keep nothing of what came before now, nor of what is under way."""
        self.generation += 1
        self._answers.clear()

    def date(self, now: float) -> bytes:
        """The value of the Date header; `now` is in seconds since the epoch."""
        if int(now) != self._date_of:
            self._date_of = int(now)
            self._date = formatdate(self._date_of, usegmt=True).encode()
        return self._date


def _size(answer: Remembered) -> int:
    return len(answer.after_date) + 1024
