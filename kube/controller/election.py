"""Leader election on a Lease: of several processes that could act, at most one does.

The rules and the fields of the Lease are client-go's (tools/leaderelection). A candidate writes its identity into the
Lease and renews it every `retry_period`. The others take it over when they have seen no change for `lease_duration`, by
their own clock; times in the Lease are not trusted. A leader that stops cleanly releases the Lease. The others watch
it, so one of them takes it over at once.

The holder can set annotations on its Lease. `may_take` can prevent a candidate from taking a free Lease, for example
while Leases with another number of shards are held. It is called before the Lease is taken and again afterwards: if two
candidates that exclude each other take their Leases at the same time, at least one of them sees the other's Lease and
releases its own before it acts.

It is stricter than client-go in three points. The renew deadline runs from the start of the last successful renewal,
not from the first failed one. A leader that reads another name in the Lease stops at once. Callers check `leading()`
before each write, which compares clocks: so a process that was stopped for a minute does not write afterwards.

kubernetes-asyncio's leader election (36.1) is not used: a request that hangs has no timeout, so it can lead beyond the
deadline; it uses the wall clock; it ends with a traceback when the server cannot be reached; it never releases a Lease;
and it writes local time as UTC.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random as _random
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from kube.aio.tasks import done_before
from kube.api.client import KubeClient, KubeError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.process.runtime import boot_clock

_log = logging.getLogger(__name__)

JITTER = 1.2
"""A candidate waits up to (1 + JITTER) retry periods; the renew deadline must be longer than JITTER retry periods."""

_NOT_FOUND = 404
_CONFLICT = 409
# Like Kubernetes' health check, which fails this long after the lease has expired.
_HEALTH_GRACE_SECONDS = 20.0
_RELEASE_SECONDS = 2.0
# The duration of a released Lease; 0 is not allowed.
_RELEASED_DURATION = 1


def unique_identity() -> str:
    """Return a name that no other candidate has: the host's (in a pod, the pod's) and a random part."""
    return f"{os.uname().nodename}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """The Lease and the times of an election, in seconds; the defaults are those of Kubernetes' components."""

    namespace: str
    name: str
    lease_duration: float = 15.0
    """How long other candidates wait after the last change of the Lease."""
    renew_deadline: float = 10.0
    """How long a leader keeps acting after its last successful renewal."""
    retry_period: float = 2.0
    """The time between attempts to take or renew the Lease."""

    @property
    def collection(self) -> str:
        """The path of the Leases of the namespace."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.namespace, safe='')}/leases"

    @property
    def request_seconds(self) -> float:
        """The timeout of a request: if one hangs, there is time for another before the deadline."""
        return self.renew_deadline / 2


async def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """A Lease that was read."""

    body: Mapping[str, Any]
    holder: str
    """Empty: none."""
    duration: float
    acquire_time: str | None
    transitions: int

    @classmethod
    def of(cls, body: Mapping[str, Any], *, default_duration: float) -> _Lease:
        """Read a Lease; fields of a wrong type count as missing."""
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        acquired = spec.get("acquireTime")
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        return cls(
            body=body,
            holder=_holder(body),
            duration=float(duration) if isinstance(duration, int) and duration > 0 else default_duration,
            acquire_time=acquired if isinstance(acquired, str) else None,
            transitions=transitions if isinstance(transitions, int) else 0,
        )


class LeaderElector:
    """One candidate for one Lease.

    Args:
        client: the connection.
        settings: the Lease and the times.
        identity: the candidate's name in the Lease; unique among all candidates.
        on_change: called with True when this candidate becomes the leader, and with False when it no longer is.
        annotations: of the Lease while this candidate holds it.
        may_take: returns whether the candidate may take a free Lease and, after taking it, may lead.
        clock: monotonic, in seconds; runs on while the machine is suspended.
        wall_clock: seconds since the epoch; written into the Lease for people to read.
        random: returns numbers in [0, 1), for the jitter of retries.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: ElectionSettings,
        *,
        identity: str,
        on_change: Callable[[bool], None] = lambda _: None,
        annotations: Mapping[str, str] | None = None,
        may_take: Callable[[], Awaitable[bool]] = _always,
        clock: Callable[[], float] = boot_clock,
        wall_clock: Callable[[], float] = time.time,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client = client
        self._settings = settings
        self._identity = identity
        self._on_change = on_change
        self._annotations = dict(annotations or {})
        self._may_take = may_take
        self._clock = clock
        self._wall_clock = wall_clock
        period = settings.retry_period
        self._delays = Backoff(period, (1 + JITTER) * period, factor=1.0, jitter=JITTER, random=random)
        self._collection = settings.collection
        self._path = f"{self._collection}/{quote(settings.name, safe='')}"
        self._label = f"lease {settings.namespace}/{settings.name}"
        self._seen: _Lease | None = None
        self._seen_at = 0.0
        self._is_leader = False
        self._renewed_at = 0.0
        self._logged_error = ""
        self._released = asyncio.Event()

    def leading(self) -> bool:
        """Return whether this candidate may act now."""
        return self._is_leader and self._clock() < self._renewed_at + self._settings.renew_deadline

    def problem(self) -> str | None:
        """Return the failure for a health check if this candidate is still leader long after its lease expired."""
        overdue = self._clock() - self._renewed_at - self._settings.lease_duration
        if self._is_leader and overdue > _HEALTH_GRACE_SECONDS:
            return f"failed election renewal on {self._label}"
        return None

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]], *, stop: asyncio.Event) -> None:
        """Run `work` whenever this candidate is the leader, until `stop` is set; then release the Lease.

        When it is no longer the leader, `work` is cancelled; when it is again, `work` is started again. `work` must
        end by itself after `stop` is set; until then the Lease is renewed.
        """
        while not stop.is_set():
            if await done_before(stop, self._acquire()):
                await self._while_leading(work())
        await self._release()

    async def _while_leading(self, work: Coroutine[Any, Any, None]) -> None:
        _log.info("%s: became leader, %s", self._label, self._identity)
        self._set_leader(True)
        async with asyncio.TaskGroup() as tasks:
            renewing = tasks.create_task(self._renew_until_lost())
            working = tasks.create_task(work)
            await asyncio.wait((renewing, working), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                _log.warning("%s: leader election lost", self._label)
            renewing.cancel()
            working.cancel()

    async def _acquire(self) -> None:
        taken = await self._try_to_lead()
        if taken:
            return
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch_for_release())
            while not taken:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._delays.next()):
                        await self._released.wait()
                self._released.clear()
                taken = await self._try_to_lead()
            watching.cancel()

    async def _try_to_lead(self) -> bool:
        """Take the Lease; release it if `may_take` then returns False."""
        if not await self._try():
            return False
        try:
            allowed = await self._may_take()
        except (StatusError, KubeError) as error:
            _log.debug("%s: released: %s", self._label, error)
            allowed = False
        if not allowed:
            await self._release()
        return allowed

    async def _watch_for_release(self) -> None:
        """Set `_released` when the Lease is released. Polling is enough, so the right to watch is optional."""
        query = {"fieldSelector": f"metadata.name={self._settings.name}"}
        while True:
            try:
                async with contextlib.aclosing(self._client.watch(self._collection, query)) as events:
                    async for event in events:
                        if event.get("type") == "MODIFIED" and _holder(event.get("object")) == "":
                            self._released.set()
            except (StatusError, KubeError) as error:
                _log.debug("%s: not watched: %s", self._label, error)
            # Avoid a tight loop if watches fail or end at once.
            await asyncio.sleep(self._settings.retry_period)

    async def _renew_until_lost(self) -> None:
        """Renew the Lease until it has another holder or the deadline has passed. Not the leader afterwards."""
        try:
            while True:
                async with asyncio.timeout(self._renewed_at + self._settings.renew_deadline - self._clock()):
                    await asyncio.sleep(self._settings.retry_period)
                    while not await self._try():
                        if self._seen is not None and self._seen.holder != self._identity:
                            return
                        await asyncio.sleep(self._settings.retry_period)
        except TimeoutError:
            return
        finally:
            self._set_leader(False)

    async def _try(self) -> bool:
        """Take or renew the Lease, if possible."""
        started = self._clock()
        try:
            if self._is_leader and self._seen is not None and await self._renew(self._seen):
                taken = True
            else:
                taken = await self._take(started)
        except (StatusError, KubeError) as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                _log.warning("%s: %s; retrying", self._label, error)
            return False
        self._logged_error = ""
        if taken:
            self._renewed_at = started
        return taken

    async def _renew(self, lease: _Lease) -> bool:
        """Renew the Lease as last written, without reading it; return False if it has changed since."""
        try:
            self._see(await self._put(lease, self._spec(lease, self._identity)))
        except StatusError as error:
            _log.debug("%s: not renewed at once: %s", self._label, error)
            return False
        return True

    async def _take(self, now: float) -> bool:
        try:
            read = await self._client.get(self._path, timeout=self._settings.request_seconds)
        except StatusError as error:
            if error.code != _NOT_FOUND:
                raise
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "namespace": self._settings.namespace,
                    "name": self._settings.name,
                    "annotations": self._annotations,
                },
                "spec": self._spec(None, self._identity),
            }
            if not await self._may_take():
                return False
            self._see(await self._client.post(self._collection, body, timeout=self._settings.request_seconds))
            return True
        lease = self._see(read)
        if lease.holder not in ("", self._identity) and self._seen_at + lease.duration > now:
            return False
        if not self._is_leader and not await self._may_take():
            return False
        self._see(await self._put(lease, self._spec(lease, self._identity)))
        return True

    async def _release(self) -> None:
        """Release the Lease if this candidate holds it, so that the next one need not wait; best effort."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                while (lease := self._see(await self._client.get(self._path))).holder == self._identity:
                    try:
                        await self._put(lease, self._spec(lease, ""))
                    except StatusError as error:
                        # A renewal that was cancelled may have arrived after the Lease was read.
                        if error.code != _CONFLICT:
                            raise
                    else:
                        _log.info("%s: released", self._label)
                        return
        except (StatusError, KubeError, TimeoutError) as error:
            _log.debug("%s: not released: %s", self._label, error)

    async def _put(self, lease: _Lease, spec: Mapping[str, Any]) -> dict[str, Any]:
        body = {**lease.body, "spec": spec}
        if self._annotations:
            metadata = body.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            body["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **self._annotations}}
        return await self._client.put(self._path, body, timeout=self._settings.request_seconds)

    def _see(self, body: Mapping[str, Any]) -> _Lease:
        """Store the Lease and the time of its change."""
        lease = _Lease.of(body, default_duration=self._settings.lease_duration)
        if self._seen is None or self._seen.body.get("spec") != body.get("spec"):
            if lease.holder not in ("", self._identity, self._seen.holder if self._seen else ""):
                _log.info("%s: held by %s", self._label, lease.holder)
            self._seen_at = self._clock()
        self._seen = lease
        return lease

    def _spec(self, lease: _Lease | None, holder: str) -> dict[str, Any]:
        """Return the Lease's next spec."""
        now = datetime.fromtimestamp(self._wall_clock(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        same = lease is not None and lease.holder == holder
        transitions = 0 if lease is None else lease.transitions
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil(self._settings.lease_duration) if holder else _RELEASED_DURATION,
            "acquireTime": lease.acquire_time if same and lease and lease.acquire_time else now,
            "renewTime": now,
            "leaseTransitions": transitions if same or not holder or lease is None else transitions + 1,
        }

    def _set_leader(self, is_leader: bool) -> None:
        if is_leader != self._is_leader:
            self._is_leader = is_leader
            self._on_change(is_leader)


def _holder(body: object) -> str:
    """Return the holder of a Lease's JSON; empty: none."""
    spec = body.get("spec") if isinstance(body, dict) else None
    holder = spec.get("holderIdentity") if isinstance(spec, dict) else None
    return holder if isinstance(holder, str) else ""
