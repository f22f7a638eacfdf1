"""Scales of Deployments and StatefulSets from a watch, in the place of one request for each.

A workload's scale is three of its fields. A watch is mostly some milliseconds behind, on a connection that is silently
dead up to 90 seconds. That is enough to find that nothing has to be done. A decision to scale is made again on a scale
that was read (`autoscaler.loop.reconcile`).

A kind is watched once enough of its objects have been read: for a few, requests cost less than a watch on the whole
cluster. Without the right to list and watch, scales are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from autoscaler.core.observation import Scale
from autoscaler.objects.fields import ParseError
from autoscaler.objects.workloads import parse_workload
from kube.client import KubeClient
from kube.mapping import GroupResource, ResourceInfo
from kube.store import Key, Store

_WATCHED: Final = {
    GroupResource("apps", "deployments"): "/apis/apps/v1/deployments",
    GroupResource("apps", "statefulsets"): "/apis/apps/v1/statefulsets",
}
_ENOUGH: Final = 50


class Workloads:
    """The scales of watched workloads.

    Args:
        client: the connection, used by `run` only.
        enough: how many objects of a kind are read before the kind is watched.
    """

    def __init__(self, client: KubeClient, *, enough: int = _ENOUGH) -> None:
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
        self._store: Store[Scale] = Store(client, path, _track)
        self._enough = enough
        self._read: set[Key] = set()
        self._wanted = asyncio.Event()

    def scale(self, key: Key) -> Scale | None:
        if not self._wanted.is_set():
            self._read.add(key)
            if len(self._read) >= self._enough:
                self._read.clear()
                self._wanted.set()
        return self._store.get(*key) if self._store.problem is None else None

    async def run(self) -> None:
        await self._wanted.wait()
        await self._store.run()


def _track(raw: Mapping[str, Any]) -> Scale | None:
    try:
        return parse_workload(raw)
    except ParseError:
        return None
