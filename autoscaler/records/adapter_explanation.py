"""Where a metric comes from: what the adapter explains at /debug/metrics, read through the API server.

The API server forwards that path below the metrics APIs, so that nobody needs to know the adapter's address or CA. The
adapter reviews the right to `get` it for the user that the API server has authenticated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from autoscaler.core.model import MetricIdentifier
from autoscaler.records.record import MetricRecord
from kube.api.client import KubeClient
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
