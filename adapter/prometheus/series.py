"""Lists of series, reduced while they arrive: one object for each name, with every label that any series of it has.

The values of labels are dropped, since discovery needs the names only. Decoding is incremental, so neither the whole
text nor an object for each series is ever in memory.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from adapter.gil import releasing_gil
from adapter.prometheus.errors import PrometheusBadResponse

_DATA = re.compile(r'"data"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_MAX_HEAD = 64 * 1024
_MAX_ENTRY = 1024 * 1024
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


class SeriesReducer:
    """Decodes the response to a series request in pieces; returns its names with their labels.

    What is not of the expected form is left in `rest`, where decoding it raises an error.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._read_entry = json.JSONDecoder().raw_decode
        self._head: str | None = None  # up to the list's bracket
        self._in_list = False
        self._text = ""
        self._labels: dict[str, set[str]] = {}
        self._memory = 0  # not yet reported

    def feed(self, chunk: bytes) -> int:
        """Decode the next piece; return the bytes of memory that new names and labels take, about.

        Raises:
            ValueError: it is not UTF-8, or there is an entry that no series can have, such as half a character.
        """
        self._text += self._decode(chunk)
        if self._head is None and len(self._text) <= _MAX_HEAD + len(chunk):
            found = _DATA.search(self._text)
            if found is not None:
                self._head, self._text = self._text[: found.end()], self._text[found.end() :]
                self._in_list = True
        if self._in_list:
            self._text = self._text[self._read_entries() :]
            if self._in_list and len(self._text) > _MAX_ENTRY:
                raise ValueError("an entry is too long")
        elif len(self._text) > _MAX_ENTRY:
            raise ValueError("what is no list of series is too long")
        taken, self._memory = self._memory, 0
        return taken

    def rest(self) -> bytes:
        """Return the response without the entries that were decoded, as JSON; malformed if the response was."""
        text = self._text + self._decode(b"", final=True)
        return ((self._head or "") + text).encode()

    def series(self) -> tuple[Series, ...]:
        """Return the series, sorted by name. It can take long and releases the GIL: call it in a thread."""
        return tuple(Series(name, frozenset(labels)) for name, labels in releasing_gil(sorted(self._labels.items())))

    def _read_entries(self) -> int:
        """Decode all complete entries; return where the rest begins."""
        text, position = self._text, 0
        while True:
            between = _BETWEEN.match(text, position)
            start = between.end() if between is not None else position
            if start < len(text) and text[start] != "{":
                self._in_list = False  # the list's end, or something else
                return start
            try:
                entry, position = self._read_entry(text, start)
            except (json.JSONDecodeError, StopIteration):
                return start  # there is more to come
            name = entry.get("__name__", "")
            if not isinstance(name, str):
                raise ValueError("a series' name is no text")
            if name:
                self._add(name, entry)

    def _add(self, name: str, entry: Iterable[str]) -> None:
        labels = self._labels.get(name)
        if labels is None:
            labels = self._labels[name] = set()
            self._memory += _NAME_BYTES + len(name.encode())  # ValueError for half a character, which JSON can escape
        for label in entry:
            if label not in labels and label != "__name__":
                labels.add(sys.intern(label))
                self._memory += _LABEL_BYTES + len(label.encode())


def read_series(body: bytes) -> tuple[Series, ...]:
    """Decode what SeriesReducer left of a body: no series, if it decoded them all; those without a name do not count.

    Raises:
        PrometheusBadResponse: it is no list of series.
    """
    try:
        listing = _listing.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PrometheusBadResponse(f"Prometheus' response cannot be read: {error}") from error
    if listing.status != "success":
        raise PrometheusBadResponse("Prometheus' response cannot be read: it is an error with the status of a success")
    named = {entry["__name__"]: entry for entry in listing.data if "__name__" in entry}
    return tuple(Series(name, frozenset(entry.keys() - {"__name__"})) for name, entry in sorted(named.items()))
