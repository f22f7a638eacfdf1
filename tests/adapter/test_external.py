"""External metrics, from a routed request to values: what tests.golden has no recording of."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.content.values import ExternalMetricValue
from adapter.prometheus import (
    PrometheusBusy,
    PrometheusError,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusTimeout,
    PrometheusUnavailable,
    scalar,
)
from adapter.rules import parse_rules
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import (
    CannedPrometheus,
    MetricsEnv,
    external_request,
    metrics_env,
    packets,
    series,
    vector,
)


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[MetricsEnv]:
    rules, prometheus = packets()
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        yield env


async def values(
    env: MetricsEnv, metric: str = "queue_depth", selector: str = "", namespace: str = "shop"
) -> list[ExternalMetricValue]:
    return await env.external.values(
        external_request(namespace=namespace, metric=metric, selector=LabelSelector.parse(selector), seconds=5.0)
    )


async def test_scalar_has_no_labels_and_its_own_time(env: MetricsEnv) -> None:
    env.prometheus.result = scalar(1.0, 5.0)
    [value] = await values(env)
    assert (value.labels, value.timestamp, value.milli) == (None, 1.0, 5000)


async def test_nan_is_zero_and_infinity_is_left_out(env: MetricsEnv) -> None:
    env.prometheus.result = vector(({"queue": "a"}, math.nan), ({"queue": "b"}, -math.inf))
    assert [(value.labels, value.milli) for value in await values(env)] == [({"queue": "a"}, 0)]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PrometheusBusy("x"), 429, "Too many queries for this namespace are waiting, please try again later."),
        (PrometheusUnavailable("x"), 503, "Prometheus is not available for externalRules[0] (queue_depth"),
        (PrometheusTimeout("x"), 504, "Timeout: Prometheus did not answer in time for externalRules[0] (queue_depth"),
        (PrometheusQueryError("x"), 500, "Internal error occurred: unable to fetch metrics"),
        (PrometheusResultError("x"), 500, "encountered an unexpected query result type"),
    ],
)
async def test_failures_have_the_statuses_of_custom_metrics(
    env: MetricsEnv, error: PrometheusError, code: int, message: str
) -> None:
    env.prometheus.result = error
    with pytest.raises(StatusError) as refused:
        await values(env)
    assert refused.value.code == code
    assert refused.value.message.startswith(message)
    assert refused.value.retry_after is None, "client-go would hold a worker of kube-controller-manager, and try again"


async def test_selector_that_promql_cannot_express_is_a_bad_request(env: MetricsEnv) -> None:
    with pytest.raises(StatusError) as refused:
        await values(env, selector="queue>1")
    assert refused.value.code == 400


async def test_namespaced_rule_without_a_namespace_label_logs_a_hint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = parse_rules("externalRules: [{seriesQuery: a, metricsQuery: '<<.Series>>'}]", source="rules.yaml")
    async with metrics_env(tmp_path, rules, CannedPrometheus(found={"a": (series("a"),)})) as env:
        await env.catalog.relist()
        with pytest.raises(StatusError, match="unable to fetch metrics"):
            await values(env, "a")
    assert "set resources.namespaced to false" in caplog.text
