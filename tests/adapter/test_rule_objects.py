"""Rules in objects of the cluster, through the served adapter: MetricRules, ClusterMetricRules and ConfigMaps."""

from __future__ import annotations

from pathlib import Path

from tests.adapter.rule_objects_env import CUSTOM, METRIC_RULES, rule_objects_cluster

QUEUE = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}


async def test_metric_rule_serves_its_own_namespace_only(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_external("queue_length", "42")
        assert await cluster.external("queue_length", namespace="bank") == 404
        assert "queue_length" in await cluster.listed()


async def test_cluster_metric_rule_serves_all_namespaces(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("queue", QUEUE, namespace="")
        await cluster.has_external("queue_length", "42")
        assert await cluster.external("queue_length", namespace="bank") == ["42"]


async def test_changed_and_deleted_metric_rules_are_effective(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results |= {"sum(queue)": [({}, "42")], "max(queue)": [({}, "7")]}
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_external("queue_length", "42")
        path = f"{METRIC_RULES.format('shop')}/queue"
        await cluster.admin.patch(path, {"spec": {"query": "max(queue)"}})
        await cluster.has_external("queue_length", "7")
        await cluster.admin.delete(path)
        await cluster.has_no_external("queue_length")
        assert "queue_length" not in await cluster.listed()


async def test_metric_of_pods_needs_no_label_for_the_namespace(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["rate"] = [({"pod": "web-1"}, "3"), ({"pod": "web-2"}, "4")]
        await cluster.create_rule("rate", {"type": "Pods", "metric": "requests", "query": "rate"})
        await cluster.create_rule("last", {**QUEUE, "query": "sum(queue)"})
        cluster.prometheus.results["sum(queue)"] = [({}, "1")]
        await cluster.has_external("queue_length", "1")
        assert await cluster.custom("namespaces/shop/pods/web-2/requests") == {"web-2": "4"}
        assert await cluster.custom("namespaces/bank/pods/web-2/requests") == 404
        assert "pods/requests" in await cluster.listed(CUSTOM)
