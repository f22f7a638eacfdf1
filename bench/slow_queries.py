"""Measure how slow queries of one namespace delay the HPAs of another: `python -m bench.slow_queries`.

Forty HPAs of the namespace `noisy` have queries that take ten seconds, ten of `quiet` have queries that take 20 ms. A
reaction is the time from the change of a quiet HPA's metric to the change of its target's replicas. All times are the
controllers' defaults, except that scaling down has no window. Needs KUBEBUILDER_ASSETS. Prometheus is a fake that
waits.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import click
from aiohttp import web

from bench.processes import KCM, controller, registered_adapter, served
from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.cluster import start_cluster
from playground.kube_apiserver import find_assets

_NOISY, _QUIET = 40, 10
_PERIOD: Final = 15.0
_METRIC: Final = "/apis/external.metrics.k8s.io/v1beta1/namespaces/quiet/depth"
_RULES: Final = """\
externalRules:
- seriesQuery: 'depth{namespace!="",app!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
  merge: never
"""
_APPS: Final = [("noisy", f"noisy-{n}") for n in range(_NOISY)] + [("quiet", f"quiet-{n}") for n in range(_QUIET)]


class _Prometheus:
    """Waits before it responds; `values` are those of the apps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = {"noisy": seconds, "quiet": 0.02}
        self.values = {app: 10.0 for _, app in _APPS}
        self.queries: Counter[str] = Counter()

    async def handle(self, request: web.Request) -> web.Response:
        parameters = {**request.query, **await request.post()}
        if request.path.endswith("/series"):
            series = [{"__name__": "depth", "namespace": namespace, "app": app} for namespace, app in _APPS]
            return web.json_response({"status": "success", "data": series})
        query = str(parameters["query"])
        namespace, app = (re.findall(rf'{label}="([^"]+)"', query)[0] for label in ("namespace", "app"))
        self.queries[namespace] += 1
        await asyncio.sleep(self.seconds[namespace])
        sample = {"metric": {}, "value": [time.time(), str(self.values[app])]}
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})


async def _create(client: KubeClient, namespace: str, app: str) -> None:
    labels = {"app": app}
    container = {"name": "app", "image": "none"}
    metric = {"name": "depth", "selector": {"matchLabels": labels}}
    target = {"type": "AverageValue", "averageValue": "10"}
    scale_target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app}
    await client.post(
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {
            "metadata": {"name": app},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
    )
    await client.post(
        f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers",
        {
            "metadata": {"name": app},
            "spec": {
                "scaleTargetRef": scale_target,
                "maxReplicas": 2,
                "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
            },
        },
    )


async def _reactions(client: KubeClient, prometheus: _Prometheus, app: str, until: float) -> list[float]:
    """Change the metric of an app at random times, and return how long its replicas took to follow, in seconds."""
    path, found = f"/apis/apps/v1/namespaces/quiet/deployments/{app}", []
    replicas = 1
    while time.monotonic() < until:
        await asyncio.sleep(random.uniform(0, _PERIOD))
        replicas = 3 - replicas
        changed = time.monotonic()
        prometheus.values[app] = 10.0 * replicas
        while (await client.get(path))["spec"]["replicas"] != replicas:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.1)
        found.append(time.monotonic() - changed)
    return found


async def _until_served(client: KubeClient) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                await client.get(f"{_METRIC}?labelSelector=app%3Dquiet-0")
            except StatusError:
                await asyncio.sleep(0.5)
            else:
                return


async def _measure(name: str, slow: float, seconds: float, flags: Sequence[str]) -> str:
    if find_assets(os.environ) is None:
        raise click.UsageError("KUBEBUILDER_ASSETS names no directory with kube-apiserver")
    prometheus = _Prometheus(slow)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        cluster = await stack.enter_async_context(start_cluster(folder / "cluster", ready_seconds=0.1))
        client = await stack.enter_async_context(await cluster.client(user_agent="bench"))
        address = await stack.enter_async_context(served(prometheus.handle))
        for namespace in ("noisy", "quiet"):
            await client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        command = [sys.executable, "-m", "adapter", "serve", *flags]
        await stack.enter_async_context(
            registered_adapter(
                client,
                folder,
                admin=cluster.kubeconfig,
                prometheus_url=f"http://{address}",
                rules=_RULES,
                command=command,
            )
        )
        await _until_served(client)
        for namespace, app in _APPS:
            await _create(client, namespace, app)
        window = "--horizontal-pod-autoscaler-downscale-stabilization=1s"
        own = ["--leader-elect=false", "--state-configmap="] if name != KCM else []
        await stack.enter_async_context(controller(name, cluster.kubeconfig, folder, window, *own))
        await asyncio.sleep(2 * _PERIOD)
        prometheus.queries.clear()
        until = time.monotonic() + seconds
        results = await asyncio.gather(
            *(_reactions(client, prometheus, app, until) for namespace, app in _APPS if namespace == "quiet")
        )
        hpas: dict[str, Any] = await client.get("/apis/autoscaling/v2/namespaces/noisy/horizontalpodautoscalers")
    reactions = sorted(reaction for result in results for reaction in result)
    active = sum(
        any(one["type"] == "ScalingActive" and one["status"] == "True" for one in hpa["status"].get("conditions", []))
        for hpa in hpas["items"]
    )
    return (
        f"{name}, queries of {slow:g} s, {' '.join(flags) or 'defaults'}: {len(reactions)} reactions, "
        f"mean {statistics.mean(reactions):.1f} s, median {statistics.median(reactions):.1f} s, "
        f"p95 {reactions[int(0.95 * len(reactions))]:.1f} s, longest {reactions[-1]:.1f} s; "
        f"queries of noisy {prometheus.queries['noisy']}, its HPAs with a value {active} of {_NOISY}"
    )


@click.command(help=__doc__)
@click.argument("adapter_flags", nargs=-1)
@click.option("--controller", "name", default=KCM, show_default=True, help="Or autoscaler.")
@click.option("--slow", default=10.0, show_default=True, help="Seconds that a query of noisy takes.")
@click.option("--seconds", default=180.0, show_default=True, help="Duration of the measurement.")
def main(adapter_flags: tuple[str, ...], name: str, slow: float, seconds: float) -> None:
    """Measure and print."""
    print(asyncio.run(_measure(name, slow, seconds, adapter_flags)), flush=True)


if __name__ == "__main__":
    main()
