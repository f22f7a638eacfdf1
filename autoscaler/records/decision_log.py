"""The last decisions of every HPA, kept in memory for whoever asks why.

What is kept of a step are its packed facts (`autoscaler.records.facts`), a quarter of what its record takes as JSON;
the record is made when it is read, or at once where somebody is told of each. There are two limits: so many for each
HPA, and so many bytes for all of them. Where the second is reached, the oldest go first, whichever HPA they are of, so
that ten thousand HPAs keep less of the past each but do not take the memory that the autoscaler works with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.facts import Facts, Subject
from autoscaler.records.record import VERSION
from autoscaler.records.recording import render

_MOST_BYTES: Final = 32 * 2**20
_ENTRY_BYTES: Final = 120
"""What Python needs to keep one more entry, beside the packed facts."""


class DecisionsPage(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions on the HPAs of one name, oldest first."""

    version: int
    namespace: str
    name: str
    decisions: list[msgspec.Raw]
    """A DecisionRecord each."""


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One HPA with decisions."""

    namespace: str
    name: str
    group: str
    """Of the HPA's API."""
    decisions: int
    """How many are kept."""


class IndexPage(msgspec.Struct, frozen=True, kw_only=True):
    """All HPAs with decisions."""

    version: int
    hpas: list[IndexEntry]


class _Entry:
    """One step; it stays in the order of all steps for a while after it was dropped, without its facts."""

    __slots__ = ("number", "packed", "subject")

    def __init__(self, number: int, subject: Subject, packed: bytes) -> None:
        self.number = number
        self.subject = subject
        self.packed: bytes | None = packed


class DecisionLog:
    """Keeps decisions.

    Args:
        most: how many are kept for each HPA; 0: none.
        most_bytes: how many bytes all may take together.
        on_record: is told the record of each, as a line of JSON; None: nobody is.
    """

    def __init__(
        self, most: int, *, most_bytes: int = _MOST_BYTES, on_record: Callable[[bytes], None] | None = None
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._on_record = on_record
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Facts)
        # Lists, since even an empty deque takes 600 bytes.
        self._by_key: dict[HPAKey, list[_Entry]] = {}
        # In the order of their coming, with those that were dropped since as long as they are not many.
        self._all: deque[_Entry] = deque()
        self._count = 0
        self._added = 0
        self._bytes = 0

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to know of decisions at all."""
        return self._most > 0 or self._on_record is not None

    def add(self, subject: Subject, facts: Facts) -> None:
        """Keep a decision, in place of older ones where there are too many."""
        if self._on_record is not None:
            self._on_record(msgspec.json.encode(render(subject, facts)))
        if self._most == 0:
            return
        entries = self._by_key.setdefault(subject.key, [])
        if entries and entries[-1].subject == subject:
            subject = entries[-1].subject
        packed = self._encoder.encode(facts)
        self._added += 1
        entry = _Entry(self._added, subject, packed)
        entries.append(entry)
        self._all.append(entry)
        self._count += 1
        self._bytes += len(packed) + _ENTRY_BYTES
        if len(entries) > self._most:
            self._drop_first(subject.key)
        while self._bytes > self._most_bytes:
            oldest = self._all.popleft()
            if oldest.packed is not None:
                self._drop_first(oldest.subject.key)
        if len(self._all) > 2 * self._count:
            self._all = deque(each for each in self._all if each.packed is not None)

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone."""
        while key in self._by_key:
            self._drop_first(key)

    def page(self, namespace: str, name: str, *, last: int | None = None) -> DecisionsPage | None:
        """The last decisions on the HPAs of this name, of every API; None if there are none."""
        found = [
            entry
            for key, entries in self._by_key.items()
            if (key.namespace, key.name) == (namespace, name)
            for entry in entries
        ]
        if not found:
            return None
        # Not by their times, which are the wall clock's: it may have been set back.
        found.sort(key=lambda each: each.number)
        decisions = [
            msgspec.Raw(msgspec.json.encode(render(entry.subject, self._decoder.decode(entry.packed))))
            for entry in (found if last is None else found[-last:])
            if entry.packed is not None
        ]
        return DecisionsPage(version=VERSION, namespace=namespace, name=name, decisions=decisions)

    def index(self) -> IndexPage:
        """Which HPAs there are decisions on."""
        hpas = [
            IndexEntry(namespace=key.namespace, name=key.name, group=key.group, decisions=len(entries))
            for key, entries in sorted(self._by_key.items())
        ]
        return IndexPage(version=VERSION, hpas=hpas)

    def _drop_first(self, key: HPAKey) -> None:
        """Drop the oldest decision on an HPA."""
        entries = self._by_key[key]
        entry = entries.pop(0)
        assert entry.packed is not None, "an HPA has only entries that are kept"
        self._bytes -= len(entry.packed) + _ENTRY_BYTES
        self._count -= 1
        entry.packed = None
        if not entries:
            del self._by_key[key]
