"""Leader election on a Lease: of several processes that could act, at most one does.

The rules are client-go's (tools/leaderelection), and so are the fields of the Lease, so both can share one. A candidate
writes its identity into the Lease and renews it every `retry_period`. The others take over when they have seen no
change for `lease_duration`. Nobody trusts the times in the Lease: what counts is how long ago, by its own clock, a
candidate saw it change. A holder that ends cleanly gives the Lease back, and the next one need not wait: here it does
not even wait for its next try, since it watches the Lease as well.

A Lease can carry annotations of its holder, and a candidate can be kept from taking a free Lease (`may_take`), as by
the Leases of others that divide the same work in another way. It asks before it takes the Lease and once more after
that: of two that exclude each other and take their Leases at the same time at least one then sees the other's, and
gives its own back before it has acted.

It is stricter than client-go in three points. The renew deadline runs from the start of the last renewal that went
well, not from the first that failed. A holder that reads another's name in the Lease stops at once, whatever the
deadline. And whoever is about to write asks `leading()` first, which compares clocks: a process that was stopped for a
minute knows, before it does anything else, that its time is over.

What kubernetes-asyncio has for this (36.1) is not used: it has no limit for a request that hangs, so it can lead beyond
the deadline; it measures with the wall clock; it ends with a traceback when the server is away; it never gives a Lease
back; and it writes local time as UTC.
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

from kube.client import KubeClient, KubeError
from kube.retries import Backoff
from kube.status import StatusError
from kube.tasks import done_before

_log = logging.getLogger(__name__)

JITTER = 1.2
"""A candidate waits up to (1 + JITTER) retry periods; the renew deadline must be longer than JITTER retry periods."""

_NOT_FOUND = 404
# Kubernetes' own health check waits this long beyond the lease before it calls for a restart.
_HEALTH_GRACE_SECONDS = 20.0
_RELEASE_SECONDS = 0.5
# What a released Lease says; a duration of 0 is not allowed.
_RELEASED_DURATION = 1


def boot_clock() -> float:
    """Seconds since the machine started; unlike the monotonic clock this one goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def unique_identity() -> str:
    """A name that no other candidate has: the host's (in a pod, the pod's), and a random part."""
    return f"{os.uname().nodename}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """Which Lease to contend for, and how (seconds); the defaults are those of Kubernetes' components."""

    namespace: str
    name: str
    lease_duration: float = 15.0
    """How long the others wait for a holder that is silent."""
    renew_deadline: float = 10.0
    """How long a holder goes on after the last renewal that went well."""
    retry_period: float = 2.0
    """Between tries to take or to renew."""

    @property
    def collection(self) -> str:
        """The path of the Leases of the namespace."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.namespace, safe='')}/leases"

    @property
    def request_seconds(self) -> float:
        """How long a request may take, so that one that hangs leaves time for another before the deadline."""
        return self.renew_deadline / 2


async def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """A Lease as read."""

    body: Mapping[str, Any]
    holder: str
    """Empty: nobody's."""
    duration: float
    acquire_time: str | None
    transitions: int

    @classmethod
    def of(cls, body: Mapping[str, Any], *, default_duration: float) -> _Lease:
        """Read a Lease, whatever somebody may have written into it."""
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
        settings: which Lease, and the times.
        identity: the candidate's name in the Lease; no two candidates may have the same.
        on_change: called with whether this candidate leads, each time that changes.
        annotations: of the Lease while this candidate holds it.
        may_take: whether it may take a Lease that is free, and, once it has taken it, whether it may lead.
        clock: a time in seconds that only goes forward.
        wall_clock: the time in seconds since the epoch; it is written into the Lease for people to read.
        random: numbers in [0, 1), so that candidates do not march in step.
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
        self._leads = False
        self._renewed_at = 0.0
        self._complaint = ""
        self._given_back = asyncio.Event()

    def leading(self) -> bool:
        """Whether this candidate may act now."""
        return self._leads and self._clock() < self._renewed_at + self._settings.renew_deadline

    def problem(self) -> str | None:
        """What is wrong, for a health check: it leads long after its lease ran out, so it must be stuck."""
        overdue = self._clock() - self._renewed_at - self._settings.lease_duration
        if self._leads and overdue > _HEALTH_GRACE_SECONDS:
            return f"failed election renewal on {self._label}"
        return None

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]], *, stop: asyncio.Event) -> None:
        """Do `work` whenever this candidate leads, until `stop` is set; then give the Lease back.

        When the lead is lost, `work` is cancelled, and begun anew when it is won again. `work` is expected to end by
        itself once `stop` is set; the Lease is renewed until it has.
        """
        try:
            while not stop.is_set():
                if await done_before(stop, self._acquire()):
                    await self._while_leading(work())
        finally:
            self._set_leads(False)
        await self._release()

    async def _while_leading(self, work: Coroutine[Any, Any, None]) -> None:
        _log.info("%s: taken by this process, %s", self._label, self._identity)
        self._set_leads(True)
        async with asyncio.TaskGroup() as tasks:
            renewing = tasks.create_task(self._renew_until_lost())
            working = tasks.create_task(work)
            await asyncio.wait((renewing, working), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                _log.warning("%s: lost; another may act now", self._label)
            renewing.cancel()
            working.cancel()
        self._set_leads(False)

    async def _acquire(self) -> None:
        taken = await self._try_to_lead()
        if taken:
            return
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch_for_release())
            while not taken:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._delays.next()):
                        await self._given_back.wait()
                self._given_back.clear()
                taken = await self._try_to_lead()
            watching.cancel()

    async def _try_to_lead(self) -> bool:
        """Take the Lease, and keep it if nothing speaks against that once it is taken."""
        if not await self._try():
            return False
        try:
            allowed = await self._may_take()
        except (StatusError, KubeError) as error:
            _log.debug("%s: given back: %s", self._label, error)
            allowed = False
        if not allowed:
            await self._release()
        return allowed

    async def _watch_for_release(self) -> None:
        """Say when the Lease is given back. Only to be quicker: where there is no right to watch, asking has to do."""
        query = {"fieldSelector": f"metadata.name={self._settings.name}"}
        while True:
            try:
                async with contextlib.aclosing(self._client.watch(self._collection, query)) as events:
                    async for event in events:
                        if event.get("type") == "MODIFIED" and _holder(event.get("object")) == "":
                            self._given_back.set()
            except (StatusError, KubeError) as error:
                _log.debug("%s: not watched: %s", self._label, error)
            # A watch that fails or ends at once must not be begun in a tight loop.
            await asyncio.sleep(self._settings.retry_period)

    async def _renew_until_lost(self) -> None:
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
            self._set_leads(False)

    async def _try(self) -> bool:
        """Take or renew the Lease, if that is possible now."""
        started = self._clock()
        try:
            if self._leads and self._seen is not None and await self._renew(self._seen):
                taken = True
            else:
                taken = await self._take(started)
        except (StatusError, KubeError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.warning("%s: %s; trying again", self._label, error)
            return False
        self._complaint = ""
        if taken:
            self._renewed_at = started
        return taken

    async def _renew(self, lease: _Lease) -> bool:
        """Renew on top of what was last written, which saves a read; False: it has changed since."""
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
                "metadata": {"namespace": self._settings.namespace, "name": self._settings.name}
                | ({"annotations": self._annotations} if self._annotations else {}),
                "spec": self._spec(None, self._identity),
            }
            if not await self._may_take():
                return False
            self._see(await self._client.post(self._collection, body, timeout=self._settings.request_seconds))
            return True
        lease = self._see(read)
        if lease.holder not in ("", self._identity) and self._seen_at + lease.duration > now:
            return False
        if not self._leads and not await self._may_take():
            return False
        self._see(await self._put(lease, self._spec(lease, self._identity)))
        return True

    async def _release(self) -> None:
        """Give the Lease back if it is ours, so that the next candidate need not wait; best effort."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                lease = self._see(await self._client.get(self._path, timeout=_RELEASE_SECONDS))
                if lease.holder == self._identity:
                    await self._put(lease, self._spec(lease, ""))
                    _log.info("%s: released", self._label)
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
        """Take note of the Lease as it is now."""
        lease = _Lease.of(body, default_duration=self._settings.lease_duration)
        if self._seen is None or self._seen.body.get("spec") != body.get("spec"):
            if lease.holder not in ("", self._identity, self._seen.holder if self._seen else ""):
                _log.info("%s: held by %s", self._label, lease.holder)
            self._seen_at = self._clock()
        self._seen = lease
        return lease

    def _spec(self, lease: _Lease | None, holder: str) -> dict[str, Any]:
        """The Lease's spec, with `holder` in it."""
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

    def _set_leads(self, leads: bool) -> None:
        if leads != self._leads:
            self._leads = leads
            self._on_change(leads)


def _holder(body: object) -> str:
    """Who holds a Lease, given as JSON; empty: nobody."""
    spec = body.get("spec") if isinstance(body, dict) else None
    holder = spec.get("holderIdentity") if isinstance(spec, dict) else None
    return holder if isinstance(holder, str) else ""
