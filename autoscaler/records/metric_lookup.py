"""What the cluster says about the metrics of a decision: similar names of one that does not exist, and its origin.

Similar names are in the discovery of the metrics APIs, so beside any adapter: it is part of the API and readable for
all users. The origin is what milliscale's adapter explains at /debug/metrics, read through the API server, which
forwards that path below the metrics APIs: so the adapter's address and CA are not needed. The adapter reviews the
right to `get` it for the user that the API server has authenticated.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

import msgspec
from cachetools import TTLCache

from autoscaler.core.model import MetricIdentifier
from autoscaler.records.record import DecisionRecord, MetricRecord
from kube.aio.tasks import SingleFlight
from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError, bad_request, not_found
from kube.values.names import path_segment_errors
from kube.values.selectors import SelectorError
from kube.web.explanation import Explanation

PARAMETERS: Final = ("namespace", "name", "labelSelector", "metricLabelSelector")
"""Which objects and series of a metric are explained."""
_EXTERNAL: Final = "external"
_MAX_BYTES: Final = 2**20


def metric_parameters(metric: MetricRecord, namespace: str, pods: str = "") -> dict[str, str]:
    """Return `metric`, as the adapter names it, and PARAMETERS; {} if it is none of the adapter's.

    `pods` is the selector of the scale target.
    """
    described = metric.described_object
    if metric.type == "Pods":
        resource = "pods"
    elif metric.type == "External":
        resource = _EXTERNAL
    elif described is not None:
        group = described.api_version.rpartition("/")[0]
        resource = f"{described.kind.lower()}.{group}".rstrip(".")
    else:
        return {}
    parameters = {"metric": f"{resource}/{metric.name}", "namespace": namespace}
    if described is not None:
        parameters["name"] = described.name
    elif metric.type == "Pods" and pods:
        parameters["labelSelector"] = pods
    with contextlib.suppress(SelectorError):  # the HPA's status says so
        if selector := str(MetricIdentifier(metric.name, metric.selector).label_selector):
            parameters["metricLabelSelector"] = selector
    return parameters


def metric_url(metric: MetricRecord, namespace: str, pods: str = "") -> str:
    """Return the URL of the page about a metric, which is also its path on the adapter's pages; "" if it is not its.

    `pods` is the selector of the scale target.
    """
    parameters = metric_parameters(metric, namespace, pods)
    return f"/metric?{urlencode(parameters)}" if parameters else ""


def debug_path(metric: str) -> str:
    """Return the adapter's path about a metric. Raises StatusError 400 if this is not RESOURCE/METRIC."""
    resource, _, name = metric.partition("/")
    if not resource or not name or path_segment_errors(resource) or path_segment_errors(name):
        raise bad_request(f"{metric!r} names no metric: it is RESOURCE/METRIC, or external/METRIC")
    return f"/debug/metrics/{resource}/{name}"


async def adapter_explanation(client: KubeClient, parameters: Mapping[str, str]) -> Explanation:
    """Return what the adapter says about the metric of some `metric_parameters`.

    Raises:
        StatusError: 400 if the metric has no such name, 403 without a right, 404 if another adapter serves the API.
        KubeError: the API server, or what it sent.
    """
    metric = parameters["metric"]
    is_external = metric.startswith(f"{_EXTERNAL}/")
    api = "external.metrics.k8s.io/v1beta1" if is_external else "custom.metrics.k8s.io/v1beta2"
    selection = {name: text for name, text in parameters.items() if name in PARAMETERS}
    try:
        content = await client.get_bytes(f"/apis/{api}{quote(debug_path(metric))}", selection, max_bytes=_MAX_BYTES)
        return msgspec.json.decode(content, type=Explanation)
    except (StatusError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(error, StatusError) and error.code != 404:
            raise
        raise not_found(f"{api} is not served by milliscale's adapter, or by an earlier release of it") from error


_CUSTOM_APIS: Final = ("/apis/custom.metrics.k8s.io/v1beta2", "/apis/custom.metrics.k8s.io/v1beta1")
_EXTERNAL_APIS: Final = ("/apis/external.metrics.k8s.io/v1beta1",)
_VALID_SECONDS: Final = 60.0
_MAX_NAMES: Final = 20_000
"""Of a list; to compare them takes 0.6 s in a thread."""
_MAX_FOUND: Final = 1000
_MAX_LENGTH: Final = 200
"""Characters of a name that is compared."""
_SUGGESTIONS: Final = 3
_CUTOFF: Final = 0.7

Get: TypeAlias = Callable[[str], Awaitable[dict[str, Any]]]
"""Reads a path of the API server. Raises KubeError or StatusError."""


class MetricNames:
    """Reads discovery when it is needed, at most once a minute. `clock` is monotonic, in seconds."""

    def __init__(self, get: Get, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._get = get
        self._lists: TTLCache[tuple[str, ...], tuple[str, ...]] = TTLCache(2, _VALID_SECONDS, timer=clock)
        self._found: TTLCache[Hashable, tuple[str, ...]] = TTLCache(_MAX_FOUND, _VALID_SECONDS, timer=clock)
        self._flights: SingleFlight[Hashable, tuple[str, ...]] = SingleFlight()

    async def suggestions(self, record: DecisionRecord) -> list[tuple[MetricRecord, tuple[str, ...]]]:
        """Return the metrics of a decision that failed, each with similar names, if there are any."""
        found = [(metric, await self.like(metric)) for metric in record.metrics if metric.failure is not None]
        return [(metric, names) for metric, names in found if names]

    async def like(self, metric: MetricRecord) -> tuple[str, ...]:
        """Return the names most like that of a metric, best first; none if it exists, or if discovery fails."""
        if metric.type not in ("Pods", "Object", "External"):
            return ()
        kind = "pod" if metric.described_object is None else metric.described_object.kind.lower()
        key = (metric.type, kind, metric.name)
        if key not in self._found:
            self._found[key] = await self._flights.do(key, lambda: self._close(*key))
        return self._found.get(key, ())

    async def _close(self, type_: str, kind: str, name: str) -> tuple[str, ...]:
        """Compare the names of a list with one."""
        paths = _EXTERNAL_APIS if type_ == "External" else _CUSTOM_APIS
        listed = self._lists.get(paths)
        if listed is None:
            listed = self._lists[paths] = await self._flights.do(paths, lambda: self._list(paths))
        # "networkpolicies" is the resource of "networkpolicy".
        resource = "" if type_ == "External" else kind[:-1]
        return await asyncio.to_thread(_similar, name, resource, listed)

    async def _list(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            with contextlib.suppress(KubeError, StatusError):
                entries = (await self._get(path)).get("resources")
                return tuple(_names(entries))[:_MAX_NAMES]
        return ()


def _names(entries: object) -> Iterator[str]:
    """Yield the names of an APIResourceList: "pods/requests", "services/requests"; "queue" of an external metric."""
    for entry in entries if isinstance(entries, list) else ():
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and len(name) <= _MAX_LENGTH:
            yield name


def _similar(name: str, resource: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Return names like one, of resources that begin like `resource`; none if the name is among them."""
    pairs = (each.rpartition("/") for each in listed)
    names = list(dict.fromkeys(metric for of, _, metric in pairs if of.startswith(resource)))
    if name in names or len(name) > _MAX_LENGTH:
        return ()
    return tuple(difflib.get_close_matches(name, names, n=_SUGGESTIONS, cutoff=_CUTOFF))
