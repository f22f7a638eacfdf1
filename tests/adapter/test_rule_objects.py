"""Rules in objects of the cluster, through the served adapter: MetricRules, ClusterMetricRules and ConfigMaps."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.rule_objects import controller
from adapter.rules.objects import Tenancy
from adapter.settings import RuleObjectSettings, Settings
from kube.cache.store import Store
from tests.adapter.rule_objects_env import CONFIG_MAPS, CUSTOM, METRIC_RULES, OWN, Cluster, rule_objects_cluster
from tests.eventually import eventually

QUEUE = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}


@pytest.fixture
def changes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has changed is effective at once, not only when all is compared again a second later."""
    monkeypatch.setattr(controller, "_COMPARE_SECONDS", 3600.0)


async def test_metric_rule_serves_its_own_namespace_only(tmp_path: Path) -> None:
    """A ClusterMetricRule serves all."""
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_external("queue_length", "42")
        assert await cluster.external("queue_length", namespace="bank") == 404
        assert "queue_length" in await cluster.listed()
        await cluster.create_rule("everywhere", {**QUEUE, "metric": "other"}, namespace="")
        await cluster.has_external("other", "42", namespace="bank")
        assert await cluster.external("other") == ["42"]


@pytest.mark.usefixtures("changes_alone")
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


LONG = {
    "seriesQuery": "jobs_waiting",
    "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}


@pytest.mark.usefixtures("changes_alone")
async def test_long_rules_make_metrics_of_the_series_that_they_find(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        prometheus = cluster.prometheus
        prometheus.found["jobs_waiting"] = [{"__name__": "jobs_waiting", "namespace": "shop", "pod": "web-1"}]
        prometheus.results |= {
            'sum(jobs_waiting{namespace="shop",pod="web-1"}) by (pod)': [({"pod": "web-1"}, "5")],
            'sum(jobs_waiting{namespace="shop"}) by ()': [({}, "9")],
        }
        await cluster.create_rule("pods", {"type": "Pods", **LONG})
        await cluster.create_rule("external", {"type": "External", **LONG})
        await cluster.has_external("jobs_waiting", "9")
        assert await cluster.custom("namespaces/shop/pods/web-1/jobs_waiting") == {"web-1": "5"}
        assert await cluster.custom("namespaces/bank/pods/web-1/jobs_waiting") == 404
        assert await cluster.external("jobs_waiting", namespace="bank") == 404


RULES_TEXT = "externalRules: [{name: queue_length, query: sum(queue)}, {name: other, query: max(queue)}]"


async def test_config_map_has_rules_for_its_namespace(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_config_map("rules", {"rules.yaml": RULES_TEXT})
        await cluster.create_config_map("unlabelled", {"rules.yaml": RULES_TEXT}, namespace="bank", label="false")
        await cluster.has_external("queue_length", "42")
        assert await cluster.external("queue_length", namespace="bank") == 404


async def test_rules_file_wins_over_objects_also_after_a_reload(tmp_path: Path) -> None:
    rules = "externalRules: [{name: queue_length, query: file}]"
    async with rule_objects_cluster(tmp_path, rules=rules) as cluster:
        cluster.prometheus.results |= {"file": [({}, "1")], "sum(queue)": [({}, "42")]}
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_states(Conflict=1)
        assert await cluster.external("queue_length") == ["1"]
        await cluster.reload("{}")
        await cluster.has_external("queue_length", "42")
        await cluster.has_states(Ready=1)
        await cluster.reload(rules)
        await cluster.has_external("queue_length", "1")
        await cluster.has_states(Conflict=1)


async def test_rule_of_the_file_wins_over_an_object_once_it_finds_series(tmp_path: Path) -> None:
    """And the object's metric is served again once there are none."""
    rules = "externalRules: [{seriesQuery: queue_length, metricsQuery: file, resources: {namespaced: false}}]"
    async with rule_objects_cluster(tmp_path, rules=rules, relist_interval=0.1) as cluster:
        cluster.prometheus.results |= {"file": [({}, "1")], "sum(queue)": [({}, "42")]}
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_states(Ready=1)
        assert await cluster.external("queue_length") == ["42"]
        cluster.prometheus.found["queue_length"] = [{"__name__": "queue_length"}]
        await cluster.has_states(Conflict=1)
        assert await cluster.external("queue_length") == ["1"]
        del cluster.prometheus.found["queue_length"]
        await cluster.has_states(Ready=1)
        assert await cluster.external("queue_length") == ["42"]


async def test_invalid_object_affects_no_other(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("broken", {**QUEUE, "metric": "a/b"})
        await cluster.create_rule("queue", QUEUE)
        await cluster.has_external("queue_length", "42")
        await cluster.has_states(Ready=1, Invalid=1)
        await cluster.admin.patch(f"{METRIC_RULES.format('shop')}/broken", {"spec": {"metric": "ab"}})
        await cluster.has_external("ab", "42")
        await cluster.has_states(Ready=2)


async def test_namespace_has_a_maximum_of_rules(tmp_path: Path) -> None:
    """Those of the oldest objects are used; each rule of a ConfigMap counts; other namespaces are not affected."""
    options = RuleObjectOptions(metric_rules=True, config_maps=True, tenancy=Tenancy(max_rules=2, own_namespace=OWN))
    async with rule_objects_cluster(tmp_path, options=options) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_config_map("rules", {"rules.yaml": RULES_TEXT})
        await cluster.create_rule("third", {**QUEUE, "metric": "third"})
        await cluster.create_rule("queue", QUEUE, namespace="bank")
        await cluster.has_states(Ready=1, TooManyRules=1)
        assert await cluster.external("third") == 404
        assert await cluster.external("queue_length", namespace="bank") == ["42"]
        await cluster.admin.delete(f"{CONFIG_MAPS.format('shop')}/rules")
        await cluster.has_external("third", "42")
        await cluster.has_states(Ready=2)


async def test_config_maps_of_the_adapters_namespace_have_any_number_of_rules_for_all_namespaces(
    tmp_path: Path,
) -> None:
    options = RuleObjectOptions(config_maps=True, tenancy=Tenancy(max_rules=1, own_namespace=OWN))
    async with rule_objects_cluster(tmp_path, options=options) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_config_map("a", {"rules.yaml": RULES_TEXT}, namespace=OWN)
        rule = "externalRules: [{name: b, query: sum(queue)}]"
        await cluster.create_config_map("b", {"rules.yaml": rule}, namespace=OWN)
        for namespace in ("shop", "bank"):
            await cluster.has_external("b", "42", namespace=namespace)
        assert await cluster.states() == {("ConfigMap", "Ready"): 2}


async def test_series_of_rules_beyond_the_maximum_are_not_listed_until_there_is_room(tmp_path: Path) -> None:
    options = RuleObjectOptions(metric_rules=True, tenancy=Tenancy(max_rules=1, own_namespace=OWN))
    async with rule_objects_cluster(tmp_path, options=options) as cluster:
        await cluster.create_rule("a", {"type": "External", **LONG, "seriesQuery": "first"})
        await cluster.has_states(Ready=1)
        await cluster.create_rule("b", {"type": "External", **LONG})
        await cluster.has_states(Ready=1, TooManyRules=1)
        assert set(cluster.prometheus.listed) == {"first"}
        cluster.prometheus.found["jobs_waiting"] = [{"__name__": "jobs_waiting", "namespace": "shop"}]
        await cluster.admin.delete(f"{METRIC_RULES.format('shop')}/a")
        await cluster.has_states(Ready=1)
        assert await cluster.listed() == {"jobs_waiting"}


@pytest.mark.usefixtures("changes_alone")
async def test_object_names_a_server_of_the_rules_file(tmp_path: Path) -> None:
    """After a reload it uses the new definition; it is invalid while there is none."""
    with_server = "prometheusServers: {other: {url: PROMETHEUS, tenants: true, headers: {X-Version: '%s'}}}"
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_rule("queue", {**QUEUE, "prometheus": "other"})
        await cluster.has_states(Invalid=1)
        for version in "1", "2":
            await cluster.reload(with_server % version)
            await cluster.has_external("queue_length", "42")
            await eventually(functools.partial(uses_version, cluster, version), every=0.02)
        await cluster.reload("{}")
        await cluster.has_no_external("queue_length")


async def test_object_with_too_many_rules_leaves_room_for_younger_ones(tmp_path: Path) -> None:
    options = RuleObjectOptions(metric_rules=True, config_maps=True, tenancy=Tenancy(max_rules=1, own_namespace=OWN))
    async with rule_objects_cluster(tmp_path, options=options) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_config_map("a-rules", {"rules.yaml": RULES_TEXT})
        await cluster.create_rule("third", {**QUEUE, "metric": "third"})
        await cluster.has_external("third", "42")
        assert (await cluster.states())["ConfigMap", "TooManyRules"] == 1
        reply = await cluster.adapter.request_as_master("/debug/rules")
        assert "it has more than 1 rules, the most that a namespace can have" in reply.body.decode()


async def uses_version(cluster: Cluster, version: str) -> bool:
    await cluster.external("queue_length")
    return cluster.prometheus.headers[-1].get("X-Version") == version


async def test_metric_rule_can_be_about_its_namespace_but_not_about_cluster_scoped_objects(tmp_path: Path) -> None:
    orders = {"type": "Object", "metric": "orders", "query": "orders", "labels": {"ns": "namespace"}}
    heat = {"type": "Object", "metric": "heat", "query": "heat", "labels": {"node": "node"}}
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.results["orders"] = [({"ns": "shop"}, "3"), ({"ns": "bank"}, "4")]
        cluster.prometheus.results["heat"] = [({"node": "n1"}, "3")]
        await cluster.create_rule("orders", orders)
        await cluster.create_rule("heat", heat)
        await cluster.has_states(Ready=1, Invalid=1)
        assert await cluster.custom("namespaces/shop/metrics/orders") == {"shop": "3"}
        assert await cluster.custom("namespaces/bank/metrics/orders") == 404
        assert await cluster.custom("namespaces/*/metrics/orders") == 404
        assert await cluster.custom("nodes/n1/heat") == 404
        await cluster.create_rule("heat", heat, namespace="")

        async def is_served() -> bool:
            return await cluster.custom("nodes/n1/heat") == {"n1": "3"}

        await eventually(is_served, every=0.02)


def found(*names: str) -> list[dict[str, str]]:
    return [{"__name__": name, "namespace": "shop"} for name in names]


def long_rule(selector: str) -> dict[str, object]:
    return {"type": "External", **LONG, "seriesQuery": selector}


def limited(*, max_metrics: int = 1000, total_metrics: int = 20_000) -> RuleObjectOptions:
    tenancy = Tenancy(own_namespace=OWN, max_metrics=max_metrics, total_metrics=total_metrics)
    return RuleObjectOptions(metric_rules=True, tenancy=tenancy)


async def test_namespace_has_a_maximum_of_metrics(tmp_path: Path) -> None:
    """The oldest objects are used; a younger one that fits is, too; other namespaces are not affected."""
    async with rule_objects_cluster(tmp_path, options=limited(max_metrics=3), relist_interval=0.1) as cluster:
        cluster.prometheus.found |= {"ab": found("a", "b"), "cd": found("c", "d"), "e": found("e")}
        await cluster.create_rule("ab", long_rule("ab"))
        await cluster.has_states(Ready=1)
        await cluster.create_rule("cd", long_rule("cd"))
        await cluster.has_states(Ready=1, TooManyMetrics=1)
        await cluster.create_rule("e", long_rule("e"))
        await cluster.create_rule("cd", long_rule("cd"), namespace="bank")
        await cluster.has_states(Ready=3, TooManyMetrics=1)
        assert await cluster.listed() == {"a", "b", "c", "d", "e"}
        assert await cluster.external("c") == 404
        assert await cluster.external("c", namespace="bank") == []
        reply = await cluster.adapter.request_as_master("/debug/rules")
        assert "it makes 2 metrics; with those of older objects its namespace would have more than 3" in (
            reply.body.decode()
        )
        # The series of one without room are listed, too, so it is used as soon as it makes fewer.
        cluster.prometheus.found["ab"] = found("a")
        await cluster.has_states(Ready=3, TooManyMetrics=1)
        cluster.prometheus.found["cd"] = found("c")
        await cluster.has_states(Ready=4)
        assert await cluster.external("c") == []


async def test_no_namespace_takes_the_share_of_another(tmp_path: Path) -> None:
    """Of four metrics for all, a namespace that came late with one gets it; the greedy one loses its youngest."""
    async with rule_objects_cluster(tmp_path, options=limited(total_metrics=4)) as cluster:
        cluster.prometheus.found |= {"ab": found("a", "b"), "cd": found("c", "d"), "e": found("e")}
        await cluster.create_rule("ab", long_rule("ab"))
        await cluster.has_states(Ready=1)
        await cluster.create_rule("cd", long_rule("cd"))
        await cluster.has_states(Ready=2)
        await cluster.create_rule("e", long_rule("e"), namespace="bank")
        await cluster.has_states(Ready=2, TooManyMetrics=1)
        assert await cluster.listed() == {"a", "b", "e"}
        reply = await cluster.adapter.request_as_master("/debug/rules")
        assert "more than 3, its share for now: all objects together can make 4" in reply.body.decode()
        await cluster.admin.delete(f"{METRIC_RULES.format('bank')}/e")
        await cluster.has_states(Ready=2)
        assert await cluster.listed() == {"a", "b", "c", "d"}


async def test_rules_for_all_namespaces_come_before_the_shares(tmp_path: Path) -> None:
    async with rule_objects_cluster(tmp_path, options=limited(total_metrics=4)) as cluster:
        cluster.prometheus.found |= {"ab": found("a", "b"), "cd": found("c", "d"), "e": found("e")}
        await cluster.create_rule("cd", long_rule("cd"))
        await cluster.create_rule("e", long_rule("e"), namespace="bank")
        await cluster.has_states(Ready=2)
        await cluster.create_rule("ab", long_rule("ab"), namespace="")
        await cluster.has_states(TooManyMetrics=1, Ready=1)
        assert await cluster.listed() == {"a", "b", "e"}


async def test_objects_of_a_namespace_have_a_longest_total(tmp_path: Path) -> None:
    """One without room is not kept, and says so; small namespaces always have room."""
    settings = Settings(rule_objects=RuleObjectSettings(namespace_bytes=50_000, total_bytes=60_000))
    long = {"rules.yaml": f"externalRules: [{{name: long, query: '{'x' * 40_000}'}}]"}
    options = RuleObjectOptions(metric_rules=True, config_maps=True, tenancy=Tenancy(own_namespace=OWN))
    async with rule_objects_cluster(tmp_path, options=options, settings=settings) as cluster:
        cluster.prometheus.results["sum(queue)"] = [({}, "42")]
        await cluster.create_config_map("a", long)
        await cluster.create_config_map("b", long)
        await cluster.create_config_map("c", long, namespace="bank")
        await cluster.create_rule("queue", QUEUE, namespace="bank")
        await cluster.has_external("queue_length", "42", namespace="bank")
        assert await cluster.states() == {
            ("ConfigMap", "Ready"): 1,
            ("ConfigMap", "TooManyRules"): 2,
            ("MetricRule", "Ready"): 1,
        }
        reply = await cluster.adapter.request_as_master("/debug/rules")
        assert "it is not read: the objects with rules of its namespace have more than" in reply.body.decode()


async def test_small_namespaces_have_room_and_others_are_read_again_after_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(rule_objects=RuleObjectSettings(total_bytes=60_000))
    lists, list_again = 0, Store.list_again

    def counted(store: Store[Any]) -> None:
        nonlocal lists
        lists += 1
        list_again(store)

    monkeypatch.setattr(Store, "list_again", counted)
    options = RuleObjectOptions(config_maps=True, tenancy=Tenancy(own_namespace=OWN))
    async with rule_objects_cluster(tmp_path, options=options, settings=settings) as cluster:

        async def has_states(**states: int) -> None:
            async def check() -> bool:
                return await cluster.states() == {("ConfigMap", state): count for state, count in states.items()}

            await eventually(check, every=0.02)

        for number, (name, namespace, size) in enumerate((("a", "shop", 40_000), ("b", "bank", 25_000))):
            long = f"externalRules: [{{name: long, query: '{'x' * size}'}}]"
            await cluster.create_config_map(name, {"rules.yaml": long}, namespace=namespace)
            await has_states(Ready=number + 1)
        await cluster.create_config_map("c", {"rules.yaml": long}, namespace="shop")
        await has_states(Ready=2, TooManyRules=1)
        assert not lists
        await cluster.admin.delete(f"{CONFIG_MAPS.format('shop')}/a")
        await has_states(Ready=1, TooManyRules=1)
        assert lists


async def test_rule_of_a_namespace_finds_a_limited_number_of_names(tmp_path: Path) -> None:
    """A regular expression may take a millisecond for each; names of more than 1,024 are left out."""
    async with rule_objects_cluster(tmp_path) as cluster:
        cluster.prometheus.found["s"] = found("a" * 1025, *(f"b{number}" for number in range(2001)))
        await cluster.create_rule("s", {**long_rule("s"), "seriesFilters": [{"is": "^a"}]})
        await cluster.has_states(Invalid=1)
        filters = {"seriesFilters": [{"is": "a"}] * 17}
        await cluster.create_config_map(
            "filters", {"rules.yaml": msgspec.json.encode({"externalRules": [{**FILE_RULE, **filters}]}).decode()}
        )

        async def are_refused() -> bool:
            reply = await cluster.adapter.request_as_master("/debug/rules")
            return b"seriesFilters: there can be 16, and these are 17" in reply.body

        await eventually(are_refused, every=0.02)


FILE_RULE = {"seriesQuery": "s", "metricsQuery": "s"}
