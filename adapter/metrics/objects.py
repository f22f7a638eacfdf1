"""The objects that a selector matches: those of `*` in a request's path, and the pods and nodes of a list.

Only metadata is requested, from the API server's watch cache, and stored. As in every informer, a list-watch of each
requested kind keeps its objects in memory: of pods from the start, of other kinds from their first request until half
an hour after the last. Before the first list, and while the watch is disconnected, forbidden or stale, each request
lists the objects itself. Objects in memory are behind the API server by the latency of a watch event.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from adapter.settings import DEFAULTS, ObjectSettings
from kube.api.client import KubeClient, KubeError
from kube.api.listing import list_objects
from kube.api.mapping import GroupResource, ResourceInfo
from kube.api.status import StatusError, internal_error, service_unavailable
from kube.cache.label_index import LabelIndex
from kube.cache.store import Key, Store
from kube.values.selectors import LabelSelector

_log = logging.getLogger(__name__)

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FAILED = "unable to list matching resources"


PODS = ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True)
_CHECK_SECONDS = 60.0
# Limits on the cached selectors of a namespace and on their length, because clients choose them.
_MAX_SELECTORS = 100
_MAX_SELECTOR = 1_000
# As JSON. Objects with more are left out, as if they did not exist.
_MAX_LABELS = 8 * 1024


@dataclass(frozen=True, slots=True)
class ObjectMetadata:
    """An object's namespace ("" if it is cluster-scoped), name and labels."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class ObjectNames(Protocol):
    """Finds the names of objects."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Return the sorted names of the objects that a selector matches; `namespace` is "" for cluster-scoped ones."""


class ObjectFinder(Protocol):
    """Finds objects; see ListedObjects.objects."""

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        """Return the objects, sorted by namespace and name; `namespace` is "" for all of them, `name` for any."""


class ListedObjects:
    """Lists the objects for each request; WatchedObjects has them in memory."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Return the sorted names of the objects that a selector matches.

        Raises:
            StatusError: 500 when the list request is forbidden or refused, 503 when the API server cannot be reached.
        """
        return [found.name for found in await self.objects(info, namespace=namespace, selector=selector)]

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        """Return the objects that a selector matches, sorted by namespace and name.

        Args:
            info: the objects' resource.
            namespace: the objects' namespace; "" for cluster-scoped objects, and for all namespaces.
            selector: selects objects.
            name: selects a single object, unless it is "". It is read with a list request, so that the right `list` is
            enough.

        Raises:
            StatusError: as for `names`.
        """
        query = {"resourceVersion": "0"}
        if not selector.empty:
            query["labelSelector"] = str(selector)
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        try:
            listed = await list_objects(
                self._client, info.path(namespace=quote(namespace, safe="")), metadata_of, query, accept=_METADATA_ONLY
            )
        except KubeError as error:
            raise service_unavailable(f"{_FAILED}: the API server cannot be reached") from error
        except StatusError as error:
            _log.info("listing %s: %s", info.group_resource, error)
            raise _refused(info, error) from error
        return sorted(listed.items, key=lambda one: (one.namespace, one.name))


def metadata_of(item: object) -> ObjectMetadata | None:
    """Decode the metadata of an object's JSON; None for anything else."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        return None
    namespace, labels = metadata.get("namespace"), metadata.get("labels")
    return ObjectMetadata(
        namespace if isinstance(namespace, str) else "",
        name,
        {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
    )


def _refused(info: ResourceInfo, error: StatusError) -> StatusError:
    if error.code != 403:
        return internal_error(_FAILED)
    return internal_error(
        f'{_FAILED}: the adapter lacks the right to list resource "{info.plural}" in API group "{info.group}"'
    )


@dataclass(slots=True, eq=False)
class _Followed:
    """A watched kind: its objects, and their index by labels.

    `names` caches sorted names by namespace and selector, until an object of the namespace changes. `idle_seconds` is
    the time from the last request to the last check; `requested` is True if there was a request since that check.
    """

    store: Store[ObjectMetadata]
    index: LabelIndex[ObjectMetadata]
    task: asyncio.Task[None]
    names: dict[str, dict[str, list[str]]]
    idle_seconds: float = 0.0
    requested: bool = True


class WatchedObjects:
    """The objects of any kind: an ObjectFinder that keeps requested kinds in memory."""

    def __init__(
        self,
        client: KubeClient,
        *,
        pods: bool = True,
        settings: ObjectSettings = DEFAULTS.objects,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        """Watch nothing before `run`.

        Pods are always watched, unless `pods` is false. Other kinds are watched until they have had no request for
        a time (ObjectSettings), which is checked every `check_seconds`.
        """
        self._client = client
        self._listed = ListedObjects(client)
        self._pods = pods
        self._settings = settings
        self._check_seconds = check_seconds
        self._followed: dict[GroupResource, _Followed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._begun = asyncio.Event()

    async def run(self) -> None:
        """Watch the requested kinds, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                if self._pods:
                    self._follow(tasks, PODS)
                self._begun.set()
                while True:
                    await asyncio.sleep(self._check_seconds)
                    self._stop_idle()
        finally:
            self._tasks = None
            self._followed.clear()

    async def wait_listed(self) -> None:
        """Wait until pods have been listed, if they are watched from the start."""
        await self._begun.wait()
        if self._pods:
            await self._followed[PODS.group_resource].store.wait_synced()

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """See ListedObjects.names."""
        followed = self._current(info, namespace)
        if followed is None:
            return await self._listed.names(info, namespace, selector)
        cached, key = followed.names.get(namespace, {}), str(selector)
        names = cached.get(key)
        if names is None:
            names = sorted([found.name for found in followed.index.matching(namespace, selector)])
            # Clients can also choose namespaces that do not exist.
            if names and len(key) <= _MAX_SELECTOR:
                followed.names[namespace] = {**(cached if len(cached) < _MAX_SELECTORS else {}), key: names}
        return names

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        """See ListedObjects.objects."""
        followed = self._current(info, namespace)
        if followed is None:
            return await self._listed.objects(info, namespace=namespace, selector=selector, name=name)
        if name and namespace:
            found = followed.store.get(namespace, name)
            return [found] if found is not None and selector.matches(found.labels) else []
        namespaces = [namespace] if namespace or not info.namespaced else sorted(followed.index.namespaces)
        matching = (found for space in namespaces for found in followed.index.matching(space, selector))
        return sorted(
            (found for found in matching if not name or found.name == name),
            key=lambda found: (found.namespace, found.name),
        )

    def _current(self, info: ResourceInfo, namespace: str) -> _Followed | None:
        """Return a watched kind that is up to date; None if the objects have to be listed."""
        if namespace and not info.namespaced:
            return None  # the API server reports the error
        followed = self._followed.get(info.group_resource)
        if followed is None:
            if self._tasks is not None and len(self._followed) < self._settings.kinds:
                self._follow(self._tasks, info)
            return None
        followed.requested = True
        return followed if followed.store.problem is None and not followed.store.is_unknown(namespace) else None

    def _follow(self, tasks: asyncio.TaskGroup, info: ResourceInfo) -> None:
        index: LabelIndex[ObjectMetadata] = LabelIndex()
        names: dict[str, dict[str, list[str]]] = {}

        def on_change(key: Key, old: ObjectMetadata | None, new: ObjectMetadata | None) -> None:
            index.apply(key, old, new)
            names.pop(key[0], None)

        store = Store(self._client, info.path(), _view, metadata_only=True, on_change=on_change)
        task = tasks.create_task(store.run(), name=f"follow {info.group_resource}")
        self._followed[info.group_resource] = _Followed(store, index, task, names)

    def _stop_idle(self) -> None:
        for resource, followed in list(self._followed.items()):
            followed.idle_seconds = 0.0 if followed.requested else followed.idle_seconds + self._check_seconds
            followed.requested = False
            forever = self._pods and resource == PODS.group_resource
            if not forever and followed.idle_seconds >= self._settings.idle_seconds:
                followed.task.cancel()
                del self._followed[resource]


def _view(item: Mapping[str, Any]) -> ObjectMetadata | None:
    """Decode an object's metadata. Labels are interned, because thousands of pods repeat the same ones."""
    found = metadata_of(item)
    if found is None or len(msgspec.json.encode(found.labels)) > _MAX_LABELS:
        return None
    labels = {sys.intern(key): sys.intern(value) for key, value in found.labels.items()}
    return ObjectMetadata(sys.intern(found.namespace), found.name, labels)
