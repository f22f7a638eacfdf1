"""The URLs of the pages, and of the adapter's page about a metric."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from autoscaler.core.model import KUBERNETES, HPAKey
from autoscaler.records.record import MetricRecord


def hpa_url(key: HPAKey, *segments: str, **query: str) -> str:
    """Return the URL of an HPA's page, or of one below it; parameters that are empty are left out."""
    path = "/".join(quote(each, safe="") for each in (key.namespace, key.name, *segments))
    group = "" if key.group == KUBERNETES.group else key.group
    parameters = urlencode({name: value for name, value in {"group": group, **query}.items() if value})
    return f"/hpas/{path}?{parameters}" if parameters else f"/hpas/{path}"


def adapter_metric_path(metric: MetricRecord, namespace: str) -> str:
    """Return the path of the adapter's page that explains a metric of an HPA; empty if it is none of the adapter's."""
    described = metric.described_object
    if metric.type == "Pods":
        resource = "pods"
    elif metric.type == "External":
        resource = "external"
    elif described is not None:
        group = described.api_version.rpartition("/")[0]
        resource = f"{described.kind.lower()}.{group}".rstrip(".")
    else:
        return ""
    parameters = {"metric": f"{resource}/{metric.name}", "namespace": namespace}
    if described is not None:
        parameters["name"] = described.name
    if metric.selector is not None and metric.selector.match_labels:
        labels = metric.selector.match_labels.items()
        parameters["metricLabelSelector"] = ",".join(f"{name}={value}" for name, value in labels)
    return f"/metric?{urlencode(parameters)}"
