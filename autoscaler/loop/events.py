"""Kubernetes Events about HPAs, written beside the loop and never in its way.

`record` only puts an event into a bounded queue; one task (`run`) sends them in order. What cannot be sent is dropped:
an event is news for people, and a reconciliation must not wait or fail for it.

As client-go's recorder does it, an event that repeats (same object, type, reason and message) is not written again:
the first one gets a new count and lastTimestamp. And the warnings about an object have a token bucket, so that an HPA
that fails at every sync cannot fill etcd: 25 at once, then one every five minutes. Unlike client-go's, the bucket
leaves alone what is no warning: such an event tells of a scale that was written, and is no greater load than that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from autoscaler.core.apis import KIND
from autoscaler.loop.throttle import TokenBucket
from kube.client import KubeError
from kube.status import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoscaler.core.model import HPA, InvalidHPA
    from autoscaler.loop.throttle import ThrottledClient

__all__ = ["EventRecorder"]

_log = logging.getLogger(__name__)

_COMPONENT = "horizontal-pod-autoscaler"
# client-go's numbers: objects remembered, events an object may burst, seconds until it may send one more.
_REMEMBERED = 4096
_BURST = 25
_REFILL_SECONDS = 300.0
_QUEUE_LENGTH = 1000
_NAME_LENGTH = 253
# The API server refuses longer messages.
_MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class _Event:
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str
    type: str
    reason: str
    message: str
    time_ns: int

    @property
    def object_key(self) -> tuple[str, ...]:
        return (self.api_version, self.namespace, self.name, self.uid)

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.object_key, self.type, self.reason, self.message)


@dataclass(frozen=True, slots=True)
class _Written:
    """An event that the API server has: its name and how often it has happened."""

    name: str
    count: int


class EventRecorder:
    """Writes core/v1 Events about HPAs.

    Args:
        client: the connection; its rate limit holds for events too.
        clock: the current time in nanoseconds since the epoch.
    """

    def __init__(self, client: ThrottledClient, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._client = client
        self._clock = clock
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_QUEUE_LENGTH)
        self._written: LRUCache[tuple[str, ...], _Written] = LRUCache(_REMEMBERED)
        self._buckets: LRUCache[tuple[str, ...], TokenBucket] = LRUCache(_REMEMBERED)
        self._last_ns = 0
        self._failing = False

    def record(self, hpa: HPA | InvalidHPA, event_type: str, reason: str, message: str) -> None:
        """Note that something happened to an HPA; `event_type` is "Normal" or "Warning"."""
        event = _Event(
            hpa.namespace,
            hpa.name,
            hpa.uid,
            hpa.api_version,
            hpa.resource_version,
            event_type,
            reason,
            message[:_MESSAGE_LENGTH],
            self._unique_time(),
        )
        if not self._admits(event):
            _log.debug("%s: too many events, not recorded: %s %s", hpa.key, reason, message)
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            _log.debug("%s: event queue full, not recorded: %s %s", hpa.key, reason, message)

    async def run(self) -> None:
        """Send what is recorded, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except KubeError as error:  # the stores say that contact is lost
                _log.debug("an event is lost: %s", error)
            except StatusError as error:
                if not self._failing:
                    _log.warning("events cannot be written: %s", error)
                self._failing = True
            else:
                self._failing = False
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Return when everything recorded so far has been sent or dropped. Needs `run` in another task."""
        await self._queue.join()

    def _unique_time(self) -> int:
        """The time now, or a little later: events of one object must not share a name."""
        self._last_ns = max(self._clock(), self._last_ns + 1)
        return self._last_ns

    def _admits(self, event: _Event) -> bool:
        if event.type != "Warning":
            return True
        bucket = self._buckets.get(event.object_key)
        if bucket is None:
            bucket = TokenBucket(qps=1 / _REFILL_SECONDS, burst=_BURST, clock=lambda: self._clock() / 1e9)
            self._buckets[event.object_key] = bucket
        return bucket.try_take()

    async def _send(self, event: _Event) -> None:
        collection = f"/api/v1/namespaces/{event.namespace}/events"
        before = self._written.get(event.key)
        if before is not None:
            count = before.count + 1
            try:
                await self._client.patch(
                    f"{collection}/{before.name}", {"count": count, "lastTimestamp": _rfc3339(event.time_ns)}
                )
            except StatusError as error:
                if error.code != 404:  # the API server forgets events after an hour; then it is a new one
                    raise
            else:
                self._written[event.key] = _Written(before.name, count)
                return
        body = _body(event)
        await self._client.post(collection, body)
        self._written[event.key] = _Written(body["metadata"]["name"], 1)


def _body(event: _Event) -> dict[str, Any]:
    suffix = f".{event.time_ns:x}"
    # A part of a name must not end with what only separates parts.
    prefix = event.name[: _NAME_LENGTH - len(suffix)].rstrip("-.")
    timestamp = _rfc3339(event.time_ns)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": prefix + suffix, "namespace": event.namespace},
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": KIND,
            "namespace": event.namespace,
            "name": event.name,
            "uid": event.uid,
            "resourceVersion": event.resource_version,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": "",
        "count": 1,
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
    }


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
