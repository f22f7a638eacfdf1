"""Discovery documents: the served groups, versions and metrics.

All documents come from memory. The aggregation layer requests them to check whether this server is available, and a
server that does not respond blocks namespace deletion and the discovery of all clients. So this module never queries
Prometheus or the API server.

A document with ten thousand metrics takes 44 ms to encode. So each is encoded once, in a worker thread, and its bytes,
entity tag and compressed form are cached for as long as the metrics are the same.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import operator
import platform
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomMetricInfo
from adapter.content.encoding import COMPRESS_FROM, Conversion, Encodable, Encoded, Representation, compress
from adapter.content.values import (
    CUSTOM_GROUP,
    CUSTOM_VERSIONS,
    EXTERNAL_GROUP,
    EXTERNAL_VERSIONS,
    RESOURCE_GROUP,
    RESOURCE_VERSIONS,
)
from adapter.gil import releasing_gil
from kube.version import VERSION

DISCOVERY_FORMS = tuple(Conversion("APIGroupDiscoveryList", "apidiscovery.k8s.io", v) for v in ("v2", "v2beta1"))
"""The forms of aggregated discovery that a client may request: every group, version and metric in one document."""

# Documents of fewer metrics are encoded without a thread, within a millisecond.
_FEW = 200

# The versions in the group documents. As in prometheus-adapter, only v1beta1, although v1beta2 is served. Clients of a
# cluster never see them, because the aggregation layer writes its own group documents from the APIService objects.
_ADVERTISED = "v1beta1"


class _View:
    """A snapshot of the metrics, with the documents that have been encoded from it."""

    def __init__(self, custom: tuple[tuple[CustomMetricInfo, ...], ...], external: tuple[tuple[str, ...], ...]) -> None:
        """`custom` and `external` are from several origins; the first that has a metric wins."""
        self.parts = (*custom, *external)
        self._custom_parts = [part for part in custom if part]
        self._external_parts = [part for part in external if part]
        self.external_names = frozenset().union(*external)
        self._documents: dict[tuple[str, Representation], Encoded] = {}
        self._writing = asyncio.Lock()

    async def document(self, name: str, form: Representation, make: Callable[[], Encodable]) -> Encoded:
        """Return a document, which is encoded at its first request."""
        found = self._documents.get((name, form))
        if found is not None:
            return found
        async with self._writing:
            found = self._documents.get((name, form))
            if found is None:
                work = functools.partial(_written, form, make)
                is_long = sum(map(len, self.parts)) > _FEW
                found = await asyncio.to_thread(work) if is_long else work()
                self._documents[name, form] = found
        return found

    @functools.cached_property
    def custom(self) -> Collection[CustomMetricInfo]:
        """The custom metrics, sorted; with many of them, called in a worker thread."""
        if len(self._custom_parts) <= 1:
            return self._custom_parts[0] if self._custom_parts else ()
        infos = releasing_gil(itertools.chain(*reversed(self._custom_parts)))
        by_name = {(info.metric, info.resource): info for info in infos}
        return [by_name[name] for name in sorted(by_name)]

    @functools.cached_property
    def external(self) -> Collection[str]:
        """The external metrics, likewise."""
        return self._external_parts[0] if len(self._external_parts) == 1 else sorted(self.external_names)


class _Resource(msgspec.Struct, rename="camel", gc=False):  # there can be very many, as of those below
    name: str
    singular_name: str
    namespaced: bool
    kind: str
    verbs: tuple[str, ...]


class _Kind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(msgspec.Struct, rename="camel", gc=False):
    subresource: str
    response_kind: _Kind
    verbs: tuple[str, ...] = ("get",)


class _AggregatedResource(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    resource: str
    response_kind: _Kind
    scope: str
    singular_resource: str
    verbs: tuple[str, ...]
    subresources: tuple[_Subresource, ...] = ()


_GET = ("get",)
_USAGE = {
    "nodes": _Resource("nodes", "", False, "NodeMetrics", ("get", "list")),
    "pods": _Resource("pods", "", True, "PodMetrics", ("get", "list")),
}


class Discovery:
    """Makes the documents.

    Attributes:
        catalog: has the metrics.
        versions: the versions of each group that is served.

    Args:
        catalog: has the metrics. When they change, its tuples are replaced, never modified.
        custom: whether custom.metrics.k8s.io is served: the rules file has rules for it.
        external: likewise external.metrics.k8s.io.
        resource: likewise metrics.k8s.io.
        port: the port that this server listens on.
        forwarded: returns the external metrics of each of the other adapters; the same tuples until they change.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        custom: bool,
        external: bool,
        port: int,
        resource: bool = False,
        forwarded: Callable[[], tuple[tuple[str, ...], ...]] = tuple,
    ) -> None:
        self.catalog = catalog
        self._forwarded = forwarded
        self._port = port
        self._last = _View((), ())
        versions: dict[str, tuple[str, ...]] = {}
        if custom:
            versions[CUSTOM_GROUP] = CUSTOM_VERSIONS
        if external:
            versions[EXTERNAL_GROUP] = EXTERNAL_VERSIONS
        if resource:
            versions[RESOURCE_GROUP] = RESOURCE_VERSIONS
        self.versions: Mapping[str, tuple[str, ...]] = versions

    @property
    def group_versions(self) -> tuple[tuple[str, str], ...]:
        """The served (group, version) pairs."""
        return tuple((group, version) for group, versions in self.versions.items() for version in versions)

    @property
    def external_names(self) -> frozenset[str]:
        """The external metrics, those of other adapters among them."""
        return self._view.external_names

    def group_list(self) -> dict[str, Any]:
        """Return /apis: the APIGroupList."""
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": f":{self._port}"}]
        groups = [{**_group(name), "serverAddressByClientCIDRs": addresses} for name in self.versions]
        return {"kind": "APIGroupList", "groups": groups}

    async def aggregated(self, form: Representation, conversion: Conversion) -> Encoded:
        """Return /apis in one of DISCOVERY_FORMS: everything in one document, the newest versions first. Raises 406."""
        form.require_form()
        view = self._view
        return await view.document("/apis", form, lambda: self._aggregated(view, conversion))

    def _aggregated(self, view: _View, conversion: Conversion) -> dict[str, Any]:
        groups = []
        for group, versions in self.versions.items():
            entries = [
                {"version": one, "resources": _aggregated(view, group, one), "freshness": "Current"}
                for one in reversed(versions)
            ]
            groups.append({"metadata": {"name": group}, "versions": entries})
        api_version = f"{conversion.group}/{conversion.version}"
        return {"kind": conversion.kind, "apiVersion": api_version, "metadata": {}, "items": groups}

    def group(self, name: str) -> dict[str, Any]:
        """Return /apis/GROUP: the APIGroup of a group that is served."""
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}

    async def resources(self, group: str, version: str, form: Representation) -> Encoded:
        """Return /apis/GROUP/VERSION: the APIResourceList, with an entry for each metric. Raises 406."""
        form.require_form()
        view = self._view

        def make() -> dict[str, Any]:
            resources = _resources(view, group)
            head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
            return {**head, "resources": resources}

        return await view.document(f"/apis/{group}/{version}", form, make)

    @property
    def _view(self) -> _View:
        """The metrics as they are now."""
        custom, external = self.catalog.custom, (*self.catalog.external, *self._forwarded())
        if not self._last.parts or not all(map(operator.is_, (*custom, *external), self._last.parts)):
            self._last = _View(custom, external)
        return self._last

    def paths(self, others: tuple[str, ...]) -> dict[str, list[str]]:
        """Return /: every path; `others` are those outside the APIs."""
        apis = ["/apis"]
        for group, versions in self.versions.items():
            apis += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return {"paths": sorted([*apis, *others])}


def version_document() -> dict[str, str]:
    """Return /version: this software's own version, in the fields of Kubernetes' version.Info."""
    major, minor = VERSION.split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{VERSION}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def _written(form: Representation, make: Callable[[], Encodable]) -> Encoded:
    """Encode a document, with its compressed form if it is long; aggregated discovery has an entity tag."""
    content = form.encode(make())
    tag = f'"{hashlib.sha256(content.body).hexdigest().upper()}"' if form.conversion is not None else ""
    gzip = compress(content.body) if len(content.body) >= COMPRESS_FROM else None  # takes 10 ms for a MiB
    return msgspec.structs.replace(content, tag=tag, gzip=gzip)


def _resources(view: _View, group: str) -> list[_Resource]:
    if group == CUSTOM_GROUP:
        custom = releasing_gil(view.custom)
        return [_Resource(str(info), "", info.namespaced, "MetricValueList", _GET) for info in custom]
    if group == RESOURCE_GROUP:
        return list(_USAGE.values())
    external = releasing_gil(view.external)
    return [_Resource(name, "", True, "ExternalMetricValueList", _GET) for name in external]


def _aggregated(view: _View, group: str, version: str) -> list[_AggregatedResource]:
    """Return the resources of a group in aggregated discovery.

    A custom metric is a subresource of the resource that it measures. That one is not served here, so it has no kind,
    and clients skip it. Upstream: endpoints.ConvertGroupVersionIntoToDiscovery
    """
    if group != CUSTOM_GROUP:
        return [
            _AggregatedResource(one.name, _Kind(group, version, one.kind), _scope(one.namespaced), "", one.verbs)
            for one in releasing_gil(_resources(view, group))
        ]
    kind = _Kind(group, version, "MetricValueList")
    metrics: dict[tuple[str, bool], list[_Subresource]] = {}
    for info in releasing_gil(view.custom):
        metrics.setdefault((str(info.resource), info.namespaced), []).append(_Subresource(info.metric, kind))
    return [
        _AggregatedResource(resource, _Kind(), _scope(namespaced), "", (), tuple(found))
        for (resource, namespaced), found in metrics.items()
    ]


def _scope(namespaced: bool) -> str:
    return "Namespaced" if namespaced else "Cluster"


def _group(name: str) -> dict[str, Any]:
    advertised = {"groupVersion": f"{name}/{_ADVERTISED}", "version": _ADVERTISED}
    return {"name": name, "versions": [advertised], "preferredVersion": advertised}
