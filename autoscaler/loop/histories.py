"""The histories of all HPAs, on which stabilization and rate limits are based, and the format in which they are saved.

They are in memory; `autoscaler.loop.saved_history` saves them for the next process, which would otherwise scale down
early: as gzipped JSON, which standard tools can read. Saved decisions are records, one a line, the newest first.

In saved histories, times are differences to the previous sample, which compress well: an HPA with a full window of five
minutes takes about 70 bytes. Monotonic times are meaningless in another process, so the first difference is relative to
the time of the save, which is stored as wall-clock time. On restore, the elapsed wall-clock time is added to the age of
the samples; if the clock was set back, nothing is added.

Samples that are too old for any window are stored as null, so that their slots remain: Kubernetes reuses slots in an
order that depends on all of them, and an empty history would look like that of a new HPA. So decisions after a restore
are the same as without a restart.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from autoscaler.core.config import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.history import LONG_AGO_MS, History, Recommendation, ScaleEvent
from autoscaler.core.model import HPA, HPAKey
from autoscaler.records.record import VERSION as RECORD_VERSION
from autoscaler.records.record import DecisionRecord


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The history of the HPA with this uid; a recreated HPA of the same name has another uid."""

    uid: str
    history: History

    @property
    def latest_ms(self) -> int:
        """The latest time in the history, by the history's clock; LONG_AGO_MS: it is empty."""
        history = self.history
        events = (*history.scale_up_events, *history.scale_down_events)
        times = (*(each.time_ms for each in history.recommendations), *(each.time_ms for each in events))
        return max(times, default=LONG_AGO_MS)


class Histories:
    """The history of each HPA."""

    def __init__(self) -> None:
        self._entries: dict[HPAKey, HistoryEntry] = {}
        self.changes = 0
        """Grows with each change."""

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, hpa: HPA) -> History:
        """Return the history of an HPA; empty for a new one, even if a deleted HPA had the same name."""
        found = self._entries.get(hpa.key)
        return found.history if found is not None and found.uid == hpa.uid else History()

    def replace(self, hpa: HPA, history: History) -> None:
        """Replace the history of an HPA."""
        self._set(hpa.key, HistoryEntry(hpa.uid, history))

    def forget(self, key: HPAKey) -> None:
        """Drop the history of an HPA that was deleted."""
        if self._entries.pop(key, None) is not None:
            self.changes += 1

    def snapshot(self) -> dict[HPAKey, HistoryEntry]:
        """Return a copy of all entries."""
        return dict(self._entries)

    def restore(self, saved: Mapping[HPAKey, HistoryEntry]) -> None:
        """Merge saved histories, after another process may have acted.

        Of two histories of an HPA the one with the latest time is kept. Entries that are not replaced become
        incomplete: the other process may have ended without saving.
        """
        for key, entry in list(self._entries.items()):
            if entry.history.complete:
                self._set(key, HistoryEntry(entry.uid, replace(entry.history, complete=False)))
        for key, entry in saved.items():
            before = self._entries.get(key)
            if before is None or before.latest_ms < entry.latest_ms:
                self._set(key, entry)

    def _set(self, key: HPAKey, entry: HistoryEntry) -> None:
        self._entries[key] = entry
        self.changes += 1


LIMIT_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB, metadata included."""

_VERSION = 1
# Enough for half a million HPAs; protects against decompression bombs.
_MAX_DECODED_BYTES = 64 * 2**20
_GZIP = 16 + zlib.MAX_WBITS
# If not all HPAs fit, the number that fits is searched in this many steps.
_RESOLUTION = 100

_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_RecommendationSlot: TypeAlias = tuple[_Count, int] | None
"""(replicas, milliseconds after the slot before); null: too old for any window."""
_EventSlot: TypeAlias = tuple[_Count, int, bool] | None
"""(change, milliseconds after the slot before, outdated)."""
_Sample = TypeVar("_Sample", Recommendation, ScaleEvent)
_record_decoder = msgspec.json.Decoder(DecisionRecord)


class SavedHistoryError(Exception):
    """A saved history cannot be read; the message says why."""


class _SavedHPA(msgspec.Struct, array_like=True, frozen=True):
    """One HPA. Add new fields at the end, with a default: older releases do not write them, and ignore them."""

    namespace: str
    name: str
    group: str
    uid: str
    recommendations: tuple[_RecommendationSlot, ...]
    scale_up_events: tuple[_EventSlot, ...]
    scale_down_events: tuple[_EventSlot, ...]
    metric_failures: _Count = 0
    complete: bool = False
    """Saved after the last reconciliation; a process that was killed leaves an earlier save."""


class _Header(msgspec.Struct, frozen=True):
    version: int


class _Saved(_Header, frozen=True):
    saved_ms: int
    """The time of the save since the Unix epoch, the base of the first differences."""
    hpas: tuple[_SavedHPA, ...]


def encode(
    entries: Mapping[HPAKey, HistoryEntry],
    *,
    now_ms: int,
    monotonic_ms: int | None = None,
    final: bool = True,
    longest_window_ms: int = MAX_STABILIZATION_WINDOW_MS,
    limit_bytes: int = LIMIT_BYTES,
) -> tuple[bytes, int]:
    """Encode histories; also return the number of HPAs that did not fit.

    If they are too large, HPAs that were not scaled recently and whose recommendations are all equal are omitted first:
    their current replica count has the same information. Then the longest histories are omitted, and among those of
    similar size the oldest. So a few histories with thousands of recommendations (a window of an hour with a sync
    period of a second) do not displace the others.

    Args:
        entries: the histories.
        now_ms: the current time, since the Unix epoch.
        monotonic_ms: the same by the histories' clock; None: `now_ms`.
        final: this process has stopped reconciling.
        longest_window_ms: samples older than this are too old for any window.
        limit_bytes: the maximum size of the content.
    """
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    expired_ms = monotonic_ms - longest_window_ms

    def content_of(number: int) -> bytes:
        return _compress(msgspec.json.encode({"version": _VERSION, "saved_ms": now_ms, "hpas": hpas[:number]}))

    def value(key: HPAKey) -> tuple[bool, int, int]:
        entry = entries[key]
        return _is_steady(entry.history, expired_ms), len(by_key[key]).bit_length(), -entry.latest_ms

    by_key = {
        key: msgspec.json.encode(_saved_hpa(key, entry, monotonic_ms, expired_ms, final=final))
        for key, entry in entries.items()
    }
    hpas = [msgspec.Raw(by_key[key]) for key in sorted(by_key, key=value)]
    content = content_of(len(hpas))
    if len(content) <= limit_bytes:
        return content, 0
    numbers = range(0, len(hpas), max(1, len(hpas) // _RESOLUTION))
    kept = numbers[max(0, bisect_right(numbers, limit_bytes, key=lambda number: len(content_of(number))) - 1)]
    return content_of(kept), len(hpas) - kept


def decode(content: bytes, *, now_ms: int, monotonic_ms: int | None = None) -> dict[HPAKey, HistoryEntry]:
    """Decode saved histories.

    A time later than `now_ms` (clocks of machines differ) becomes `now_ms`, so that it cannot prevent scaling down
    indefinitely.

    Args:
        content: as from `encode`.
        now_ms: the current time, since the Unix epoch.
        monotonic_ms: the same by the clock of the decoded histories; None: `now_ms`.

    Raises:
        SavedHistoryError: the content is damaged, or has another version.
    """
    text = _decompress(content)
    try:
        version = msgspec.json.decode(text, type=_Header).version
        if version != _VERSION:
            raise SavedHistoryError(f"it is of version {version}, and this release reads version {_VERSION}")
        saved = msgspec.json.decode(text, type=_Saved)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SavedHistoryError(f"it is damaged: {error}") from error
    age_ms = max(0, now_ms - saved.saved_ms)
    now_ms = now_ms if monotonic_ms is None else monotonic_ms
    return {
        HPAKey(each.namespace, each.name, each.group): HistoryEntry(each.uid, _history(each, now_ms - age_ms, now_ms))
        for each in saved.hpas
    }


def encode_decisions(newest_first: Sequence[bytes], *, limit_bytes: int) -> bytes:
    """Return as many of the records, which are JSON, as fit; empty: none do."""
    number = len(newest_first)
    while number:
        content = _compress(b"\n".join(newest_first[:number]))
        if len(content) <= limit_bytes:
            return content
        number = min(number - 1, number * limit_bytes // len(content))
    return b""


def decode_decisions(content: bytes) -> list[DecisionRecord]:
    """Return the records, the oldest first; without those that this release cannot read.

    Raises:
        SavedHistoryError: the content is damaged.
    """
    records: list[DecisionRecord] = []
    for line in reversed(_decompress(content).splitlines()):
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            records.append(_record_decoder.decode(line))
    return [record for record in records if record.version == RECORD_VERSION]


# --- writing -------------------------------------------------------------------------------------------------------


def _saved_hpa(key: HPAKey, entry: HistoryEntry, now_ms: int, expired_ms: int, *, final: bool) -> _SavedHPA:
    def differences(samples: Sequence[_Sample]) -> Iterator[tuple[_Sample, int] | None]:
        before_ms = now_ms
        for each in samples:
            if each.time_ms < expired_ms:
                yield None
            else:
                yield each, each.time_ms - before_ms
                before_ms = each.time_ms

    def events(samples: Sequence[ScaleEvent]) -> tuple[_EventSlot, ...]:
        return tuple(found and (found[0].change, found[1], found[0].outdated) for found in differences(samples))

    history = entry.history
    recommendations = differences(history.recommendations)
    return _SavedHPA(
        namespace=key.namespace,
        name=key.name,
        group=key.group,
        uid=entry.uid,
        recommendations=tuple(found and (found[0].replicas, found[1]) for found in recommendations),
        scale_up_events=events(history.scale_up_events),
        scale_down_events=events(history.scale_down_events),
        metric_failures=history.metric_failures,
        complete=final and history.complete,
    )


def _compress(text: bytes) -> bytes:
    return gzip.compress(text, compresslevel=6, mtime=0)


def _is_steady(history: History, expired_ms: int) -> bool:
    """True if a new history would limit the next scale in the same way."""
    events = (*history.scale_up_events, *history.scale_down_events)
    counts = {each.replicas for each in history.recommendations if each.time_ms >= expired_ms}
    return len(counts) <= 1 and all(each.time_ms < expired_ms for each in events)


# --- reading -------------------------------------------------------------------------------------------------------


def _decompress(content: bytes) -> bytes:
    inflating = zlib.decompressobj(_GZIP)
    try:
        text = inflating.decompress(content, _MAX_DECODED_BYTES)
    except zlib.error as error:
        raise SavedHistoryError(f"it is damaged: {error}") from error
    if not inflating.eof:
        raise SavedHistoryError("it is damaged: it is cut off, or too large")
    return text


def _history(saved: _SavedHPA, saved_ms: int, now_ms: int) -> History:
    def samples(
        slots: Iterable[_RecommendationSlot | _EventSlot], sample: Callable[..., _Sample], empty: _Sample
    ) -> Iterator[_Sample]:
        time_ms = saved_ms
        for slot in slots:
            if slot is None:
                yield empty
            else:
                number, difference_ms, *outdated = slot
                time_ms += difference_ms
                yield sample(number, max(LONG_AGO_MS, min(time_ms, now_ms)), *outdated)

    old_event = ScaleEvent(0, LONG_AGO_MS, outdated=True)
    return History(
        recommendations=tuple(samples(saved.recommendations, Recommendation, Recommendation(0, LONG_AGO_MS))),
        scale_up_events=tuple(samples(saved.scale_up_events, ScaleEvent, old_event)),
        scale_down_events=tuple(samples(saved.scale_down_events, ScaleEvent, old_event)),
        metric_failures=saved.metric_failures,
        complete=saved.complete,
    )
