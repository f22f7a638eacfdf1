"""Custom metrics, from a routed request to values: what tests.golden has no recording of."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter.content.values import MetricValue, ObjectReference
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.objects import ListedObjects
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vectors import VectorCache
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    PrometheusBadResponse,
    PrometheusError,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusTimeout,
    PrometheusUnavailable,
    Vector,
    scalar,
)
from adapter.rules import parse_rules
from adapter.telemetry import RuleTelemetry
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import (
    NOW,
    CannedPrometheus,
    MetricsEnv,
    custom_request,
    metrics_env,
    objects,
    packets,
    series,
    vector,
)
from tests.kube.scripted import respond

ALL = LabelSelector.parse("")
PACKETS = "http_packets_per_second"


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[MetricsEnv]:
    rules, prometheus = packets()
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        yield env


async def named(env: MetricsEnv, name: str = "a", metric: str = PACKETS, **change: Any) -> list[MetricValue]:
    request = {"resource": "pods", "group": "", "namespace": "shop", "metric_selector": ALL, **change}
    return await env.custom.values(custom_request(name=name, metric=metric, **request))


async def selected(env: MetricsEnv, selector: str = "", metric: str = PACKETS, **change: Any) -> list[MetricValue]:
    request = {"resource": "pods", "group": "", "namespace": "shop", "metric_selector": ALL, **change}
    return await env.custom.values(
        custom_request(name="*", selector=LabelSelector.parse(selector), metric=metric, **request)
    )


async def test_named_object_returns_its_value(env: MetricsEnv) -> None:
    env.prometheus.result = vector(({"pod": "a"}, 99.9949))
    selector = LabelSelector.parse("port=80")
    assert await named(env, metric_selector=selector) == [
        MetricValue(
            described_object=ObjectReference(api_version="v1", kind="Pod", namespace="shop", name="a"),
            metric=PACKETS,
            selector=selector,
            timestamp=NOW,
            window_seconds=None,
            milli=99994,
        )
    ]
    [query] = env.prometheus.queries
    assert query == 'sum(rate(http_packets_total{port="80",namespace="shop",pod="a"}[1m])) by (pod)'


async def test_selector_returns_the_values_of_all_matching_objects(env: MetricsEnv) -> None:
    env.api.handlers["/api/v1/namespaces/shop/pods"] = objects("b", "a", "silent")
    env.prometheus.result = vector(({"pod": "a"}, 1), ({"pod": "b"}, 2), ({"pod": "other"}, 3), ({}, 4))
    values = await selected(env, "app in (web)")
    assert [(value.described_object.name, value.milli) for value in values] == [("a", 1000), ("b", 2000)]
    assert env.prometheus.queries == ['sum(rate(http_packets_total{namespace="shop",pod=~"a|b|silent"}[1m])) by (pod)']
    assert env.api.requests[-1].endswith("/pods?resourceVersion=0&labelSelector=app+in+%28web%29&limit=500")


async def test_missing_resource_is_not_found_by_its_name_and_group(env: MetricsEnv) -> None:
    with pytest.raises(StatusError) as refused:
        await named(env, resource="w", group="x.io")
    assert refused.value.code == 404
    assert refused.value.message == f"the server could not find the metric {PACKETS} for w.x.io"


async def test_metric_of_a_rule_without_a_query_is_not_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = parse_rules(
        "rules: [{seriesQuery: a, resources: {template: <<.Resource>>}, metricsQuery: '<<index .GroupBySlice 1>>'}]",
        source="rules.yaml",
    )
    prometheus = CannedPrometheus(found={"a": (series("a", "namespace", "pod"),)})
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        with pytest.raises(StatusError, match="the server could not find the metric a for pods") as refused:
            await named(env, metric="a")
    assert refused.value.code == 404
    assert "index 1 is out of range" in caplog.text


UNABLE = "Internal error occurred: unable to fetch metrics"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PrometheusUnavailable("secret.host"), 503, "Prometheus is not available for rules[0] ("),
        (PrometheusBadResponse("secret.host"), 503, "Prometheus sent an unusable response for rules[0] ("),
        (PrometheusTimeout("secret.host"), 504, "Timeout: Prometheus did not answer in time for rules[0] ("),
        (PrometheusQueryError("secret.host"), 500, f"{UNABLE}: the query of rules[0] ("),
        (PrometheusResultError("secret.host"), 500, f"{UNABLE}: rules[0] ("),
        (scalar(1.0, 5.0), 500, f"{UNABLE}: rules[0] ("),
    ],
)
async def test_prometheus_failure_is_reported_without_its_address(
    env: MetricsEnv, error: PrometheusError | Vector, code: int, message: str
) -> None:
    env.prometheus.result = error
    with pytest.raises(StatusError) as refused:
        await named(env)
    assert refused.value.code == code
    assert refused.value.message.startswith(message)
    assert "secret" not in refused.value.message


async def test_failure_is_logged_once_and_its_end_once(env: MetricsEnv, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "adapter.planning.rule_queries"):
        env.prometheus.result = PrometheusUnavailable("refused")
        for _ in range(3):
            with pytest.raises(StatusError):
                await named(env)
        env.prometheus.result = vector(({"pod": "a"}, 1))
        await named(env)
        await named(env)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("rules[0] (http_packets_total")
    assert ": refused (the query was sum(" in first
    assert second.endswith("the query works again")


async def test_infinite_and_huge_values_are_left_out_counted_and_logged_once(
    env: MetricsEnv, caplog: pytest.LogCaptureFixture
) -> None:
    env.api.handlers["/api/v1/namespaces/shop/pods"] = objects("a", "b", "c", "d")
    env.prometheus.result = vector(
        ({"pod": "a"}, math.inf), ({"pod": "b"}, 1e17), ({"pod": "c"}, math.nan), ({"pod": "d"}, -2.25)
    )
    with caplog.at_level(logging.WARNING, "adapter.planning.rule_queries"):
        values = await selected(env)
        assert [(value.described_object.name, value.milli) for value in values] == [("c", 0), ("d", -2250)]
        with pytest.raises(StatusError, match=f"could not find the metric {PACKETS} for pods a"):
            await named(env)
    assert len(caplog.records) == 1
    labels = {"rule": "rules[0]"}
    assert env.registry.get_sample_value("milliscale_adapter_samples_left_out_total", labels) == 3


async def test_first_by_labels_of_several_values_counts(env: MetricsEnv, caplog: pytest.LogCaptureFixture) -> None:
    env.prometheus.result = vector(({"pod": "a", "verb": "GET"}, 13), ({"pod": "a", "verb": "POST"}, 15))
    with caplog.at_level(logging.WARNING, "adapter.planning.rule_queries"):
        for _ in range(2):
            assert [value.milli for value in await named(env, metric="conn_raw")] == [13000]
    [record] = caplog.records
    assert record.getMessage().startswith("rules[2] (conn_raw")
    assert "several values for one object, and the first is taken" in record.getMessage()


@pytest.mark.parametrize("selector", ["a>5", "app.kubernetes.io/name=x"])
async def test_selector_that_promql_cannot_express_is_a_bad_request(env: MetricsEnv, selector: str) -> None:
    with pytest.raises(StatusError) as refused:
        await named(env, metric_selector=LabelSelector.parse(selector))
    assert refused.value.code == 400
    assert "in the metric selector is not" in refused.value.message


async def test_forbidden_list_names_the_missing_permission(env: MetricsEnv) -> None:
    env.api.handlers["/apis/apps/v1/namespaces/shop/deployments"] = objects(status=403)
    with pytest.raises(StatusError) as refused:
        await selected(env, resource="deployments", metric="dep_lag")
    assert refused.value.code == 500
    assert refused.value.message == (
        "Internal error occurred: unable to list matching resources: the adapter lacks the right to list resource"
        ' "deployments" in API group "apps"'
    )


async def test_failed_list_is_an_internal_error(env: MetricsEnv) -> None:
    env.api.handlers["/api/v1/namespaces/shop/pods"] = objects(status=500)
    with pytest.raises(StatusError) as refused:
        await selected(env)
    assert refused.value.message == "Internal error occurred: unable to list matching resources"


async def test_cluster_scoped_metrics_are_found_with_and_without_a_namespace(tmp_path: Path) -> None:
    rules = parse_rules(
        "rules: [{seriesQuery: a, metricsQuery: '<<.LabelMatchers>>', resources: {template: <<.Resource>>}}]",
        source="r",
    )
    prometheus = CannedPrometheus(found={"a": (series("a", "tenant"),)}, result=vector(({"tenant": "t"}, 1)))
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        for namespace in ("shop", ""):
            assert await named(env, "t", "a", resource="tenants", group="example.com", namespace=namespace)
    assert prometheus.queries == ['namespace="shop",tenant="t"', 'tenant="t"']


async def test_deadline_is_passed_on(env: MetricsEnv) -> None:
    env.prometheus.result = vector(({"pod": "a"}, 1))
    request = custom_request(name="a", metric=PACKETS)
    await env.custom.values(request)
    assert env.prometheus.deadlines == [request.deadline]


async def test_namespace_is_escaped_in_the_path_of_a_list(env: MetricsEnv) -> None:
    with pytest.raises(StatusError):
        await selected(env, namespace="../../secrets?x")
    assert env.api.requests[-1].startswith("GET /api/v1/namespaces/..%2F..%2Fsecrets%3Fx/pods?")


async def test_malformed_lists_hold_no_objects(env: MetricsEnv) -> None:
    for body in ({}, {"items": None}, {"items": [5, {}, {"metadata": 5}, {"metadata": {"name": 5}}]}):
        env.api.handlers["/api/v1/namespaces/shop/pods"] = respond(body)
        with pytest.raises(StatusError, match="could not find the metric"):
            await selected(env)


WAITING = """
rules:
- seriesQuery: 'num_requests_waiting'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'avg_over_time(<<.Series>>[1m])'
  merge: MERGE
"""


@contextlib.asynccontextmanager
async def unmatched(folder: Path, merge: str = "auto") -> AsyncIterator[MetricsEnv]:
    """A rule whose query does not use the matchers, and a result with the pods of all namespaces."""
    found = (series("num_requests_waiting", "namespace", "pod"),)
    prometheus = CannedPrometheus(found={"num_requests_waiting": found})
    prometheus.result = vector(
        ({"namespace": "default", "pod": "a"}, 1),
        ({"namespace": "default", "pod": "b"}, 2),
        ({"namespace": "shop", "pod": "a"}, 1000),
    )
    rules = parse_rules(WAITING.replace("MERGE", merge), source="rules.yaml")
    async with metrics_env(folder, rules, prometheus) as env:
        await env.catalog.relist()
        env.api.handlers["/api/v1/namespaces/shop/pods"] = objects("a", "b")
        yield env


async def test_result_with_the_namespaces_label_is_filtered_by_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unmatched(tmp_path) as env:
        [value] = await named(env, metric="num_requests_waiting")
        assert (value.described_object.namespace, value.milli) == ("shop", 1_000_000)
        values = await selected(env, metric="num_requests_waiting")
        assert [(value.described_object.name, value.milli) for value in values] == [("a", 1_000_000)]
        with pytest.raises(StatusError, match="could not find the metric num_requests_waiting for pods b"):
            await named(env, "b", metric="num_requests_waiting")
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == [], "one value for each object"


async def test_result_without_the_namespaces_label_counts_for_any_namespace(tmp_path: Path) -> None:
    async with unmatched(tmp_path) as env:
        env.prometheus.result = vector(({"pod": "a"}, 7), ({"namespace": "default", "pod": "b"}, 8))
        values = await selected(env, metric="num_requests_waiting")
        assert [(value.described_object.name, value.milli) for value in values] == [("a", 7000)]


async def test_coalesced_result_is_filtered_by_namespace_and_object(tmp_path: Path) -> None:
    async with unmatched(tmp_path, merge="always") as env, VectorCache(env.prometheus, ttl=5.0) as cache:
        coalescer = MetricsQueryCoalescer(cache)
        queries = RuleQueries(cache, telemetry=RuleTelemetry(), coalescer=coalescer)
        env.custom = CustomMetrics(env.catalog, queries, ListedObjects(env.client), env.mapper)
        values = await selected(env, metric="num_requests_waiting")
        assert [(value.described_object.name, value.milli) for value in values] == [("a", 1_000_000)]
        [value] = await named(env, metric="num_requests_waiting", namespace="default")
        assert value.milli == 1000
        assert len(env.prometheus.queries) == 1


async def test_warning_names_the_matchers_that_the_query_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unmatched(tmp_path) as env:
        env.prometheus.result = vector(({"pod": "a", "path": "/"}, 7), ({"pod": "a", "path": "/x"}, 8))
        await named(env, metric="num_requests_waiting")
    assert "write {<<.LabelMatchers>>} after its series, and aggregate it with by (<<.GroupBy>>)" in caplog.text


async def test_object_with_several_values_has_a_query_of_its_own(tmp_path: Path) -> None:
    rules, prometheus = packets()
    labels = [{"namespace": "shop", "pod": pod} for pod in ("a", "b")]
    several = [{**labels[0], "port": port} for port in ("80", "443")]
    prometheus.result = vector(*((one, 1.0) for one in (*several, labels[1])))
    async with metrics_env(tmp_path, rules, prometheus) as env, VectorCache(prometheus, ttl=60.0) as cache:
        await env.catalog.relist()
        coalescer = MetricsQueryCoalescer(cache)
        queries = RuleQueries(cache, telemetry=RuleTelemetry(), coalescer=coalescer)
        env.custom = CustomMetrics(env.catalog, queries, ListedObjects(env.client), env.mapper)
        for _ in range(2):
            for name in ("a", "b"):
                await named(env, name)
            await cache.prefetches()
        prometheus.queries.clear()
        alone = 'sum(rate(http_packets_total{namespace="shop",pod="a"}[1m])) by (pod)'
        cache._evict((alone, DEFAULT_DESTINATION))
        assert [value.milli for name in ("a", "b") for value in await named(env, name)] == [1000, 1000]
    assert prometheus.queries == [alone]


async def test_values_are_made_once_for_each_coalesced_result(tmp_path: Path) -> None:
    rules, prometheus = packets()
    prometheus.result = vector(({"namespace": "shop", "pod": "a"}, 1.0), ({"namespace": "shop", "pod": "b"}, 2.0))
    async with metrics_env(tmp_path, rules, prometheus) as env, VectorCache(prometheus, ttl=60.0) as cache:
        await env.catalog.relist()
        coalescer = MetricsQueryCoalescer(cache)
        queries = RuleQueries(cache, telemetry=RuleTelemetry(), coalescer=coalescer)
        env.custom = CustomMetrics(env.catalog, queries, ListedObjects(env.client), env.mapper)
        for name in ("a", "b"):
            await named(env, name)
        await cache.prefetches()
        [before] = await named(env)
        assert (await named(env))[0] is before
        prometheus.result = vector(({"namespace": "shop", "pod": "a"}, 3.0))
        [query] = [query for query in prometheus.queries if ".+" in query]
        cache._refresh((query, DEFAULT_DESTINATION))
        await cache.prefetches()
        assert [value.milli for value in await named(env)] == [3000]
