"""Kubernetes Events about HPAs, sent in the background.

`record` only puts an event into a bounded queue; one task (`run`) sends them in order. `EventCorrelator` counts,
combines and limits events that repeat; an event that repeats while it waits is sent once, with its new count. An event
that gets no response is tried twelve times, ten seconds apart, while the others wait behind it; one that the API server
refuses is dropped.

Upstream: record.recorderImpl, record.recordToSink.
"""

from __future__ import annotations

import asyncio
import logging
import random as _random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.core.model import HPA, KIND
from autoscaler.loop.event_correlator import EventCorrelator, EventKey, Occurrence, RecordedEvent
from autoscaler.loop.throttle import NotLeaderError, ThrottledClient
from kube.client import KubeError
from kube.status import StatusError

_log = logging.getLogger(__name__)

_COMPONENT: Final = "horizontal-pod-autoscaler"
# client-go's numbers.
_QUEUE_LENGTH: Final = 1000
_TRIES: Final = 12
_RETRY_SECONDS: Final = 10.0
_NAME_LENGTH: Final = 253
_CONFLICT: Final = 409
# Kubernetes has no limit; a user's selectors are in messages, and a thousand of them may wait here.
_MESSAGE_LENGTH: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Waiting:
    occurrence: Occurrence
    is_new: bool
    """No occurrence of it has been sent."""


class EventRecorder:
    """Writes core/v1 Events about HPAs.

    Args:
        client: the connection; its rate limit holds for events too.
        clock: the current time in nanoseconds since the epoch.
        monotonic: seconds that only go forward.
        sleep: waits for so many seconds.
        random: numbers in [0, 1).
    """

    def __init__(
        self,
        client: ThrottledClient,
        *,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._correlator = EventCorrelator(clock=monotonic)
        self._queue: dict[EventKey, _Waiting] = {}
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = asyncio.Event()
        self._last_ns = 0
        self._failing = False

    def record(self, hpa: HPA, event_type: str, reason: str, message: str) -> None:
        """Record an event about an HPA; `event_type` is "Normal" or "Warning". Upstream: EventRecorder.Event."""
        event = RecordedEvent(
            namespace=hpa.namespace,
            name=hpa.name,
            uid=hpa.uid,
            api_version=hpa.api_version,
            resource_version=hpa.resource_version,
            type=event_type,
            reason=reason,
            message=message[:_MESSAGE_LENGTH],
            time_ns=self._unique_time(),
        )
        occurrence = self._correlator.correlate(event)
        if occurrence is None:
            _log.debug("%s: too many events, not recorded: %s %s", hpa.key, reason, message)
            return
        before = self._queue.get(occurrence.key)
        if before is None and len(self._queue) >= _QUEUE_LENGTH:
            _log.debug("%s: event queue full, not recorded: %s %s", hpa.key, reason, message)
            return
        is_new = occurrence.count == 1 or (before is not None and before.is_new)
        self._queue[occurrence.key] = _Waiting(occurrence, is_new)
        self._idle.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Send what is recorded, until cancelled."""
        while True:
            await self._arrived.wait()
            while self._queue:
                await self._send_with_retries(self._queue.pop(next(iter(self._queue))))
            self._arrived.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Return when everything recorded so far has been sent or dropped. Needs `run` in another task."""
        await self._idle.wait()

    async def close(self) -> None:
        """As `flush`, but without retries."""
        self._closing.set()
        await self.flush()

    def _unique_time(self) -> int:
        """The time now, or a little later: the names of events are made of their times."""
        self._last_ns = max(self._clock(), self._last_ns + 1)
        return self._last_ns

    async def _send_with_retries(self, waiting: _Waiting) -> None:
        """Send, with retries while there is no response."""
        for tries in range(1, _TRIES + 1):
            try:
                await self._send(waiting)
            except StatusError as error:
                if error.code == _CONFLICT:  # an earlier try wrote it, and its response was lost
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
            await self._pause(_RETRY_SECONDS * (self._random() if tries == 1 else 1.0))

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than until `close`."""
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _send(self, waiting: _Waiting) -> None:
        occurrence, event = waiting.occurrence, waiting.occurrence.event
        collection = f"/api/v1/namespaces/{event.namespace}/events"
        body = _body(occurrence)
        if not waiting.is_new:
            changed = {key: body[key] for key in ("count", "lastTimestamp", "message")}
            try:
                await self._client.patch(f"{collection}/{body['metadata']['name']}", changed)
            except StatusError as error:
                # The API server deletes events after an hour, and never had those over the limit.
                if error.code != 404:
                    raise
            else:
                return
        await self._client.post(collection, body)


def _body(occurrence: Occurrence) -> dict[str, Any]:
    event = occurrence.event
    suffix = f".{occurrence.first_ns:x}"
    # A part of a name must not end with what only separates parts.
    prefix = event.name[: _NAME_LENGTH - len(suffix)].rstrip("-.")
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
        "count": occurrence.count,
        "firstTimestamp": _rfc3339(occurrence.first_ns),
        "lastTimestamp": _rfc3339(event.time_ns),
    }


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
