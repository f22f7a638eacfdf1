"""The saved form of a memory: small, checked, and read again only by those who understand it.

It is gzipped JSON, so that an operator can look into it with standard tools. Times are differences to the sample
before, which compress well: an HPA with a full window of five minutes takes about 70 bytes.

The history's clock means nothing to another process, so what is saved are ages, beside the wall clock's time. Restored
ages are older by as much as the wall clock has moved on since; where it was set back, they are what they were.

What is too old to count under any settings loses its content but keeps its slot, as null: Kubernetes uses slots again
in an order that depends on all of them, and an HPA without any would be taken for a new one, whose current number of
replicas becomes a recommendation. So a decision after restoring is the decision that there would have been.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from autoscaler.core.annotations import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.history import LONG_AGO_MS, History, Recommendation, ScaleEvent
from autoscaler.core.model import HPAKey
from autoscaler.loop.histories import HistoryEntry

LIMIT_BYTES = 1_000_000
"""What fits into a ConfigMap, which may hold 1 MiB."""

_VERSION = 1
# A saved memory of this size would be of half a million HPAs; more is no memory but an attack on ours.
_MAX_DECODED_BYTES = 64 * 2**20
_GZIP = 16 + zlib.MAX_WBITS
# What is aimed at, and what will do, of the limit; and how often another part is tried.
_FILLED, _ENOUGH, _ATTEMPTS = 0.95, 0.85, 8

_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Slot: TypeAlias = tuple[_Count, int] | None
"""(replicas or change, milliseconds after the slot before); null: too old to count."""
_EventSlot: TypeAlias = tuple[_Count, int, bool] | None
"""With whether it was found outdated."""


class SavedHistoryError(Exception):
    """What was saved cannot be used; the message says why."""


class _SavedHPA(msgspec.Struct, array_like=True, frozen=True):
    """One HPA. Fields may be added at the end, with a default: older releases leave them out, or pass over them."""

    namespace: str
    name: str
    group: str
    uid: str
    recommendations: tuple[_Slot, ...]
    scale_up_events: tuple[_EventSlot, ...]
    scale_down_events: tuple[_EventSlot, ...]
    metric_failures: _Count = 0
    complete: bool = False
    """Whether it was saved after the last step; of a process that was killed only an earlier save is left."""


class _Saved(msgspec.Struct, frozen=True):
    version: int
    saved_ms: int
    """When it was saved, since the Unix epoch: the time that the first of each list's differences is to."""
    hpas: tuple[_SavedHPA, ...]


class _Header(msgspec.Struct, frozen=True):
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A memory ready to be saved."""

    content: bytes
    left_out: int
    """How many HPAs had no room."""


def encode(
    memory: Mapping[HPAKey, HistoryEntry],
    *,
    now_ms: int,
    monotonic_ms: int | None = None,
    final: bool = True,
    longest_window_ms: int = MAX_STABILIZATION_WINDOW_MS,
    limit_bytes: int = LIMIT_BYTES,
) -> Encoded:
    """Bring a memory into its saved form.

    Where it is too large, those HPAs go first whose last recommendations were all the same and which were not scaled:
    their current number of replicas says as much. The namespaces share the room fairly: one that needs less than an
    equal part has all that it needs, and of one that needs more the largest histories go first, of those about as large
    the ones that were added to longest ago. So nobody can push out the histories of others' HPAs by long ones of their
    own (a window of an hour at a sync period of a second is 3,600 recommendations).

    Args:
        memory: what is remembered.
        now_ms: the current time, since the Unix epoch.
        monotonic_ms: the same by the histories' clock; None: `now_ms`.
        final: whether no step follows before somebody restores this.
        longest_window_ms: what is older than this cannot count any more.
        limit_bytes: how large the result may be.
    """
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    expired_ms = monotonic_ms - longest_window_ms

    hpas = [
        _Encoded(
            namespace=key.namespace,
            steady=_is_steady(remembered.history, expired_ms),
            latest_ms=remembered.latest_ms,
            json=msgspec.json.encode(_saved_hpa(key, remembered, monotonic_ms, expired_ms, final=final)),
        )
        for key, remembered in memory.items()
    ]
    kept, content = hpas, _pack(hpas, now_ms)
    if len(content) > limit_bytes:
        kept, content = _fitting(hpas, now_ms, limit_bytes=limit_bytes, needed_bytes=len(content))
    return Encoded(content=content, left_out=len(hpas) - len(kept))


def decode(content: bytes, *, now_ms: int, monotonic_ms: int | None = None) -> dict[HPAKey, HistoryEntry]:
    """Read a saved memory.

    A time that is ahead of `now_ms`, because the clocks of two machines differ, becomes `now_ms`: so it cannot hold a
    scale-down back for ever.

    Args:
        content: what was saved.
        now_ms: the current time, since the Unix epoch.
        monotonic_ms: the same by the clock that the histories shall have; None: `now_ms`.

    Raises:
        SavedHistoryError: it is damaged, or was saved by a release whose form is not known here.
    """
    text = _decompress(content)
    try:
        version = msgspec.json.decode(text, type=_Header).version
        if version != _VERSION:
            raise SavedHistoryError(f"it is of version {version}, and this release reads version {_VERSION}")
        saved = msgspec.json.decode(text, type=_Saved)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SavedHistoryError(f"it is damaged: {error}") from error
    now_ms, age_ms = now_ms if monotonic_ms is None else monotonic_ms, max(0, now_ms - saved.saved_ms)
    return {
        HPAKey(each.namespace, each.name, each.group): HistoryEntry(each.uid, _history(each, now_ms - age_ms, now_ms))
        for each in saved.hpas
    }


# --- writing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoded:
    """One HPA's part of the saved form."""

    namespace: str
    steady: bool
    latest_ms: int
    json: bytes

    @property
    def size(self) -> int:
        return len(self.json)


def _pack(hpas: Iterable[_Encoded], now_ms: int) -> bytes:
    parts = [msgspec.Raw(each.json) for each in hpas]
    text = msgspec.json.encode({"version": _VERSION, "saved_ms": now_ms, "hpas": parts})
    return gzip.compress(text, compresslevel=6, mtime=0)


def _fitting(
    hpas: Iterable[_Encoded], now_ms: int, *, limit_bytes: int, needed_bytes: int
) -> tuple[list[_Encoded], bytes]:
    """The HPAs for which there is room, and their saved form; all of them need `needed_bytes`."""
    changing, steady = [each for each in hpas if not each.steady], [each for each in hpas if each.steady]
    kept: list[_Encoded] = []
    content = _pack(kept, now_ms)
    # How well a part compresses is known only when it has been: look for the room that fills the limit.
    low, high = 0, sum(each.size for each in hpas)
    room = int(high * limit_bytes / needed_bytes * _FILLED)
    for _ in range(_ATTEMPTS):
        part = _fair_part(changing, room)
        part += _fair_part(steady, room - sum(each.size for each in part))
        packed = _pack(part, now_ms)
        if len(packed) > limit_bytes:
            high = room
        else:
            low, kept, content = room, part, packed
            if len(packed) > _ENOUGH * limit_bytes:
                break
        room = int(room * limit_bytes / len(packed) * _FILLED)
        if not low < room < high:
            room = (low + high) // 2
    return kept, content


def _fair_part(hpas: Iterable[_Encoded], room: int) -> list[_Encoded]:
    """As many of the HPAs as `room` bytes hold, so that each namespace has an equal part or all that it needs."""
    namespaces: dict[str, list[_Encoded]] = {}
    for each in hpas:
        namespaces.setdefault(each.namespace, []).append(each)
    kept: list[_Encoded] = []
    # Whoever needs least comes first and leaves the rest of its part to those after it.
    by_need = sorted(namespaces.values(), key=lambda of_one: sum(each.size for each in of_one))
    for index, of_one in enumerate(by_need):
        part = room // (len(by_need) - index)
        for each in sorted(of_one, key=lambda each: (each.size.bit_length(), -each.latest_ms)):
            if each.size <= part:
                kept.append(each)
                part -= each.size
                room -= each.size
    return kept


def _saved_hpa(key: HPAKey, remembered: HistoryEntry, now_ms: int, expired_ms: int, *, final: bool) -> _SavedHPA:
    def slots(recommendations: Iterable[Recommendation]) -> Iterable[_Slot]:
        before = now_ms
        for each in recommendations:
            if each.time_ms < expired_ms:
                yield None
            else:
                yield each.replicas, each.time_ms - before
                before = each.time_ms

    def event_slots(events: Iterable[ScaleEvent]) -> Iterable[_EventSlot]:
        before = now_ms
        for each in events:
            if each.time_ms < expired_ms:
                yield None
            else:
                yield each.change, each.time_ms - before, each.outdated
                before = each.time_ms

    history = remembered.history
    return _SavedHPA(
        namespace=key.namespace,
        name=key.name,
        group=key.group,
        uid=remembered.uid,
        recommendations=tuple(slots(history.recommendations)),
        scale_up_events=tuple(event_slots(history.scale_up_events)),
        scale_down_events=tuple(event_slots(history.scale_down_events)),
        metric_failures=history.metric_failures,
        complete=final and history.complete,
    )


def _is_steady(history: History, expired_ms: int) -> bool:
    """Whether nothing is lost that would hold the next scale back."""
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
    def recommendations() -> Iterable[Recommendation]:
        time_ms = saved_ms
        for slot in saved.recommendations:
            if slot is None:
                yield Recommendation(0, LONG_AGO_MS)
            else:
                time_ms += slot[1]
                yield Recommendation(slot[0], _past(time_ms, now_ms))

    def events(slots: Iterable[_EventSlot]) -> Iterable[ScaleEvent]:
        time_ms = saved_ms
        for slot in slots:
            if slot is None:
                yield ScaleEvent(0, LONG_AGO_MS, outdated=True)
            else:
                time_ms += slot[1]
                yield ScaleEvent(slot[0], _past(time_ms, now_ms), outdated=slot[2])

    return History(
        recommendations=tuple(recommendations()),
        scale_up_events=tuple(events(saved.scale_up_events)),
        scale_down_events=tuple(events(saved.scale_down_events)),
        metric_failures=saved.metric_failures,
        complete=saved.complete,
    )


def _past(time_ms: int, now_ms: int) -> int:
    return max(LONG_AGO_MS, min(time_ms, now_ms))
