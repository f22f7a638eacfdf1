"""Routes of metrics.k8s.io: the usage of nodes and pods, one or a list, as metrics-server serves them.

/apis/metrics.k8s.io/v1beta1/nodes[/NAME]
/apis/metrics.k8s.io/v1beta1/[namespaces/NS/]pods[/NAME]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from adapter.content.encoding import Conversion, Representation
from adapter.content.values import INCLUDED, RESOURCE_GROUP, JsonObject, ObjectUsage, UsageDocument, usage_table
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.serving.routes import (
    Request,
    Response,
    check_numbers,
    encode_list,
    field_selector,
    method_not_allowed,
    no_such_resource,
)
from kube.api import status
from kube.api.status import bad_request
from kube.security.request_info import Query
from kube.values.field_selectors import FieldSelector
from kube.values.fields import invalid
from kube.values.selectors import EVERYTHING, LabelSelector

_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}
_TABLE_FORMS = tuple(Conversion("Table", "meta.k8s.io", version) for version in ("v1", "v1beta1"))


async def usage_response(usage: ResourceMetrics, request: Request, parts: Sequence[str]) -> Response:
    """Respond to a request for the resource of metrics.k8s.io in these segments after the version.

    Raises:
        StatusError: the response is an error. As in metrics-server, nothing can be watched.
    """
    if request.info.verb == "watch":
        raise method_not_allowed()
    name = ""
    match parts:
        case ("nodes",) | ("pods",):
            resource = parts[0]
        case ("nodes", name):
            resource = "nodes"
        case ("namespaces", _, "pods"):
            resource = "pods"
        case ("namespaces", _, "pods", name):
            resource = "pods"
        case _:
            raise no_such_resource()
    representation, table = _negotiate(request)
    selector, fields = _selectors(request, name)
    namespace, deadline = request.info.namespace, request.deadline
    found = await usage.usages(resource, namespace=namespace, selector=selector, name=name, deadline=deadline)
    found = [one for one in found if fields.matches(name=one.name, namespace=one.namespace)]
    if name and not found:
        full_name = f"{namespace}/{name}" if namespace else name
        raise status.not_found(
            f'{resource}.{RESOURCE_GROUP} "{full_name}" not found',
            details={"name": full_name, "group": RESOURCE_GROUP, "kind": resource},
        )

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
    table = f"{form.group}/{form.version}", _included_object(request.target.query)
    return dataclasses.replace(representation, conversion=None), table


def _selectors(request: Request, name: str) -> tuple[LabelSelector, FieldSelector]:
    """Return the selectors of a list; they are ignored for a single object."""
    if name:
        return EVERYTHING, FieldSelector.parse("")
    check_numbers(request.target.query)
    return request.label_selector("labelSelector"), field_selector(request.target.query)


def _included_object(query: Query) -> str:
    """Return `includeObject`: how much of its object a row includes. Raises StatusError 400 for other values."""
    text = query.get("includeObject")
    if text and text not in INCLUDED:
        why = invalid("includeObject", text, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return text or INCLUDED[0]
