"""Count, combine and limit events that repeat, so that they cannot fill etcd.

    equal events          with the same object, type, reason and message increase the count of the first one
    similar events        ten that differ only in their message, each within ten minutes of the one before, become one:
                          "(combined from similar events): " and the latest message
    limit                 25 events of a type about an object, then one every five minutes; further ones are counted and
                          not written

Upstream: record.EventCorrelator.
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
        """The HPA and the type, which share a limit."""
        return (self.api_version, self.namespace, self.name, self.uid, self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An event to write: create it if `count` is 1, otherwise update the count of the existing one."""

    event: RecordedEvent
    key: EventKey
    """The same for all occurrences of an event."""
    first_ns: int
    """The time of the first occurrence; the object's name is made of it."""
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
        """The occurrence to write; None: it is over the limit. Upstream: EventCorrelator.EventCorrelate."""
        event, key = self._combined(event)
        before = self._occurred.get(key)
        occurrence = Occurrence(event=event, key=key, first_ns=event.time_ns, count=1)
        if before is not None:
            occurrence = replace(occurrence, first_ns=before.first_ns, count=before.count + 1)
        # Events that are not written count too.
        self._occurred[key] = occurrence
        return occurrence if self._budget(event).try_take() else None

    def _combined(self, event: RecordedEvent) -> tuple[RecordedEvent, EventKey]:
        """The event, combined with similar ones, and its key. Upstream: EventAggregator.EventAggregate."""
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
