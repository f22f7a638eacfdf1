"""Paths and what answers them.

The three metrics APIs are spelled as prometheus-adapter spells them (custom-metrics-apiserver's installer), quirks
included:

    /apis/custom.metrics.k8s.io/V/namespaces/NS/RESOURCE[.GROUP]/NAME/METRIC    an object, or NAME `*`: all that match
    /apis/custom.metrics.k8s.io/V/RESOURCE[.GROUP]/NAME/METRIC                  the same at the root of the cluster
    /apis/custom.metrics.k8s.io/V/namespaces/NS/metrics/METRIC[/ANYTHING]       the namespace itself, or `*`: several
    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC                  an external metric
    /apis/metrics.k8s.io/v1beta1/...                                            see adapter.serving.resource_routes

Routing works on a request that has been authorized, and on the same segments that authorization saw.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from adapter.catalog.groups import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.catalog.values import ExternalMetricValue, MetricValue
from adapter.content.documents import custom_list, external_list
from adapter.content.encoding import Encoded, Representation, require_json
from adapter.diagnosis import Explanation, Report
from adapter.metrics.requests import CustomMetricRequest, ExternalMetricRequest
from adapter.openapi import OpenApiPage, OpenApiPages
from adapter.security.request_info import Query
from adapter.serving.aggregated_discovery import DISCOVERY_FORMS
from adapter.serving.call import (
    Answer,
    Call,
    answer_with,
    label_selector,
    method_not_allowed,
    no_such_resource,
    require_get,
    written,
)
from adapter.serving.discovery import Discovery, software_version, version_document
from adapter.serving.health import Health
from adapter.serving.list_options import check_list, check_numbers, check_requested_name, field_selector
from adapter.serving.resource_routes import ResourceRoutes, UsageProvider
from adapter.serving.status_page import StatusPage
from adapter.serving.telemetry import Telemetry
from kube.deadlines import Deadline
from kube.status import StatusError, bad_request

_TEXT = "text/plain; charset=utf-8"
_NOT_GUESSED = {"X-Content-Type-Options": "nosniff"}
# API servers write what is outside their APIs as indented JSON, whatever the client would rather have.
_PLAIN = Representation(pretty=True)


class CustomProvider(Protocol):
    """Returns custom metrics; see adapter.metrics.custom.CustomMetrics."""

    async def values(self, request: CustomMetricRequest) -> list[MetricValue]:
        """Return the values of the object, or of all objects that the selector matches."""


class ExternalProvider(Protocol):
    """Returns external metrics; see adapter.metrics.external.ExternalMetrics."""

    async def values(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        """Return the metric's series that the selector matches."""


class DebugProvider(Protocol):
    """What can be said of the rules; see adapter.serving.debug_pages.DebugPages."""

    async def answer(self, segments: tuple[str, ...], query: Query, *, deadline: Deadline) -> Report | Explanation:
        """The page of these segments after /debug."""


class Router:
    """Finds the answer to a call, for one version of the rules. A request keeps the router that it began with."""

    def __init__(
        self,
        *,
        discovery: Discovery,
        custom: CustomProvider,
        external: ExternalProvider,
        health: Health,
        telemetry: Telemetry,
        usage: UsageProvider | None = None,
        debug: DebugProvider | None = None,
        openapi: OpenApiPages | None = None,
    ) -> None:
        self._discovery = discovery
        self._custom = custom
        self._external = external
        self._health = health
        self._telemetry = telemetry
        self._openapi = openapi or OpenApiPages(software_version())
        self._status_page = StatusPage(version=software_version())
        self._resources = ResourceRoutes(usage) if usage is not None else None
        self._debug = debug

    def knows(self, group: str, resource: str) -> bool:
        """Tell whether a resource, in the words of authorization, is one that has metrics now."""
        return self._discovery.knows(group, resource)

    async def answer(self, call: Call) -> Answer:
        """Answer a call.

        Raises:
            StatusError: whatever there is to say against it.
        """
        segments = call.target.segments
        if segments[:1] == ("debug",) and self._debug is not None:
            require_get(call)
            page = await self._debug.answer(segments[1:], call.target.query, deadline=call.deadline)
            return answer_with(call, page)
        if segments[:1] != ("apis",):
            return self._other(call)
        match segments[1:]:
            case ():
                return await self._groups(call)
            case (group,) if self._discovery.serves(group):
                return answer_with(call, self._discovery.group(group))
            case (group, version) if self._discovery.serves(group, version):
                require_get(call)
                document = await self._discovery.resources(group, version, call.representation(streamed=False))
                return Answer(200, document.content, gzip=document.gzip)
            case (group, version, *parts) if self._discovery.serves(group, version):
                if group == RESOURCE_GROUP:
                    if self._resources is None:
                        raise method_not_allowed()
                    return await self._resources.answer(call, parts)
                return await (self._custom_metric if group == CUSTOM_GROUP else self._external_metric)(call, parts)
            case (group, *_) if self._discovery.serves(group):
                raise no_such_resource()
        return self._nowhere()

    async def _groups(self, call: Call) -> Answer:
        """All groups, alone or with everything in them; clients keep the latter until its tag changes."""
        require_get(call)
        representation = call.representation(DISCOVERY_FORMS, streamed=False)
        if representation.conversion is None:
            return Answer(200, representation.encode(self._discovery.group_list()))
        document = await self._discovery.aggregated(representation, representation.conversion)
        return _tagged(call, document.content, document.tag, gzip=document.gzip)

    async def _custom_metric(self, call: Call, parts: Sequence[str]) -> Answer:
        parsed = call.target.known.get(CustomMetricRequest)
        if parsed is None or call.method != "GET":
            parsed = call.target.known[CustomMetricRequest] = _custom_request(call, parts)
        assert isinstance(parsed, CustomMetricRequest)
        representation = call.representation()
        values = await self._custom.values(msgspec.structs.replace(parsed, deadline=call.deadline))
        return Answer(200, await written(representation, values, functools.partial(custom_list, call.info.version)))

    async def _external_metric(self, call: Call, parts: Sequence[str]) -> Answer:
        parsed = call.target.known.get(ExternalMetricRequest)
        if parsed is None or call.method != "GET":
            parsed = call.target.known[ExternalMetricRequest] = _external_request(call, parts)
        assert isinstance(parsed, ExternalMetricRequest)
        representation = call.representation()
        representation.require_form()
        values = await self._external.values(msgspec.structs.replace(parsed, deadline=call.deadline))
        return Answer(200, await written(representation, values, external_list))

    def _other(self, call: Call) -> Answer:
        """Everything that is no API."""
        health = self._health.answer(call.target)
        if health is not None:
            require_get(call, "HEAD")
            return Answer(health.status, Encoded(health.text.encode(), _TEXT), headers=_NOT_GUESSED)
        match call.target.segments:
            case ():
                require_get(call)
                return Answer(200, _PLAIN.encode(self._paths()))
            case ("metrics",):
                require_get(call, "HEAD")
                self._telemetry.keep(self.knows)
                return Answer(200, self._telemetry.exposition())
            case ("metrics", "slis"):
                require_get(call, "HEAD")
                return Answer(200, self._health.metrics.exposition())
            case ("version",):
                require_get(call)
                require_json(call.accept)
                return Answer(200, _PLAIN.encode(version_document()))
            case ("openapi", "v2"):
                require_get(call)
                return _openapi(call, self._openapi.v2(self._discovery.group_versions, accept=call.accept))
            case ("openapi", "v3", *parts):
                require_get(call)
                given_hash = call.target.query.get("hash")
                served, path = self._discovery.group_versions, "/".join(parts)
                page = self._openapi.v3(served, path, given_hash=given_hash, accept=call.accept)
                if page is not None:
                    return _openapi(call, page)
            case ("statusz",):
                require_get(call)
                return Answer(200, self._status_page.answer(call.accept, self._health.paths))
        return self._nowhere()

    def _nowhere(self) -> Answer:
        """404 with the paths that there are, as API servers say it outside their APIs."""
        return Answer(404, _PLAIN.encode(self._paths()))

    def _paths(self) -> msgspec.Struct:
        others = ("/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/statusz", "/version")
        return self._discovery.paths((*others, *self._health.paths))


def _custom_request(call: Call, parts: Sequence[str]) -> CustomMetricRequest:
    """Parse a request for a custom metric. Raises StatusError for an invalid one."""
    match parts:
        case ("namespaces", namespace, "metrics", metric) | ("namespaces", namespace, "metrics", metric, _):
            resource, namespace, name = "namespaces", "", namespace
        case ("namespaces", namespace, resource, name, metric):
            pass
        case ("namespaces", _, _):
            require_get(call)
            raise bad_request("invalid request path")
        case (resource, name, metric):
            namespace = ""
        case _:
            raise no_such_resource()
    require_get(call)
    call.representation()
    check_numbers(call.target.query)
    selector = label_selector(call, "labelSelector")
    check_requested_name(call.target.query, name)
    metric_selector = label_selector(call, "metricLabelSelector")
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


def _external_request(call: Call, parts: Sequence[str]) -> ExternalMetricRequest:
    """Parse a request for an external metric. Raises StatusError for an invalid one."""
    match parts:
        case ("namespaces", namespace, metric):
            pass
        case _:
            raise no_such_resource()
    require_get(call)
    call.representation().require_form()
    check_numbers(call.target.query)
    selector = label_selector(call, "labelSelector")
    field_selector(call.target.query)
    if call.info.verb == "watch":
        raise _not_watched()
    check_list(call.target.query)
    return ExternalMetricRequest(namespace=namespace, metric=metric, selector=selector)


def _not_watched() -> StatusError:
    """405, in the words that API servers use where a list is watched that cannot be."""
    return StatusError(
        405,
        "MethodNotAllowed",
        f'watch is not supported on resources of kind "*.{EXTERNAL_GROUP}"',
        details={"group": EXTERNAL_GROUP, "kind": "*"},
    )


def _tagged(
    call: Call, content: Encoded, tag: str, headers: Mapping[str, str] | None = None, *, gzip: bytes | None = None
) -> Answer:
    """A document with its entity tag, or the news that the client has it already."""
    if tag in call.known_tags:
        return Answer(304, Encoded(b"", content.content_type), tag=tag, headers=headers or {})
    return Answer(200, content, tag=tag, headers=headers or {}, gzip=gzip)


def _openapi(call: Call, page: OpenApiPage) -> Answer:
    headers = page.headers(now=time.time())
    if page.location:
        return Answer(301, page.content, headers=headers)
    return _tagged(call, page.content, page.tag, headers)
