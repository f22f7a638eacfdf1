"""Requests, and their routes from paths to providers.

The three metrics APIs are spelled as prometheus-adapter spells them (custom-metrics-apiserver's installer), quirks
included:

    /apis/custom.metrics.k8s.io/V/namespaces/NS/RESOURCE[.GROUP]/NAME/METRIC    an object, or NAME `*`: all that match
    /apis/custom.metrics.k8s.io/V/RESOURCE[.GROUP]/NAME/METRIC                  the same, cluster-scoped
    /apis/custom.metrics.k8s.io/V/namespaces/NS/metrics/METRIC[/ANYTHING]       the namespace itself, or `*`: several
    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC                  an external metric
    /apis/metrics.k8s.io/v1beta1/...                                            see adapter.serving.usage_routes

Routing works on a request that has been authorized, and on the same segments that authorization saw. The parameters of
every Kubernetes list request are validated even if they have no effect here. The errors are those of
metav1.ListOptions' conversion in k8s.io/apimachinery.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import hdrs
from multidict import CIMultiDictProxy
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from adapter.content.encoding import Conversion, Encodable, Encoded, Representation, require_json
from adapter.content.values import (
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    RESOURCE_GROUP,
    CustomMetricList,
    ExternalMetricList,
)
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.requests import CustomMetricRequest, ExternalMetricRequest
from adapter.openapi import openapi_documents
from adapter.serving.debug_pages import DebugPages
from adapter.serving.discovery import DISCOVERY_FORMS, Discovery, version_document
from adapter.telemetry import Telemetry
from kube.api import status
from kube.api.status import StatusError, bad_request
from kube.security.request_info import Query, RequestInfo, Target
from kube.serving.health import Health
from kube.values.field_selectors import FieldSelector, FieldSelectorError
from kube.values.fields import quote
from kube.values.names import OLDER_LABEL_WORDS
from kube.values.selectors import LabelSelector, SelectorError
from kube.version import VERSION

_T = TypeVar("_T")

_TEXT = "text/plain; charset=utf-8"
# API servers send documents outside their APIs as indented JSON, whatever the client accepts.
_PLAIN = Representation(pretty=True)
_USAGE_RESOURCES = ("nodes", "pods")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 20
_INT64 = range(-(2**63), 2**63)
_MATCHES = ("Exact", "NotOlderThan", "")
_MATCH = "resourceVersionMatch"
_ANY_FIELDS = FieldSelector.parse("")
# Selectors of up to this length are cached, a few kilobytes each.
_SHORT_SELECTOR = 256
_SELECTORS = 4_096
# Encoding this many values takes 1 ms as JSON and 30 ms as YAML; a thread costs 0.1 ms.
_MANY = 500


NOT_GUESSED = {"X-Content-Type-Options": "nosniff"}
"""The headers of a text that browsers must not take for HTML."""


class RequestLine(msgspec.Struct, eq=False):
    """The method and target of a request, parsed. It is cached and shared by requests."""

    method: str
    """The HTTP method."""
    target: Target
    """The path and query."""
    info: RequestInfo
    """The attributes for authorization."""
    is_public: bool
    """No authentication is needed."""
    is_exempt: bool
    """The limit on requests in flight does not apply: a busy process must pass its probes, and without discovery the
    API server marks the whole API as unavailable."""
    timeout: float
    """The client's timeout in seconds, infinite if it has none."""
    timeout_error: str | None
    """What is wrong with the client's timeout, if anything."""
    length: int
    """The length of the raw target, in characters."""
    metric: CustomMetricRequest | ExternalMetricRequest | None = None
    """The request for a metric; the router parses it at the first request."""


class Request(msgspec.Struct, eq=False):
    """A request that has been authorized."""

    line: RequestLine
    """Its method and target."""
    headers: CIMultiDictProxy[str]
    """Its headers."""
    deadline: float
    """When the response is due, by the event loop's clock."""

    @property
    def target(self) -> Target:
        """The path and query."""
        return self.line.target

    @property
    def info(self) -> RequestInfo:
        """The attributes that were authorized."""
        return self.line.info

    @property
    def accept(self) -> str:
        """The Accept header."""
        return accept(self.headers)

    @property
    def known_tags(self) -> Collection[str]:
        """The entity tags of responses that the client has."""
        return [tag.strip() for tag in self.headers.get(hdrs.IF_NONE_MATCH, "").split(",")]

    def representation(self, offered: Collection[Conversion] = (), *, streamed: bool = True) -> Representation:
        """Negotiate the encoding of the response, and its conversion to one of the `offered` forms.

        `streamed` is False for responses other than resources. Raises StatusError 406.
        """
        return Representation.negotiate(
            accept(self.headers),
            pretty=self.line.target.query.get("pretty"),
            user_agent=self.headers.get(hdrs.USER_AGENT, ""),
            offered=offered,
            streamed=streamed,
        )

    def require_get(self, *others: str) -> None:
        """Refuse other methods than GET and `others`. Raises StatusError 405."""
        if self.line.method != "GET" and self.line.method not in others:
            raise method_not_allowed()

    def label_selector(self, parameter: str) -> LabelSelector:
        """Parse the label selector in a parameter. Raises StatusError 400 in prometheus-adapter's words."""
        text = self.line.target.query.get(parameter)
        try:
            return _cached_selector(text) if len(text) <= _SHORT_SELECTOR else _selector(text)
        except SelectorError as error:
            raise bad_request(str(error)) from error


class Response(msgspec.Struct, frozen=True):
    """A response; `retry_after` is in seconds, if the client should try again."""

    status: int
    content: Encoded
    retry_after: int | None = None


def accept(headers: CIMultiDictProxy[str]) -> str:
    """Return the Accept header; several ones are joined."""
    values = headers.getall(hdrs.ACCEPT, ())
    return values[0] if len(values) == 1 else ",".join(values)


UsageRoutes = Callable[[Request, Sequence[str]], Awaitable[Response]]
"""Responds to a request for the resource of metrics.k8s.io in these segments; see adapter.serving.usage_routes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Responds to requests, for one version of the rules. A request keeps the router that it started with."""

    discovery: Discovery
    custom: CustomMetrics
    external: ExternalMetrics
    health: Health
    telemetry: Telemetry
    usage: UsageRoutes | None = None
    debug: DebugPages | None = None

    def knows(self, group: str, version: str, resource: str) -> bool:
        """Return True if a resource, named as in authorization, has metrics now in a served version."""
        if not self._serves(group, version):
            return False
        if group == CUSTOM_GROUP:
            return resource == "metrics" or self.discovery.catalog.has_custom(resource)
        return resource in (self.discovery.external_names if group == EXTERNAL_GROUP else _USAGE_RESOURCES)

    def _serves(self, group: str, version: str) -> bool:
        return version in self.discovery.versions.get(group, ())

    async def respond(self, request: Request) -> Response:
        """Respond to a request.

        Raises:
            StatusError: the request is refused, or fails.
        """
        # Most requests are for metrics that were requested before.
        if request.line.metric is not None and request.info.group in self.discovery.versions:
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
            case (group,) if group in self.discovery.versions:
                request.require_get()
                return Response(200, request.representation(streamed=False).encode(self.discovery.group(group)))
            case (group, version) if self._serves(group, version):
                request.require_get()
                representation = request.representation(streamed=False)
                return Response(200, await self.discovery.resources(group, version, representation))
            case (group, version, *parts) if self._serves(group, version):
                if group == RESOURCE_GROUP:
                    if self.usage is None:
                        raise method_not_allowed()
                    return await self.usage(request, parts)
                parse = _custom_request if group == CUSTOM_GROUP else _external_request
                metric = request.line.metric = parse(request, parts)
                return await self._metric(request, metric)
            case (group, *_) if group in self.discovery.versions:
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


async def encode_list(
    representation: Representation, values: Sequence[_T], document: Callable[[Sequence[_T]], Encodable]
) -> Encoded:
    """Encode the document of some values; in a thread if there are many, so that the event loop is not blocked.

    Raises:
        StatusError: 406, as Representation.encode.
    """
    if len(values) < _MANY:
        return representation.encode(document(values))
    return await asyncio.to_thread(lambda: representation.encode(document(values)))


def method_not_allowed() -> StatusError:
    """Return a 405 with Kubernetes' message."""
    return status.method_not_allowed("the server does not allow this method on the requested resource")


def no_such_resource() -> StatusError:
    """Return a 404 with Kubernetes' message for paths inside an API."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def _selector(text: str) -> LabelSelector:
    return LabelSelector.parse(text, words=OLDER_LABEL_WORDS)


_cached_selector = functools.lru_cache(maxsize=_SELECTORS)(_selector)


def check_numbers(query: Query) -> None:
    """Refuse a `limit` or `timeoutSeconds` that is no number. Raises StatusError 400."""
    for parameter in ("limit", "timeoutSeconds"):
        if parameter not in query:
            continue
        text = query.get(parameter)
        if _INTEGER.fullmatch(text) is None:
            raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
        if len(text.lstrip("+-0")) > _MAX_DIGITS or int(text) not in _INT64:
            raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: value out of range")


def check_list(query: Query) -> None:
    """Refuse contradictory parameters, as the API server does for every list. Raises StatusError 422."""
    forbidden = "FieldValueForbidden"
    causes = []
    match, version = query.get(_MATCH), query.get("resourceVersion")
    if match and not version:
        causes.append((_MATCH, forbidden, f"{_MATCH} is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        causes.append((_MATCH, forbidden, f"{_MATCH} is forbidden when continue is provided"))
    if match not in _MATCHES:
        supported = ", ".join(map(quote, _MATCHES))
        causes.append((_MATCH, "FieldValueNotSupported", f"{quote(match)}: supported values: {supported}"))
    if match == "Exact" and version == "0":
        causes.append((_MATCH, forbidden, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(("sendInitialEvents", forbidden, "sendInitialEvents is forbidden for list"))
    if causes:
        raise _invalid_options(causes)


def field_selector(query: Query) -> FieldSelector:
    """Return the `fieldSelector`. Raises StatusError 400 if it is invalid."""
    text = query.get("fieldSelector")
    if not text:
        return _ANY_FIELDS
    try:
        return FieldSelector.parse(text)
    except FieldSelectorError as error:
        raise bad_request(str(error)) from error


def check_requested_name(query: Query, name: str) -> None:
    """Refuse a `fieldSelector` for another name than the path's. Raises StatusError 400."""
    selector = field_selector(query)
    if selector.terms and selector.exact_name() != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")


def _invalid_options(causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """Return the error for invalid parameters; a cause is (parameter, reason, message)."""
    words = {"FieldValueForbidden": "Forbidden", "FieldValueNotSupported": "Unsupported value"}
    described = [(field, reason, f"{words[reason]}: {text}") for field, reason, text in causes]
    each = [f"{field}: {text}" for field, _, text in described]
    all_of_them = each[0] if len(each) == 1 else f"[{', '.join(each)}]"
    return status.invalid(
        f'ListOptions.meta.k8s.io "" is invalid: {all_of_them}',
        details={
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": reason, "message": text, "field": field} for field, reason, text in described],
        },
    )
