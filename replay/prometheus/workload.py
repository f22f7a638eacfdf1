"""The target's pods over time, the replicas that it had, and what its pods request, by kube-state-metrics."""

from __future__ import annotations

from typing import Final

from adapter.planning.rendering import alternation
from autoscaler.core.model import HPA
from kube.values.fields import quote
from replay.load import ReplayError
from replay.prometheus.client import Result
from replay.prometheus.ranges import RangeQuery

# The hash of a pod template has up to ten characters, the random suffix five.
_SUFFIXES: Final = {
    "Deployment": "-[a-z0-9]{1,10}-[a-z0-9]{5}",
    "ReplicaSet": "-[a-z0-9]{5}",
    "ReplicationController": "-[a-z0-9]{5}",
    "StatefulSet": "-[0-9]+",
}
_HPA_REPLICAS: Final = "kube_horizontalpodautoscaler_status_current_replicas"
_RESOURCES: Final = ("cpu", "memory")


def pods_pattern(hpa: HPA) -> str:
    """Return a regular expression of the names that the target's pods have had.

    Raises:
        ReplayError: names of such pods are not known.
    """
    target = hpa.spec.scale_target_ref
    if target.kind not in _SUFFIXES:
        raise ReplayError(
            f"{hpa.key}: the names of the pods of a {target.kind} are not known; give a regular expression with --pods"
        )
    return alternation([target.name]) + _SUFFIXES[target.kind]


def replicas_query(hpa: HPA, *, ready: bool) -> RangeQuery:
    """Return the query for the real replicas, or for the ready ones."""
    target = hpa.spec.scale_target_ref
    kind = target.kind.lower()
    suffix = (
        ("status_ready_replicas" if kind == "replicaset" else "status_replicas_ready") if ready else ("status_replicas")
    )
    queries = []
    if kind in ("deployment", "statefulset", "replicaset"):
        queries.append(_largest(f"kube_{kind}_{suffix}", namespace=hpa.namespace, **{kind: target.name}))
    if not ready:
        queries.append(_largest(_HPA_REPLICAS, namespace=hpa.namespace, horizontalpodautoscaler=hpa.name))
    return RangeQuery(name="ready replicas" if ready else "replicas", query=" or ".join(queries))


def requests_query(hpa: HPA, pods: str, *, range_seconds: int) -> str:
    """Return the query for the requests of each container; the last ones in a range."""
    matchers = f"namespace={quote(hpa.namespace)},pod=~{quote(pods)},resource=~{quote('|'.join(_RESOURCES))}"
    series = f"kube_pod_container_resource_requests{{{matchers}}}"
    newest = f"max by (container, resource) ({series})"
    return f"{newest} or max by (container, resource) (last_over_time({series}[{range_seconds}s]))"


def requests_of(result: Result) -> dict[str, int]:
    """Return {resource: what a pod requests in milli-values}, and the same of each container as CONTAINER/RESOURCE."""
    requests: dict[str, int] = {}
    for one in result:
        resource, container = one.metric.get("resource", ""), one.metric.get("container", "")
        try:
            milli = round(float(one.value[1] if one.value is not None else "") * 1000)
        except (ValueError, OverflowError) as error:
            raise ReplayError(
                f"the {resource} that pods request is no number in Prometheus; give it with --request"
            ) from error
        requests[f"{container}/{resource}"] = milli
        requests[resource] = requests.get(resource, 0) + milli
    return requests


def _largest(series: str, **labels: str) -> str:
    return f"max({series}{{{','.join(f'{name}={quote(value)}' for name, value in labels.items())}}})"
