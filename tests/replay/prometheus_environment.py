"""A real Prometheus with a recorded history, for the tests of the replay's source."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from adapter.prometheus import PrometheusOptions
from playground.prometheus import PrometheusServer, Series, openmetrics
from replay.prometheus.source import PrometheusSettings
from tests.adapter.upstream.aws_services import ReceivedRequest
from tests.replay.threaded_server import Response, threaded_server

START = 1_767_571_200  # 2026-01-05T00:00:00Z
SCRAPE = 15
SECONDS = 2 * 3600
NAMESPACE = "shop"
PODS = ("web-6f7c9d8b5-bcdfg", "web-6f7c9d8b5-ghjkl", "web-85d9fcb67d-lmnpq")
"""Of the Deployment `web`; the third one is there in the second hour, in the place of the second."""
_OTHER_KINDS = ("web-agent-x2k9p", "web-db-x2k9p", "web-29876545-x2k9p", "web-migrate-x2k9p")
"""Of two DaemonSets, a CronJob and a Job. The name web-db could be a short hash after that of `web`."""
OTHERS = ("web-api-5b9f5c4d6-bcdfg", "web-0", "db-0", *_OTHER_KINDS)
GAP = range(START + 3600, START + 4200)
"""When the queue's exporter was down."""

RULES = """
rules:
- seriesQuery: 'packets_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>) # of all ports'
- seriesQuery: 'requests_total{namespace!="",service!=""}'
  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}
  name: {as: requests_per_pod}
  metricsQuery: 'avg(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
- name: latency
  resources: {pod: pod, namespace: namespace}
  query: sum by (namespace, pod) (latency_seconds_sum) / sum by (namespace, pod) (latency_seconds_count)
externalRules:
- seriesQuery: 'queue_depth'
  resources: {namespaced: false}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
- name: all_queues
  query: sum by (queue) (queue_depth)
- name: active_queues
  query: queue_depth
  activation: {threshold: 10}
- name: recently_active_queues
  query: queue_depth * (1 - (queue_depth > bool 62))
  activation: {threshold: 10, for: 10m}
"""


def history() -> list[Series]:
    """Return the recorded series."""
    first, second, third = PODS
    alive = {first: (0, SECONDS), second: (0, 3600), third: (3600, SECONDS)}
    alive |= dict.fromkeys(OTHERS, (0, SECONDS))
    series: list[Series] = []

    def add(
        name: str, value: Callable[[int, str], float], *, pods: tuple[str, ...] = (*PODS, *OTHERS), **labels: str
    ) -> None:
        for pod in pods:
            points = [(float(START + at), value(at, pod)) for at in range(*alive[pod], SCRAPE)]
            series.append(Series(name, {"namespace": NAMESPACE, "pod": pod, **labels}, points))

    add("packets_total", lambda at, pod: at * rate(pod))
    add("packets_ratio", lambda at, pod: rate(pod) + at / SECONDS + 0.0004)
    add("latency_seconds_sum", lambda at, pod: 0.0 if pod == PODS[1] else at * 0.25)
    add("latency_seconds_count", lambda at, pod: 0.0 if pod == PODS[1] else float(at))
    for container, cores in (("app", 0.5), ("proxy", 0.125)):
        add("container_cpu_usage_seconds_total", lambda at, _, cores=cores: at * cores, pods=PODS, container=container)  # type: ignore[misc]
    add("container_cpu_usage_seconds_total", lambda at, _: at * 0.625, pods=PODS, container="")
    for container, mebibytes in (("app", 64), ("proxy", 16)):
        add(
            "container_memory_working_set_bytes",
            lambda at, _, size=mebibytes: float(size * 2**20 + at),  # type: ignore[misc]
            pods=PODS,
            container=container,
        )
    for container, millicores in (("app", 1.0), ("proxy", 0.25)):
        requested = {"container": container, "resource": "cpu", "unit": "core"}
        add("kube_pod_container_resource_requests", lambda _, __, value=millicores: value, pods=PODS, **requested)  # type: ignore[misc]

    def one(name: str, value: Callable[[int], float], *, without: range = range(0), **labels: str) -> None:
        times = [at for at in range(0, SECONDS, SCRAPE) if START + at not in without]
        series.append(Series(name, labels, [(float(START + at), value(at)) for at in times]))

    one("queue_depth", lambda at: float(at // 60), without=GAP, queue="orders", namespace="backend")
    one("queue_depth", lambda _: 7.0, queue="mails", namespace="backend")
    one("requests_total", lambda at: at * 12.0, namespace=NAMESPACE, service="web", instance="a")
    one("requests_total", lambda at: at * 6.0, namespace=NAMESPACE, service="web", instance="b")
    one("jobs_total", lambda at: float(at), namespace=NAMESPACE, service="web")
    created = {PODS[0]: START - 9000, PODS[1]: START - 9000, PODS[2]: START + 3600 - 12}
    for pod, at_created in created.items():
        add("kube_pod_created", lambda _, __, value=at_created: float(value), pods=(pod,))  # type: ignore[misc]
        add("kube_pod_status_ready_time", lambda _, __, value=at_created: value + 42.0, pods=(pod,))  # type: ignore[misc]
    one(
        "kube_replicaset_owner",
        lambda _: 1.0,
        namespace=NAMESPACE,
        replicaset="web-6f7c9d8b5",
        owner_kind="Rollout",
        owner_name="canary",
    )
    one("kube_deployment_status_replicas", lambda at: 2.0 + (at >= 5400), namespace=NAMESPACE, deployment="web")
    one("kube_deployment_status_replicas_ready", lambda at: 2.0 + (at >= 5460), namespace=NAMESPACE, deployment="web")
    return sorted(series, key=lambda one: one.name)


def rate(pod: str) -> float:
    """Return the packets per second of a pod."""
    return {PODS[0]: 100.0, PODS[1]: 40.0, PODS[2]: 60.0}.get(pod, 1000.0)


@contextlib.contextmanager
def running_prometheus(
    folder: Path, *flags: str, recorded: Sequence[Series] | None = None
) -> Iterator[PrometheusServer]:
    """Run Prometheus with the history, or with other recorded series, outside of an event loop."""
    server = PrometheusServer(folder, samples=openmetrics(history() if recorded is None else recorded), flags=flags)
    with asyncio.Runner() as runner:
        runner.run(server.__aenter__())
        try:
            yield server
        finally:
            runner.run(server.stop())


def metric(text: str) -> dict[str, Any]:
    """Return a metric of a spec from YAML: `pods: {metric: ..., target: ...}` and the like."""
    source: dict[str, Any] = yaml.safe_load(text)
    [field] = source
    return {"type": field[0].upper() + field[1:], **source}


def pods_metric(name: str, average: str = "50", selector: str = "") -> dict[str, Any]:
    """Return a Pods metric."""
    return metric(
        f"pods: {{metric: {{name: {name}{selector}}}, target: {{type: AverageValue, averageValue: {average}}}}}"
    )


def settings(url: str, cache: Path, **changes: Any) -> PrometheusSettings:
    """Return settings for the whole history."""
    values: dict[str, Any] = {
        "options": PrometheusOptions(url=url),
        "start_ms": START * 1000,
        "end_ms": (START + SECONDS) * 1000,
        "cache": cache,
        **changes,
    }
    return PrometheusSettings(**values)


@contextlib.contextmanager
def stub_server(
    respond: Callable[[str], tuple[int, str, bytes]],
    *,
    headers: Callable[[dict[str, str]], None] = lambda _: None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Serve what `respond` returns for "METHOD PATH": status, content type, body; yield the URL."""

    def responded(request: ReceivedRequest) -> Response:
        headers(dict(request.headers))
        status, content_type, body = respond(f"{request.method} {request.target}")
        moved = {"Location": "https://login.example/"} if 300 <= status < 400 else {}
        return status, {"Content-Type": content_type, **moved}, body

    with threaded_server(responded, tls=tls) as url:
        yield url
