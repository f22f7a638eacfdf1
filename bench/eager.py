"""Measure what eager HPAs cost both processes: `python -m bench.eager`.

The autoscaler with --eager evaluates HPAs (`bench.hpa_cluster`) every second, on one metric of the adapter, which
queries a real Prometheus. That scrapes every 5 s, each target at another time; each has the pods of some HPAs. The load
is within the tolerance. If KUBEBUILDER_ASSETS has kube-apiserver, that serves the cluster.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import aiohttp
import click
import msgspec
from aiohttp import web

from bench.figures import cpu_seconds, rss_mib, write_lines
from bench.hpa_cluster import PODS_EACH, Grown, Order, cluster_process
from bench.hpa_objects import GROUP, METRIC, namespace_of
from bench.processes import controller, registered_adapter, served
from bench.reaction_cluster import INSTANT_QUERIES, metric_sum
from kube.api.client import KubeClient
from kube.process.runtime import run
from playground.ports import LOOPBACK, free_port
from playground.prometheus import PrometheusServer, Target

_SCRAPE: Final = 5
_TARGETS: Final = 10
_EVALUATIONS: Final = "horizontal_pod_autoscaler_controller_eager_evaluations_total"
_SCRAPES: Final = "prometheus_target_interval_length_seconds_count"
"""The metric of Prometheus that counts scrapes, except each target's first."""
_RULES: Final = f"""
rules:
- seriesQuery: '{METRIC}_total{{namespace!="",pod!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  name: {{as: {METRIC}}}
  metricsQuery: 'sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[15s])) by (<<.GroupBy>>)'
"""


class Figures(msgspec.Struct, kw_only=True):
    """The costs of eager HPAs."""

    hpas: int
    namespaces: int
    seconds: float
    adapter_cores: float
    autoscaler_cores: float
    adapter_mib: float
    queries_a_minute: float
    """Of Prometheus, which scrapes 12 times a minute."""
    evaluations_a_second: float
    """Of HPAs, between their syncs."""


async def _exporter(stack: AsyncExitStack, number: int, hpas: int, namespaces: int) -> Target:
    """Serve the counters of the pods of a part of the HPAs: one a second each."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            text="".join(
                f'{METRIC}_total{{namespace="{namespace_of(each, namespaces)}",pod="app-{each:05}-{pod}"}}'
                f" {time.time():.3f}\n"
                for each in range(number, hpas, _TARGETS)
                for pod in range(PODS_EACH)
            )
        )

    return Target(address=await stack.enter_async_context(served(metrics)))


async def _measure(folder: Path, *, hpas: int, namespaces: int, warm_up: float, seconds: float) -> Figures:
    async with AsyncExitStack() as stack:
        prometheus = await stack.enter_async_context(PrometheusServer(folder / "prometheus", scrape_interval=_SCRAPE))
        await prometheus.set_targets([await _exporter(stack, each, hpas, namespaces) for each in range(_TARGETS)])
        session = await stack.enter_async_context(aiohttp.ClientSession())
        # An adapter that starts before the first samples are there finds no metric until it lists series again.
        while await metric_sum(session, prometheus.url, _SCRAPES) < _TARGETS:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.5)
        load = await stack.enter_async_context(cluster_process(folder / "cluster", namespaces))
        kubeconfig = Path((await load.send(Order(grow=hpas), Grown)).kubeconfig)
        client = await stack.enter_async_context(await KubeClient.connect(kubeconfig))
        # The adapter's registration replaces that of the cluster's own metrics.
        await client.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.{GROUP}")
        adapter = await stack.enter_async_context(
            registered_adapter(client, folder, admin=kubeconfig, prometheus_url=prometheus.url, rules=_RULES)
        )
        metrics_port = free_port()
        flags = ("--eager=true", "--leader-elect=false", "--state-configmap=")
        autoscaler = await stack.enter_async_context(
            controller("autoscaler", kubeconfig, folder, *flags, port=metrics_port)
        )
        await asyncio.sleep(warm_up)
        figures = []
        for pause in (seconds, 0.0):
            counts = (
                await metric_sum(session, prometheus.url, *INSTANT_QUERIES),
                await metric_sum(session, f"http://{LOOPBACK}:{metrics_port}", _EVALUATIONS),
            )
            figures.append((time.monotonic(), cpu_seconds(adapter.pid), cpu_seconds(autoscaler.pid), *counts))
            await asyncio.sleep(pause)
        path = "/apis/autoscaling/v2/horizontalpodautoscalers"
        found = [one["status"].get("currentMetrics") or [{}] for one in (await client.get(path))["items"]]
        if not all("pods" in metrics[0] for metrics in found):
            raise click.ClickException("some HPAs have no value")
        took, of_adapter, of_autoscaler, queries, evaluations = (new - old for old, new in zip(*figures, strict=True))
        return Figures(
            hpas=hpas,
            namespaces=namespaces,
            seconds=round(took, 1),
            adapter_cores=round(of_adapter / took, 3),
            autoscaler_cores=round(of_autoscaler / took, 3),
            adapter_mib=round(rss_mib(adapter.pid), 1),
            queries_a_minute=round(queries / took * 60, 1),
            evaluations_a_second=round(evaluations / took, 1),
        )


@click.command(help=__doc__)
@click.option("--hpas", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--namespaces", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--warm-up", type=click.FloatRange(0), default=90, show_default=True, help="Seconds before measuring.")
@click.option("--seconds", type=click.FloatRange(1), default=60, show_default=True, help="Seconds to measure.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-eager.jsonl"), show_default=True)
def main(*, hpas: int, namespaces: int, warm_up: float, seconds: float, output: Path) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measured = _measure(Path(folder), hpas=hpas, namespaces=namespaces, warm_up=warm_up, seconds=seconds)
        figures = run(measured)
    print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    write_lines(output, [figures])


if __name__ == "__main__":
    main()
