"""Discovery of local and aggregated groups, versions and resources.

Groups and versions are those of the APIService objects, in kube-aggregator's order: groups by their highest
groupPriorityMinimum, versions by versionPriority, then by name (v2, v1, v1beta1). The first version of a group is its
preferred one. Only unaggregated discovery documents are served.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kube.api.mapping import GroupResource
from playground.apiserver.objects import Object, child
from playground.apiserver.resource_types import CREATE_ONLY, RESOURCE_TYPES, ResourceType, resource_types_of
from playground.apiserver.storage import Storage

API_SERVICES: Final = GroupResource("apiregistration.k8s.io", "apiservices")
_AGGREGATOR_GROUP: Final = API_SERVICES.group
_SUBRESOURCE_VERBS: Final = ("get", "patch", "update")

# groupPriorityMinimum and versionPriority of kube-apiserver's own groups.
_PRIORITIES: Final[dict[tuple[str, str], tuple[int, int]]] = {
    ("", "v1"): (18000, 1),
    ("apiextensions.k8s.io", "v1"): (16700, 15),
    ("apps", "v1"): (17800, 15),
    ("authentication.k8s.io", "v1"): (17700, 15),
    ("authorization.k8s.io", "v1"): (17600, 15),
    ("autoscaling", "v1"): (17500, 15),
    ("autoscaling", "v2"): (17500, 30),
    ("batch", "v1"): (17400, 15),
    ("coordination.k8s.io", "v1"): (16500, 15),
    ("milliscale.io", "v1"): (1000, 100),  # as of any CustomResourceDefinition
    ("networking.k8s.io", "v1"): (17200, 15),
    ("policy", "v1"): (17100, 15),
    ("rbac.authorization.k8s.io", "v1"): (17000, 15),
}

_LOCAL: Final = {
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
}


@dataclass(frozen=True, slots=True)
class _GroupVersion:
    group: str
    version: str
    group_priority: int
    version_priority: int


def local_api_services() -> list[Object]:
    """Return the APIService objects of the groups that this server itself serves."""
    group_versions = dict.fromkeys((kind.group, kind.version) for kind in RESOURCE_TYPES)
    return [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {
                "name": f"{version}.{group}",
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
            },
            "spec": {
                **({"group": group} if group else {}),
                "version": version,
                "groupPriorityMinimum": _PRIORITIES[group, version][0],
                "versionPriority": _PRIORITIES[group, version][1],
            },
            "status": {"conditions": [_LOCAL]},
        }
        for group, version in group_versions
        if group != _AGGREGATOR_GROUP
    ]


class Discovery:
    """Serves the discovery documents."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def legacy_versions(self, address: str) -> Object:
        """Return /api."""
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }

    def groups(self) -> Object:
        """Return /apis."""
        groups = [_group_json(_AGGREGATOR_GROUP, ["v1"])]
        groups += [_group_json(name, versions) for name, versions in self._sorted_groups()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Object | None:
        """Return /apis/GROUP, or None if there is no such group."""
        found = dict(self._sorted_groups())
        found[_AGGREGATOR_GROUP] = ["v1"]
        if name not in found:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group_json(name, found[name])}

    def resources(self, group: str, version: str) -> Object | None:
        """Return /api/v1 or a local /apis/GROUP/VERSION; None for others."""
        kinds = resource_types_of(group, version)
        if not kinds:
            return None
        entries = [entry for kind in kinds for entry in _entries(kind)]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": sorted(entries, key=lambda entry: str(entry["name"])),
        }

    def paths(self) -> Object:
        """Return /, the list of paths."""
        paths = ["/api", "/api/v1", "/apis"]
        for name, versions in self._sorted_groups():
            paths += [f"/apis/{name}", *(f"/apis/{name}/{version}" for version in versions)]
        return {"paths": [*paths, "/healthz", "/livez", "/readyz", "/version"]}

    def _sorted_groups(self) -> list[tuple[str, list[str]]]:
        """Return the groups with their versions, in order of preference."""
        entries = [_read(service) for service in self._storage.objects(API_SERVICES)]
        entries = sorted((entry for entry in entries if entry.group), key=lambda entry: entry.group)
        groups = [list(members) for _, members in groupby(entries, key=lambda entry: entry.group)]
        groups.sort(key=lambda members: (-max(entry.group_priority for entry in members), members[0].group))
        for members in groups:
            members.sort(key=lambda entry: (entry.version_priority, _version_order(entry.version)), reverse=True)
        return [(members[0].group, [entry.version for entry in members]) for members in groups]


def _read(service: Object) -> _GroupVersion:
    spec = child(service, "spec")
    return _GroupVersion(
        group=str(spec.get("group") or ""),
        version=str(spec.get("version") or ""),
        group_priority=int(spec.get("groupPriorityMinimum") or 0),
        version_priority=int(spec.get("versionPriority") or 0),
    )


def _version_order(version: str) -> tuple[int, int, int, str]:
    """Higher is preferred: v10 > v2 > v1 > v1beta2 > v1alpha1 > anything else."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (0, 0, 0, version)
    major, stability, minor = match.groups()
    return ({None: 3, "beta": 2, "alpha": 1}[stability], int(major), int(minor or 0), "")


def _group_json(name: str, versions: Sequence[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _entries(kind: ResourceType) -> list[Object]:
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return [entry, *(_subresource_entry(kind, name) for name in kind.subresources)]


def _subresource_entry(kind: ResourceType, name: str) -> Object:
    entry: Object = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    match name:
        case "scale":
            served = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": list(_SUBRESOURCE_VERBS)}
        case "token":
            served = {
                "group": "authentication.k8s.io",
                "version": "v1",
                "kind": "TokenRequest",
                "verbs": list(CREATE_ONLY),
            }
        case _:
            served = {"kind": kind.kind, "verbs": list(_SUBRESOURCE_VERBS)}
    return {**entry, **served}
