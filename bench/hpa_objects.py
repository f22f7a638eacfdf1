"""The objects of the benchmark's cluster: apps of one Deployment, some pods and one HPA with a Pods metric each."""

from __future__ import annotations

import base64
from typing import Any

from bench.hpa_pods import running_pod

METRIC = "load"
TARGET_MILLI = 1000
TENANT = "bench-tenant"
"""A namespace whose metrics are slow or many."""
GROUP = "custom.metrics.k8s.io"
_SERVICE = {"name": "metrics", "namespace": "default"}


def namespace_objects(count: int) -> list[dict[str, Any]]:
    """Return so many namespaces."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(number, count)}}
        for number in range(count)
    ] + [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}]


def namespace_of(number: int, count: int) -> str:
    """Return the namespace of an app."""
    return f"bench-{number % count:03}"


def app_objects(namespace: str, app: str, pods: list[str], *, metrics: int = 1) -> list[dict[str, Any]]:
    """Return ready pods, their Deployment and its HPA with so many metrics."""
    return [
        *(running_pod(namespace, app, pod) for pod in pods),
        _deployment(namespace, app, len(pods)),
        _hpa(namespace, app, metrics),
    ]


def metrics_api_objects(*, port: int, ca: bytes) -> list[dict[str, Any]]:
    """Return the registration of a custom metrics API at a port of localhost."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _SERVICE,
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta2.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": "v1beta2",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": base64.b64encode(ca).decode(),
                "service": {**_SERVICE, "port": port},
            },
        },
    ]


def _deployment(namespace: str, app: str, replicas: int) -> dict[str, Any]:
    labels = {"app": app}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        "status": {"replicas": replicas},
    }


def _hpa(namespace: str, app: str, metrics: int) -> dict[str, Any]:
    names = [METRIC, *(f"{METRIC}_{number}" for number in range(1, metrics))]
    target = {"type": "AverageValue", "averageValue": f"{TARGET_MILLI}m"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": app, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": name}, "target": target}} for name in names],
        },
    }
