"""Kubernetes Events, sent in the background.

`record` only puts an event into a bounded queue; one task (`run`) sends them, those of a namespace in order, and
namespaces are served round robin. An event that repeats while it waits is sent once, with its new count. If the queue
is full, the namespace with the most events in it loses its newest. An event without a response is retried, twelve times
in all and ten seconds apart, while later events wait. An event that the API server refuses is dropped.

Events that repeat are counted, combined and limited, so that they cannot fill etcd:

    equal events          with the same object, type, reason and message increase the count of the first one
    similar events        ten that differ only in their message, each within ten minutes of the one before, become one:
                          "(combined from similar events): " and the latest message
    limit                 25 events of a type about an object, then one every five minutes; further ones are counted and
                          not written
    total limit           500 events, then five a second and one every five minutes for each object; further ones wait

Unlike in Kubernetes, which caches 4,096 events, the counts are kept for as many objects as there are.

Upstream: record.recorderImpl, record.recordToSink, record.EventCorrelator.
"""

from __future__ import annotations

import asyncio
import logging
import random as _random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from kube.aio.fairness import FairSlots
from kube.aio.tasks import done_before
from kube.api.client import KubeError
from kube.api.status import StatusError
from kube.controller.flowcontrol import NotLeaderError, ThrottledClient, TokenBucket

_log = logging.getLogger(__name__)

# client-go's numbers.
_TRIES: Final = 12
_RETRY_SECONDS: Final = 10.0
_MIN_OBJECTS: Final = 4096
_EVENTS_OF_OBJECT: Final = 64
_SIMILAR: Final = 10
_SIMILAR_SECONDS: Final = 600.0
_BURST: Final = 25
_REFILL_SECONDS: Final = 300.0
_NAME_LENGTH: Final = 253
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
# Kubernetes has no limit. Messages contain users' selectors, and a thousand messages may wait here.
_MESSAGE_LENGTH: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Limits of events; the defaults are client-go's."""

    queued: int = 1000
    """Events that wait to be sent; the namespace with the most of them loses its newest."""
    per_second: float = 5.0
    """Rate of the events of all objects together; each object adds one in five minutes."""
    burst: int = 500
    """Events of all objects together: so many are sent at once, when many objects change."""


DEFAULTS: Final = EventSettings()

_EventKey: TypeAlias = tuple[str | int, ...]


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object that an event is about. Upstream: v1.ObjectReference."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str


@dataclass(slots=True)
class _Recorded:
    """What was recorded about one object."""

    buckets: dict[str, TokenBucket] = field(default_factory=dict)
    """By type of event."""
    similar: dict[tuple[str, str], _Similar] = field(default_factory=dict)
    """By type and reason."""
    counts: dict[_EventKey, tuple[int, int]] = field(default_factory=dict)
    """By type, reason and hash of the message, which may be long: time of the first event, and how many there were."""


@dataclass(slots=True)
class _Similar:
    """Events that differ only in their messages."""

    last: float
    messages: dict[int, None] = field(default_factory=dict)
    """Hashes of the messages, which may be long."""


class EventRecorder:
    """Writes core/v1 Events.

    Args:
        client: the connection, whose rate limit includes events.
        component: the name of the controller, shown as the events' source.
        settings: see EventSettings.
        clock: the current time in nanoseconds since the epoch.
        monotonic: a monotonic clock, in seconds.
        sleep: waits for so many seconds.
        random: numbers in [0, 1).
    """

    def __init__(
        self,
        client: ThrottledClient,
        *,
        component: str,
        settings: EventSettings = DEFAULTS,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client = client
        self._component = component
        self._settings = settings
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._random = random
        self._max_objects = _MIN_OBJECTS
        # The object that was used longest ago comes first.
        self._objects: dict[tuple[str, ...], _Recorded] = {}
        self._total = TokenBucket(qps=settings.per_second, burst=settings.burst, clock=monotonic)
        # (Event object, True: no earlier one of this key has been sent)
        self._queue: dict[_EventKey, tuple[dict[str, Any], bool]] = {}
        self._order: FairSlots[_EventKey] = FairSlots(1)
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = asyncio.Event()
        self._last_ns = 0
        self._failing = False

    def resize(self, objects: int) -> None:
        """Set the number of objects that there are."""
        self._max_objects = max(_MIN_OBJECTS, 2 * objects)
        qps = self._settings.per_second + objects / _REFILL_SECONDS
        self._total.resize(qps=qps, burst=self._settings.burst)

    def record(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        """Record an event; `event_type` is "Normal" or "Warning". Upstream: EventRecorder.Event."""
        # The time is part of the event's name, so it must be unique.
        self._last_ns = now_ns = max(self._clock(), self._last_ns + 1)
        about = (regarding.api_version, regarding.namespace, regarding.name, regarding.uid)
        recorded = self._objects[about] = self._objects.pop(about, _Recorded())
        if len(self._objects) > self._max_objects:
            del self._objects[next(iter(self._objects))]
        message, content = self._aggregate(recorded, (event_type, reason), message[:_MESSAGE_LENGTH])
        # Events that are not written count too.
        first_ns, count = recorded.counts.pop(content, (now_ns, 0))
        recorded.counts[content] = first_ns, count + 1
        if len(recorded.counts) > _EVENTS_OF_OBJECT:
            del recorded.counts[next(iter(recorded.counts))]
        if event_type not in recorded.buckets:
            bucket = TokenBucket(qps=1 / _REFILL_SECONDS, burst=_BURST, clock=self._monotonic)
            recorded.buckets[event_type] = bucket
        if not recorded.buckets[event_type].try_take():
            _log.debug("%s: too many events, not recorded: %s %s", regarding.name, reason, message)
            return
        key = (*about, *content)
        before = self._queue.get(key)
        # A part of a name must not end with a separator.
        suffix = f".{first_ns:x}"
        prefix = regarding.name[: _NAME_LENGTH - len(suffix)].rstrip("-.")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": prefix + suffix, "namespace": regarding.namespace},
            "involvedObject": msgspec.to_builtins(regarding),
            "type": event_type,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "count": count + 1,
            "firstTimestamp": _rfc3339(first_ns),
            "lastTimestamp": _rfc3339(now_ns),
        }
        self._queue[key] = event, count == 0 or (before is not None and before[1])
        if before is None:
            self._order.add(regarding.namespace, key)
        if len(self._queue) > self._settings.queued:
            dropped, _ = self._queue.pop(self._order.drop())
            _log.debug("event queue full, not recorded: %s %s", dropped["metadata"]["name"], dropped["message"])
        self._idle.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Send what is recorded, until cancelled."""
        while True:
            await self._arrived.wait()
            while (following := self._order.next()) is not None:
                namespace, key = following
                self._order.release(namespace)
                if not self._closing.is_set():
                    await self._total.take()
                await self._send_with_retries(*self._queue.pop(key))
            self._arrived.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Wait until all events recorded so far have been sent or dropped. Needs `run` in another task."""
        await self._idle.wait()

    async def close(self) -> None:
        """Like `flush`, but without retries."""
        self._closing.set()
        await self.flush()

    def _aggregate(self, recorded: _Recorded, kind: tuple[str, str], message: str) -> tuple[str, _EventKey]:
        """Return message and key of an event, combined with similar ones. Upstream: EventAggregator.EventAggregate."""
        now, similar, digest = self._monotonic(), recorded.similar.get(kind), hash(message)
        if similar is None or now - similar.last > _SIMILAR_SECONDS:
            similar = recorded.similar[kind] = _Similar(now)
        similar.last = now
        similar.messages[digest] = None
        if len(similar.messages) < _SIMILAR:
            return message, (*kind, digest)
        del similar.messages[next(iter(similar.messages))]
        return f"(combined from similar events): {message}", kind

    async def _send_with_retries(self, event: dict[str, Any], is_new: bool) -> None:
        """Send, with retries while there is no response."""
        for tries in range(1, _TRIES + 1):
            try:
                await self._send(event, is_new=is_new)
            except StatusError as error:
                if error.code == _CONFLICT:  # an earlier attempt succeeded, but its response was lost
                    return
                if not self._failing:
                    _log.warning("events cannot be written: %s", error)
                self._failing = True
                return
            except NotLeaderError as error:
                _log.debug("an event is not written: %s", error)
                return
            except KubeError as error:  # the stores log that the API server is disconnected
                if tries == _TRIES or self._closing.is_set():
                    _log.debug("an event is lost: %s", error)
                    return
            else:
                self._failing = False
                return
            # The first delay is random, so that not all clients retry at the same moment.
            await done_before(self._closing, self._sleep(_RETRY_SECONDS * (self._random() if tries == 1 else 1.0)))

    async def _send(self, event: dict[str, Any], *, is_new: bool) -> None:
        collection = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        if not is_new:
            changed = {key: event[key] for key in ("count", "lastTimestamp", "message")}
            try:
                await self._client.patch(f"{collection}/{event['metadata']['name']}", changed)
            except StatusError as error:
                # The event expired after an hour, or was never written because of the limit.
                if error.code != _NOT_FOUND:
                    raise
            else:
                return
        await self._client.post(collection, event)


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
