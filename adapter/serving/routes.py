"""Routes: from paths to providers.

The three metrics APIs are spelled as prometheus-adapter spells them (custom-metrics-apiserver's installer), quirks
included:

    /apis/custom.metrics.k8s.io/V/namespaces/NS/RESOURCE[.GROUP]/NAME/METRIC    an object, or NAME `*`: all that match
    /apis/custom.metrics.k8s.io/V/RESOURCE[.GROUP]/NAME/METRIC                  the same, cluster-scoped
    /apis/custom.metrics.k8s.io/V/namespaces/NS/metrics/METRIC[/ANYTHING]       the namespace itself, or `*`: several
    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC                  an external metric
    /apis/metrics.k8s.io/v1beta1/...                                            see adapter.serving.routes

Routing works on a request that has been authorized, and on the same segments that authorization saw.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from adapter.content.encoding import Conversion, Encoded, Representation, require_json
from adapter.content.values import (
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    RESOURCE_GROUP,
    CustomMetricList,
    ExternalMetricList,
    JsonObject,
    ObjectUsage,
    UsageDocument,
    usage_table,
)
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.requests import CustomMetricRequest, ExternalMetricRequest
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.openapi import openapi_documents
from adapter.serving.debug_pages import DebugPages
from adapter.serving.discovery import DISCOVERY_FORMS, Discovery, version_document
from adapter.serving.requests import (
    NOT_GUESSED,
    Request,
    Response,
    check_list,
    check_numbers,
    check_requested_name,
    encode_list,
    field_selector,
    included_object,
    method_not_allowed,
    no_such_resource,
)
from adapter.telemetry import Telemetry
from kube.api import status
from kube.api.status import StatusError, bad_request
from kube.serving.health import Health
from kube.values.field_selectors import FieldSelector
from kube.values.selectors import EVERYTHING, LabelSelector
from kube.version import VERSION

_TEXT = "text/plain; charset=utf-8"
# API servers send documents outside their APIs as indented JSON, whatever the client accepts.
_PLAIN = Representation(pretty=True)


_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}
_TABLE_FORMS = tuple(Conversion("Table", "meta.k8s.io", version) for version in ("v1", "v1beta1"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Responds to requests, for one version of the rules. A request keeps the router that it started with."""

    discovery: Discovery
    custom: CustomMetrics
    external: ExternalMetrics
    health: Health
    telemetry: Telemetry
    usage: ResourceMetrics | None = None
    debug: DebugPages | None = None

    def knows(self, group: str, version: str, resource: str) -> bool:
        """See Discovery.knows."""
        return self.discovery.knows(group, version, resource)

    async def respond(self, request: Request) -> Response:
        """Respond to a request.

        Raises:
            StatusError: the request is refused, or fails.
        """
        # Most requests are for metrics that were requested before.
        if request.line.metric is not None and self.discovery.serves(request.info.group):
            return await self._metric(request, request.line.metric)
        segments = request.target.segments
        if segments[:1] == ("debug",) and self.debug is not None:
            request.require_get()
            page = await self.debug.respond(segments[1:], request.target.query)
            return Response(200, request.representation(streamed=False).encode(page))
        if segments[:1] != ("apis",):
            return await self._other(request)
        match segments[1:]:
            case ():
                return await self._groups(request)
            case (group,) if self.discovery.serves(group):
                request.require_get()
                return Response(200, request.representation(streamed=False).encode(self.discovery.group(group)))
            case (group, version) if self.discovery.serves(group, version):
                request.require_get()
                representation = request.representation(streamed=False)
                return Response(200, await self.discovery.resources(group, version, representation))
            case (group, version, *parts) if self.discovery.serves(group, version):
                if group == RESOURCE_GROUP:
                    if self.usage is None:
                        raise method_not_allowed()
                    return await usage_response(self.usage, request, parts)
                parse = _custom_request if group == CUSTOM_GROUP else _external_request
                metric = request.line.metric = parse(request, parts)
                return await self._metric(request, metric)
            case (group, *_) if self.discovery.serves(group):
                raise no_such_resource()
        return self._not_found()

    async def _groups(self, request: Request) -> Response:
        """Return the list of groups, or aggregated discovery, which clients cache until its entity tag changes."""
        request.require_get()
        representation = request.representation(DISCOVERY_FORMS, streamed=False)
        if representation.conversion is None:
            return Response(200, representation.encode(self.discovery.group_list()))
        return _tagged(request, await self.discovery.aggregated(representation, representation.conversion))

    async def _metric(self, request: Request, metric: CustomMetricRequest | ExternalMetricRequest) -> Response:
        representation = request.representation()
        if isinstance(metric, CustomMetricRequest):
            custom = await self.custom.values(msgspec.structs.replace(metric, deadline=request.deadline))
            document = functools.partial(CustomMetricList, request.info.version)
            return Response(200, await encode_list(representation, custom, document))
        representation.require_form()
        external = await self.external.values(msgspec.structs.replace(metric, deadline=request.deadline))
        return Response(200, await encode_list(representation, external, ExternalMetricList))

    async def _other(self, request: Request) -> Response:
        """Respond to a request outside the APIs."""
        health = self.health.respond(request.target)
        if health is not None:
            request.require_get("HEAD")
            code, text = health
            return Response(code, Encoded(text.encode(), _TEXT, headers=NOT_GUESSED))
        match request.target.segments:
            case ():
                request.require_get()
                return Response(200, _PLAIN.encode(self._paths()))
            case ("metrics",):
                request.require_get("HEAD")
                self.telemetry.drop_unknown_resources(self.knows)
                return Response(200, Encoded(await self.telemetry.exposition(), CONTENT_TYPE_LATEST))
            case ("metrics", "slis"):
                request.require_get("HEAD")
                return Response(200, Encoded(self.health.render(), CONTENT_TYPE_LATEST))
            case ("version",):
                request.require_get()
                require_json(request.accept)
                return Response(200, _PLAIN.encode(version_document()))
            case ("openapi", version, *parts):
                request.require_get()
                response = self._openapi(request, version, "/".join(parts))
                if response is not None:
                    return response
        return self._not_found()

    def _openapi(self, request: Request, version: str, path: str) -> Response | None:
        documents = openapi_documents(self.discovery.group_versions, VERSION)
        found: Encoded | None = None
        if version == "v3":
            given_hash = request.target.query.get("hash")
            found = documents.v3(path, given_hash=given_hash, accept=request.accept, now=time.time())
        elif version == "v2" and not path:
            found = documents.v2(accept=request.accept)
        if found is None:
            return None
        return _tagged(request, found) if found.tag else Response(301, found)

    def _not_found(self) -> Response:
        """Return 404 with the existing paths, as API servers do outside their APIs."""
        return Response(404, _PLAIN.encode(self._paths()))

    def _paths(self) -> dict[str, list[str]]:
        others = ("/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version")
        return self.discovery.paths((*others, *self.health.paths))


def _custom_request(request: Request, parts: Sequence[str]) -> CustomMetricRequest:
    """Parse a request for a custom metric. Raises StatusError for an invalid one."""
    match parts:
        case ("namespaces", namespace, "metrics", metric) | ("namespaces", namespace, "metrics", metric, _):
            resource, namespace, name = "namespaces", "", namespace
        case ("namespaces", namespace, resource, name, metric):
            pass
        case ("namespaces", _, _):
            request.require_get()
            raise bad_request("invalid request path")
        case (resource, name, metric):
            namespace = ""
        case _:
            raise no_such_resource()
    request.require_get()
    request.representation()
    check_numbers(request.target.query)
    selector = request.label_selector("labelSelector")
    check_requested_name(request.target.query, name)
    metric_selector = request.label_selector("metricLabelSelector")
    resource, _, group = resource.partition(".")
    return CustomMetricRequest(
        resource=resource,
        group=group,
        namespace=namespace,
        name=name,
        metric=metric,
        selector=selector,
        metric_selector=metric_selector,
    )


def _external_request(request: Request, parts: Sequence[str]) -> ExternalMetricRequest:
    """Parse a request for an external metric. Raises StatusError for an invalid one."""
    match parts:
        case ("namespaces", namespace, metric):
            pass
        case _:
            raise no_such_resource()
    request.require_get()
    request.representation().require_form()
    check_numbers(request.target.query)
    selector = request.label_selector("labelSelector")
    field_selector(request.target.query)
    if request.info.verb == "watch":
        raise _not_watched()
    check_list(request.target.query)
    return ExternalMetricRequest(namespace=namespace, metric=metric, selector=selector)


def _not_watched() -> StatusError:
    """Return 405 with the message of API servers for a resource that cannot be watched."""
    return StatusError(
        405,
        "MethodNotAllowed",
        f'watch is not supported on resources of kind "*.{EXTERNAL_GROUP}"',
        details={"group": EXTERNAL_GROUP, "kind": "*"},
    )


def _tagged(request: Request, content: Encoded) -> Response:
    """Return a document with its entity tag, or 304 if the client has it."""
    if content.tag in request.known_tags:
        return Response(304, msgspec.structs.replace(content, body=b"", gzip=None))
    return Response(200, content)


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
    table = f"{form.group}/{form.version}", included_object(request.target.query)
    return dataclasses.replace(representation, conversion=None), table


def _selectors(request: Request, name: str) -> tuple[LabelSelector, FieldSelector]:
    """Return the selectors of a list; they are ignored for a single object."""
    if name:
        return EVERYTHING, FieldSelector.parse("")
    check_numbers(request.target.query)
    return request.label_selector("labelSelector"), field_selector(request.target.query)
