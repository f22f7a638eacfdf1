"""RESTMapper: find the resource for a name or a kind in the API server's discovery.

Discovery is cached. A lookup of an unknown name or kind reads it again, at most every ten seconds: so a new
CustomResourceDefinition is found without a restart, and a misspelt name causes no load. After 30 seconds the next
lookup starts a refresh in the background, like kube-controller-manager, so that changes of the served versions are
noticed. A failed refresh changes nothing. A group that cannot be read (its aggregated server is down) keeps its last
resources and hides no others.

Aggregated discovery (Kubernetes 1.26 and later) is two requests; without it there is one for each version of a group.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kube.client import KubeClient, KubeError
from kube.status import StatusError
from kube.tasks import all_of

_log = logging.getLogger(__name__)

# Their discovery lists metrics, not resources.
_METRIC_GROUPS = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"})

_NOT_FOUND = 404
# The media types that client-go requests, in the same order.
_AGGREGATED = "APIGroupDiscoveryList"
_ACCEPT = ",".join(
    (
        f"application/json;g=apidiscovery.k8s.io;v=v2;as={_AGGREGATED}",
        f"application/json;g=apidiscovery.k8s.io;v=v2beta1;as={_AGGREGATED}",
        "application/json",
    )
)


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
        """Return the URL path of a collection, an object or its subresource, from parts that are percent-encoded."""
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class ResourceLookup(Protocol):
    """Finds the resource for a name; see RestMapper.resource_for."""

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """Return the resource with this plural or singular name; raises NoMatchError."""


class FixedResources:
    """Finds resources in a list, for tools that work without an API server."""

    def __init__(self, infos: Iterable[ResourceInfo]) -> None:
        self._by_name = _by_name(infos)

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """See RestMapper.resource_for; raises NoMatchError."""
        return _in_any_group(self._by_name, GroupResource(group, resource.lower()))


class RestMapper:
    """Finds resources in the API server's discovery. Upstream: restmapper.DeferredDiscoveryRESTMapper.

    Args:
        client: the connection.
        refresh_seconds: a name or kind that is not found makes discovery read again at most this often.
        max_age_seconds: a lookup in older discovery starts a refresh in the background.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        refresh_seconds: float = 10.0,
        max_age_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._refresh_seconds = refresh_seconds
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._expires_at = float("inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._read_at: float | None = None
        self._lock = asyncio.Lock()
        self._by_path: dict[str, tuple[ResourceInfo, ...]] = {}
        self._by_name: dict[GroupResource, ResourceInfo] = {}
        self._by_kind: dict[tuple[str, str], tuple[ResourceInfo, ...]] = {}

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """Return the resource with this plural or singular name, in its group's preferred version.

        Without a group (""), a name that the core group lacks is looked up in all groups, as kubectl does for
        "deployments"; the first group in discovery's order is used.

        Raises:
            NoMatchError: the API server does not serve it.
            KubeUnreachable, StatusError: discovery could not be read.
        """
        self._refresh_if_expired()
        wanted = GroupResource(group, resource.lower())
        if wanted not in self._by_name:
            await self._read_again()
        return _in_any_group(self._by_name, wanted)

    async def mappings_for_kind(self, group: str, kind: str) -> tuple[ResourceInfo, ...]:
        """Return every version of a kind's resource, the preferred one first.

        Raises:
            NoMatchError: the API server does not serve it.
            KubeUnreachable, StatusError: discovery could not be read.
        """
        self._refresh_if_expired()
        if (group, kind) not in self._by_kind:
            await self._read_again()
        try:
            return self._by_kind[group, kind]
        except KeyError:
            raise NoMatchError(f'no matches for kind "{kind}" in group "{group}"') from None

    async def _read_again(self) -> None:
        """Read discovery, unless it was read recently or another task is reading it."""
        before = self._read_at
        async with self._lock:
            if self._read_at == before and (before is None or self._clock() - before >= self._refresh_seconds):
                await self._read()

    def _refresh_if_expired(self) -> None:
        """Read discovery in the background; lookups use the old one until then."""
        if self._clock() >= self._expires_at:
            # If it fails, the next attempt is one interval later.
            self._expires_at = self._clock() + self._max_age_seconds
            self._refreshing = asyncio.create_task(self._refresh(), name="refresh discovery")

    async def _refresh(self) -> None:
        async with self._lock:
            try:
                await self._read()
            except (StatusError, KubeError) as error:
                _log.debug("discovery: %s; the last one stays", error)

    async def _read(self) -> None:
        groups = await self._client.get("/apis", accept=_ACCEPT)
        if groups.get("kind") == _AGGREGATED:
            core = await self._client.get("/api", accept=_ACCEPT)
            self._by_path = dict(self._aggregated([*_objects(core.get("items")), *_objects(groups.get("items"))]))
        else:
            self._by_path = await self._version_by_version(_objects(groups.get("groups")))
        found = [info for infos in self._by_path.values() for info in infos]
        self._by_name, self._by_kind = _by_name(found), _by_kind(found)
        self._read_at = self._clock()
        self._expires_at = self._read_at + self._max_age_seconds

    def _aggregated(self, groups: Iterable[dict[str, Any]]) -> Iterable[tuple[str, tuple[ResourceInfo, ...]]]:
        """Return the resources of each version in aggregated discovery, where the preferred versions come first."""
        for group in groups:
            metadata = group.get("metadata")
            name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
            for version in _objects(group.get("versions") if name not in _METRIC_GROUPS else None):
                text = str(version.get("version", ""))
                path = f"/apis/{name}/{text}" if name else f"/api/{text}"
                infos = tuple(_infos(name, text, _objects(version.get("resources"))))
                # The aggregated server is down, perhaps since before the API server started.
                stale = version.get("freshness") == "Stale"
                yield path, self._by_path.get(path, infos) if stale and not infos else infos

    async def _version_by_version(self, groups: Iterable[dict[str, Any]]) -> dict[str, tuple[ResourceInfo, ...]]:
        """Read the resources of each version, one request each."""
        versions = [("", "v1", "/api/v1")]
        for group in groups:
            name = str(group.get("name", ""))
            if name not in _METRIC_GROUPS:
                versions += [(name, version, f"/apis/{name}/{version}") for version in _versions(group)]
        found = await all_of(self._resources(*version) for version in versions)
        return {path: infos for (_, _, path), infos in zip(versions, found, strict=True)}

    async def _resources(self, group: str, version: str, path: str) -> tuple[ResourceInfo, ...]:
        try:
            entries = (await self._client.get(path)).get("resources")
        except StatusError as error:  # an aggregated server that is down, or one that is busy
            _log.debug("discovery of %s: %s", path, error)
            return () if error.code == _NOT_FOUND else self._by_path.get(path, ())
        return tuple(_infos(group, version, _objects(entries)))


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


def _in_any_group(by_name: Mapping[GroupResource, ResourceInfo], wanted: GroupResource) -> ResourceInfo:
    found = by_name.get(wanted)
    if found is None and not wanted.group:
        found = next((info for key, info in by_name.items() if key.resource == wanted.resource), None)
    if found is None:
        raise NoMatchError(f'no matches for resource "{wanted}"')
    return found


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _versions(group: dict[str, Any]) -> list[str]:
    """Return the group's versions, its preferred one first, the others in the server's order."""
    preferred = group.get("preferredVersion")
    first = preferred.get("version") if isinstance(preferred, dict) else None
    versions = [str(entry.get("version", "")) for entry in _objects(group.get("versions"))]
    return sorted(versions, key=lambda version: version != first)


def _infos(group: str, version: str, entries: Iterable[dict[str, Any]]) -> Iterable[ResourceInfo]:
    """Read the entries of an APIResourceList, or of aggregated discovery."""
    for entry in entries:
        if isinstance(response_kind := entry.get("responseKind"), dict):
            plural, singular, kind = entry.get("resource"), entry.get("singularResource"), response_kind.get("kind")
            namespaced = entry.get("scope") == "Namespaced"
        else:
            plural, singular, kind = entry.get("name"), entry.get("singularName"), entry.get("kind")
            namespaced = bool(entry.get("namespaced"))
        # "pods/log" is a subresource
        if not isinstance(plural, str) or not isinstance(kind, str) or not kind or "/" in plural:
            continue
        singular = singular if isinstance(singular, str) and singular else kind.lower()
        yield ResourceInfo(group, version, kind, plural, singular, namespaced)
