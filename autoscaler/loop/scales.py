"""The scale subresource of scale targets: Deployments, StatefulSets, custom resources.

A target names a kind; discovery maps it to a resource. A write repeats the resourceVersion that was read, so that
changes by others are not lost: on a conflict the scale is read again.

Scales of Deployments and StatefulSets may come from a watch, since a workload's scale is three of its fields. A watch
is mostly some milliseconds behind, on a connection that is silently dead up to 90 seconds. That is enough to find that
nothing has to be done; a decision to scale is made again on a scale that was read (`autoscaler.loop.reconcile`). A kind
is watched once enough of its objects have been read: for few objects, requests cost less than a watch on the whole
cluster. Without the right to list and watch, scales are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.core.observation import ReadError, Scale
from autoscaler.loop.client_messages import generic_message
from autoscaler.objects.workloads import parse_scale, parse_workload
from autoscaler.settings import DEFAULTS
from kube.api.client import KubeClient, KubeError
from kube.api.mapping import GroupResource, NoMatchError, ResourceInfo, RestMapper
from kube.api.objects import ParseError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.cache.store import Key, Store
from kube.controller.flowcontrol import ThrottledClient

_CONFLICT = 409
# client-go's retry.DefaultRetry: five attempts, 10 ms apart.
_TRIES = 5
_RETRY_SECONDS = 0.01

_WATCHED: Final = {
    GroupResource("apps", "deployments"): "/apis/apps/v1/deployments",
    GroupResource("apps", "statefulsets"): "/apis/apps/v1/statefulsets",
}


class ScaleWriteError(Exception):
    """The scale could not be written; the message is the API server's."""


@dataclass(frozen=True, slots=True)
class TargetScale:
    """A scale with its path and, if it was read, its object."""

    scale: Scale
    path: str
    body: Mapping[str, Any] | None
    """The autoscaling/v1 Scale object as served; None: the scale is known from a watch."""


class Workloads:
    """The scales of watched workloads; a kind is watched when `enough` of its objects have been read."""

    def __init__(self, client: KubeClient, *, enough: int = DEFAULTS.reconciliation.watched_from) -> None:
        self._kinds = {resource: _Kind(client, path, enough) for resource, path in _WATCHED.items()}

    def scale(self, resource: ResourceInfo, namespace: str, name: str) -> Scale | None:
        """Return the scale of an object; None: it has to be read."""
        kind = self._kinds.get(resource.group_resource)
        return None if kind is None else kind.scale((namespace, name))

    async def run(self) -> None:
        """Watch the kinds of which enough objects were read, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds.values():
                tasks.create_task(kind.run())


class _Kind:
    def __init__(self, client: KubeClient, path: str, enough: int) -> None:
        self._store: Store[Scale] = Store(client, path, parse_workload)
        self._enough = enough
        self._read: set[Key] = set()
        self._wanted = asyncio.Event()

    def scale(self, key: Key) -> Scale | None:
        if not self._wanted.is_set():
            self._read.add(key)
            if len(self._read) >= self._enough:
                self._read.clear()
                self._wanted.set()
        return self._store.get(*key) if self._store.problem is None and not self._store.is_unknown(*key) else None

    async def run(self) -> None:
        await self._wanted.wait()
        await self._store.run()


@dataclass(frozen=True, slots=True)
class ScaleClient:
    """Reads and writes scales; without `workloads`, the scales that are known from a watch, all are read."""

    client: ThrottledClient
    mapper: RestMapper
    workloads: Workloads | None = None

    async def read(
        self, namespace: str, reference: CrossVersionObjectReference, *, to_write: bool = True
    ) -> TargetScale | ReadError:
        """Return the scale of a target in the preferred version of its kind; unless `to_write`, it may be from a watch.

        Kubernetes takes only the group from the reference's apiVersion, so an outdated version still works, and reads
        the preferred version only, even if that serves no scale.
        Upstream: podautoscaler.scaleForResourceMappings, scale.pathAndVersionFor.
        """
        group = reference.api_version.rpartition("/")[0]
        try:
            mappings = await self.mapper.mappings_for_kind(group, reference.kind)
        except (NoMatchError, StatusError, KubeError) as error:
            return ReadError(str(error), unknown_kind=True)
        mapping = mappings[0]
        path = mapping.path(quote(namespace, safe=""), quote(reference.name, safe=""), "scale")
        if self.workloads is not None and not to_write:
            known = self.workloads.scale(mapping, namespace, reference.name)
            if known is not None:
                return TargetScale(known, path, None)
        try:
            return await self._get(path)
        except StatusError as error:
            return ReadError(generic_message(error, resource=mapping.plural, name=reference.name))
        except (KubeError, ParseError) as error:
            return ReadError(str(error))

    async def write(self, target: TargetScale, replicas: int) -> None:
        """Set the replica count of a scale that was read; on a conflict, read it and write again.

        Nothing is written again if the count is already that one. If it was raised since the decision and the write
        would lower it, nothing is written either.
        Upstream: podautoscaler.reconcileAutoscaler, which writes it.

        Raises:
            ScaleWriteError: it could not be written.
        """
        decided_on = target.scale.spec_replicas
        delays = Backoff(_RETRY_SECONDS, _RETRY_SECONDS, jitter=0.1)
        try:
            for _ in range(_TRIES - 1):
                try:
                    return await self._put(target, replicas)
                except StatusError as error:
                    if error.code != _CONFLICT:
                        raise
                    conflict = error
                await asyncio.sleep(delays.next())
                target = await self._get(target.path)
                current = target.scale.spec_replicas
                if current == replicas:  # perhaps by the first write, whose response was lost
                    return None
                if current > max(decided_on, replicas):
                    raise ScaleWriteError(
                        f"{conflict}; meanwhile it was scaled from {decided_on} to {current} replicas"
                    )
            return await self._put(target, replicas)
        except (StatusError, KubeError, ParseError) as error:
            raise ScaleWriteError(str(error)) from error

    async def _get(self, path: str) -> TargetScale:
        body = await self.client.get(path)
        return TargetScale(parse_scale(body), path, body)

    async def _put(self, target: TargetScale, replicas: int) -> None:
        assert target.body is not None, "a scale from a watch is not written"
        spec = target.body.get("spec") or {}
        await self.client.put(target.path, {**target.body, "spec": {**spec, "replicas": replicas}})
