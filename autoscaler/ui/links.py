"""The URLs of the pages, and of the adapter's page about a metric."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from autoscaler.core.model import KUBERNETES, HPAKey
from autoscaler.records.adapter_explanation import metric_parameters
from autoscaler.records.record import MetricRecord


def hpa_url(key: HPAKey, *segments: str, **query: str) -> str:
    """Return the URL of an HPA's page, or of one below it; parameters that are empty are left out."""
    path = "/".join(quote(each, safe="") for each in (key.namespace, key.name, *segments))
    group = "" if key.group == KUBERNETES.group else key.group
    parameters = urlencode({name: value for name, value in {"group": group, **query}.items() if value})
    return f"/hpas/{path}?{parameters}" if parameters else f"/hpas/{path}"


def metric_url(metric: MetricRecord, namespace: str, pods: str = "") -> str:
    """Return the URL of the page about a metric, which is also its path on the adapter's pages; "" if it is not its.

    `pods` is the selector of the scale target.
    """
    parameters = metric_parameters(metric, namespace, pods)
    return f"/metric?{urlencode(parameters)}" if parameters else ""
