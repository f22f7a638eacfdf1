"""Metric values from the three metrics APIs, queried exactly as the HPA controller of Kubernetes does.

    metrics.k8s.io            Resource and ContainerResource metrics
    custom.metrics.k8s.io     Pods and Object metrics, in the version that discovery prefers (v1beta2 or v1beta1)
    external.metrics.k8s.io   External metrics

Every query returns a response or a MetricError. The servers are not trusted: a response of an unexpected form, without
a value or with a bad quantity is an error as a whole, because a missing value would look like a pod without load. A
missing timestamp counts as the zero time, as in Go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    ValuesResponse,
)
from autoscaler.core.quantities import milli_value
from autoscaler.loop.client_messages import generic_message
from autoscaler.loop.metrics_query_coalescer import MetricsQuery, MetricsQueryCoalescer
from autoscaler.loop.pod_owners import PodIndex
from autoscaler.objects.decoding import time_ms
from autoscaler.settings import DEFAULTS, CoalescingSettings
from kube.aio.fairness import FairSemaphore, current_namespace, for_all_namespaces
from kube.aio.tasks import SingleFlight
from kube.api.client import KubeError
from kube.api.mapping import NoMatchError, RestMapper
from kube.api.objects import ParseError
from kube.api.status import StatusError
from kube.controller.flowcontrol import ThrottledClient
from kube.values.durations import DurationError, parse_duration
from kube.values.names import path_segment_errors
from kube.values.quantity import QuantityError
from kube.values.selectors import LabelSelector

_RESOURCE = "metrics.k8s.io"
_CUSTOM = "custom.metrics.k8s.io"
_EXTERNAL = "external.metrics.k8s.io"
_CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
_NOT_FOUND, _UNAVAILABLE = 404, 503
_UNEXPECTED = "the response is not of the expected form"

_ALL_PODS = LabelSelector()
# Longer responses are read in a thread: 10,000 values take a twentieth of a second, and an HPA can have 100 metrics.
_SHORT_BYTES = 64 * 1024

_T = TypeVar("_T")


# --- JSON shapes; null means "absent" in Kubernetes ----------------------------------------------------------------


class _List(msgspec.Struct, Generic[_T]):
    items: list[_T] | None = None


class _Name(msgspec.Struct):
    name: str


class _MetricValue(msgspec.Struct, rename="camel"):
    """A custom or an external metric's value."""

    value: str | int | float
    timestamp: str | None = None
    described_object: _Name | None = None
    window_seconds: int | None = None
    window: int | None = None
    """The window's name in v1beta1."""


class _ContainerMetrics(msgspec.Struct):
    name: str
    usage: dict[str, str | int | float] | None = None


class _PodMetrics(msgspec.Struct):
    metadata: _Name
    timestamp: str | None = None
    window: str | None = None
    containers: list[_ContainerMetrics] | None = None


class _ApiGroup(msgspec.Struct, rename="camel"):
    versions: list[dict[str, str]]
    preferred_version: dict[str, str] | None = None


@dataclass(kw_only=True)
class MetricsClient:
    """Queries the metrics APIs. Concurrent queries are coalesced (see `MetricsQueryCoalescer`).

    Args:
        resource, custom, external: the connections to the three APIs.
        mapper: maps a described object's kind to its resource.
        pods: the pods of the cluster, to split coalesced responses; None: queries for different pods are not coalesced.
        version_seconds: how long the preferred version of the custom metrics API is cached.
        lookup_seconds: how long a query waits for that version to be looked up again.
        coalescing: see CoalescingSettings.
        clock: the current time in seconds; only differences matter.
    """

    resource: ThrottledClient
    custom: ThrottledClient
    external: ThrottledClient
    mapper: RestMapper
    pods: PodIndex | None = None
    version_seconds: float
    lookup_seconds: float = DEFAULTS.reconciliation.version_lookup_seconds
    coalescing: CoalescingSettings = DEFAULTS.coalescing
    clock: Callable[[], float] = time.monotonic
    _version: str = field(default="", init=False)
    _version_until: float = field(default=float("-inf"), init=False)
    _version_flight: SingleFlight[str, str] = field(default_factory=SingleFlight, init=False)
    _may_be_away: bool = field(default=False, init=False)
    _reading: FairSemaphore = field(default_factory=lambda: FairSemaphore(1), init=False)

    def __post_init__(self) -> None:
        self._coalescer = MetricsQueryCoalescer(self.pods, settings=self.coalescing, clock=self.clock)

    async def resource_usage(self, namespace: str, selector: LabelSelector) -> MetricResponse:
        """Return the selected pods' usage of cpu, memory and other resources."""

        async def fetch(pods: LabelSelector) -> MetricResponse:
            with _errors(f"pods.{_RESOURCE}"):
                path = f"/apis/{_RESOURCE}/v1beta1/namespaces/{_segment(namespace)}/pods"
                return await self._get(self.resource, path, _usage_of_pods, labelSelector=pods)

        return await self._fetch(MetricsQuery(namespace, _RESOURCE), fetch, pods=selector)

    async def pods_metric(
        self, namespace: str, metric: str, *, pods: LabelSelector, metric_selector: LabelSelector
    ) -> MetricResponse:
        """Return one metric of each selected pod."""

        async def fetch(selector: LabelSelector) -> MetricResponse:
            with _errors(f"pods.{_CUSTOM}", "*"):
                path = f"{await self._custom_api()}/namespaces/{_segment(namespace)}/pods/%2A/{_segment(metric)}"
                selectors = {"labelSelector": selector, "metricLabelSelector": metric_selector}
                return await self._get_custom(path, _samples_of_pods, **selectors)

        query = MetricsQuery(namespace, f"{_CUSTOM}/pods/{metric}", str(metric_selector))
        return await self._fetch(query, fetch, pods=pods)

    async def object_metric(
        self,
        namespace: str,
        metric: str,
        *,
        described: CrossVersionObjectReference,
        metric_selector: LabelSelector,
    ) -> MetricResponse:
        """Return one metric of one object.

        A described Namespace is always the HPA's own, whatever its name: an HPA must not read from other namespaces.
        """
        group = described.api_version.split("/")[0] if described.api_version.count("/") == 1 else ""

        async def fetch(_: LabelSelector) -> MetricResponse:
            resource, name = "metrics", metric
            with _errors(f"metrics.{_CUSTOM}", metric):
                path = f"{await self._custom_api()}/namespaces/{_segment(namespace)}"
                if described.kind == "Namespace" and not group:
                    path += f"/metrics/{_segment(metric)}"
                else:
                    resource, name = await self._resource_of(group, described.kind), described.name
                    path += f"/{_segment(resource)}/{_segment(name)}/{_segment(metric)}"
            with _errors(f"{resource}.{_CUSTOM}", name):
                response = await self._get_custom(path, _values, metricLabelSelector=metric_selector)
                if (count := len(response.values)) != 1:
                    raise MetricError(
                        f"the custom metrics API server returned {count} results when we asked for exactly one"
                    )
                return response

        parts = (group, described.kind, described.name, metric)
        path = "/".join(quote(part, safe="") for part in parts)
        return await self._fetch(MetricsQuery(namespace, f"{_CUSTOM}/objects/{path}", str(metric_selector)), fetch)

    async def external_metric(self, namespace: str, metric: str, *, metric_selector: LabelSelector) -> MetricResponse:
        """Return all series of a metric that the selector selects."""

        async def fetch(_: LabelSelector) -> MetricResponse:
            with _errors(f"{metric}.{_EXTERNAL}"):
                path = f"/apis/{_EXTERNAL}/v1beta1/namespaces/{_segment(namespace)}/{_segment(metric)}"
                return await self._get(self.external, path, _values, labelSelector=metric_selector)

        return await self._fetch(MetricsQuery(namespace, f"{_EXTERNAL}/{metric}", str(metric_selector)), fetch)

    async def _fetch(
        self,
        query: MetricsQuery,
        fetch: Callable[[LabelSelector], Awaitable[MetricResponse]],
        *,
        pods: LabelSelector = _ALL_PODS,
    ) -> MetricResponse:
        async def fetch_or_error(selector: LabelSelector) -> MetricResponse:
            try:
                return await fetch(selector)
            except MetricError as error:
                return MetricError(error.message)  # without the traceback, which would keep the response alive

        return await self._coalescer.fetch(query, pods, fetch_or_error)

    async def _custom_api(self) -> str:
        """Return the path of the custom metrics API in the preferred version.

        A reconciliation waits for the lookup for a short time only, if an earlier version is known: the server of the
        metrics, which may hang, has a part in it.
        """
        if self._may_be_away or self.clock() >= self._version_until:
            try:
                async with asyncio.timeout(self.lookup_seconds if self._version else None):
                    with for_all_namespaces():  # those of all wait for it
                        self._version = await self._version_flight.do("", self._find_version)
            except TimeoutError:
                self._may_be_away = False  # it counts as served, until the next request fails
            self._version_until = self.clock() + self.version_seconds
        return f"/apis/{_CUSTOM}/{self._version}"

    async def _get(
        self, client: ThrottledClient, path: str, read: Callable[[bytes], _T], **selectors: LabelSelector
    ) -> _T:
        """Return what `read` makes of a response; of a long one in a thread, one at a time, namespaces in turn.

        Long ones hold their slots while they wait for that, so that few are in memory.
        """
        query: dict[str, str | int | bool] = {name: str(each) for name, each in selectors.items() if each.requirements}
        async with AsyncExitStack() as held:
            content = await client.get_bytes(path, query, held=held)
            if len(content) <= _SHORT_BYTES:
                return read(content)
            async with self._reading.slot(current_namespace()):
                return await asyncio.to_thread(read, content)

    async def _get_custom(self, path: str, read: Callable[[bytes], _T], **selectors: LabelSelector) -> _T:
        try:
            return await self._get(self.custom, path, read, **selectors)
        except StatusError as error:
            # Without a Status it is the API server's own, which cannot reach the metrics server.
            if error.code == _UNAVAILABLE and error.server_text is not None:
                self._may_be_away = True
                await self._custom_api()
            raise

    async def _find_version(self) -> str:
        """Return the preferred version that is available.

        Upstream: custom_metrics.apiVersionsFromDiscovery, where a version whose server is down is missing.
        """
        try:
            group = _decoded(await self.custom.get_bytes(f"/apis/{_CUSTOM}"), _ApiGroup)
        except StatusError as error:
            if error.code == 404:
                raise MetricError(f"no custom metrics API ({_CUSTOM}) registered") from error
            raise
        served = [each.get("version", "") for each in (group.preferred_version or {}, *group.versions)]
        for version in dict.fromkeys(served):
            if version in _CUSTOM_VERSIONS and await self._is_available(version):
                return version
        raise MetricError("no known available metric versions found")

    async def _is_available(self, version: str) -> bool:
        """Return whether the version's list of metrics is served; read only after the server was away."""
        if self._may_be_away:
            try:
                await self.custom.get(f"/apis/{_CUSTOM}/{version}")
            except StatusError as error:
                if error.code in (_NOT_FOUND, _UNAVAILABLE):
                    return False
            except KubeError:  # too large, say: it is served
                pass
            self._may_be_away = False
        return True

    async def _resource_of(self, group: str, kind: str) -> str:
        try:
            mappings = await self.mapper.mappings_for_kind(group, kind)
        except NoMatchError as error:
            group_kind = f"{kind}.{group}" if group else kind
            raise MetricError(f"unable to map kind {group_kind} to resource: {error}") from error
        return str(mappings[0].group_resource)


# --- requests ------------------------------------------------------------------------------------------------------


@contextmanager
def _errors(resource: str, name: str = "") -> Iterator[None]:
    """Turn all errors into a MetricError, with client-go's message if the server sent no reason."""
    try:
        yield
    except StatusError as error:
        raise MetricError(generic_message(error, resource=resource, name=name)) from error
    except (ParseError, QuantityError, DurationError, KubeError) as error:
        raise MetricError(str(error)) from error


def _segment(name: str) -> str:
    """Quote a name as one segment of a URL path. A name that would leave the path is an error, as in client-go."""
    problems = path_segment_errors(name)
    if problems or not name:
        raise MetricError(f'invalid resource name "{name}": [{" ".join(problems) or "may not be empty"}]')
    return quote(name, safe="")


# --- responses -----------------------------------------------------------------------------------------------------


def _decoded(content: bytes, form: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=form)
    except msgspec.ValidationError as error:
        raise MetricError(f"{_UNEXPECTED}: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MetricError(f"the response is not JSON: {error}") from error


def _values(content: bytes) -> ValuesResponse:
    items = _decoded(content, _List[_MetricValue]).items or []
    return ValuesResponse(
        values=tuple(_milli(item.value) for item in items),
        timestamp_ms=max(map(_timestamp_ms, {item.timestamp for item in items}), default=0),
        window_ms=max(map(_window_ms, items), default=0),
    )


def _usage_of_pods(content: bytes) -> ResourceResponse:
    items = [_pod_usage(item) for item in _decoded(content, _List[_PodMetrics]).items or []]
    pods = dict(items)
    if len(pods) < len(items):  # one has several
        usages: dict[str, list[PodUsage]] = {}
        for name, usage in reversed(items):
            usages.setdefault(name, []).append(usage)
        pods = {name: replace(last, earlier=tuple(earlier)) for name, (last, *earlier) in usages.items()}
    return ResourceResponse(pods)


def _pod_usage(item: _PodMetrics) -> tuple[str, PodUsage]:
    window = parse_duration(item.window) if item.window else 0.0
    return item.metadata.name, PodUsage(
        timestamp_ms=_timestamp_ms(item.timestamp),
        window_ms=round(window * 1000),
        containers=tuple(
            (container.name, {resource: _milli(value) for resource, value in (container.usage or {}).items()})
            for container in item.containers or ()
        ),
    )


def _samples_of_pods(content: bytes) -> PodsResponse:
    return PodsResponse(dict(map(_sample, _decoded(content, _List[_MetricValue]).items or [])))


def _sample(item: _MetricValue) -> tuple[str, PodSample]:
    if item.described_object is None:
        raise MetricError(f"{_UNEXPECTED}: a value of a pod has no `describedObject`")
    return item.described_object.name, PodSample(
        value=_milli(item.value),
        timestamp_ms=_timestamp_ms(item.timestamp),
        window_ms=_window_ms(item),
    )


def _window_ms(item: _MetricValue) -> int:
    """Return a value's window; 0: not given. Upstream assumes a minute then, but only windows of cpu matter there."""
    return 1000 * (item.window_seconds or item.window or 0)


def _milli(value: str | float) -> int:
    # White space is stripped. Upstream: resource.Quantity.UnmarshalJSON
    return milli_value(str(value).strip())


def _timestamp_ms(text: str | None) -> int:
    return time_ms(text, "timestamp") if text else 0
