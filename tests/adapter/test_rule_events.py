"""Events about HPAs and ConfigMaps whose rules are not served, as `kubectl describe` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.rules.objects import Tenancy
from tests.adapter.rule_objects_env import CONFIG_MAPS, Cluster, rule_objects_cluster
from tests.adapter.test_hpa_annotations import HPAS, KUBERNETES, OWN, QUERY, create_hpa, external
from tests.eventually import eventually

OPTIONS = RuleObjectOptions(config_maps=True, hpa_annotations=True, tenancy=Tenancy(own_namespace="milliscale"))
NAMESPACES = ("shop", "bank", "milliscale")
EVENTS = "/api/v1/namespaces/shop/events"
INVALID = "externalRules: [{name: queue, query: sum(queue), nan: perhaps}]"
VALID = "externalRules: [{name: queue, query: sum(queue)}]"
LISTED = """externalRules: [{seriesQuery: 'queue{namespace!=""}', metricsQuery: 'sum(<<.Series>>)'}]"""


async def events(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cluster.admin.get(EVENTS))["items"]
    return sorted(found, key=lambda one: str(one["metadata"]["name"]))


async def has_events(cluster: Cluster, *expected: tuple[str, str, int]) -> list[dict[str, Any]]:
    """Wait until the namespace has events about these objects with these reasons and counts."""

    async def check() -> list[dict[str, Any]]:
        found = await events(cluster)
        seen = sorted((one["involvedObject"]["name"], one["reason"], one["count"]) for one in found)
        assert seen == sorted(expected)
        return found

    return await eventually(check, every=0.02)


async def set_rules(cluster: Cluster, name: str, text: str) -> None:
    await cluster.admin.patch(f"{CONFIG_MAPS.format('shop')}/{name}", {"data": {"rules.yaml": text}})


@pytest.mark.parametrize("api", [KUBERNETES, OWN])
async def test_hpa_with_an_invalid_annotation_gets_an_event_that_names_it(tmp_path: Path, api: str) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS, namespaces=NAMESPACES) as cluster:
        metrics = external("fine", type="prometheus"), external("rps", type="prometheus")
        annotations = {QUERY.format("fine", "query"): "sum(rps)", QUERY.format("rps", "query"): " "}
        await create_hpa(cluster, "web", *metrics, annotations=annotations, api=api)
        [event] = await has_events(cluster, ("web", "Invalid", 1))
        uid = (await cluster.admin.get(f"{HPAS.format(api, 'shop')}/web"))["metadata"]["uid"]
    about = event["involvedObject"]
    kind = "HorizontalPodAutoscaler"
    assert (about["apiVersion"], about["kind"], about["namespace"], about["uid"]) == (api, kind, "shop", uid)
    assert (event["type"], event["source"]) == ("Warning", {"component": "milliscale-adapter"})
    annotation = "metric-config.external.rps.prometheus/query"
    assert event["message"] == f"metrics[1]: {annotation}: this annotation is required"


async def test_event_is_written_once_until_the_reason_changes(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS, namespaces=NAMESPACES) as cluster:
        await cluster.create_config_map("queue", {"rules.yaml": INVALID})
        [event] = await has_events(cluster, ("queue", "Invalid", 1))
        assert event["message"].startswith("data.rules.yaml: externalRules[0].nan: ")
        await set_rules(cluster, "queue", INVALID.replace("sum(queue)", "max(queue)"))  # the same is wrong
        await cluster.create_config_map("later", {"rules.yaml": INVALID})
        await has_events(cluster, ("queue", "Invalid", 1), ("later", "Invalid", 1))
        await set_rules(cluster, "queue", VALID)
        await cluster.has_external("queue")
        await set_rules(cluster, "queue", INVALID)
        await has_events(cluster, ("queue", "Invalid", 2), ("later", "Invalid", 1))


async def test_rule_whose_metric_another_rule_makes_gets_an_event(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path, options=OPTIONS, namespaces=NAMESPACES) as cluster:
        await cluster.create_config_map("a", {"rules.yaml": VALID})
        await cluster.has_external("queue")
        await cluster.create_config_map("b", {"rules.yaml": VALID})
        [event] = await has_events(cluster, ("b", "Conflict", 1))
        assert (
            event["message"] == "queue is made by ConfigMap shop/a, which comes first: the older object, then by name"
        )
        await cluster.reload(VALID)
        found = await has_events(cluster, ("a", "Conflict", 1), ("b", "Conflict", 1), ("b", "Conflict", 1))
        assert {one["message"].partition(" is made by ")[2].partition(",")[0] for one in found} == {
            "ConfigMap shop/a",
            "externalRules[0] of the rules file",
        }


async def test_event_does_not_tell_addresses_of_servers(tmp_path: Path) -> None:
    """Another object, with one rule too many, gets an event for that."""
    options = RuleObjectOptions(config_maps=True, tenancy=Tenancy(max_rules=1, own_namespace="milliscale"))
    async with rule_objects_cluster(tmp_path, options=options, namespaces=NAMESPACES) as cluster:
        cluster.prometheus.found['queue{namespace!=""}'] = "dial tcp 10.1.2.3:9090: refused"
        await cluster.create_config_map("a", {"rules.yaml": LISTED})
        [event] = await has_events(cluster, ("a", "QueryFailed", 1))
        assert "dial tcp ADDRESS: refused" in event["message"]
        await cluster.create_config_map("b", {"rules.yaml": VALID})
        await has_events(cluster, ("a", "QueryFailed", 1), ("b", "TooManyRules", 1))


async def test_pending_rule_and_one_whose_prometheus_is_away_get_no_event(tmp_path: Path) -> None:
    async with rule_objects_cluster(
        tmp_path, options=OPTIONS, namespaces=NAMESPACES, prometheus_url="http://127.0.0.1:1"
    ) as cluster:
        await cluster.create_config_map("queue", {"rules.yaml": LISTED})

        async def is_unavailable() -> bool:
            return ("ConfigMap", "PrometheusUnavailable") in await cluster.states()

        await eventually(is_unavailable, every=0.02)
        await cluster.create_config_map("later", {"rules.yaml": INVALID})
        await has_events(cluster, ("later", "Invalid", 1))
