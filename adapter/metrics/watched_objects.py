"""Objects from memory: each kind that is asked for is followed by a list-watch, so that requests list nothing.

Only metadata is transferred and kept. Pods are followed from the start, other kinds from their first request on and
until nobody has asked for a while. As long as the API server has not given a whole list, and whenever the contact is
lost (which includes the right to list, but not to watch) or the watch is silent for longer than bookmarks take, objects
are listed anew for each request.

An object that was made or labelled a moment ago may not be here yet: like every cache of a controller, this one is
behind the API server by the time that a watch event takes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.metrics.objects import ListedObjects, ObjectMetadata, metadata_of
from kube.client import KubeClient
from kube.label_index import LabelIndex
from kube.mapping import GroupResource, ResourceInfo
from kube.selectors import LabelSelector
from kube.store import Store

_PODS = ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True)
_IDLE_SECONDS = 1800.0
_CHECK_SECONDS = 60.0
# Beyond so many kinds, requests list.
_MAX_KINDS = 50


@dataclass(slots=True, eq=False)
class _Followed:
    """A kind that is followed, and when it was last asked for, on the loop's clock."""

    store: Store[ObjectMetadata]
    index: LabelIndex[ObjectMetadata]
    task: asyncio.Task[None]
    asked_at: float = field(default=0.0)


class WatchedObjects:
    """Objects of any kind; see adapter.metrics.objects.ObjectSource."""

    def __init__(
        self,
        client: KubeClient,
        *,
        pods: bool = True,
        idle_seconds: float = _IDLE_SECONDS,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        """Nothing is followed before `run`.

        Args:
            client: the API server.
            pods: follow pods from the start, and for good.
            idle_seconds: after which a kind that nobody asks for is given up.
            check_seconds: how often that is looked at.
        """
        self._client = client
        self._listed = ListedObjects(client)
        self._pods = pods
        self._idle_seconds = idle_seconds
        self._check_seconds = check_seconds
        self._followed: dict[GroupResource, _Followed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._begun = asyncio.Event()

    async def run(self) -> None:
        """Follow what is asked for, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                if self._pods:
                    self._follow(tasks, _PODS)
                self._begun.set()
                while True:
                    await asyncio.sleep(self._check_seconds)
                    self._give_up_idle()
        finally:
            self._tasks = None
            self._followed.clear()

    async def wait_listed(self) -> None:
        """Return when pods have been listed, if they are followed from the start."""
        await self._begun.wait()
        if self._pods:
            await self._followed[_PODS.group_resource].store.wait_synced()

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """See ListedObjects.names."""
        found = self._found(info, namespace)
        if found is None:
            return await self._listed.names(info, namespace, selector)
        return sorted([one.name for one in found.index.matching(namespace, selector)])

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        """See ListedObjects.objects."""
        found = self._found(info, namespace)
        if found is None:
            return await self._listed.objects(info, namespace=namespace, selector=selector, name=name)
        if name and namespace:
            one = found.store.get(namespace, name)
            return [one] if one is not None and selector.matches(one.labels) else []
        spaces = [namespace] if namespace or not info.namespaced else sorted(found.index.namespaces)
        matching = (one for space in spaces for one in found.index.matching(space, selector))
        wanted = [one for one in matching if not name or one.name == name]
        return sorted(wanted, key=lambda one: (one.namespace, one.name))

    def _found(self, info: ResourceInfo, namespace: str) -> _Followed | None:
        """Where a kind's objects are at hand; None where they must be listed."""
        if namespace and not info.namespaced:
            return None  # whatever the API server makes of it
        followed = self._followed.get(info.group_resource)
        if followed is None:
            if self._tasks is not None and len(self._followed) < _MAX_KINDS:
                self._follow(self._tasks, info)
            return None
        followed.asked_at = asyncio.get_running_loop().time()
        return followed if followed.store.problem is None else None

    def _follow(self, tasks: asyncio.TaskGroup, info: ResourceInfo) -> None:
        index: LabelIndex[ObjectMetadata] = LabelIndex()
        store = Store(self._client, info.path(), _view, metadata_only=True, on_change=index.apply)
        task = tasks.create_task(store.run(), name=f"follow {info.group_resource}")
        now = asyncio.get_running_loop().time()
        self._followed[info.group_resource] = _Followed(store, index, task, now)

    def _give_up_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for resource, followed in list(self._followed.items()):
            keeps = self._pods and resource == _PODS.group_resource
            if not keeps and now - followed.asked_at >= self._idle_seconds:
                followed.task.cancel()
                del self._followed[resource]


def _view(item: Mapping[str, Any]) -> ObjectMetadata | None:
    """An object's metadata; thousands of pods have the same few labels, which are kept once."""
    found = metadata_of(item)
    if found is None:
        return None
    labels = {sys.intern(key): sys.intern(value) for key, value in found.labels.items()}
    return ObjectMetadata(sys.intern(found.namespace), found.name, labels)
