"""The saved form of histories: gzipped JSON, which standard tools can read.

Times are stored as differences to the sample before, which compress well: an HPA with a full window of five minutes
takes about 70 bytes. The times of a history mean nothing to another process, so the first difference is to the time of
saving, for which the wall clock is stored. Restored samples are older by as much as the wall clock has moved on since;
if it was set back, they are as old as when they were saved.

Samples that are too old for any window lose their content and keep their slot, as null: Kubernetes reuses slots in an
order that depends on all of them, and a history without any would be that of a new HPA. So a decision after restoring
is the decision that there would have been.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from autoscaler.core.annotations import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.history import LONG_AGO_MS, History, Recommendation, ScaleEvent
from autoscaler.core.model import HPAKey
from autoscaler.loop.histories import HistoryEntry

LIMIT_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB, metadata included."""

_VERSION = 1
# More than half a million HPAs take; more would only be an attack.
_MAX_DECODED_BYTES = 64 * 2**20
_GZIP = 16 + zlib.MAX_WBITS
# The part of the limit to aim at, the part that is enough, and the number of attempts.
_FILLED, _ENOUGH, _ATTEMPTS = 0.95, 0.85, 8

_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_RecommendationSlot: TypeAlias = tuple[_Count, int] | None
"""(replicas, milliseconds after the slot before); null: too old for any window."""
_EventSlot: TypeAlias = tuple[_Count, int, bool] | None
"""(change, milliseconds after the slot before, outdated)."""
_Sample = TypeVar("_Sample", Recommendation, ScaleEvent)
_Slot = TypeVar("_Slot", _RecommendationSlot, _EventSlot)


class SavedHistoryError(Exception):
    """A saved history cannot be read; the message says why."""


class _SavedHPA(msgspec.Struct, array_like=True, frozen=True):
    """One HPA. New fields go to the end, with a default: older releases leave them out, or skip them."""

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
    """The time of saving since the Unix epoch, from which the first differences count."""
    hpas: tuple[_SavedHPA, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Saved histories."""

    content: bytes
    left_out: int
    """The number of HPAs that did not fit."""


def encode(
    entries: Mapping[HPAKey, HistoryEntry],
    *,
    now_ms: int,
    monotonic_ms: int | None = None,
    final: bool = True,
    longest_window_ms: int = MAX_STABILIZATION_WINDOW_MS,
    limit_bytes: int = LIMIT_BYTES,
) -> Encoded:
    """Encode histories.

    If they are too large, the HPAs that were not scaled lately and whose recommendations are all the same are left out
    first: their current number of replicas says as much. The namespaces share the space fairly: a namespace that needs
    less than an equal part gets all that it needs, and of one that needs more the largest histories are left out, of
    those of about the same size the oldest. So no namespace can push out the others' histories by long ones of its own
    (a window of an hour at a sync period of a second has 3,600 recommendations).

    Args:
        entries: the histories.
        now_ms: the current time, since the Unix epoch.
        monotonic_ms: the same by the histories' clock; None: `now_ms`.
        final: this process reconciles no more.
        longest_window_ms: samples older than this are too old for any window.
        limit_bytes: the maximum size of the content.
    """
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    expired_ms = monotonic_ms - longest_window_ms
    hpas = [
        _EncodedHPA(
            namespace=key.namespace,
            steady=_is_steady(entry.history, expired_ms),
            latest_ms=entry.latest_ms,
            json=msgspec.json.encode(_saved_hpa(key, entry, monotonic_ms, expired_ms, final=final)),
        )
        for key, entry in entries.items()
    ]
    kept, content = hpas, _pack(hpas, now_ms)
    if len(content) > limit_bytes:
        kept, content = _fit(hpas, now_ms, limit_bytes=limit_bytes, needed_bytes=len(content))
    return Encoded(content=content, left_out=len(hpas) - len(kept))


def decode(content: bytes, *, now_ms: int, monotonic_ms: int | None = None) -> dict[HPAKey, HistoryEntry]:
    """Decode saved histories.

    A time later than `now_ms`, because the clocks of two machines differ, becomes `now_ms`: it cannot prevent a
    scale-down forever.

    Args:
        content: as from `encode`.
        now_ms: the current time, since the Unix epoch.
        monotonic_ms: the same by the clock of the decoded histories; None: `now_ms`.

    Raises:
        SavedHistoryError: it is damaged, or has another version.
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


# --- writing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _EncodedHPA:
    namespace: str
    steady: bool
    latest_ms: int
    json: bytes

    @property
    def size(self) -> int:
        return len(self.json)


def _size(hpas: Iterable[_EncodedHPA]) -> int:
    return sum(each.size for each in hpas)


def _pack(hpas: Iterable[_EncodedHPA], now_ms: int) -> bytes:
    parts = [msgspec.Raw(each.json) for each in hpas]
    text = msgspec.json.encode({"version": _VERSION, "saved_ms": now_ms, "hpas": parts})
    return gzip.compress(text, compresslevel=6, mtime=0)


def _fit(
    hpas: list[_EncodedHPA], now_ms: int, *, limit_bytes: int, needed_bytes: int
) -> tuple[list[_EncodedHPA], bytes]:
    """Return the HPAs that fit, and their content; all of them need `needed_bytes`."""
    changing, steady = [each for each in hpas if not each.steady], [each for each in hpas if each.steady]
    kept: list[_EncodedHPA] = []
    content = _pack(kept, now_ms)
    # The size of a part is known once it is compressed: search for the uncompressed size that fills the limit.
    low, high = 0, _size(hpas)
    space = int(high * limit_bytes / needed_bytes * _FILLED)
    for _ in range(_ATTEMPTS):
        part = _fair_part(changing, space)
        part += _fair_part(steady, space - _size(part))
        packed = _pack(part, now_ms)
        if len(packed) > limit_bytes:
            high = space
        else:
            low, kept, content = space, part, packed
            if len(packed) > _ENOUGH * limit_bytes:
                break
        space = int(space * limit_bytes / len(packed) * _FILLED)
        if not low < space < high:
            space = (low + high) // 2
    return kept, content


def _fair_part(hpas: Iterable[_EncodedHPA], space: int) -> list[_EncodedHPA]:
    """As many HPAs as `space` bytes hold, so that each namespace gets an equal part or all that it needs."""
    namespaces: dict[str, list[_EncodedHPA]] = {}
    for each in hpas:
        namespaces.setdefault(each.namespace, []).append(each)
    kept: list[_EncodedHPA] = []
    # The namespace that needs least comes first, and leaves the rest of its part to the others.
    for index, of_namespace in enumerate(sorted(namespaces.values(), key=_size)):
        part = space // (len(namespaces) - index)
        for each in sorted(of_namespace, key=lambda each: (each.size.bit_length(), -each.latest_ms)):
            if each.size <= part:
                kept.append(each)
                part -= each.size
                space -= each.size
    return kept


def _saved_hpa(key: HPAKey, entry: HistoryEntry, now_ms: int, expired_ms: int, *, final: bool) -> _SavedHPA:
    def slots(samples: Iterable[_Sample], slot: Callable[[_Sample, int], _Slot]) -> Iterator[_Slot | None]:
        before = now_ms
        for each in samples:
            if each.time_ms < expired_ms:
                yield None
            else:
                yield slot(each, each.time_ms - before)
                before = each.time_ms

    def event_slot(event: ScaleEvent, delta_ms: int) -> _EventSlot:
        return event.change, delta_ms, event.outdated

    history = entry.history
    return _SavedHPA(
        namespace=key.namespace,
        name=key.name,
        group=key.group,
        uid=entry.uid,
        recommendations=tuple(slots(history.recommendations, lambda each, delta_ms: (each.replicas, delta_ms))),
        scale_up_events=tuple(slots(history.scale_up_events, event_slot)),
        scale_down_events=tuple(slots(history.scale_down_events, event_slot)),
        metric_failures=history.metric_failures,
        complete=final and history.complete,
    )


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
    def times(slots: Iterable[_RecommendationSlot | _EventSlot]) -> Iterator[int]:
        time_ms = saved_ms
        for slot in slots:
            if slot is None:
                yield LONG_AGO_MS
            else:
                time_ms += slot[1]
                yield max(LONG_AGO_MS, min(time_ms, now_ms))

    def events(slots: tuple[_EventSlot, ...]) -> tuple[ScaleEvent, ...]:
        return tuple(
            ScaleEvent(0, time_ms, outdated=True) if slot is None else ScaleEvent(slot[0], time_ms, outdated=slot[2])
            for slot, time_ms in zip(slots, times(slots), strict=True)
        )

    recommendations = zip(saved.recommendations, times(saved.recommendations), strict=True)
    return History(
        recommendations=tuple(
            Recommendation(0 if slot is None else slot[0], time_ms) for slot, time_ms in recommendations
        ),
        scale_up_events=events(saved.scale_up_events),
        scale_down_events=events(saved.scale_down_events),
        metric_failures=saved.metric_failures,
        complete=saved.complete,
    )
