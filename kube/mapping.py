"""REST mapping: which resource a name or a kind means, learnt from the API server's own discovery.

Discovery is kept. When something unknown is asked for it is read again, at most once in a while, so that a new
CustomResourceDefinition is found without a restart and a misspelt name does not become a load. What is known is read
again in the background when it is asked for and half a minute old, so that a kind whose versions change is not looked
for in one that is gone; kube-controller-manager resets its discovery as often. A group that cannot be read, because its
aggregated server is down, say, keeps what it last had and hides nothing else; a reading that fails changes nothing.

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

# What these list are metrics, not resources.
_METRIC_GROUPS = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"})

_NOT_FOUND = 404
# Also the media types that client-go asks for, and in its order.
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
    """What discovery says of one resource in one version."""

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
        """As objects spell it: "apps/v1", and "v1" for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, an object or its subresource; the parts must be percent-encoded already."""
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class ResourceLookup(Protocol):
    """Knows which resource a name means; see RestMapper.resource_for."""

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """The resource with this plural or singular name; raises NoMatchError."""


class FixedResources:
    """Answers from a list, for tools that work without an API server."""

    def __init__(self, infos: Iterable[ResourceInfo]) -> None:
        self._by_name = _by_name(infos)

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """See RestMapper.resource_for; raises NoMatchError."""
        wanted = GroupResource(group, resource.lower())
        found = _found(self._by_name, wanted)
        if found is None:
            raise NoMatchError(f'no matches for resource "{wanted}"')
        return found


class RestMapper:
    """Answers from the last discovery, and reads it again when that is old or something unknown is asked for.

    Args:
        client: the connection.
        refresh_seconds: what is unknown is looked for at most this often.
        max_age_seconds: what is known is read again, in the background, when it is asked for and this old.
        clock: seconds; only differences matter.
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
        self._old_at = float("inf")
        self._renewing: asyncio.Task[None] | None = None
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._by_path: dict[str, tuple[ResourceInfo, ...]] = {}
        self._by_name: dict[GroupResource, ResourceInfo] = {}
        self._by_kind: dict[tuple[str, str], tuple[ResourceInfo, ...]] = {}

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        """The resource with this plural or singular name, in its group's preferred version.

        With the core group ("") a name that only another group has is found there, as kubectl finds "deployments";
        where several groups have it, the first in discovery's order.

        Raises:
            NoMatchError: there is none.
            KubeUnreachable, StatusError: discovery could not be read.
        """
        self._renew_if_old()
        wanted = GroupResource(group, resource.lower())
        found = self._by_name.get(wanted)
        if found is None and await self._refresh():
            found = self._by_name.get(wanted)
        if found is None:
            found = _found(self._by_name, wanted)
        if found is None:
            raise NoMatchError(f'no matches for resource "{wanted}"')
        return found

    async def mappings_for_kind(self, group: str, kind: str) -> tuple[ResourceInfo, ...]:
        """Every version of a kind's resource, the preferred one first.

        Raises:
            NoMatchError: there is none.
            KubeUnreachable, StatusError: discovery could not be read.
        """
        self._renew_if_old()
        found = self._by_kind.get((group, kind))
        if found is None and await self._refresh():
            found = self._by_kind.get((group, kind))
        if found is None:
            raise NoMatchError(f'no matches for kind "{kind}" in group "{group}"')
        return found

    async def _refresh(self) -> bool:
        """Read discovery, unless that was done a moment ago. Whether the answer may be new."""
        before = self._read_at
        async with self._reading:
            if self._read_at != before:
                return True  # another task has just done it
            if before is not None and self._clock() - before < self._refresh_seconds:
                return False
            await self._read()
            return True

    def _renew_if_old(self) -> None:
        """Read discovery again beside the requests, which go on with the old one until the new one is there."""
        if self._clock() >= self._old_at:
            # If it fails, it is tried again as much later.
            self._old_at = self._clock() + self._max_age_seconds
            self._renewing = asyncio.create_task(self._renew(), name="renew discovery")

    async def _renew(self) -> None:
        async with self._reading:
            try:
                await self._read()
            except (StatusError, KubeError) as error:
                _log.debug("discovery: %s; what was known is kept", error)

    async def _read(self) -> None:
        self._index(await self._discover())
        self._read_at = self._clock()
        self._old_at = self._read_at + self._max_age_seconds

    async def _discover(self) -> list[ResourceInfo]:
        named = await self._client.get("/apis", accept=_ACCEPT)
        if named.get("kind") == _AGGREGATED:
            core = await self._client.get("/api", accept=_ACCEPT)
            self._by_path = dict(self._aggregated([*_objects(core.get("items")), *_objects(named.get("items"))]))
        else:
            self._by_path = await self._version_by_version(_objects(named.get("groups")))
        return [info for infos in self._by_path.values() for info in infos]

    def _aggregated(self, groups: Iterable[dict[str, Any]]) -> Iterable[tuple[str, tuple[ResourceInfo, ...]]]:
        """The resources of each version in aggregated discovery, where the preferred versions come first."""
        for group in groups:
            metadata = group.get("metadata")
            name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
            for version in _objects(group.get("versions") if name not in _METRIC_GROUPS else None):
                text = str(version.get("version", ""))
                path = f"/apis/{name}/{text}" if name else f"/api/{text}"
                infos = tuple(_aggregated_infos(name, text, _objects(version.get("resources"))))
                # The aggregated server is down, and the API server may never have seen what it has.
                stale = version.get("freshness") == "Stale"
                yield path, self._by_path.get(path, infos) if stale and not infos else infos

    async def _version_by_version(self, groups: Iterable[dict[str, Any]]) -> dict[str, tuple[ResourceInfo, ...]]:
        """The resources of each version, from a request for each."""
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

    def _index(self, infos: Iterable[ResourceInfo]) -> None:
        by_kind: dict[tuple[str, str], tuple[ResourceInfo, ...]] = {}
        found = tuple(infos)
        for info in found:
            # In lower case a kind is found too. Upstream: restmapper.NewDiscoveryRESTMapper
            for kind in {info.kind, info.kind.lower()}:
                by_kind[info.group, kind] = (*by_kind.get((info.group, kind), ()), info)
        self._by_name, self._by_kind = _by_name(found), by_kind


def _by_name(infos: Iterable[ResourceInfo]) -> dict[GroupResource, ResourceInfo]:
    """Each resource by its plural and its singular; the first of a name stays."""
    by_name: dict[GroupResource, ResourceInfo] = {}
    for info in infos:
        by_name.setdefault(info.group_resource, info)
        by_name.setdefault(GroupResource(info.group, info.singular), info)
    return by_name


def _found(by_name: Mapping[GroupResource, ResourceInfo], wanted: GroupResource) -> ResourceInfo | None:
    found = by_name.get(wanted)
    if found is None and not wanted.group:
        found = next((info for key, info in by_name.items() if key.resource == wanted.resource), None)
    return found


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _versions(group: dict[str, Any]) -> list[str]:
    """The group's versions, its preferred one first, the others in the server's order."""
    preferred = group.get("preferredVersion")
    first = preferred.get("version") if isinstance(preferred, dict) else None
    versions = [str(entry.get("version", "")) for entry in _objects(group.get("versions"))]
    return sorted(versions, key=lambda version: version != first)


def _aggregated_infos(group: str, version: str, entries: Iterable[dict[str, Any]]) -> Iterable[ResourceInfo]:
    for entry in entries:
        name, response = entry.get("resource"), entry.get("responseKind")
        kind = response.get("kind") if isinstance(response, dict) else None
        if not isinstance(name, str) or not isinstance(kind, str) or not kind:
            continue
        singular = entry.get("singularResource")
        yield ResourceInfo(
            group=group,
            version=version,
            kind=kind,
            plural=name,
            singular=singular if isinstance(singular, str) and singular else kind.lower(),
            namespaced=entry.get("scope") == "Namespaced",
        )


def _infos(group: str, version: str, entries: Iterable[dict[str, Any]]) -> Iterable[ResourceInfo]:
    for entry in entries:
        name, kind = entry.get("name"), entry.get("kind")
        # "pods/log" is a subresource
        if not isinstance(name, str) or not isinstance(kind, str) or "/" in name:
            continue
        singular = entry.get("singularName")
        yield ResourceInfo(
            group=group,
            version=version,
            kind=kind,
            plural=name,
            singular=singular if isinstance(singular, str) and singular else kind.lower(),
            namespaced=bool(entry.get("namespaced")),
        )
