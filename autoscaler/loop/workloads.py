"""Scales of Deployments and StatefulSets without a request each: from a watch on the workloads themselves.

A workload's scale is nothing but three of its fields, so a watch on all of a kind tells what thousands of requests
would. What it tells is mostly some milliseconds old; on a connection that is dead without anybody's notice, up to 90
seconds. That is enough to find that nothing has to be done, and that is what most steps find. Nobody scales on its
word: a decision to scale is taken again on a scale that was read, and a memory begins with one
(`autoscaler.loop.reconcile`). What the watch does not know, or does not know for sure, is read in any case.

A kind is watched from the moment that enough of its objects have been asked for: for a few, requests cost less than a
watch on all that a cluster has. Without the right to list and watch them there are requests, as before.
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
    """What is known of workloads' scales."""

    def __init__(self, client: KubeClient, *, enough: int = _ENOUGH) -> None:
        """Nothing is read before `run`.

        Args:
            client: the connection.
            enough: how many objects of a kind are asked for before that kind is watched.
        """
        self._kinds = {resource: _Kind(client, path, enough) for resource, path in _WATCHED.items()}

    def scale(self, resource: ResourceInfo, namespace: str, name: str) -> Scale | None:
        """The scale of an object; None: it has to be read."""
        kind = self._kinds.get(resource.group_resource)
        return None if kind is None else kind.scale((namespace, name))

    async def run(self) -> None:
        """Watch the kinds that are asked for, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds.values():
                tasks.create_task(kind.run())


class _Kind:
    """One kind of workload."""

    def __init__(self, client: KubeClient, path: str, enough: int) -> None:
        self._store: Store[Scale] = Store(client, path, _track)
        self._enough = enough
        self._asked: set[Key] = set()
        self._wanted = asyncio.Event()

    def scale(self, key: Key) -> Scale | None:
        if not self._wanted.is_set():
            self._asked.add(key)
            if len(self._asked) >= self._enough:
                self._asked.clear()
                self._wanted.set()
        store = self._store
        return store.get(*key) if store.problem is None else None

    async def run(self) -> None:
        await self._wanted.wait()
        await self._store.run()


def _track(raw: Mapping[str, Any]) -> Scale | None:
    try:
        return parse_workload(raw)
    except ParseError:
        return None
