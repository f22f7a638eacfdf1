"""Rules of objects below /debug: their list, and `explain` of their metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adapter.commands.rule_object_flags import RuleObjectOptions
from tests.adapter.rule_objects_env import Cluster, rule_objects_cluster

OPTIONS = RuleObjectOptions(metric_rules=True)
QUEUE = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}


async def debug(cluster: Cluster, path: str) -> dict[str, Any]:
    reply = await cluster.adapter.request_as_master(f"/debug/{path}")
    assert reply.status == 200, reply.body
    return dict(reply.json)


async def explained(cluster: Cluster, path: str) -> dict[str, Any]:
    return await debug(cluster, f"metrics/{path}")


async def test_objects_are_listed_with_their_states_and_explain_a_missing_metric_of_their_namespace(
    tmp_path: Path,
) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_external("queue_length", "42")
        await cluster.create_rule("common", {**QUEUE, "metric": "other"}, namespace="")
        await cluster.create_rule("broken", {**QUEUE, "prometheus": "east"}, namespace="bank")
        await cluster.create_rule("last", {**QUEUE, "metric": "last"}, namespace="bank")
        await cluster.has_external("last", "42", namespace="bank")
        listed = (await debug(cluster, "rules"))["objects"]
        assert [(one["kind"], one["namespace"], one["name"], one["reason"]) for one in listed] == [
            ("ClusterMetricRule", "", "common", "Ready"),
            ("MetricRule", "bank", "broken", "Invalid"),
            ("MetricRule", "bank", "last", "Ready"),
            ("MetricRule", "shop", "queue", "Ready"),
        ]
        assert "east" in listed[1]["message"]
        assert listed[3]["metrics"] == ["queue_length"]
        of_shop = (await debug(cluster, "rules?namespace=shop"))["objects"]
        assert [one["name"] for one in of_shop] == ["common", "queue"]
        for namespace, prefix in (
            ("bank", "MetricRule bank/broken is not served (Invalid): spec.prometheus: "),
            ("shop", ""),
        ):
            reasons = (await explained(cluster, f"external/missing?namespace={namespace}"))["reasons"]
            of_objects = [one for one in reasons if "MetricRule" in one]
            assert [one[: len(prefix)] for one in of_objects] == [prefix] * bool(prefix)


async def test_metrics_of_objects_are_explained_for_their_namespace(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS) as cluster:
        cluster.prometheus.results |= {"sum(queue)": [({}, "42")], "rate": [({"pod": "web-1"}, "3")]}
        await cluster.create_rule("rate", {"type": "Pods", "metric": "requests", "query": "rate"})
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_external("queue_length", "42")
        for query in ("", "?namespace=shop"):
            found = await explained(cluster, f"external/queue_length{query}")
            assert (found["rule"], found["example"]["values"][0]["value"]) == ("MetricRule shop/queue", "42")
            assert found["example"]["of"] == "shop"
        missing = await explained(cluster, "external/queue_length?namespace=bank")
        assert (missing["rule"], missing["example"]) == ("", None)
        found = await explained(cluster, "pods/requests?namespace=shop")
        assert found["rule"] == "MetricRule shop/rate"
        assert found["example"]["values"] == [{"of": "shop/web-1", "value": "3"}]


async def test_explain_names_the_objects_that_lose(tmp_path: Path) -> None:
    rules = "externalRules: [{name: common, query: sum(queue)}]"
    async with rule_objects_cluster(tmp_path, rules=rules, options=OPTIONS) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("a", QUEUE)
        await cluster.create_rule("b", QUEUE)
        await cluster.create_rule("c", QUEUE, namespace="bank")
        await cluster.create_rule("d", {**QUEUE, "metric": "common"})
        await cluster.has_external("queue_length", "42", namespace="bank")
        found = await explained(cluster, "external/queue_length?namespace=shop")
        assert (found["rule"], found["hiddenObjects"]) == ("MetricRule shop/a", ["MetricRule shop/b"])
        found = await explained(cluster, "external/common?namespace=shop")
        assert (found["rule"], found["hiddenObjects"]) == ("externalRules[0]", ["MetricRule shop/d"])
