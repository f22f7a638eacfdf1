"""RESTMapper: find the resource for a name or a kind in the API server's discovery.

Discovery is read by group, when a group is first named, and cached: first the list of the groups, then the resources of
each of the group's versions. So no group makes the discovery of another one too large or too slow, and the lists of
metrics are never read. (Aggregated discovery is one document of all groups, in which a cluster's metrics can have more
than 16 MiB.)

A lookup of an unknown group, or of an unknown name or kind in a group, reads it again, at most every ten seconds; one
without a group reads all that have expired. So a new CustomResourceDefinition is found without a restart, and a
misspelt name causes little load. Discovery expires after 30 seconds: then the next lookup starts a refresh in the
background, like kube-controller-manager, so that changes of the served versions are noticed. A failed refresh changes
nothing. A version that cannot be read (its aggregated server is down) keeps its last resources.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kube.aio.tasks import SingleFlight, all_of
from kube.api.client import KubeClient, KubeError, ResponseTooLarge
from kube.api.status import StatusError

_log = logging.getLogger(__name__)

# Their discovery lists metrics, not resources.
_METRIC_GROUPS = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"})

_NOT_FOUND = 404
# A lookup in older discovery starts a refresh in the background.
_MAX_AGE_SECONDS = 30.0

T = TypeVar("T")


class NoMatchError(LookupError):
    """The API server serves no such resource or kind."""


class GroupResource(msgspec.Struct, frozen=True, order=True):
    """A resource and its group, without a version; the core group is ""."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """One resource in one version, from discovery. Upstream: meta.RESTMapping."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool

    @property
    def group_resource(self) -> GroupResource:
        """The resource without its version."""
        return GroupResource(self.group, self.plural)

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects: "apps/v1", and "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or its subresource, from parts that are percent-encoded.

        A namespace is always in the path: an API server has no cluster-scoped object there, and responds with 404.
        Upstream: scale.namespacedScaleClient.Get
        """
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class ResourceLookup(Protocol):
    """Finds the resource for a name; see RestMapper.resource_for."""

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """Return the resource with this plural or singular name; raises NoMatchError."""


class _Group:
    """The resources of one group."""

    def __init__(self, by_version: Mapping[str, tuple[ResourceInfo, ...]]) -> None:
        self.by_version = by_version
        found = [info for infos in by_version.values() for info in infos]
        self.by_name, self.by_kind = _by_name(found), _by_kind(found)


class _Cached(Generic[T]):
    """A part of discovery. `read` gets the last one, or None; concurrent callers share one call."""

    def __init__(
        self, read: Callable[[T | None], Coroutine[Any, Any, T]], refresh_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._value: T | None = None
        self._read_at = self._expires_at = 0.0
        self._flight: SingleFlight[str, T] = SingleFlight()
        self.refreshing: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """Return it; one that has expired is read again in the background."""
        if self._value is None:
            return await self._flight.do("", self._update)
        if self._clock() >= self._expires_at:
            # If it fails, the next attempt is one interval later.
            self._expires_at = self._clock() + _MAX_AGE_SECONDS
            self.refreshing = asyncio.create_task(self._refresh(), name="refresh discovery")
        return self._value

    async def again(self) -> T:
        """Return it after reading it again, unless that was done recently."""
        return await self._newer_than(self._refresh_seconds)

    async def unexpired(self) -> T:
        """Return it, after reading it again if it has expired."""
        return await self._newer_than(_MAX_AGE_SECONDS)

    async def _newer_than(self, seconds: float) -> T:
        if self._value is not None and self._clock() - self._read_at < seconds:
            return self._value
        return await self._flight.do("", self._update)

    async def _update(self) -> T:
        self._value = await self._read(self._value)
        self._read_at = self._clock()
        self._expires_at = self._read_at + _MAX_AGE_SECONDS
        return self._value

    async def _refresh(self) -> None:
        try:
            await self._flight.do("", self._update)
        except (StatusError, KubeError) as error:
            _log.debug("discovery: %s; the last one stays", error)


class RestMapper:
    """Finds resources in the API server's discovery. Upstream: restmapper.DeferredDiscoveryRESTMapper.

    Args:
        client: the connection.
        refresh_seconds: a name or kind that is not found makes discovery read again at most this often.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        refresh_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._times = refresh_seconds, clock
        self._versions = _Cached(self._read_versions, *self._times)
        self._groups: dict[str, _Cached[_Group]] = {}

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """Return the resource with this plural or singular name, in its group's preferred version.

        Without a group (""), a name that the core group lacks is looked up in all groups, as kubectl does for
        "deployments"; the first group in discovery's order is used.

        Raises:
            NoMatchError: the API server does not serve it.
            KubeUnreachable, StatusError: discovery could not be read.
        """
        wanted = resource.lower()
        found = await self._look_up(group, lambda known: known.by_name.get(GroupResource(group, wanted)))
        if found is None and not group:
            found = await self._in_any_group(wanted)
        if found is None:
            raise NoMatchError(f'no matches for resource "{GroupResource(group, wanted)}"')
        return found

    async def mappings_for_kind(self, group: str, kind: str) -> tuple[ResourceInfo, ...]:
        """Return every version of a kind's resource, the preferred one first.

        Raises:
            NoMatchError: the API server does not serve it.
            KubeUnreachable, StatusError: discovery could not be read.
        """
        found = await self._look_up(group, lambda known: known.by_kind.get((group, kind)))
        if found is None:
            raise NoMatchError(f'no matches for kind "{kind}" in group "{group}"')
        return found

    async def _look_up(self, group: str, find: Callable[[_Group], T | None]) -> T | None:
        """Return what `find` returns for a group, if need be after the group was read again; None: nothing."""
        if group and group not in await self._versions.get() and group not in await self._versions.again():
            self._groups.pop(group, None)
            return None
        cached = self._group(group)
        return find(await cached.get()) or find(await cached.again())

    async def _in_any_group(self, resource: str) -> ResourceInfo | None:
        """Return the resource of the first group that has it; None if no group has it, and none has expired."""
        for may_be_old in (True, False):
            for group in await (self._versions.get() if may_be_old else self._versions.unexpired()):
                cached = self._group(group)
                try:
                    known = await (cached.get() if may_be_old else cached.unexpired())
                except (StatusError, ResponseTooLarge) as error:
                    _log.debug("discovery of group %s: %s", group, error)
                    continue
                if found := known.by_name.get(GroupResource(group, resource)):
                    return found
        return None

    def _group(self, name: str) -> _Cached[_Group]:
        if name not in self._groups:
            self._groups[name] = _Cached(lambda before: self._read_group(name, before), *self._times)
        return self._groups[name]

    async def _read_versions(self, _: object) -> dict[str, list[str]]:
        """Read the versions of all groups but those of metrics, in the server's order of the groups."""
        groups = _objects((await self._client.get("/apis")).get("groups"))
        versions = {str(entry.get("name", "")): _versions(entry) for entry in groups}
        return {name: found for name, found in versions.items() if name and name not in _METRIC_GROUPS}

    async def _read_group(self, group: str, before: _Group | None) -> _Group:
        """Read the resources of each version, one request each."""
        versions = (await self._versions.again()).get(group, []) if group else ["v1"]

        async def resources(version: str) -> tuple[ResourceInfo, ...]:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                entries = (await self._client.get(path)).get("resources")
            except StatusError as error:  # an aggregated server that is down, or one that is busy
                _log.debug("discovery of %s: %s", path, error)
                return () if error.code == _NOT_FOUND or before is None else before.by_version.get(version, ())
            return tuple(_infos(group, version, _objects(entries)))

        return _Group(dict(zip(versions, await all_of(map(resources, versions)), strict=True)))


def _by_name(infos: Iterable[ResourceInfo]) -> dict[GroupResource, ResourceInfo]:
    """Index resources by plural and singular; the first with a name stays."""
    by_name: dict[GroupResource, ResourceInfo] = {}
    for info in infos:
        by_name.setdefault(info.group_resource, info)
        by_name.setdefault(GroupResource(info.group, info.singular), info)
    return by_name


def _by_kind(infos: Iterable[ResourceInfo]) -> dict[tuple[str, str], tuple[ResourceInfo, ...]]:
    """Index resources by group and kind, also in lower case. Upstream: restmapper.NewDiscoveryRESTMapper."""
    by_kind: dict[tuple[str, str], tuple[ResourceInfo, ...]] = {}
    for info in infos:
        for kind in {info.kind, info.kind.lower()}:
            by_kind[info.group, kind] = (*by_kind.get((info.group, kind), ()), info)
    return by_kind


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _versions(group: dict[str, Any]) -> list[str]:
    """Return the group's versions, its preferred one first, the others in the server's order."""
    preferred = group.get("preferredVersion")
    first = preferred.get("version") if isinstance(preferred, dict) else None
    versions = [str(entry.get("version", "")) for entry in _objects(group.get("versions"))]
    return sorted(versions, key=lambda version: version != first)


def _infos(group: str, version: str, entries: Iterable[dict[str, Any]]) -> Iterable[ResourceInfo]:
    """Read the entries of an APIResourceList."""
    for entry in entries:
        plural, singular, kind = entry.get("name"), entry.get("singularName"), entry.get("kind")
        # "pods/log" is a subresource
        if not isinstance(plural, str) or not isinstance(kind, str) or not kind or "/" in plural:
            continue
        singular = singular if isinstance(singular, str) and singular else kind.lower()
        yield ResourceInfo(group, version, kind, plural, singular, bool(entry.get("namespaced")))
