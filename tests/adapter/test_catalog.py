"""The catalog: its lists, its metrics, and rules that fail or overlap."""

from __future__ import annotations

import gc
import logging
import weakref
from pathlib import Path

import pytest
from msgspec import structs

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.catalog.rule_states import RuleState
from adapter.prometheus import PrometheusQueryError, PrometheusUnavailable
from adapter.rules import RulesFile, parse_rules
from kube.api.mapping import GroupResource
from kube.api.status import StatusError
from tests.adapter.metrics_env import (
    RESOURCES,
    CannedPrometheus,
    custom_request,
    external_request,
    metrics_env,
    packets,
    series,
)
from tests.kube.scripted import raw, respond

PODS = GroupResource("", "pods")
DOWN = PrometheusUnavailable("Prometheus cannot be reached: Connection refused")

TWO = parse_rules(
    """
    rules:
    - &rule
      seriesQuery: first
      resources: {template: <<.Resource>>}
      metricsQuery: sum(<<.Series>>)
    - {<<: *rule, seriesQuery: second}
    externalRules:
    - {<<: *rule, seriesQuery: second}
    """,
    source="rules.yaml",
)


async def test_every_metric_of_the_rules_is_listed(tmp_path: Path) -> None:
    rules, prometheus = packets()
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        listed = {str(info): info.namespaced for info in env.catalog.snapshot.custom}
        assert env.catalog.snapshot.external == ("backlog", "queue_depth")
    # As recorded from prometheus-adapter with the same rules and series.
    assert listed == {
        "pods/edge_value": True,
        "pods/ns:conn:sum": True,
        "namespaces/dep_lag": False,
        "namespaces/conn_open": False,
        "pods/conn_open": True,
        "jobs.batch/ns:conn:sum": True,
        "namespaces/ns:conn:sum": False,
        "namespaces/nolabel": False,
        "pods/conn_raw": True,
        "pods/http_packets_per_second": True,
        "jobs.batch/conn_open": True,
        "jobs.batch/edge_value": True,
        "namespaces/edge_value": False,
        "namespaces/conn_raw": False,
        "deployments.apps/dep_lag": True,
        "services/http_packets_per_second": True,
        "pods/nolabel": True,
        "nodes/node_load": False,
        "namespaces/http_packets_per_second": False,
    }


async def test_failing_rule_keeps_its_last_list(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={"first": (series("a", "pod"),), "second": (series("b", "pod"),)})
    async with metrics_env(tmp_path, TWO, prometheus) as env:
        await env.catalog.relist()
        assert [str(info) for info in env.catalog.snapshot.custom] == ["pods/a", "pods/b"]
        prometheus.found = {"first": PrometheusQueryError("no"), "second": (series("c", "pod"),)}
        await env.catalog.relist()
        assert [str(info) for info in env.catalog.snapshot.custom] == ["pods/a", "pods/c"]
        assert env.catalog.snapshot.external == ("c",)


async def test_ready_after_the_first_successful_list(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={"first": DOWN, "second": DOWN})
    async with metrics_env(tmp_path, TWO, prometheus) as env:
        assert env.catalog.readiness() == "no good relist yet: the first one is under way"
        await env.catalog.relist()
        assert env.catalog.readiness() == f"no good relist yet of rules[0]: {DOWN}"
        prometheus.found = {}
        await env.catalog.relist()
        assert env.catalog.readiness() is None
        prometheus.found = {"first": DOWN, "second": DOWN}
        await env.catalog.relist()
        assert env.catalog.readiness() is None  # it has a first list


async def test_rule_that_always_fails_does_not_prevent_readiness(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={"first": PrometheusQueryError("parse error")})
    async with metrics_env(tmp_path, TWO, prometheus) as env:
        await env.catalog.relist()
        assert env.catalog.readiness() is None


async def test_version_grows_with_the_series_and_the_failures(tmp_path: Path) -> None:
    """Also if the series make no metric: the pages show them."""
    prometheus = CannedPrometheus()
    async with metrics_env(tmp_path, TWO, prometheus) as env:

        async def has_grown() -> bool:
            before = env.catalog.version
            await env.catalog.relist()
            return env.catalog.version > before

        assert await has_grown()
        assert not await has_grown()
        prometheus.found["first"] = (series("a", "job_name"),)
        assert await has_grown()
        assert env.catalog.snapshot.custom == ()
        assert not await has_grown()
        prometheus.found["first"] = DOWN
        assert await has_grown()


async def test_failure_of_many_rules_is_compared_with_few_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, reads = 500, 0
    failure = RuleState.failure.fget  # type: ignore[attr-defined]

    def read(state: RuleState) -> str:
        nonlocal reads
        reads += 1
        return str(failure(state))

    monkeypatch.setattr(RuleState, "failure", property(read))
    rules = RulesFile(custom=tuple(structs.replace(TWO.custom[0], key=f"rules[{number}]") for number in range(count)))
    async with metrics_env(tmp_path, rules, CannedPrometheus(found={"first": DOWN})) as env:
        await env.catalog.relist()
        assert env.catalog.readiness() is not None
    assert reads < 10 * count


async def test_resource_of_a_short_rule_is_looked_up_again(tmp_path: Path) -> None:
    rules = parse_rules("rules: [{name: m, query: q, resources: {namespace: namespace, pod: pod}}]", source="r")
    async with metrics_env(tmp_path, rules, CannedPrometheus()) as env:
        env.api.handlers["/api/v1"] = respond({"resources": []})
        await env.catalog.relist()
        assert env.catalog.find_custom(PODS, "m") is None
        env.api.handlers.update(RESOURCES)
        env.mapper._groups.clear()
        await env.catalog.relist()
        assert env.catalog.find_custom(PODS, "m") is not None


async def test_catalog_of_a_rule_that_was_only_tried_is_freed(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, TWO, CannedPrometheus()) as env:
        listings = Listings(env.prometheus, env.mapper, max_age=120.0)
        catalog = Catalog(TWO, listings, env.mapper, logs=False)
        await catalog.relist()
        freed = weakref.ref(catalog)
        del catalog, listings
        gc.collect()
        assert freed() is None


async def test_ready_without_rules(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, RulesFile(), CannedPrometheus()) as env:
        assert env.catalog.readiness() is None


async def test_outage_and_its_end_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prometheus = CannedPrometheus(found={"first": DOWN, "second": DOWN})
    async with metrics_env(tmp_path, TWO, prometheus) as env:
        with caplog.at_level(logging.INFO, "adapter.catalog.catalog"):
            await env.catalog.relist()
            await env.catalog.relist()
            assert [record.getMessage() for record in caplog.records] == [
                f"rules[0] (first) cannot be listed, and keeps its last list: {DOWN}"
            ]
            caplog.clear()
            prometheus.found = {}
            await env.catalog.relist()
            await env.catalog.relist()
            assert len(caplog.records) == 1
            assert caplog.records[0].getMessage().endswith("is listed again")


async def test_later_of_two_rules_with_one_metric_wins_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = (series("a", "pod"), series("b", "pod"))
    prometheus = CannedPrometheus(found={"first": both, "second": both})
    async with metrics_env(tmp_path, TWO, prometheus) as env:
        with caplog.at_level(logging.WARNING, "adapter.catalog.catalog"):
            for _ in range(3):
                await env.catalog.relist()
                source = env.catalog.find_custom(PODS, "a")
                assert source is not None
                assert source.rule.key == "rules[1]"
    assert [record.getMessage() for record in caplog.records] == [
        "pods/a is made twice: of a by rules[1] (second), which wins, and of a by rules[0] (first)"
    ]


async def test_metrics_that_no_request_can_find_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = parse_rules(
        "rules: [{seriesQuery: a, metricsQuery: b, resources: {overrides: {pod: {resource: pod}}}}]", source="r"
    )
    prometheus = CannedPrometheus(found={"a": (series("a", "pod"),)})
    async with metrics_env(tmp_path, rules, prometheus) as env:
        with caplog.at_level(logging.WARNING, "adapter.catalog.catalog"):
            await env.catalog.relist()
            await env.catalog.relist()
    assert [record.getMessage() for record in caplog.records] == [
        "rules[0] (a): pods/a can never be found, because no label maps to namespaces; add one to resources.overrides"
    ]


async def test_whether_a_metric_exists_is_unknown_until_series_and_objects_are_listed(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, TWO, CannedPrometheus()) as env:

        async def errors() -> list[tuple[int, str]]:
            found = []
            custom, external = custom_request(metric="x"), external_request(metric="x")
            for values in (env.custom.values(custom), env.external.values(external)):
                with pytest.raises(StatusError) as error:
                    await values
                found.append((error.value.code, error.value.message.partition(": ")[2]))
            return found

        assert await errors() == [(503, "no good relist yet: the first one is under way")] * 2
        await env.catalog.relist()
        env.rule_objects.catalog.problem = lambda: "MetricRules are not listed yet"
        assert await errors() == [(503, "MetricRules are not listed yet")] * 2
        env.rule_objects.catalog.problem = lambda: None
        assert await errors() == [(404, "")] * 2


async def test_rule_fails_without_the_api_server(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found=dict.fromkeys(("first", "second"), (series("a", "pod"),)))
    async with metrics_env(tmp_path, RulesFile(custom=TWO.custom), prometheus) as env:
        env.api.handlers["/api/v1"] = raw(b"<html>")
        await env.catalog.relist()
        reason = env.catalog.readiness()
        assert reason is not None
        assert (
            "rules[0]: the resources of the cluster cannot be listed: the API server's response is not JSON" in reason
        )
        env.api.handlers.update(RESOURCES)
        await env.catalog.relist()
        assert env.catalog.readiness() is None
