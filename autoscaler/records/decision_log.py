"""The last decisions of every HPA, kept in memory for /debug/decisions.

A record is kept as compressed JSON of some 300 bytes, and its sentence is made when it is read. There are two limits: a
number of records per HPA, and a number of bytes for all HPAs. At the second one the oldest records of any HPA go first,
so that ten thousand HPAs have a shorter past each.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.record import VERSION, DecisionRecord
from autoscaler.records.sentence import with_sentence

_MAX_BYTES: Final = 32 * 2**20
_ENTRY_BYTES: Final = 120
"""Python's memory for one more entry, beside its compressed record."""
_WINDOW_BITS: Final = -12
"""A raw deflate stream, with a window of 4 KiB."""
_TYPICAL_RECORD: Final = b"".join(
    (
        b'"failure":{"reason":"FailedGet","message":"unable to get metric "}}],"events":[{"type":"Warning","reason":"',
        b'"rebalancedRatio":0.,"counted":,"periodStartReplicas":1,"policy":{"type":"Percent","value":100,"periodSeconds"',
        b'"resource":"memory","type":"External","name":"","selector":{"matchLabels":{"":""}},"total":"1","fallback":{',
        b'"decidedBy":"bounds","reason":"metric above target","written":{"replicas":2,"status":true}',
        b'{"version":1,"time":"20","apiVersion":"autoscaling/v2","namespace":"default","name":"","uid":"","target":"',
        b'Deployment/default/","decidedBy":"metrics","currentReplicas":1,"desiredReplicas":1,"scale":{"specReplicas":1,',
        b'"statusReplicas":1,"selector":"app="},"bounds":{"minReplicas":1,"maxReplicas":10},"tolerance":{"scaleDown":0.1,',
        b'"scaleUp":0.1},"metrics":[{"type":"Resource","name":"cpu","target":{"averageUtilization":80},"type":"Pods",',
        b'"target":{"averageValue":"100"},"current":{"averageUtilization":,"averageValue":"100m"},"values":{"count":1,',
        b'"shown":[{"pod":"","value":"100m"},{"pod":"","value":"100m"}]},"pods":{"ready":{"count":1,"shown":["","",""]},',
        b'"unready":{"count":0},"missing":{"count":0},"ignored":{"count":0}},"ratio":1.0,"withinTolerance":true,',
        b'"proposedReplicas":1}],"winner":0,"stabilization":{"proposedReplicas":1,"replicas":1,"reason":"',
        b'ScaleDownStabilized","windowSeconds":300.0,"heldBy":{"replicas":1,"time":"20","reason":"ReadyForNewScale",',
        b'"windowSeconds":300.0},"scaleUpLimit":{"replicas":4},"scaleDownLimit":{"replicas":1},"limitedReplicas":1,',
        b'"limit":"DesiredWithinRange","written":{"status":true}}',
    )
)
"""The dictionary of the compression: texts that most records have, the most frequent ones last."""


class DecisionsPage(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions on the HPAs of one name, oldest first."""

    version: int
    namespace: str
    name: str
    decisions: list[DecisionRecord]


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One HPA with decisions."""

    namespace: str
    name: str
    group: str
    """Of the HPA's API."""
    decisions: int
    """The number of records kept."""


class IndexPage(msgspec.Struct, frozen=True, kw_only=True):
    """All HPAs with decisions."""

    version: int
    hpas: list[IndexEntry]


class _Entry:
    """One record. A dropped one has no data; it is removed from the order of all entries later."""

    __slots__ = ("data", "key", "number")

    def __init__(self, number: int, key: HPAKey, data: bytes) -> None:
        self.number = number
        self.key = key
        self.data: bytes | None = data


class DecisionLog:
    """Keeps the last decisions.

    Args:
        max_per_hpa: the number of records per HPA; 0: none are kept.
        max_bytes: the memory for all records together.
        on_record: called with each record as a line of JSON, if given.
    """

    def __init__(
        self, max_per_hpa: int, *, max_bytes: int = _MAX_BYTES, on_record: Callable[[bytes], None] | None = None
    ) -> None:
        self._max_per_hpa = max_per_hpa
        self._max_bytes = max_bytes
        self._on_record = on_record
        # Lists, because even an empty deque takes 600 bytes.
        self._by_key: dict[HPAKey, list[_Entry]] = {}
        # Oldest first, with at most as many dropped entries as kept ones.
        self._all: deque[_Entry] = deque()
        self._count = 0
        self._added = 0
        self._bytes = 0

    @property
    def enabled(self) -> bool:
        """True if records are kept or passed on, so that they need to be built."""
        return self._max_per_hpa > 0 or self._on_record is not None

    def add(self, record: DecisionRecord) -> None:
        """Keep a record, and drop older ones beyond the limits."""
        if self._on_record is not None:
            self._on_record(msgspec.json.encode(with_sentence(record)))
        if self._max_per_hpa == 0:
            return
        entries = self._by_key.setdefault(record.key, [])
        key = entries[0].key if entries else record.key
        data = _compress(record)
        self._added += 1
        entry = _Entry(self._added, key, data)
        entries.append(entry)
        self._all.append(entry)
        self._count += 1
        self._bytes += len(data) + _ENTRY_BYTES
        if len(entries) > self._max_per_hpa:
            self._drop_oldest(key)
        while self._bytes > self._max_bytes:
            oldest = self._all.popleft()
            if oldest.data is not None:
                self._drop_oldest(oldest.key)
        if len(self._all) > 2 * self._count:
            self._all = deque(each for each in self._all if each.data is not None)

    def remove(self, key: HPAKey) -> None:
        """Drop all records of a deleted HPA."""
        while key in self._by_key:
            self._drop_oldest(key)

    def page(self, namespace: str, name: str, *, last: int | None = None) -> DecisionsPage | None:
        """Return the last decisions on the HPAs of this name, of every API; None if there are none."""
        found = [
            entry
            for key, entries in self._by_key.items()
            if (key.namespace, key.name) == (namespace, name)
            for entry in entries
        ]
        if not found:
            return None
        # By number, because the wall clock may have been set back.
        found.sort(key=lambda each: each.number)
        decisions = [
            with_sentence(_decompress(entry.data))
            for entry in (found if last is None else found[-last:])
            if entry.data is not None
        ]
        return DecisionsPage(version=VERSION, namespace=namespace, name=name, decisions=decisions)

    def index(self) -> IndexPage:
        """Return all HPAs with decisions."""
        hpas = [
            IndexEntry(namespace=key.namespace, name=key.name, group=key.group, decisions=len(entries))
            for key, entries in sorted(self._by_key.items())
        ]
        return IndexPage(version=VERSION, hpas=hpas)

    def _drop_oldest(self, key: HPAKey) -> None:
        entries = self._by_key[key]
        entry = entries.pop(0)
        assert entry.data is not None, "entries by key have data"
        self._bytes -= len(entry.data) + _ENTRY_BYTES
        self._count -= 1
        entry.data = None
        if not entries:
            del self._by_key[key]


_compressor = zlib.compressobj(1, zlib.DEFLATED, _WINDOW_BITS, 4, zlib.Z_DEFAULT_STRATEGY, _TYPICAL_RECORD)
_decoder = msgspec.json.Decoder(DecisionRecord)


def _compress(record: DecisionRecord) -> bytes:
    stream = _compressor.copy()
    return stream.compress(msgspec.json.encode(record)) + stream.flush()


def _decompress(data: bytes) -> DecisionRecord:
    return _decoder.decode(zlib.decompressobj(_WINDOW_BITS, _TYPICAL_RECORD).decompress(data))
