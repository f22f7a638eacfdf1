"""Write the status of MetricRules and ClusterMetricRules, and events about HPAs and ConfigMaps that have rules.

One replica writes: the holder of a Lease. It checks an object as soon as it changes, and all of them again every few
minutes. A status is written if it differs from the present one. With thousands of objects, the checks, the queries to
Prometheus and the writes have a rate limit each, so that changes stay quick and rechecks take longer.
"""

from __future__ import annotations

import asyncio
import logging
import random as _random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from adapter.catalog.rule_states import Reason
from adapter.rule_objects.annotations import HPA, OWN_HPA
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.state import ObjectState
from adapter.rule_objects.status import Verdict, must_write, not_served, ready_condition, status_of
from adapter.rules import AnyRule
from adapter.rules.objects import CONFIG_MAP, ObjectName, RuleObject
from adapter.settings import DEFAULTS, RuleObjectSettings
from kube.aio.tasks import done_before, in_slices
from kube.api.client import KubeClient, KubeError
from kube.api.listing import list_objects
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.controller.election import ElectionSettings, LeaderElector, unique_identity
from kube.controller.error_log import ErrorLog
from kube.controller.events import EventRecorder, ObjectReference
from kube.controller.flowcontrol import NotLeaderError, ThrottledClient, TokenBucket
from kube.controller.workqueue import WorkQueue, run_workers

_log = logging.getLogger(__name__)

LEASE: Final = "milliscale-adapter-rules"
"""The name of the Lease, in the adapter's namespace."""

RESOURCES: Final = {"MetricRule": "metricrules", "ClusterMetricRule": "clustermetricrules"}
"""The kinds that have a status, and their resources."""

_GROUP: Final = "/apis/milliscale.io/v1"
_WORKERS: Final = 4
_PENDING_SECONDS: Final = 5.0
_JITTER: Final = 0.2
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


_NOT_SERVED: Final = frozenset(
    {"", Reason.PENDING, Reason.INVALID, Reason.CONFLICT, Reason.TOO_MANY_RULES, Reason.TOO_MANY_METRICS}
)
COMPONENT: Final = "milliscale-adapter"
"""The source of the events."""
API_VERSIONS: Final = {HPA: "autoscaling/v2", OWN_HPA: "milliscale.io/v1", CONFIG_MAP: "v1"}
"""The kinds of objects that have events."""
# What the author of the rules can change; not that Prometheus cannot be reached.
_REASONS: Final = frozenset(
    {Reason.INVALID, Reason.CONFLICT, Reason.TOO_MANY_RULES, Reason.TOO_MANY_METRICS, Reason.QUERY_FAILED}
)


@dataclass(frozen=True, slots=True)
class _Known:
    """A status as it is in the API server, encoded, since there may be thousands."""

    uid: str
    reason: str
    generation: int
    status: bytes


class StatusWriter:
    """Writes statuses and events while it holds the Lease.

    Args:
        client: the connection.
        objects: the objects.
        check: checks a rule; it does not raise.
        election: the Lease.
        statuses: there are objects that have a status.
        settings: see RuleObjectSettings.
        wall_clock: seconds since the epoch.
        random: returns numbers in [0, 1), to spread the checks.
    """

    def __init__(
        self,
        client: KubeClient,
        objects: RuleObjects,
        check: Callable[[AnyRule], Awaitable[Verdict]],
        *,
        election: ElectionSettings,
        statuses: bool = True,
        settings: RuleObjectSettings = DEFAULTS.rule_objects,
        wall_clock: Callable[[], float] = time.time,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client = client
        self._objects = objects
        self._check = check
        self._kinds = tuple(RESOURCES) if statuses else ()
        self._settings = settings
        self._wall_clock = wall_clock
        self._random = random
        self._elector = LeaderElector(client, election, identity=unique_identity())
        self._writes = ThrottledClient(
            client,
            TokenBucket(qps=settings.requests_per_second, burst=settings.burst),
            may_write=self._elector.leading,
        )
        self._errors = ErrorLog(disconnected=lambda: False)
        self._events = RuleEvents(self._writes)
        self._queue = _queue()
        self._rechecks: WorkQueue[ObjectName] = WorkQueue()
        self._known: dict[ObjectName, _Known] = {}
        self._pending: set[ObjectName] = set()
        self._changes: set[ObjectName] = set()
        self._has_changes = asyncio.Event()
        self._loaded = False

    async def run(self, stop: asyncio.Event) -> None:
        """Write while this process holds the Lease, until `stop` is set; then release it."""
        await self._elector.run(lambda: self._work(stop), stop=stop)

    @property
    def active(self) -> bool:
        """True while this process writes."""
        return self._loaded

    def changed(self, names: Iterable[ObjectName]) -> None:
        """Check objects, since they or what is known about them have changed."""
        if self._loaded:
            self._changes.update(names)
            self._has_changes.set()

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return the number of objects by kind and reason; none while another replica holds the Lease."""
        return Counter((name.kind, known.reason) for name, known in self._known.items() if known.reason)

    async def _work(self, stop: asyncio.Event) -> None:
        """Check and write until `stop` is set. Start with what is in the API server: another replica wrote it."""
        self._queue, self._rechecks, self._events = _queue(), WorkQueue(), RuleEvents(self._writes)
        try:
            await done_before(stop, self._check_all())
        finally:
            self._loaded = False
            self._known, self._changes = {}, set()

    async def _check_all(self) -> None:
        self._known = await self._load()
        self._loaded = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            tasks.create_task(run_workers(self._queue, self._reconcile))
            tasks.create_task(self._add_rechecks())
            tasks.create_task(self._follow_changes())

    async def _load(self) -> dict[ObjectName, _Known]:
        """Return the present statuses of all objects; retry until the API server lists them."""
        backoff = Backoff(1.0, 30.0)
        while True:
            try:
                return {name: known for kind in self._kinds for name, known in await self._load_kind(kind)}
            except (StatusError, KubeError) as error:
                _log.warning("the statuses of rule objects cannot be listed: %s; retrying", error)
                await asyncio.sleep(backoff.next())

    async def _load_kind(self, kind: str) -> list[tuple[ObjectName, _Known]]:
        try:
            listed = await list_objects(
                self._client, f"{_GROUP}/{RESOURCES[kind]}", lambda entry: _known_object(kind, entry)
            )
        except StatusError as error:
            if error.code == _NOT_FOUND:  # the CustomResourceDefinition is not installed
                return []
            raise
        return listed.items

    async def _follow_changes(self) -> None:
        await self._add([one.name for one in self._objects.objects()], changed=False)
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            names, self._changes = self._changes, set()
            await self._add(names, changed=True)

    async def _add(self, names: Iterable[ObjectName], *, changed: bool) -> None:
        """Add objects whose status is of another generation, or has a reason that no longer holds; others later.

        With `changed`, an object without a value is checked now, too. One that is Ready is not: after a start of the
        process all objects are new. Objects without a status get their events at once.
        """
        async for name in in_slices(names):
            known, state = self._known.get(name), self._objects.state(name)
            if name.kind in API_VERSIONS:
                self._events.update(name, state)
            elif (
                known is not None
                and state is not None
                and _is_current(known, state)
                and (known.reason == "Ready" or not changed)
            ):
                self._rechecks.add_after(name, self._settings.check_seconds * self._random())
            else:
                self._queue.add_urgent(name)

    async def _add_rechecks(self) -> None:
        """Add the objects that are due for another check, at a limited rate."""
        rate = TokenBucket(qps=self._settings.checks_per_second, burst=1)
        while (name := await self._rechecks.get()) is not None:
            self._rechecks.done(name)
            await rate.take()
            self._queue.add(name)

    async def _reconcile(self, name: ObjectName) -> None:
        """Check an object, and write its status if it differs."""
        state = self._objects.state(name)
        if state is None:
            self._known.pop(name, None)
            self._pending.discard(name)
            self._errors.forget(name)
            return
        if state.reason is Reason.PENDING and name not in self._pending:
            self._pending.add(name)  # its series are being listed: a status now would be replaced in a moment
            self._rechecks.move(name, _PENDING_SECONDS)
            return
        self._pending.discard(name)
        if state.reason is Reason.READY:
            verdict = await self._check(state.object.rules[0])
            if self._objects.state(name) != state:
                self._queue.add_urgent(name)  # it changed meanwhile
                return
        else:
            verdict = not_served(state)
        one = state.object
        written = await self._write(one, verdict)
        settings = self._settings
        seconds = settings.check_seconds if written and verdict.settled else settings.unsettled_seconds
        self._rechecks.move(name, seconds * (1 + _JITTER * self._random()))

    async def _write(self, one: RuleObject, verdict: Verdict) -> bool:
        """Write the status of an object if it differs; return whether it is up to date."""
        known = self._known.get(one.name)
        before = msgspec.json.decode(known.status) if known is not None and known.uid == one.uid else {}
        status = status_of(verdict, generation=one.generation, before=before, now=self._wall_clock())
        if must_write(status, before):
            try:
                if not await self._replace(one, status):
                    return False
            except NotLeaderError:
                return False
            except (StatusError, KubeError) as error:
                gone = isinstance(error, StatusError) and error.code == _NOT_FOUND
                self._errors.reconciled(one.name, None if gone else f"its status cannot be written: {error}")
                return gone
        else:
            status = before
        self._errors.reconciled(one.name, None)
        self._known[one.name] = _known(one.uid, status)
        return True

    async def _replace(self, one: RuleObject, status: Mapping[str, Any]) -> bool:
        """Write a status; return False if the object has changed. Raises StatusError, KubeError."""
        # For custom resources, a patch of the status is not refused because of another uid. A list of one object needs
        # no right to get it.
        collection = collection_path(one.name)
        listed = await self._writes.get(collection, {"fieldSelector": f"metadata.name={one.name.name}"})
        metadata = _metadata_of_one(listed)
        if (metadata.get("uid"), metadata.get("generation")) != (one.uid, one.generation):
            return False
        body = {"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": status}
        try:
            await self._writes.patch(f"{collection}/{quote(one.name.name, safe='')}/status", body)
        except StatusError as error:
            if error.code != _CONFLICT:
                raise
            return False
        return True


def _queue() -> WorkQueue[ObjectName]:
    """Return a queue that hands out one object of a namespace at a time, of a few namespaces."""
    return WorkQueue(namespace=lambda name: name.namespace, limit=lambda: 0, spare=_WORKERS)


def collection_path(name: ObjectName) -> str:
    """Return the path of an object's collection."""
    namespace = f"/namespaces/{quote(name.namespace, safe='')}" if name.namespace else ""
    return f"{_GROUP}{namespace}/{RESOURCES[name.kind]}"


def _metadata_of_one(listed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of the only object in a list; an empty mapping if there is none."""
    match listed.get("items"):
        case [{"metadata": dict(metadata)}]:
            return metadata
    return {}


def _is_current(known: _Known, state: ObjectState) -> bool:
    """Return whether a status is about an object's generation, and served or not for the same reason."""
    if (known.uid, known.generation) != (state.object.uid, state.object.generation):
        return False
    if state.reason is Reason.READY:
        return known.reason not in _NOT_SERVED
    return known.reason == state.reason


def _known(uid: str, status: Mapping[str, Any]) -> _Known:
    generation, reason = status.get("observedGeneration"), ready_condition(status).get("reason")
    return _Known(
        uid,
        reason if isinstance(reason, str) else "",
        generation if isinstance(generation, int) else 0,
        msgspec.json.encode(status),
    )


def _known_object(kind: str, entry: Any) -> tuple[ObjectName, _Known] | None:
    """Return the name and status of a listed object; None if it is none."""
    metadata = entry.get("metadata") if isinstance(entry, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    status = entry.get("status")
    name = ObjectName(kind, str(metadata.get("namespace") or ""), metadata["name"])
    return name, _known(str(metadata.get("uid")), status if isinstance(status, dict) else {})


class RuleEvents:
    """Writes an event when an object's rules are not served, and again when the reason or its message changes.

    HPAs and ConfigMaps, which have no status for it, get events.
    """

    def __init__(self, client: ThrottledClient) -> None:
        self._recorder = EventRecorder(client, component=COMPONENT)
        self._recorded: dict[ObjectName, tuple[str, str, str]] = {}

    async def run(self) -> None:
        """Send the events, until cancelled."""
        await self._recorder.run()

    def update(self, name: ObjectName, state: ObjectState | None) -> None:
        """Record an event if an object's state is new and its author has to know it; None: the object was deleted."""
        if state is None or state.reason is Reason.READY:
            self._recorded.pop(name, None)
            return
        if state.reason not in _REASONS:
            return
        verdict, uid = not_served(state), state.object.uid
        if self._recorded.get(name) == (uid, verdict.reason, verdict.message):
            return
        self._recorded[name] = uid, verdict.reason, verdict.message
        object_name, _, part = name.name.partition(" ")  # such as metrics[0]
        reference = ObjectReference(
            api_version=API_VERSIONS[name.kind],
            kind=name.kind.partition(".")[0],
            namespace=name.namespace,
            name=object_name,
            uid=uid,
            resource_version="",
        )
        message = f"{part}: {verdict.message}" if part else verdict.message
        self._recorder.record(reference, "Warning", verdict.reason, message)
