"""The status of MetricRules in a served adapter, as kubectl shows it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.rules.objects import Tenancy
from kube.api.status import StatusError
from tests.adapter.rule_objects_env import METRIC_RULES, Cluster, rule_objects_cluster
from tests.eventually import eventually

QUEUE = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/milliscale/leases/milliscale-adapter-rules"
OPTIONS = RuleObjectOptions(metric_rules=True, tenancy=Tenancy(own_namespace="milliscale"))
NAMESPACES = ("shop", "milliscale")
PATH = METRIC_RULES.format("shop")


async def ready(cluster: Cluster, path: str, reason: str) -> dict[str, Any]:
    """Wait until the condition Ready of an object has a reason; return it."""

    async def check() -> dict[str, Any]:
        [condition] = (await cluster.admin.get(path)).get("status", {}).get("conditions") or [{}]
        assert condition.get("reason") == reason, condition
        return dict(condition)

    return await eventually(check, every=0.02)


async def test_metric_rule_gets_the_status_of_its_check(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS, namespaces=NAMESPACES) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42.5")]
        await cluster.create_rule("queue", QUEUE)
        condition = await ready(cluster, f"{PATH}/queue", "Ready")
        assert (condition["status"], condition["message"]) == ("True", "makes queue_length")
        status = (await cluster.admin.get(f"{PATH}/queue"))["status"]
        assert (status["value"], status["series"], status["metrics"]) == ("42500m", 1, ["queue_length"])
        assert status["queryDuration"].endswith("ms")
        assert (await cluster.admin.get(LEASE))["spec"]["holderIdentity"]
        metrics = (await cluster.adapter.request_as_master("/metrics")).body.decode()
        assert 'milliscale_adapter_rule_object_conditions{kind="MetricRule",reason="Ready"} 1.0' in metrics


async def test_younger_object_says_who_makes_the_metric_and_follows_when_the_older_one_is_deleted(
    tmp_path: Path,
) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS, namespaces=NAMESPACES) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("a", QUEUE)
        await ready(cluster, f"{PATH}/a", "Ready")
        await cluster.create_rule("b", QUEUE)
        condition = await ready(cluster, f"{PATH}/b", "Conflict")
        winner = "MetricRule shop/a, which comes first: the older object, then by name"
        assert condition["message"] == f"queue_length is made by {winner}"
        await cluster.admin.delete(f"{PATH}/a")
        await ready(cluster, f"{PATH}/b", "Ready")


async def test_lease_is_released_at_sigterm_while_requests_are_still_served(tmp_path: Path) -> None:
    """The next writer need not wait for the shutdown delay, and the one that ends does not take the Lease again."""
    running = rule_objects_cluster(tmp_path, options=OPTIONS, namespaces=NAMESPACES, shutdown_delay=3600.0)
    async with running as cluster:

        async def is_held() -> bool:
            try:
                return bool((await cluster.admin.get(LEASE))["spec"]["holderIdentity"])
            except StatusError:
                return False

        await eventually(is_held, every=0.02)
        signal.raise_signal(signal.SIGTERM)

        async def is_released() -> bool:
            return not (await cluster.admin.get(LEASE))["spec"]["holderIdentity"]

        await eventually(is_released, every=0.02)
        assert (await cluster.adapter.request("/livez")).status == 200
        signal.raise_signal(signal.SIGTERM)
