"""Objects that several tests create."""

from collections.abc import Mapping
from typing import Any


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def deployment(
    name: str = "web", *, namespace: str = "default", replicas: int = 2, requests: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A Deployment whose pods have the label app."""
    labels = {"app": name[:63]}
    container = {"name": "c", "image": "i", **({"resources": {"requests": requests}} if requests else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def pod(name: str, *, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def hpa(
    name: str = "web",
    *metrics: Mapping[str, Any],
    target: str = "web",
    namespace: str = "default",
    api: str = "autoscaling/v2",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """An HPA of a Deployment; `spec` has further fields."""
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "apiVersion": api,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace, **({"annotations": annotations} if annotations else {})},
        "spec": {
            "scaleTargetRef": reference,
            "maxReplicas": 5,
            **({"metrics": list(metrics)} if metrics else {}),
            **spec,
        },
    }
