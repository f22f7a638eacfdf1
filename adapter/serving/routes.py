"""Paths and what answers them.

The three metrics APIs are spelled as prometheus-adapter spells them (custom-metrics-apiserver's installer), quirks
included:

    /apis/custom.metrics.k8s.io/V/namespaces/NS/RESOURCE[.GROUP]/NAME/METRIC    an object, or NAME `*`: all that match
    /apis/custom.metrics.k8s.io/V/RESOURCE[.GROUP]/NAME/METRIC                  the same at the root of the cluster
    /apis/custom.metrics.k8s.io/V/namespaces/NS/metrics/METRIC                  the namespace itself, or `*`: several
    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC                  an external metric
    /apis/metrics.k8s.io/v1beta1/nodes[/NAME]                                   what nodes use
    /apis/metrics.k8s.io/v1beta1[/namespaces/NS]/pods[/NAME]                    what pods use

Routing works on a request that has been authorized, and on the same segments that authorization saw.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from adapter.catalog.groups import CUSTOM_GROUP, RESOURCE_GROUP
from adapter.catalog.values import ExternalMetricValue, MetricValue
from adapter.content.documents import custom_list, external_list
from adapter.content.encoding import Conversion, Encoded, Representation
from adapter.content.resource_documents import node_document, node_list, pod_document, pod_list
from adapter.diagnosis import Explanation, Report
from adapter.metrics.usage import NodeUsage, PodUsage
from adapter.openapi import OpenApiPage, OpenApiPages
from adapter.security.request_info import Query, RequestInfo, Target
from adapter.serving.aggregated_discovery import DISCOVERY_FORMS
from adapter.serving.discovery import Discovery, software_version, version_document
from adapter.serving.health import Health
from adapter.serving.list_options import check_numbers, check_requested_name, field_selector
from adapter.serving.status_page import StatusPage
from adapter.serving.telemetry import Telemetry
from kube import status
from kube.selectors import LabelSelector, SelectorError
from kube.status import StatusError, bad_request

__all__ = [
    "Answer",
    "Call",
    "CustomProvider",
    "DebugProvider",
    "ExternalProvider",
    "FreshValues",
    "Router",
    "UsageProvider",
    "method_not_allowed",
]

_TEXT = "text/plain; charset=utf-8"
# API servers write what is outside their APIs as indented JSON, whatever the client would rather have.
_PLAIN = Representation(pretty=True)


class CustomProvider(Protocol):
    """Where custom metrics come from; see adapter.metrics.custom.CustomMetrics. `timeout` is in seconds."""

    async def named(
        self,
        *,
        resource: str,
        group: str,
        namespace: str,
        name: str,
        metric: str,
        metric_selector: LabelSelector,
        timeout: float,
    ) -> list[MetricValue]:
        """The value of one object."""

    async def selected(
        self,
        *,
        resource: str,
        group: str,
        namespace: str,
        selector: LabelSelector,
        metric: str,
        metric_selector: LabelSelector,
        timeout: float,
    ) -> list[MetricValue]:
        """The values of all objects that a selector matches."""


class ExternalProvider(Protocol):
    """Where external metrics come from; see adapter.metrics.external.ExternalMetrics. `timeout` is in seconds."""

    async def values(
        self, *, namespace: str, metric: str, selector: LabelSelector, timeout: float
    ) -> list[ExternalMetricValue]:
        """The metric's series that a selector matches."""


class UsageProvider(Protocol):
    """Where the use of CPU and memory comes from; see adapter.metrics.resource_metrics.ResourceMetrics."""

    async def pods(self, *, namespace: str, selector: LabelSelector, name: str = "", timeout: float) -> list[PodUsage]:
        """What pods use; `namespace` is "" for all."""

    async def nodes(self, *, selector: LabelSelector, name: str = "", timeout: float) -> list[NodeUsage]:
        """What nodes use."""


class DebugProvider(Protocol):
    """What can be said of the rules; see adapter.serving.debug_pages.DebugPages. `seconds` is the time that is left."""

    async def answer(self, segments: tuple[str, ...], query: Query, *, seconds: float) -> Report | Explanation:
        """The page of these segments after /debug."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that has been authorized.

    Attributes:
        method: the HTTP method.
        target: the path and query.
        info: what was authorized.
        accept: the Accept header.
        user_agent: the User-Agent header.
        timeout: the seconds that are left for it.
        known_tags: entity tags of answers that the client has already.
    """

    method: str
    target: Target
    info: RequestInfo
    accept: str
    user_agent: str
    timeout: float
    known_tags: frozenset[str] = frozenset()

    def representation(self, offered: Collection[Conversion] = ()) -> Representation:
        """How the client wants its answer, which can also be converted to what is offered; raises 406."""
        return Representation.negotiate(
            self.accept, pretty=self.target.query.get("pretty"), user_agent=self.user_agent, offered=offered
        )


@dataclass(frozen=True, slots=True)
class FreshValues:
    """Values that will be the same for a while.

    Attributes:
        until: when that ends, on the event loop's clock.
        sampled_at: when they were sampled, in seconds since the epoch, with how many there are of each time.
    """

    until: float
    sampled_at: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, values: Sequence[MetricValue] | Sequence[ExternalMetricValue]) -> FreshValues | None:
        """What there is to tell of some values; None where they may be others at once."""
        until = min((value.fresh_until for value in values), default=0.0)
        if not until:
            return None
        return cls(until, tuple(Counter(value.timestamp for value in values).items()))


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body.

    For some errors there are the seconds after which to ask again, for some documents there is an entity tag;
    `headers` are beside the usual ones, or replace them. `values` tells of the values in it, where they will be the
    same for a while.
    """

    status: int
    content: Encoded
    retry_after: int | None = None
    tag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    values: FreshValues | None = None


class Router:
    """Finds the answer to a call."""

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
    ) -> None:
        self._discovery = discovery
        self._custom = custom
        self._external = external
        self._health = health
        self._telemetry = telemetry
        self._openapi = OpenApiPages(software_version())
        self._status_page = StatusPage(version=software_version())
        self._usage = usage
        self._debug = debug

    async def answer(self, call: Call) -> Answer:
        """Answer a call.

        Raises:
            StatusError: whatever there is to say against it.
        """
        segments = call.target.segments
        if segments[:1] == ("debug",) and self._debug is not None:
            _require_get(call)
            page = await self._debug.answer(segments[1:], call.target.query, seconds=call.timeout)
            return _document(call, page)
        if segments[:1] != ("apis",):
            return self._other(call)
        match segments[1:]:
            case ():
                return self._groups(call)
            case (group,) if self._discovery.serves(group):
                return _document(call, self._discovery.group(group))
            case (group, version) if self._discovery.serves(group, version):
                return _document(call, self._discovery.resources(group, version))
            case (group, version, *parts) if self._discovery.serves(group, version):
                if group == RESOURCE_GROUP:
                    return await self._resource_metric(call, parts)
                return await (self._custom_metric if group == CUSTOM_GROUP else self._external_metric)(call, parts)
            case (group, *_) if self._discovery.serves(group):
                raise _no_such_resource()
        return self._nowhere()

    def _groups(self, call: Call) -> Answer:
        """All groups, alone or with everything in them; clients keep the latter until its tag changes."""
        _require_get(call)
        representation = call.representation(DISCOVERY_FORMS)
        if representation.conversion is None:
            return Answer(200, representation.encode(self._discovery.group_list()))
        content = representation.encode(self._discovery.aggregated(representation.conversion))
        return _tagged(call, content, f'"{hashlib.sha256(content.body).hexdigest().upper()}"')

    async def _custom_metric(self, call: Call, parts: list[str]) -> Answer:
        match parts:
            case ("namespaces", namespace, "metrics", metric):
                resource, namespace, name = "namespaces", "", namespace
            case ("namespaces", namespace, resource, name, metric):
                pass
            case ("namespaces", _, _):
                _require_get(call)
                raise bad_request("invalid request path")
            case (resource, name, metric):
                namespace = ""
            case _:
                raise _no_such_resource()
        _require_get(call)
        representation = call.representation()
        check_numbers(call.target.query)
        selector = _selector(call, "labelSelector")
        check_requested_name(call.target.query, name)
        metric_selector = _selector(call, "metricLabelSelector")
        resource, _, group = resource.partition(".")
        if name == "*":
            values = await self._custom.selected(
                resource=resource,
                group=group,
                namespace=namespace,
                selector=selector,
                metric=metric,
                metric_selector=metric_selector,
                timeout=call.timeout,
            )
        else:
            values = await self._custom.named(
                resource=resource,
                group=group,
                namespace=namespace,
                name=name,
                metric=metric,
                metric_selector=metric_selector,
                timeout=call.timeout,
            )
        content = representation.encode(custom_list(call.info.version, values))
        return Answer(200, content, values=FreshValues.of(values))

    async def _external_metric(self, call: Call, parts: list[str]) -> Answer:
        match parts:
            case ("namespaces", namespace, metric):
                pass
            case _:
                raise _no_such_resource()
        _require_get(call)
        representation = call.representation()
        check_numbers(call.target.query)
        values = await self._external.values(
            namespace=namespace, metric=metric, selector=_selector(call, "labelSelector"), timeout=call.timeout
        )
        return Answer(200, representation.encode(external_list(values)), values=FreshValues.of(values))

    async def _resource_metric(self, call: Call, parts: list[str]) -> Answer:
        """Nodes and pods. As in metrics-server, they cannot be watched."""
        if self._usage is None or call.info.verb == "watch":
            raise method_not_allowed()
        match parts:
            case ("nodes",) | ("pods",) | ("namespaces", _, "pods"):
                return await self._usage_list(self._usage, call, parts)
            case ("nodes", name):
                _require_get(call)
                nodes = await self._usage.nodes(selector=LabelSelector(), name=name, timeout=call.timeout)
                if nodes:
                    return _document(call, node_document(nodes[0]))
                raise _no_usage("nodes", name)
            case ("namespaces", namespace, "pods", name):
                _require_get(call)
                pods = await self._usage.pods(
                    namespace=namespace, selector=LabelSelector(), name=name, timeout=call.timeout
                )
                if pods:
                    return _document(call, pod_document(pods[0]))
                raise _no_usage("pods", f"{namespace}/{name}")
        raise _no_such_resource()

    async def _usage_list(self, usage: UsageProvider, call: Call, parts: list[str]) -> Answer:
        _require_get(call)
        representation = call.representation()
        check_numbers(call.target.query)
        selector = _selector(call, "labelSelector")
        fields = field_selector(call.target.query)
        if parts[0] == "nodes":
            nodes = await usage.nodes(selector=selector, timeout=call.timeout)
            found = node_list(node for node in nodes if fields.matches(name=node.name, namespace=""))
            return Answer(200, representation.encode(found))
        pods = await usage.pods(namespace=call.info.namespace, selector=selector, timeout=call.timeout)
        return Answer(
            200,
            representation.encode(
                pod_list(pod for pod in pods if fields.matches(name=pod.name, namespace=pod.namespace))
            ),
        )

    def _other(self, call: Call) -> Answer:
        """Everything that is no API."""
        health = self._health.answer(call.target)
        if health is not None:
            _require_get(call, "HEAD")
            return Answer(health.status, Encoded(health.text.encode(), _TEXT))
        match call.target.segments:
            case ():
                _require_get(call)
                return Answer(200, _PLAIN.encode(self._paths()))
            case ("metrics",):
                _require_get(call, "HEAD")
                return Answer(200, self._telemetry.exposition())
            case ("metrics", "slis"):
                _require_get(call, "HEAD")
                return Answer(200, self._health.metrics.exposition())
            case ("version",):
                _require_get(call)
                return Answer(200, _PLAIN.encode(version_document()))
            case ("openapi", "v2"):
                _require_get(call)
                return _openapi(call, self._openapi.v2(self._discovery.group_versions, accept=call.accept))
            case ("openapi", "v3", *parts):
                _require_get(call)
                given_hash = call.target.query.get("hash")
                served, path = self._discovery.group_versions, "/".join(parts)
                page = self._openapi.v3(served, path, given_hash=given_hash, accept=call.accept)
                if page is not None:
                    return _openapi(call, page)
            case ("statusz",):
                _require_get(call)
                return Answer(200, self._status_page.answer(call.accept, self._health.paths))
        return self._nowhere()

    def _nowhere(self) -> Answer:
        """404 with the paths that there are, as API servers say it outside their APIs."""
        return Answer(404, _PLAIN.encode(self._paths()))

    def _paths(self) -> msgspec.Struct:
        others = ("/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/statusz", "/version")
        return self._discovery.paths((*others, *self._health.paths))


def _document(call: Call, document: msgspec.Struct) -> Answer:
    _require_get(call)
    return Answer(200, call.representation().encode(document))


def _tagged(call: Call, content: Encoded, tag: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A document with its entity tag, or the news that the client has it already."""
    if tag in call.known_tags:
        return Answer(304, Encoded(b"", content.content_type), tag=tag, headers=headers or {})
    return Answer(200, content, tag=tag, headers=headers or {})


def _openapi(call: Call, page: OpenApiPage) -> Answer:
    headers = page.headers(now=time.time())
    if page.location:
        return Answer(301, page.content, headers=headers)
    return _tagged(call, page.content, page.tag, headers)


def _require_get(call: Call, *others: str) -> None:
    if call.method != "GET" and call.method not in others:
        raise method_not_allowed()


def method_not_allowed() -> StatusError:
    """405, in the words that API servers use for every path."""
    return status.method_not_allowed("the server does not allow this method on the requested resource")


def _no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def _no_usage(resource: str, name: str) -> StatusError:
    return status.not_found(
        f'{resource}.{RESOURCE_GROUP} "{name}" not found',
        details={"name": name, "group": RESOURCE_GROUP, "kind": resource},
    )


def _selector(call: Call, parameter: str) -> LabelSelector:
    try:
        return LabelSelector.parse(call.target.query.get(parameter))
    except SelectorError as error:
        raise bad_request(str(error)) from error
