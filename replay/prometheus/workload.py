"""The target's pods over time, its replicas, and what its pods request and need to start, by kube-state-metrics."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Final

from adapter.planning.history import HASH_SUFFIX, RANDOM_SUFFIX
from adapter.promql import alternation
from autoscaler.core.model import HPA
from kube.values.fields import quote
from replay.load import ReplayError, Startup
from replay.prometheus.client import Result, ResultSeries
from replay.prometheus.ranges import RangeQuery

_SUFFIXES: Final = {
    "Deployment": f"{HASH_SUFFIX}{RANDOM_SUFFIX}",
    "ReplicaSet": RANDOM_SUFFIX,
    "ReplicationController": RANDOM_SUFFIX,
    "StatefulSet": "-[0-9]+",
}
_DAY_SECONDS: Final = 24 * 3600
_HPA_REPLICAS: Final = "kube_horizontalpodautoscaler_status_current_replicas"
_RESOURCES: Final = ("cpu", "memory")


def replica_sets_query(hpa: HPA, *, range_seconds: int) -> str:
    """Return the query for the ReplicaSets that the target has owned."""
    target = hpa.spec.scale_target_ref
    owner = f"owner_kind={quote(target.kind)},owner_name={quote(target.name)}"
    series = f"kube_replicaset_owner{{namespace={quote(hpa.namespace)},{owner}}}"
    return f"group by (replicaset) (last_over_time({series}[{range_seconds}s]))"


def pods_pattern(hpa: HPA, replica_sets: Iterable[ResultSeries] = ()) -> str:
    """Return a regular expression of the names that the target's pods have had, by the result of `replica_sets_query`.

    Raises:
        ReplayError: names of such pods are not known.
    """
    target = hpa.spec.scale_target_ref
    owned = sorted({one.metric["replicaset"] for one in replica_sets if one.metric.get("replicaset")})
    if owned:
        return f"({alternation(owned)}){RANDOM_SUFFIX}"
    if target.kind not in _SUFFIXES:
        raise ReplayError(
            f"{hpa.key}: the names of the pods of a {target.kind} are not known; give a regular expression with --pods"
        )
    return alternation([target.name]) + _SUFFIXES[target.kind]


def startup_query(hpa: HPA, pods: str, *, range_seconds: int) -> str:
    """Return the query for the median time from a pod's creation until it was ready first, and the number of pods."""
    matchers = f"{{namespace={quote(hpa.namespace)},pod=~{quote(pods)}}}[{range_seconds}s])"
    first, created = (
        f"min by (pod) (min_over_time({name}{matchers})" for name in ("kube_pod_status_ready_time", "kube_pod_created")
    )
    # The first sample of a pod that is older than the range may be of a later readiness.
    young = f"(({first} - {created}) and ({created} > time() - {range_seconds}))"
    both = ((f"quantile(0.5, {young})", "median"), (f"count({young})", "count"))
    return " or ".join(f'label_replace({query}, "figure", "{name}", "", "")' for query, name in both)


def startup_of(result: Result) -> Startup | None:
    """Return the result of `startup_query`; None if no pod's is known, or the values are none of that query."""
    found: dict[str | None, float] = {}
    with contextlib.suppress(ValueError):
        found = {one.metric.get("figure"): float(one.value[1]) for one in result if one.value is not None}
    median, count = found.get("median", math.nan), found.get("count", math.nan)
    if not (0 <= median <= _DAY_SECONDS and math.isfinite(count)):
        return None
    return Startup(round(median * 1000), f"the median of {count:.0f} pods")


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
