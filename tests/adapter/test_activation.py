"""Activation: an external metric is 0 below its threshold, and only after it has been below it for some time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.content.values import ExternalMetricValue
from adapter.metrics.external import ExternalMetrics
from adapter.planning.rule_queries import RuleQueries, activated_query, recently_active_query
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusOptions,
    PrometheusServers,
    PrometheusUnavailable,
    Vector,
)
from adapter.rules import parse_rules
from adapter.rules.field_types import Duration, MilliValue
from adapter.rules.schedule_spec import Activation
from adapter.telemetry import RuleTelemetry
from kube.api.status import StatusError
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import CannedPrometheus, external_request, metrics_env, vector


@dataclass
class TwoQueries(CannedPrometheus):
    """Returns one result for the rule's query, and another for the time of its activation."""

    now: Vector = field(default_factory=lambda: Vector(()))
    recent: Vector | PrometheusUnavailable = field(default_factory=lambda: Vector(()))

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        self.result = self.recent if query.startswith("max_over_time(") else self.now
        return await super().instant(query, deadline=deadline, destination=destination)


async def values(folder: Path, prometheus: TwoQueries, **keys: str) -> dict[str, int]:
    """The values of a rule with some keys, by the label `queue`."""
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    rules = parse_rules(f"externalRules: [{{name: waiting, query: waiting{more}}}]", source="rules.yaml")
    async with metrics_env(folder, rules, prometheus) as env:
        await env.catalog.relist()
        found = await env.external.values(external_request(metric="waiting"))
    return {(value.labels or {}).get("queue", ""): value.milli for value in found}


def queues(**values: float) -> Vector:
    return vector(*(({"__name__": "waiting", "queue": queue}, value) for queue, value in values.items()))


def peaks(**values: float) -> Vector:
    """What max_over_time returns: series without their name."""
    return vector(*(({"queue": queue}, value) for queue, value in values.items()))


async def test_each_value_below_the_threshold_is_zero(tmp_path: Path) -> None:
    prometheus = TwoQueries(now=queues(a=4.999, b=5, c=6, d=-1))
    found = await values(tmp_path, prometheus, activation="{threshold: 5}")
    assert found == {"a": 0, "b": 5000, "c": 6000, "d": 0}
    assert prometheus.queries == ["waiting"]


async def test_value_that_was_recently_active_stays_and_is_more_than_zero(tmp_path: Path) -> None:
    prometheus = TwoQueries(now=queues(a=4, b=0, c=4), recent=peaks(a=9, b=5))
    assert await values(tmp_path, prometheus, activation="{threshold: 5, for: 2m}") == {"a": 4000, "b": 1, "c": 0}
    assert prometheus.queries == ["waiting", "max_over_time((waiting\n)[120s:15s]) >= 5.000"]


async def test_active_values_need_no_second_query(tmp_path: Path) -> None:
    prometheus = TwoQueries(now=queues(a=5, b=7))
    assert await values(tmp_path, prometheus, activation="{threshold: 5, for: 2m}") == {"a": 5000, "b": 7000}
    assert prometheus.queries == ["waiting"]


async def test_error_of_the_second_query_is_an_error_and_no_zero(tmp_path: Path) -> None:
    prometheus = TwoQueries(now=queues(a=4), recent=PrometheusUnavailable("down"))
    with pytest.raises(StatusError) as error:
        await values(tmp_path, prometheus, activation="{threshold: 5, for: 2m}")
    assert error.value.code == 503


async def test_missing_values_are_no_zeros(tmp_path: Path) -> None:
    prometheus = TwoQueries(now=queues(), recent=peaks(a=9))
    assert await values(tmp_path, prometheus, activation="{threshold: 5, for: 2m}") == {}


async def test_empty_result_that_counts_as_zero_waits_as_long(tmp_path: Path) -> None:
    activation = "{threshold: 5, for: 2m}"
    prometheus = TwoQueries(now=queues(), recent=peaks(a=9))
    assert await values(tmp_path, prometheus, activation=activation, empty="zero") == {"": 1}
    assert await values(tmp_path, TwoQueries(now=queues()), activation=activation, empty="zero") == {"": 0}


@pytest.mark.parametrize(
    ("query", "seconds", "expected"),
    [
        ("up", 120, "max_over_time((up\n)[120s:15s]) >= 0.500"),
        ("up # all", 4, "max_over_time((up # all\n)[4s:1s]) >= 0.500"),
        ("up", 86_400, "max_over_time((up\n)[86400s:720s]) >= 0.500"),
        ("scalar(up)", 60, "max_over_time((vector(scalar(up)\n)\n)[60s:15s]) >= 0.500"),
    ],
)
def test_query_covers_the_time_with_at_most_120_steps(query: str, seconds: int, expected: str) -> None:
    activation = Activation(threshold=MilliValue(500), for_=Duration(seconds))
    assert recently_active_query(query, activation) == expected


RULES = """
externalRules:
- {name: short, query: 'waiting', activation: {threshold: 5, for: 10m}}
- {name: soon, query: 'waiting', activation: {threshold: 5, for: 1m}}
- {name: scalar, query: 'scalar(waiting{queue="fell"})', activation: {threshold: 5, for: 10m}}
- {name: other_scalar, query: 'scalar(waiting{queue="idle"})', activation: {threshold: 5, for: 10m}}
- seriesQuery: waiting
  name: {as: long}
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
  activation: {threshold: 5, for: 10m}
"""


RULE_KEYS = {"short": "externalRules[0]", "soon": "externalRules[1]", "long": "externalRules[4]"}


def waiting(queue: str, course: Mapping[int, float]) -> Series:
    """A series from 30 minutes ago until 10 minutes from now: the value from some seconds ago on, NaN for none."""
    now, points, value = time.time(), [], 0.0
    for second in range(-1800, 601, 10):
        value = course.get(second, value)
        if not math.isnan(value):
            points.append((now + second, value))
    return Series("waiting", {"queue": queue}, points)


@pytest.mark.e2e
async def test_real_prometheus_knows_which_series_were_active(tmp_path: Path) -> None:
    samples = openmetrics(
        [
            waiting("busy", {-1800: 9}),
            waiting("fell", {-1800: 9, -300: 4}),
            waiting("idle", {-1800: 4}),
            waiting("ended", {-1800: 9, -900: 0}),
            waiting("back", {-1800: 9, -1000: math.nan, -30: 4}),
        ]
    )
    async with (
        PrometheusServer(tmp_path / "prometheus", samples=samples) as server,
        PrometheusServers(PrometheusOptions(url=server.url)) as prometheus,
        metrics_env(tmp_path, parse_rules(RULES, source="rules.yaml"), CannedPrometheus()) as env,
    ):
        catalog = Catalog(env.catalog.rules, Listings(prometheus, env.mapper, max_age=120.0), env.mapper)
        await catalog.relist()
        queries = RuleQueries(prometheus, telemetry=RuleTelemetry())
        metrics = ExternalMetrics(catalog, queries)

        async def found(metric: str) -> dict[str, int]:
            values: list[ExternalMetricValue] = await metrics.values(external_request(metric=metric))
            return {(value.labels or {}).get("queue", ""): value.milli for value in values}

        for metric in ("short", "soon", "long"):
            [rule] = [one for one in env.catalog.rules.external if one.key == RULE_KEYS[metric]]
            assert rule.activation is not None
            query = "waiting" if metric != "long" else "sum by (queue) (waiting)"
            for_replay = await prometheus.instant(activated_query(query, rule.activation))
            assert isinstance(for_replay, Vector)
            served = await found(metric)
            assert {one.labels["queue"]: round(one.value * 1000) for one in for_replay.samples} == served

        for metric in ("short", "long"):
            assert await found(metric) == {"busy": 9000, "fell": 4000, "idle": 0, "ended": 0, "back": 0}
        assert await found("soon") == {"busy": 9000, "fell": 0, "idle": 0, "ended": 0, "back": 0}
        assert (await found("scalar"), await found("other_scalar")) == ({"": 4000}, {"": 0})
