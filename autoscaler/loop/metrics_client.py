"""Metric values from the three metrics APIs, asked for exactly as the HPA controller of Kubernetes asks.

    metrics.k8s.io            Resource and ContainerResource metrics
    custom.metrics.k8s.io     Pods and Object metrics, in the version that discovery prefers (v1beta2 or v1beta1)
    external.metrics.k8s.io   External metrics

Every question has an answer: the values, or an MetricError with the reason. Whoever serves these APIs is not trusted:
an answer that is not of the expected form, lacks a value or holds a bad quantity is an MetricError as a whole, because
a value that was left out would look like a pod without load. A missing timestamp counts as the zero time, as in Go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.core.observation import (
    ContainerUsage,
    ExternalResponse,
    MetricError,
    ObjectResponse,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
)
from autoscaler.loop.label_index import PodIndex
from autoscaler.loop.throttle import ThrottledClient
from autoscaler.loop.together import Together, Topic
from autoscaler.objects.fields import ParseError, plain_milli_value, time_ms
from kube.client import KubeError
from kube.durations import DurationError, parse_duration
from kube.mapping import NoMatchError, RestMapper
from kube.names import path_segment_errors
from kube.quantity import QuantityError
from kube.selectors import LabelSelector
from kube.status import StatusError, generic_message

_RESOURCE = "metrics.k8s.io"
_CUSTOM = "custom.metrics.k8s.io"
_EXTERNAL = "external.metrics.k8s.io"
_CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
# What a pod's value covers where custom.metrics.k8s.io does not say: metrics-server's default.
_DEFAULT_WINDOW_MS = 60_000

# What is not about pods is the same question whoever asks it.
_NO_PODS = LabelSelector()

_T = TypeVar("_T")


class _BadAnswer(ValueError):
    """The metrics API answered something that is none; the text says what is wrong."""


# --- the wire forms ------------------------------------------------------------------------------------------------
# A null in JSON means "absent" in Kubernetes, so what may be absent may be null.


class _List(msgspec.Struct, Generic[_T]):
    items: list[_T] | None = None


class _Name(msgspec.Struct):
    name: str


class _CustomValue(msgspec.Struct, rename="camel"):
    described_object: _Name
    value: str | int | float
    timestamp: str | None = None
    window_seconds: int | None = None
    window: int | None = None
    """v1beta1's name for it."""


class _ExternalValue(msgspec.Struct):
    value: str | int | float
    timestamp: str | None = None


class _Usage(msgspec.Struct):
    name: str
    usage: dict[str, str | int | float] | None = None


class _PodMetrics(msgspec.Struct):
    metadata: _Name
    timestamp: str | None = None
    window: str | None = None
    containers: list[_Usage] | None = None


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct, rename="camel"):
    versions: list[_Version]
    preferred_version: _Version | None = None


class MetricsClient:
    """Asks the metrics APIs.

    Args:
        resource: the connection to metrics.k8s.io.
        custom: the connection to custom.metrics.k8s.io.
        external: the connection to external.metrics.k8s.io.
        mapper: turns a described object's kind into its resource.
        pods: the pods of the cluster, by which a common answer is shared out; None: each HPA asks about its own pods.
        version_seconds: how long the preferred version of the custom metrics API is remembered.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(
        self,
        *,
        resource: ThrottledClient,
        custom: ThrottledClient,
        external: ThrottledClient,
        mapper: RestMapper,
        pods: PodIndex | None = None,
        version_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resource = resource
        self._custom = custom
        self._external = external
        self._mapper = mapper
        self._version_seconds = version_seconds
        self._clock = clock
        self._version = ""
        self._version_until = float("-inf")
        self._finding_version = asyncio.Lock()
        self._together = Together(pods, clock=clock)

    async def resource_usage(self, namespace: str, selector: LabelSelector) -> ResourceResponse | MetricError:
        """What the selected pods use of cpu, memory and so on."""
        topic = Topic(namespace, _RESOURCE)
        answer = await self._together.ask(topic, selector, lambda each: self._resource_usage(namespace, each))
        assert isinstance(answer, ResourceResponse | MetricError)
        return answer

    async def _resource_usage(self, namespace: str, selector: LabelSelector) -> ResourceResponse | MetricError:
        try:
            path = f"/apis/{_RESOURCE}/v1beta1/namespaces/{_segment(namespace)}/pods"
            answer = await self._resource.get(path, _query(labelSelector=selector))
            return ResourceResponse(tuple(_pod_usage(item) for item in _items(answer, _PodMetrics)))
        except (_BadAnswer, ParseError, StatusError, KubeError) as error:
            return _failed(error, f"pods.{_RESOURCE}")

    async def pods_metric(
        self, namespace: str, metric: str, *, pods: LabelSelector, metric_selector: LabelSelector
    ) -> PodsResponse | MetricError:
        """One metric of each selected pod."""

        async def fetch(selector: LabelSelector) -> PodsResponse | MetricError:
            return await self._pods_metric(namespace, metric, pods=selector, metric_selector=metric_selector)

        topic = Topic(namespace, f"{_CUSTOM}/pods/{metric}", str(metric_selector))
        answer = await self._together.ask(topic, pods, fetch)
        assert isinstance(answer, PodsResponse | MetricError)
        return answer

    async def _pods_metric(
        self, namespace: str, metric: str, *, pods: LabelSelector, metric_selector: LabelSelector
    ) -> PodsResponse | MetricError:
        try:
            path = f"{await self._custom_api()}/namespaces/{_segment(namespace)}/pods/%2A/{_segment(metric)}"
            answer = await self._custom.get(path, _query(labelSelector=pods, metricLabelSelector=metric_selector))
            return PodsResponse({item.described_object.name: _sample(item) for item in _items(answer, _CustomValue)})
        except (_BadAnswer, ParseError, StatusError, KubeError) as error:
            return _failed(error, f"pods.{_CUSTOM}", "*")

    async def object_metric(
        self,
        namespace: str,
        metric: str,
        *,
        described: CrossVersionObjectReference,
        metric_selector: LabelSelector,
    ) -> ObjectResponse | MetricError:
        """One metric of one object.

        A described Namespace is always the HPA's own, whatever its name: an HPA must not reach into another.
        """

        async def fetch(_: LabelSelector) -> ObjectResponse | MetricError:
            return await self._object_metric(namespace, metric, described=described, metric_selector=metric_selector)

        parts = (_group(described.api_version), described.kind, described.name, metric)
        path = "/".join(quote(part, safe="") for part in parts)
        topic = Topic(namespace, f"{_CUSTOM}/objects/{path}", str(metric_selector))
        answer = await self._together.ask(topic, _NO_PODS, fetch)
        assert isinstance(answer, ObjectResponse | MetricError)
        return answer

    async def _object_metric(
        self,
        namespace: str,
        metric: str,
        *,
        described: CrossVersionObjectReference,
        metric_selector: LabelSelector,
    ) -> ObjectResponse | MetricError:
        resource, name = "metrics", metric
        try:
            path = f"{await self._custom_api()}/namespaces/{_segment(namespace)}"
            group = _group(described.api_version)
            if described.kind == "Namespace" and not group:
                path += f"/metrics/{_segment(metric)}"
            else:
                resource, name = await self._resource_of(group, described.kind), described.name
                path += f"/{_segment(resource)}/{_segment(described.name)}/{_segment(metric)}"
            answer = await self._custom.get(path, _query(metricLabelSelector=metric_selector))
            values = [(_milli(item.value), _timestamp_ms(item.timestamp)) for item in _items(answer, _CustomValue)]
            if len(values) != 1:
                raise _BadAnswer(
                    f"the custom metrics API server returned {len(values)} results when we asked for exactly one"
                )
            return ObjectResponse(value=values[0][0], timestamp_ms=values[0][1])
        except (_BadAnswer, ParseError, StatusError, KubeError) as error:
            return _failed(error, f"{resource}.{_CUSTOM}", name)

    async def external_metric(
        self, namespace: str, metric: str, *, metric_selector: LabelSelector
    ) -> ExternalResponse | MetricError:
        """All series of a metric that the selector selects."""

        async def fetch(_: LabelSelector) -> ExternalResponse | MetricError:
            return await self._external_metric(namespace, metric, metric_selector=metric_selector)

        topic = Topic(namespace, f"{_EXTERNAL}/{metric}", str(metric_selector))
        answer = await self._together.ask(topic, _NO_PODS, fetch)
        assert isinstance(answer, ExternalResponse | MetricError)
        return answer

    async def _external_metric(
        self, namespace: str, metric: str, *, metric_selector: LabelSelector
    ) -> ExternalResponse | MetricError:
        try:
            path = f"/apis/{_EXTERNAL}/v1beta1/namespaces/{_segment(namespace)}/{_segment(metric)}"
            items = _items(await self._external.get(path, _query(labelSelector=metric_selector)), _ExternalValue)
            return ExternalResponse(
                values=tuple(_milli(item.value) for item in items),
                timestamp_ms=_timestamp_ms(items[0].timestamp) if items else 0,
            )
        except (_BadAnswer, ParseError, StatusError, KubeError) as error:
            return _failed(error, f"{metric}.{_EXTERNAL}")

    async def _custom_api(self) -> str:
        """The path of the custom metrics API in the version to use."""
        async with self._finding_version:
            if self._clock() >= self._version_until:
                self._version = await self._find_version()
                self._version_until = self._clock() + self._version_seconds
            return f"/apis/{_CUSTOM}/{self._version}"

    async def _find_version(self) -> str:
        try:
            group = _convert(await self._custom.get(f"/apis/{_CUSTOM}"), _Group)
        except StatusError as error:
            if error.code == 404:
                raise _BadAnswer(f"no custom metrics API ({_CUSTOM}) registered") from error
            raise
        offered = [entry.version for entry in group.versions]
        if group.preferred_version is not None:
            offered.insert(0, group.preferred_version.version)
        for version in offered:
            if version in _CUSTOM_VERSIONS:
                return version
        raise _BadAnswer("no known available metric versions found")

    async def _resource_of(self, group: str, kind: str) -> str:
        try:
            mappings = await self._mapper.mappings_for_kind(group, kind)
        except NoMatchError as error:
            group_kind = f"{kind}.{group}" if group else kind
            raise _BadAnswer(f"unable to map kind {group_kind} to resource: {error}") from error
        return str(mappings[0].group_resource)


# --- what is asked -------------------------------------------------------------------------------------------------


def _segment(name: str) -> str:
    """A name as one part of a URL path. What would lead out of the path is refused, as client-go refuses it."""
    problems = path_segment_errors(name)
    if problems or not name:
        raise _BadAnswer(f'invalid resource name "{name}": [{" ".join(problems) or "may not be empty"}]')
    return quote(name, safe="")


def _query(**selectors: LabelSelector) -> dict[str, str | int | bool]:
    return {name: str(selector) for name, selector in selectors.items() if selector.requirements}


def _group(api_version: str) -> str:
    """The group of "group/version"; like Kubernetes, the core group if the text is malformed."""
    return api_version.split("/")[0] if api_version.count("/") == 1 else ""


# --- what is answered ----------------------------------------------------------------------------------------------


def _failed(error: Exception, resource: str, name: str = "") -> MetricError:
    """Why there is no answer, in client-go's words where the server gave no reason of its own."""
    if isinstance(error, StatusError):
        return MetricError(generic_message(error, verb="GET", resource=resource, name=name))
    return MetricError(str(error))


def _convert(answer: Mapping[str, Any], form: type[_T]) -> _T:
    try:
        return msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise _BadAnswer(f"the answer is not of the expected form: {error}") from error


def _items(answer: Mapping[str, Any], form: type[_T]) -> list[_T]:
    return _convert(answer, _List[form]).items or []  # type: ignore[valid-type]  # a generic is made at run time


def _pod_usage(item: _PodMetrics) -> PodUsage:
    try:
        window = parse_duration(item.window) if item.window else 0.0
    except DurationError as error:
        raise _BadAnswer(str(error)) from error
    return PodUsage(
        name=item.metadata.name,
        timestamp_ms=_timestamp_ms(item.timestamp),
        window_ms=round(window * 1000),
        containers=tuple(
            ContainerUsage(
                name=container.name,
                usage={resource: _milli(value) for resource, value in (container.usage or {}).items()},
            )
            for container in item.containers or ()
        ),
    )


def _sample(item: _CustomValue) -> PodSample:
    seconds = item.window if item.window_seconds is None else item.window_seconds
    return PodSample(
        value=_milli(item.value),
        timestamp_ms=_timestamp_ms(item.timestamp),
        window_ms=_DEFAULT_WINDOW_MS if seconds is None else seconds * 1000,
    )


def _milli(value: str | float) -> int:
    try:
        # White space is cut off. Upstream: resource.Quantity.UnmarshalJSON
        return plain_milli_value(str(value).strip())
    except QuantityError as error:
        raise _BadAnswer(str(error)) from None


def _timestamp_ms(text: str | None) -> int:
    return time_ms(text, "timestamp") if text else 0
