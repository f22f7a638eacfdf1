"""The routes of metrics.k8s.io: CPU and memory of nodes and pods, as lists, single objects and tables.

    /apis/metrics.k8s.io/v1beta1/nodes[/NAME]
    /apis/metrics.k8s.io/v1beta1[/namespaces/NS]/pods[/NAME]

Statuses and messages are metrics-server's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from adapter.catalog.groups import RESOURCE_GROUP
from adapter.catalog.values import ObjectUsage
from adapter.content.documents import JsonObject, UsageDocument, usage_table
from adapter.content.encoding import Conversion, Representation
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.serving.requests import (
    Request,
    Response,
    check_numbers,
    encode_list,
    field_selector,
    included_object,
    method_not_allowed,
    no_such_resource,
)
from kube.api import status
from kube.api.status import StatusError
from kube.values.field_selectors import FieldSelector
from kube.values.selectors import EVERYTHING, LabelSelector

_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}
_TABLE_FORMS = tuple(Conversion("Table", "meta.k8s.io", version) for version in ("v1", "v1beta1"))


class ResourceRoutes:
    """Responds to requests for metrics.k8s.io."""

    def __init__(self, usage: ResourceMetrics) -> None:
        self._usage = usage

    async def respond(self, request: Request, parts: Sequence[str]) -> Response:
        """Respond to a request for the resource in these segments after the version.

        Raises:
            StatusError: the response is an error. As in metrics-server, nothing can be watched.
        """
        if request.info.verb == "watch":
            raise method_not_allowed()
        match parts:
            case ("nodes", *names) if len(names) <= 1:
                return await self._usages(request, "nodes", *names)
            case ("pods",) | ("namespaces", _, "pods"):
                return await self._usages(request, "pods")
            case ("namespaces", _, "pods", name):
                return await self._usages(request, "pods", name)
        raise no_such_resource()

    async def _usages(self, request: Request, resource: str, name: str = "") -> Response:
        representation, table = _negotiate(request)
        selector, fields = _selectors(request, name)
        namespace, deadline = request.info.namespace, request.deadline
        found = await self._usage.usages(resource, namespace=namespace, selector=selector, name=name, deadline=deadline)
        found = [one for one in found if fields.matches(name=one.name, namespace=one.namespace)]
        if name and not found:
            raise _not_found(resource, f"{namespace}/{name}" if namespace else name)

        def document(usages: Sequence[ObjectUsage]) -> UsageDocument | JsonObject:
            if table is not None:
                return usage_table(usages, table[0], include=table[1])
            return UsageDocument(_KINDS[resource] if name else f"{_KINDS[resource]}List", usages)

        return Response(200, await encode_list(representation, found, document))


def _negotiate(request: Request) -> tuple[Representation, tuple[str, str] | None]:
    """Return how to encode the response, and for a table its apiVersion and `includeObject`."""
    request.require_get()
    representation = request.representation(_TABLE_FORMS)
    form = representation.conversion
    if form is None:
        return representation, None
    # The Content-Type of a table does not name the conversion; only that of discovery documents does.
    table = f"{form.group}/{form.version}", included_object(request.target.query)
    return dataclasses.replace(representation, conversion=None), table


def _selectors(request: Request, name: str) -> tuple[LabelSelector, FieldSelector]:
    """Return the selectors of a list; they are ignored for a single object."""
    if name:
        return EVERYTHING, FieldSelector.parse("")
    check_numbers(request.target.query)
    return request.label_selector("labelSelector"), field_selector(request.target.query)


def _not_found(resource: str, name: str) -> StatusError:
    return status.not_found(
        f'{resource}.{RESOURCE_GROUP} "{name}" not found',
        details={"name": name, "group": RESOURCE_GROUP, "kind": resource},
    )
