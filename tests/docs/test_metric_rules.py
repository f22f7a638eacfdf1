"""The rules of docs/metric-rules.md in a served adapter, with a Prometheus that has series of two namespaces."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.rules.objects import Tenancy
from playground.install import apply
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.rule_objects_env import CLUSTER_METRIC_RULES, METRIC_RULES, OWN, Cluster, rule_objects_cluster
from tests.docs.blocks import blocks
from tests.eventually import eventually

PAGE = "docs/metric-rules.md"
KINDS = ("ClusterMetricRule", "ConfigMap", "MetricRule")
EXTERNAL = {"orders_waiting": "30", "carts_open": "7"}
CUSTOM = {
    "pods/web-0/requests_per_second": "2",
    "services/web/requests_per_second": "2",
    "ingresses.networking.k8s.io/web/requests_per_second": "3",
    "pods/web-0/java_threads_live": "40",
    "pods/web-0/http_requests_per_second": "2",
}
"""The metrics of the page, and their values in the namespace `shop`."""


def rules() -> list[dict[str, Any]]:
    """Return the objects with rules on the page."""
    documents = (document for block in blocks("yaml") if block.page == PAGE for document in _documents(block.text))
    return [document for document in documents if document.get("kind") in KINDS]


def _documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]


def samples() -> str:
    """Return series of two namespaces; those of `bank` are a hundred times as large as those of `shop`."""
    now = time.time()
    times = [now - 600 + step for step in range(0, 1201, 10)]

    def series(name: str, value: float, rate: float, **labels: str) -> list[Series]:
        return [
            Series(
                name, {"namespace": space, **labels}, [(at, factor * (value + rate * (at - now + 600))) for at in times]
            )
            for space, factor in (("shop", 1), ("bank", 100))
        ]

    controller = series("nginx_ingress_controller_requests", 0, 3, ingress="web")
    ingress = [
        Series(
            one.name, {**one.labels, "namespace": "ingress", "exported_namespace": one.labels["namespace"]}, one.points
        )
        for one in controller
    ]
    return openmetrics(
        [
            *series("rabbitmq_queue_messages_ready", 30, 0, queue="orders"),
            *series("shop_carts_open", 7, 0),
            *series("http_requests_total", 0, 2, pod="web-0", service="web"),
            *ingress,
            *series("jvm_threads_live", 40, 0, pod="web-0"),
        ]
    )


@pytest.mark.e2e
async def test_rules_of_the_page_serve_values_of_their_namespace(tmp_path: Path) -> None:
    options = RuleObjectOptions(
        metric_rules=True, config_maps=True, tenancy=Tenancy(label="namespace", own_namespace=OWN)
    )
    async with PrometheusServer(tmp_path / "prometheus", samples=samples()) as prometheus:
        file = yaml.safe_dump({"prometheusServers": {"mimir": {"url": prometheus.url}}})
        async with rule_objects_cluster(
            tmp_path, rules=file, options=options, prometheus_url=prometheus.url
        ) as cluster:
            await apply(cluster.admin, rules())
            for metric, value in EXTERNAL.items():
                await cluster.has_external(metric, value)
            for path, value in CUSTOM.items():
                await has_custom(cluster, path, value)
            await are_ready(cluster)
            # Only ClusterMetricRules serve another namespace.
            assert await cluster.external("orders_waiting", namespace="bank") == 404
            assert await cluster.custom("namespaces/bank/pods/web-0/java_threads_live") == 404
            assert await cluster.custom("namespaces/bank/pods/web-0/http_requests_per_second") == {"web-0": "200"}


async def has_custom(cluster: Cluster, path: str, value: str) -> None:
    """Wait until a custom metric of an object in `shop` has a value."""

    async def check() -> bool:
        found = await cluster.custom(f"namespaces/shop/{path}")
        assert found == {path.split("/")[1]: value}, (path, found)
        return True

    await eventually(check, every=0.05)


async def are_ready(cluster: Cluster) -> None:
    """Wait until all rules with a status are Ready, with a value."""

    async def check() -> bool:
        for path in (METRIC_RULES.format("shop"), CLUSTER_METRIC_RULES):
            for rule in (await cluster.admin.get(path))["items"]:
                status = rule.get("status") or {}
                reasons = [condition["reason"] for condition in status.get("conditions") or []]
                assert (reasons, bool(status.get("value"))) == (["Ready"], True), (rule["metadata"]["name"], status)
        return True

    await eventually(check)
