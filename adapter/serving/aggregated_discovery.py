"""Aggregated discovery: every group, version and metric in one document, an APIGroupDiscoveryList.

The aggregation layer prefers this form: one request, of which nothing comes back as long as nothing has changed. In
it a metric is a subresource of the resource that it measures. That resource is not served here, so it stands there
without a kind, as k8s.io/apiserver writes it for such APIs (ConvertGroupVersionIntoToDiscovery), which clients skip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from adapter.catalog.inventory import CustomMetricInfo
from adapter.content.encoding import Conversion

DISCOVERY_FORMS = tuple(Conversion("APIGroupDiscoveryList", "apidiscovery.k8s.io", v) for v in ("v2", "v2beta1"))
"""The forms of aggregated discovery that a client may request."""


class _Kind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(msgspec.Struct, rename="camel", gc=False):  # there can be very many
    subresource: str
    response_kind: _Kind
    verbs: tuple[str, ...] = ("get",)


class ResourceEntry(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A resource with its verbs, and with its metrics as subresources."""

    resource: str
    response_kind: _Kind
    scope: str
    singular_resource: str
    verbs: tuple[str, ...]
    subresources: tuple[_Subresource, ...] = ()


def group_entry(name: str, resources: Mapping[str, tuple[ResourceEntry, ...]]) -> dict[str, Any]:
    """Return the APIGroupDiscovery of a group with these resources by version, the preferred version first."""
    versions = [
        {"version": version, "resources": found, "freshness": "Current"} for version, found in resources.items()
    ]
    return {"metadata": {"name": name}, "versions": versions}


def discovery_document(form: Conversion, groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the document in one of DISCOVERY_FORMS."""
    return {"kind": form.kind, "apiVersion": f"{form.group}/{form.version}", "metadata": {}, "items": groups}


def custom_resources(group: str, version: str, infos: Iterable[CustomMetricInfo]) -> tuple[ResourceEntry, ...]:
    """Return the resources that have custom metrics, each with its metrics as subresources."""
    kind = _Kind(group, version, "MetricValueList")
    metrics: dict[tuple[str, bool], list[_Subresource]] = {}
    for info in infos:
        metrics.setdefault((str(info.resource), info.namespaced), []).append(_Subresource(info.metric, kind))
    return tuple(
        ResourceEntry(resource, _Kind(), _scope(namespaced=namespaced), "", (), tuple(subresources))
        for (resource, namespaced), subresources in metrics.items()
    )


def external_resources(group: str, version: str, names: Iterable[str]) -> tuple[ResourceEntry, ...]:
    """Return the external metrics, which are resources themselves."""
    kind = _Kind(group, version, "ExternalMetricValueList")
    return tuple(ResourceEntry(name, kind, _scope(namespaced=True), "", ("get",)) for name in names)


def usage_resources(group: str, version: str) -> tuple[ResourceEntry, ...]:
    """Return the resources of metrics.k8s.io: nodes and pods."""
    return tuple(
        ResourceEntry(resource, _Kind(group, version, kind), _scope(namespaced=namespaced), "", ("get", "list"))
        for resource, kind, namespaced in (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
    )


def _scope(*, namespaced: bool) -> str:
    return "Namespaced" if namespaced else "Cluster"
