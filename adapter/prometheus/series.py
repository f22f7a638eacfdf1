"""Lists of series, reduced while they arrive: one object for each name, with every label that any series of it has.

The values of labels are dropped, since discovery needs the names only. So there is never an object for each series in
memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from adapter.gil import releasing_gil
from adapter.prometheus.list_reader import UNREADABLE, ListReader, unreadable

# What a name takes in memory beside its text, with its set of labels, and what each label takes in that.
_NAME_BYTES = 400
_LABEL_BYTES = 100


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one name: every label that any of them has."""

    name: str
    labels: frozenset[str]


class _Listing(msgspec.Struct):
    data: list[dict[str, str]]
    status: str = "success"


_listing = msgspec.json.Decoder(_Listing)
_entries = msgspec.json.Decoder(list[dict[str, str]])


class SeriesReader(ListReader[tuple[Series, ...]]):
    """Decodes the response to a series request. Series without a name do not count."""

    start = re.compile(rb'"data"\s*:\s*\[')
    # In a string, the quote would end it, and only white space or punctuation could follow.
    next = re.compile(rb'\}\s*,\s*(\{)\s*"[^\s,:\]}"]')

    def __init__(self) -> None:
        super().__init__()
        self._labels: dict[str, set[str]] = {}

    def take(self, entries: bytes) -> int:
        """See ListReader.take."""
        return self._add(_entries.decode(entries))

    def finish(self) -> tuple[Series, ...]:
        """Return the series, sorted by name; see ListReader.finish."""
        try:
            listing = _listing.decode(self.rest)
        except UNREADABLE as error:
            raise unreadable(error) from error
        if listing.status != "success":
            raise unreadable("it is an error with the status of a success")
        self._add(listing.data)
        return tuple(Series(name, frozenset(labels)) for name, labels in releasing_gil(sorted(self._labels.items())))

    def _add(self, entries: Iterable[dict[str, str]]) -> int:
        memory = 0
        for entry in entries:
            name = entry.pop("__name__", "")
            if not name:
                continue
            labels = self._labels.get(name)
            if labels is None:
                labels = self._labels[name] = set()
                memory += _NAME_BYTES + len(name.encode())
            for label in entry.keys() - labels:
                labels.add(sys.intern(label))
                memory += _LABEL_BYTES + len(label.encode())
        return memory
