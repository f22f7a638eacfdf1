"""The last decisions of every HPA, kept in memory for whoever asks why.

Records are kept in the form in which they are served, as JSON: a fifth of what the objects take. There are two limits:
so many for each HPA, and so many bytes for all of them. Where the second is reached, the oldest records go first,
whichever HPA they are of, so that ten thousand HPAs keep less of the past each but do not take the memory that the
autoscaler works with.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.record import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoscaler.records.record import DecisionRecord

__all__ = ["DecisionLog", "DecisionsPage", "IndexEntry", "IndexPage"]

_MOST_BYTES: Final = 32 * 2**20


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


class DecisionLog:
    """Keeps records.

    Args:
        most: how many records are kept for each HPA; 0: none.
        most_bytes: how many bytes all records may take together.
        on_record: is told each record, as a line of JSON; None: nobody is.
    """

    def __init__(
        self, most: int, *, most_bytes: int = _MOST_BYTES, on_record: Callable[[bytes], None] | None = None
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._on_record = on_record
        self._encoder = msgspec.json.Encoder()
        # All records in the order of their coming; each HPA knows which numbers are its own, in the same order.
        self._records: OrderedDict[int, tuple[HPAKey, bytes]] = OrderedDict()
        self._numbers: dict[HPAKey, deque[int]] = {}
        self._next = 0
        self._bytes = 0

    @property
    def wanted(self) -> bool:
        """Whether anybody wants records at all."""
        return self._most > 0 or self._on_record is not None

    def add(self, record: DecisionRecord) -> None:
        """Keep a record, in place of older ones where there are too many."""
        encoded = self._encoder.encode(record)
        if self._on_record is not None:
            self._on_record(encoded)
        if self._most == 0:
            return
        key = HPAKey(record.namespace, record.name, record.api_version.rpartition("/")[0])
        numbers = self._numbers.setdefault(key, deque())
        numbers.append(self._next)
        self._records[self._next] = (key, encoded)
        self._next += 1
        self._bytes += len(encoded)
        if len(numbers) > self._most:
            self._drop_first(key)
        while self._bytes > self._most_bytes:
            self._drop_first(next(iter(self._records.values()))[0])

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone."""
        while key in self._numbers:
            self._drop_first(key)

    def page(self, namespace: str, name: str, *, last: int | None = None) -> DecisionsPage | None:
        """The last decisions on the HPAs of this name, of every API; None if there are none."""
        numbers = sorted(
            number
            for key, numbers in self._numbers.items()
            if (key.namespace, key.name) == (namespace, name)
            for number in numbers
        )
        if not numbers:
            return None
        chosen = numbers if last is None else numbers[-last:]
        decisions = [msgspec.Raw(self._records[number][1]) for number in chosen]
        return DecisionsPage(version=VERSION, namespace=namespace, name=name, decisions=decisions)

    def index(self) -> IndexPage:
        """Which HPAs there are decisions on."""
        hpas = [
            IndexEntry(namespace=key.namespace, name=key.name, group=key.group, decisions=len(numbers))
            for key, numbers in sorted(self._numbers.items())
        ]
        return IndexPage(version=VERSION, hpas=hpas)

    def _drop_first(self, key: HPAKey) -> None:
        """Drop the oldest record of an HPA."""
        numbers = self._numbers[key]
        _, encoded = self._records.pop(numbers.popleft())
        self._bytes -= len(encoded)
        if not numbers:
            del self._numbers[key]
