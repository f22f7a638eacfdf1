"""Both processes' own metrics as Markdown, from their registries."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from adapter.forecasts.registry import Forecasts
from adapter.planning.slow_queries import SlowQueries
from adapter.telemetry import Telemetry as AdapterTelemetry
from adapter.telemetry import condition_counts, rule_object_counts
from autoscaler.core.model import HPAKey
from autoscaler.loop.telemetry import Telemetry as AutoscalerTelemetry
from kube.api.retries import RetryMetrics
from kube.security.request_info import RequestInfo, Target
from kube.serving.connection import Connections
from kube.serving.health import Health
from tools.reference.markdown import prose, table

_MOST_LABELS: Final = 8
_PROCESS_PREFIXES: Final = ("process_", "python_")

# Metrics that have no series before something happens in a running process.
_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "horizontal_pod_autoscaler_controller_desired_replicas": ("namespace", "hpa_name"),
    "milliscale_adapter_forecast_failures": ("rule",),
    "milliscale_adapter_forecast_growth": ("rule", "metric", "namespace"),
    "milliscale_adapter_forecast_minutes": ("rule", "outcome"),
    "milliscale_adapter_forecasts": ("rule", "state"),
    "milliscale_adapter_namespace_slow_requests_refused": ("namespace",),
    "rest_client_request_retries": ("code", "verb", "host"),
}

_INTRODUCTION: Final = """\
The metrics of both processes about themselves. Labels of a histogram's buckets (`le`) are left out. How to scrape them,
and the alerts and dashboards that use them: [production.md](../production.md#monitoring).

"""


class _Recorder(CollectorRegistry):
    """A registry that knows its collectors, so that metrics with labels can get a series before they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Register a collector."""
        self.collectors.append(collector)
        super().register(collector)


def adapter_metrics() -> list[Metric]:
    """Return the metrics of the adapter's /metrics, each that has labels with a series."""
    registry = _Recorder()
    telemetry = AdapterTelemetry(registry)
    telemetry.observe(RequestInfo(verb="get", path="/"), lambda *_: True, code=200, seconds=0.1)
    rules = telemetry.rules
    rules.begin(["rules[0]"], digest="", now=0, paused=lambda: [("rules[0]", "cost")])
    for numbers in (rules.series, rules.metrics, rules.relisted):
        numbers["rules[0]",] = 1
    rules.requests["rules[0]", "merged"] = rules.coalesced_queries["rules[0]", "success"] = 1
    rules.observe_freshness("custom.metrics.k8s.io", [1.0])
    for prefix in ("milliscale_adapter", "milliscale_adapter_ui"):
        Connections(limit=1, registry=registry, metrics_prefix=prefix)
    registry.register(SlowQueries(seconds=1))
    registry.register(Forecasts())
    registry.register(RetryMetrics(()))
    registry.register(rule_object_counts(lambda: {("MetricRule", "Ready"): 1}))
    registry.register(condition_counts(lambda: {("MetricRule", "Ready"): 1}))
    return _collected(registry)


def autoscaler_metrics() -> list[Metric]:
    """Return the metrics of the autoscaler's /metrics, each that has labels with a series."""
    registry = _Recorder()
    AutoscalerTelemetry(registry).refused(HPAKey("shop", "web"), seconds=0.1)
    Connections(limit=1, registry=registry, metrics_prefix="milliscale_autoscaler_ui")
    registry.register(RetryMetrics(()))
    return _collected(registry)


def health_metrics() -> list[Metric]:
    """Return the metrics of /metrics/slis of both processes."""
    health = Health(live={}, ready={})
    health.respond(Target.parse("/livez"))
    metrics = text_string_to_metric_families(health.render().decode())
    return [metric for metric in metrics if not metric.name.endswith("_created")]


def label_names(metric: Metric) -> tuple[str, ...]:
    """Return the names of a metric's labels, without those of buckets."""
    for sample in metric.samples:
        return tuple(name for name in sample.labels if name != "le")
    return _LABELS.get(metric.name, ())


def exposed_name(metric: Metric) -> str:
    """Return the name in queries: a counter's has the suffix _total."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def metrics_page() -> str:
    """Return the page, without its title."""
    adapter, autoscaler = adapter_metrics(), autoscaler_metrics()
    common = [metric for metric in adapter if metric.name.startswith(_PROCESS_PREFIXES)]
    return (
        _INTRODUCTION
        + "## The adapter\n\nServed at `/metrics` on `--secure-port`, over HTTPS, to users who may `get` it.\n\n"
        + _rows([metric for metric in adapter if not metric.name.startswith(_PROCESS_PREFIXES)])
        + "## The autoscaler\n\nServed at `/metrics` on `--metrics-port`, over HTTP. Metrics that "
        "kube-controller-manager has, too, have its labels and values.\n\n"
        + _rows([metric for metric in autoscaler if not metric.name.startswith(_PROCESS_PREFIXES)])
        + "## Health checks of both\n\nServed at `/metrics/slis`.\n\n"
        + _rows(health_metrics())
        + "## The process and Python\n\nBoth have `process_*` (on Linux), the adapter also `python_info`.\n\n"
        + _rows(common)
    )


def _collected(registry: _Recorder) -> list[Metric]:
    """Return the metrics, with a series of those that have labels and none yet."""
    for collector in registry.collectors:
        if isinstance(collector, MetricWrapperBase):
            for count in range(1, _MOST_LABELS + 1):
                with contextlib.suppress(ValueError):  # another number of labels
                    collector.labels(*["x"] * count)
    return list(registry.collect())


def _rows(metrics: Sequence[Metric]) -> str:
    rows = [
        (
            f"`{exposed_name(metric)}`",
            metric.type,
            ", ".join(f"`{label}`" for label in label_names(metric)),
            prose(metric.documentation),
        )
        for metric in sorted(metrics, key=exposed_name)
    ]
    return table(("metric", "type", "labels", "meaning"), rows)
