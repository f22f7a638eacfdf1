"""The last decisions of every HPA, in memory, for /debug/decisions.

A record is stored as compressed JSON of some 400 bytes, and its sentence is made when it is read. There are two limits:
the number of records per HPA, and the bytes of all HPAs. At the second limit the oldest record of all HPAs is dropped,
so with ten thousand HPAs each keeps fewer records.
"""

from __future__ import annotations

import itertools
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from autoscaler.core.model import HPA_APIS, HPAKey
from autoscaler.records.record import VERSION, DecisionRecord
from autoscaler.records.sentence import with_sentence
from autoscaler.settings import DEFAULTS
from kube.aio.tasks import in_slices

INDEX_PATH: Final = "/debug/decisions"
"""The address of the kept decisions on --metrics-port."""

_ENTRY_BYTES: Final = 250
"""Python's memory for one more entry, without its compressed record."""
_WINDOW_BITS: Final = -12
"""A raw deflate stream, with a window of 4 KiB."""
_TYPICAL_RECORD: Final = b"".join(
    (
        b'"scaleEvents":[{"change":1,"time":"20"}],"podsRequests":"1",',
        b'"failure":{"reason":"FailedGet","message":"unable to get metric "}}],"events":[{"type":"Warning","reason":"',
        b'"rebalancedRatio":0.,"counted":,"periodStartReplicas":1,"policy":{"type":"Percent","value":100,"periodSeconds"',
        b'"resource":"memory","type":"External","name":"","selector":{"matchLabels":{"":""}},"total":"1","fallback":{',
        b'"decidedBy":"bounds","reason":"metric above target","written":{"replicas":2,"status":true}',
        b'{"version":1,"time":"20","apiVersion":"autoscaling/v2","namespace":"default","name":"","uid":"","target":"',
        b'Deployment/default/","decidedBy":"metrics","currentReplicas":1,"desiredReplicas":1,"scale":{"specReplicas":1,',
        b'"statusReplicas":1,"selector":"app="},"bounds":{"minReplicas":1,"maxReplicas":10},"tolerance":{"scaleDown":0.1,',
        b'"scaleUp":0.1},"metrics":[{"type":"Resource","name":"cpu","target":{"averageUtilization":80},"type":"Pods",',
        b'"target":{"averageValue":"100"},"current":{"averageUtilization":,"averageValue":"100m"},"podsTotal":"1",',
        b'"values":{"count":1,',
        b'"shown":[{"pod":"","value":"100m"},{"pod":"","value":"100m"}]},"pods":{"ready":{"count":1,"shown":["","",""]},',
        b'"unready":{"count":0},"missing":{"count":0},"ignored":{"count":0}},"ratio":1.0,"withinTolerance":true,',
        b'"proposedReplicas":1}],"winner":0,"stabilization":{"proposedReplicas":1,"replicas":1,"reason":"',
        b'ScaleDownStabilized","windowSeconds":300.0,"heldBy":{"replicas":1,"time":"20","reason":"ReadyForNewScale",',
        b'"windowSeconds":300.0},"scaleUpLimit":{"replicas":4},"scaleDownLimit":{"replicas":1},"limitedReplicas":1,',
        b'"limit":"DesiredWithinRange","written":{"status":true}}',
    )
)
"""The compression dictionary: texts of most records, the most frequent ones last."""


class DecisionsPage(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions on the HPAs of one name, oldest first."""

    version: int
    namespace: str
    name: str
    decisions: list[DecisionRecord]


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One HPA with decisions."""

    namespace: str
    name: str
    group: str
    """Of the HPA's API."""
    decisions: int
    """The number of records in memory."""
    desired_replicas: list[int | None] = []
    """Of the last decisions that were requested, oldest first; None where no replica count was found."""


class IndexPage(msgspec.Struct, frozen=True, kw_only=True):
    """All HPAs with decisions."""

    version: int
    hpas: list[IndexEntry]


@dataclass
class DecisionLog:
    """Keeps the last decisions.

    Args:
        max_per_hpa: the number of records per HPA; 0: none.
        max_bytes: the memory for all records together.
        on_record: called with each record as a line of JSON, if given.
    """

    max_per_hpa: int
    max_bytes: int = field(default=DEFAULTS.decisions.kept_bytes, kw_only=True)
    on_record: Callable[[bytes], None] | None = field(default=None, kw_only=True)
    _records: OrderedDict[int, tuple[HPAKey, bytes, int | None]] = field(default_factory=OrderedDict, init=False)
    """By sequence number, oldest first: the wall clock may be set back, so times are not ordered. The desired replicas
    are beside the compressed record, because `index` returns those of all HPAs."""
    _numbers: dict[HPAKey, list[int]] = field(default_factory=dict, init=False)
    """Lists, because even an empty deque takes 600 bytes."""
    added: int = field(default=0, init=False)
    """The number of records that were ever kept."""
    _bytes: int = field(default=0, init=False)

    @property
    def enabled(self) -> bool:
        """True if records are stored or passed on, and therefore must be built."""
        return self.max_per_hpa > 0 or self.on_record is not None

    @property
    def keeps(self) -> bool:
        """True if records are stored."""
        return self.max_per_hpa > 0

    def add(self, record: DecisionRecord) -> None:
        """Keep a record, and drop older ones beyond the limits."""
        if self.on_record is not None:
            self.on_record(msgspec.json.encode(with_sentence(record)))
        if self.max_per_hpa > 0:
            self._keep(record)

    def restore(self, records: Iterable[DecisionRecord]) -> None:
        """Store the records of an earlier process, oldest first, of HPAs that have none."""
        known = set(self._numbers)
        for record in records if self.max_per_hpa > 0 else ():
            if record.key not in known:
                self._keep(record)

    def newest_first(self, *, max_bytes: int) -> list[bytes]:
        """Return the newest records, compressed: see `uncompressed`."""
        sizes = itertools.accumulate(len(data) for _, data, _ in reversed(self._records.values()))
        records = zip(reversed(self._records.values()), sizes, strict=True)
        return [data for (_, data, _), size in itertools.takewhile(lambda each: each[1] <= max_bytes, records)]

    def _keep(self, record: DecisionRecord) -> None:
        numbers = self._numbers.setdefault(record.key, [])
        # The records of an HPA share the key, which would take 110 bytes for each.
        key = self._records[numbers[-1]][0] if numbers else record.key
        data = _compress(record)
        self.added += 1
        self._records[self.added] = key, data, record.desired_replicas
        numbers.append(self.added)
        self._bytes += len(data) + _ENTRY_BYTES
        if len(numbers) > self.max_per_hpa:
            self._drop(numbers[0])
        while self._bytes > self.max_bytes:
            self._drop(next(iter(self._records)))

    def remove(self, key: HPAKey) -> None:
        """Drop all records of a deleted HPA."""
        for number in self._numbers.get(key, ())[:]:
            self._drop(number)

    async def page(self, namespace: str, name: str, *, last: int | None = None) -> DecisionsPage | None:
        """Return the last decisions on the HPAs of this name, of every API; None if there are none.

        It yields to the event loop: the sentences of a thousand records take 50 ms.
        """
        numbers = sorted(number for api in HPA_APIS for number in self.numbers(HPAKey(namespace, name, api.group)))
        decisions: list[DecisionRecord] = []
        async for number in in_slices(numbers if last is None else numbers[-last:]):
            record = self.get(number)
            if record is not None:  # dropped meanwhile
                decisions.append(with_sentence(record))
        if not decisions:
            return None
        return DecisionsPage(version=VERSION, namespace=namespace, name=name, decisions=decisions)

    def numbers(self, key: HPAKey) -> Sequence[int]:
        """Return the sequence numbers of an HPA's records, oldest first; no number is used twice."""
        return tuple(self._numbers.get(key, ()))

    def newest(self, key: HPAKey) -> int:
        """Return the sequence number of an HPA's newest record; 0: it has none."""
        numbers = self._numbers.get(key)
        return numbers[-1] if numbers else 0

    def desired_replicas(self, key: HPAKey, *, last: int) -> list[int | None]:
        """Return the desired replicas of an HPA's last decisions, oldest first; None where no count was found."""
        return [self._records[number][2] for number in self._numbers.get(key, ())[-last:]] if last else []

    def get(self, number: int) -> DecisionRecord | None:
        """Return a record, without its sentence; None if it was dropped."""
        kept = self._records.get(number)
        return None if kept is None else _decompress(kept[1])

    def index(self, *, namespace: str = "", last: int = 0) -> Iterator[IndexEntry]:
        """Yield the HPAs with decisions, sorted; records may be added and dropped meanwhile.

        Args:
            namespace: of the HPAs; "" for all.
            last: the number of decisions whose desired replicas are wanted.
        """
        keys = [key for key in self._numbers if namespace in ("", key.namespace)]
        for key in sorted(keys, key=lambda key: (key.namespace, key.name, key.group)):
            if numbers := self._numbers.get(key):
                yield IndexEntry(
                    namespace=key.namespace,
                    name=key.name,
                    group=key.group,
                    decisions=len(numbers),
                    desired_replicas=self.desired_replicas(key, last=last),
                )

    def _drop(self, number: int) -> None:
        key, data, _ = self._records.pop(number)
        self._bytes -= len(data) + _ENTRY_BYTES
        self._numbers[key].remove(number)
        if not self._numbers[key]:
            del self._numbers[key]


_compressor = zlib.compressobj(1, zlib.DEFLATED, _WINDOW_BITS, 4, zlib.Z_DEFAULT_STRATEGY, _TYPICAL_RECORD)
_decoder = msgspec.json.Decoder(DecisionRecord)


def _compress(record: DecisionRecord) -> bytes:
    stream = _compressor.copy()
    return stream.compress(msgspec.json.encode(record)) + stream.flush()


def uncompressed(data: bytes) -> bytes:
    """Return the JSON of a compressed record."""
    return zlib.decompressobj(_WINDOW_BITS, _TYPICAL_RECORD).decompress(data)


def _decompress(data: bytes) -> DecisionRecord:
    return _decoder.decode(uncompressed(data))
