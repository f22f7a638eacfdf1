"""What KEDA 2.20 does with a ScaledObject that has Prometheus triggers: its HPA, its metrics, and its activation.

Upstream: controllers/keda/hpa.go, pkg/scalers/prometheus_scaler.go, pkg/scaling/executor/scale_scaledobjects.go.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from playground.certs import CertificateAuthority
from tests.web_servers import served, server_tls

_LABEL = "scaledobject.keda.sh/name"
_COMPOSITE = "composite-metric"
_NAMES_AND_NUMBERS = re.compile(r"[\w\s.+*()-]+")
ScaledObject = Mapping[str, Any]


def keda_hpa(scaled: ScaledObject) -> dict[str, Any]:
    """Return the HPA that KEDA makes."""
    spec, metadata, modifiers = scaled["spec"], scaled["metadata"], _modifiers(scaled)
    targets = (
        {_COMPOSITE: modifiers["target"]}
        if modifiers
        else {_name(scaled, one): one["metadata"]["threshold"] for one in spec["triggers"]}
    )
    behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior")
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{metadata['name']}", "namespace": metadata["namespace"]},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]},
            "minReplicas": max(spec.get("minReplicaCount", 0), 1),
            "maxReplicas": spec.get("maxReplicaCount", 100),
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": name, "selector": {"matchLabels": {_LABEL: metadata["name"]}}},
                        "target": {"type": "AverageValue", "averageValue": _quantity(float(target))},
                    },
                }
                for name, target in targets.items()
            ],
            **({"behavior": behavior} if behavior else {}),
        },
    }


def activated(scaled: ScaledObject, values: Mapping[str, float], replicas: int) -> int:
    """Return the replicas after KEDA's operator has polled the triggers, once the cooldown period is over."""
    spec, modifiers = scaled["spec"], _modifiers(scaled)
    thresholds = {_name(scaled, one): float(one["metadata"].get("activationThreshold", 0)) for one in spec["triggers"]}
    if modifiers:
        thresholds = {_COMPOSITE: float(modifiers.get("activationTarget", 0))}
    active = any(values[name] > threshold for name, threshold in thresholds.items())
    least, idle = spec.get("minReplicaCount", 0), spec.get("idleReplicaCount")
    if active:
        starts = replicas == 0 or (idle is not None and replicas < least)
        return max(least, 1) if starts else replicas
    if idle is not None:
        return min(replicas, int(idle))
    return 0 if least == 0 else max(replicas, least)


async def metric_values(scaled: ScaledObject, prometheus_url: str) -> dict[str, float]:
    """Return the values of the metrics that KEDA serves for a ScaledObject, by name."""
    triggers = scaled["spec"]["triggers"]
    values = {_name(scaled, one): await _query(prometheus_url, one["metadata"]["query"]) for one in triggers}
    modifiers = _modifiers(scaled)
    if not modifiers:
        return values
    assert _NAMES_AND_NUMBERS.fullmatch(modifiers["formula"])
    named = {one["name"]: values[_name(scaled, one)] for one in triggers}
    return {_COMPOSITE: float(eval(modifiers["formula"], {"__builtins__": {}}, named))}


@asynccontextmanager
async def keda_metrics_server(
    folder: Path, find: Callable[[str, str], ScaledObject], prometheus_url: str
) -> AsyncIterator[dict[str, Any]]:
    """Serve external metrics of ScaledObjects as KEDA does; yield the `forwardExternal` for it.

    Args:
        folder: for certificates.
        find: returns the ScaledObject of a namespace and a name.
        prometheus_url: where the triggers' queries go.
    """

    async def respond(request: web.Request) -> web.Response:
        kind = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}}
        selector = request.query.get("labelSelector", "")
        if not selector.startswith(f"{_LABEL}="):
            return web.json_response({**kind, "items": []})
        scaled = find(request.match_info["namespace"], selector.removeprefix(f"{_LABEL}="))
        values, name = await metric_values(scaled, prometheus_url), request.match_info["metric"]
        item = {"metricName": name, "metricLabels": None, "timestamp": None, "value": _quantity(values[name])}
        return web.json_response({**kind, "items": [item]})

    authority = CertificateAuthority.create("keda")
    pair = authority.issue("keda", hosts=["localhost"], server=True)
    await asyncio.to_thread((folder / "keda-ca.crt").write_bytes, authority.cert_pem)
    application = web.Application()
    application.router.add_get("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}", respond)
    async with served(application, tls=server_tls(pair, folder), host="localhost") as url:
        yield {"url": url, "caFile": str(folder / "keda-ca.crt")}


def _modifiers(scaled: ScaledObject) -> dict[str, str]:
    found: dict[str, str] = scaled["spec"].get("advanced", {}).get("scalingModifiers", {})
    return found


def _name(scaled: ScaledObject, trigger: Mapping[str, Any]) -> str:
    return f"s{scaled['spec']['triggers'].index(trigger)}-prometheus"


def _quantity(value: float) -> str:
    """Return a value as KEDA sends it: with three decimals, and zero instead of a negative one."""
    return f"{max(value, 0.0):.3f}"


async def _query(prometheus_url: str, query: str) -> float:
    """Return the value of a query, with `ignoreNullValues: "true"`."""
    async with (
        aiohttp.ClientSession(prometheus_url) as session,
        session.get("/api/v1/query", params={"query": query}) as response,
    ):
        result = (await response.json())["data"]["result"]
    assert len(result) <= 1, "prometheus query returned multiple elements"
    value = float(result[0]["value"][1]) if result else 0.0
    return value if math.isfinite(value) else 0.0
