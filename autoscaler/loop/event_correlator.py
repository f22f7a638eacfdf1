"""Which events are written, and as what, so that repetitions cannot fill etcd: the rules of client-go's correlator.

    the same again        (object, type, reason and message) the first one gets a new count and lastTimestamp
    similar ones          ten that differ only in their message, none more than ten minutes after the one before: from
                          the tenth on they are one event, "(combined from similar events): " and the latest message
    too many of a type    25 about an object at once, then one every five minutes; what is beyond is not written, but
                          counts

Upstream: record.EventCorrelator
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from cachetools import LRUCache

from autoscaler.loop.throttle import TokenBucket

_REMEMBERED: Final = 4096
_SIMILAR: Final = 10
_SIMILAR_SECONDS: Final = 600.0
_BURST: Final = 25
_REFILL_SECONDS: Final = 300.0

EventKey = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """Something that happened to an HPA."""

    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str
    type: str
    reason: str
    message: str
    time_ns: int
    """Since the Unix epoch; no two events have the same."""

    @property
    def about(self) -> EventKey:
        """The HPA and the type, which share a budget."""
        return (self.api_version, self.namespace, self.name, self.uid, self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An event as it is to be written: created where it is the first, else counted up in the one that is there."""

    event: RecordedEvent
    key: EventKey
    """The same for all that are one event."""
    first_ns: int
    """When the first of it happened, from which the object's name is made."""
    count: int


@dataclass(slots=True)
class _Similar:
    """Events that differ only in their messages."""

    last: float
    messages: dict[int, None] = field(default_factory=dict)
    """Their hashes: a message may have kilobytes."""


class EventCorrelator:
    """Counts, combines and rate-limits events.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._similar: LRUCache[EventKey, _Similar] = LRUCache(_REMEMBERED)
        self._occurred: LRUCache[EventKey, Occurrence] = LRUCache(_REMEMBERED)
        self._budgets: LRUCache[EventKey, TokenBucket] = LRUCache(_REMEMBERED)

    def correlate(self, event: RecordedEvent) -> Occurrence | None:
        """What to write of an event; None: nothing."""
        event, key = self._combined(event)
        before = self._occurred.get(key)
        occurrence = Occurrence(event=event, key=key, first_ns=event.time_ns, count=1)
        if before is not None:
            occurrence = replace(occurrence, first_ns=before.first_ns, count=before.count + 1)
        # Events that are not written count too.
        self._occurred[key] = occurrence
        return occurrence if self._budget(event).try_take() else None

    def _combined(self, event: RecordedEvent) -> tuple[RecordedEvent, EventKey]:
        """The event, or what it is combined with others to; and what identifies it. Upstream: EventAggregate."""
        key, now = (*event.about, event.reason), self._clock()
        similar = self._similar.get(key)
        if similar is None or now - similar.last > _SIMILAR_SECONDS:
            similar = _Similar(now)
        similar.last = now
        similar.messages[hash(event.message)] = None
        self._similar[key] = similar
        if len(similar.messages) < _SIMILAR:
            return event, (*key, event.message)
        del similar.messages[next(iter(similar.messages))]
        return replace(event, message=f"(combined from similar events): {event.message}"), key

    def _budget(self, event: RecordedEvent) -> TokenBucket:
        budget = self._budgets.get(event.about)
        if budget is None:
            budget = TokenBucket(qps=1 / _REFILL_SECONDS, burst=_BURST, clock=self._clock)
            self._budgets[event.about] = budget
        return budget
