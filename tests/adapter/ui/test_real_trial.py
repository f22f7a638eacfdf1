"""The box in which to try a rule, with a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from adapter.diagnosis.checker import RuleChecker
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import PrometheusOptions, PrometheusServers
from adapter.ui.trial import TrialError, Trials
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import CannedPrometheus
from tests.adapter.ui.env import PagesEnv, pages_env

pytestmark = pytest.mark.e2e

RULE = """
seriesQuery: 'packets_total{namespace!="",pod!=""}'
resources: {template: <<.Resource>>}
name: {matches: '^(.*)_total$', as: '${1}_per_second'}
metricsQuery: %s
"""
RATE = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)"
# Twenty million steps: Prometheus takes seconds, or refuses it for the number of samples.
EXPENSIVE = "sum(max_over_time(<<.Series>>{<<.LabelMatchers>>}[24h:4ms])) by (<<.GroupBy>>)"
NAMES = 1_200


def samples() -> str:
    start = time.time() - 600
    points = [(start + step, 10.0 * step) for step in range(0, 1201, 10)]
    pods = [Series("packets_total", {"namespace": "shop", "pod": f"web-{pod}"}, points) for pod in range(3)]
    some = [(start + step, 1.0) for step in range(0, 1201, 200)]
    return openmetrics(
        [*pods, *(Series(f"many_{n:04}", {"namespace": "shop", "pod": "web-0"}, some) for n in range(NAMES))]
    )


@dataclass
class Live:
    """Pages whose trials go to a real Prometheus."""

    env: PagesEnv
    prometheus: PrometheusServers

    def trials(self, *, seconds: float = 20.0, query_seconds: float = 5.0) -> Trials:
        checker = RuleChecker(
            self.prometheus,
            self.env.metrics.mapper,
            ListedObjects(self.env.metrics.client),
            max_age=120.0,
            seconds=seconds,
            query_seconds=query_seconds,
        )
        return Trials(replace(self.env.sources, rule_checker=checker))


@pytest.fixture(scope="module")
def loaded_samples() -> str:
    return samples()


@pytest.fixture
async def live(tmp_path: Path, loaded_samples: str) -> AsyncIterator[Live]:
    async with (
        PrometheusServer(tmp_path / "prometheus", samples=loaded_samples) as server,
        PrometheusServers(PrometheusOptions(url=server.url)) as prometheus,
        pages_env(tmp_path, "rules: []", CannedPrometheus()) as env,
    ):
        yield Live(env, prometheus)


async def test_rule_is_tried_against_the_live_prometheus(live: Live) -> None:
    trial = await live.trials().check(RULE % RATE, "rules")
    assert [finding for finding in trial.findings if finding.severity.value == "error"] == []
    examples = {metric.metric: metric.example for metric in trial.report.metrics if metric.example is not None}
    found = examples["pods/packets_per_second"]
    assert found.of.startswith("shop/web-")
    assert found.queries == (f'sum(rate(packets_total{{namespace="shop",pod="{found.of[5:]}"}}[5m])) by (pod)',)
    assert float(found.values[0].value.removesuffix("m")) / (1000 if found.values[0].value.endswith("m") else 1) == (
        pytest.approx(10, rel=0.02)
    )


async def test_mistakes_in_queries_are_reported_with_prometheus_words(live: Live) -> None:
    trial = await live.trials().check(RULE % "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m]) by", "rules")
    assert any("parse error" in finding.message for finding in trial.findings)
    wrong = (RULE % RATE).replace('pod!=""}', "pod!=}")
    trial = await live.trials().check(wrong, "rules")
    assert any(finding.code == "not-listed" and "parse error" in finding.message for finding in trial.findings)


async def test_expensive_query_ends_at_its_time_limit_and_the_next_rule_can_be_tried(live: Live) -> None:
    trials = live.trials(query_seconds=0.2)
    trial = await trials.check(RULE % EXPENSIVE, "rules")
    [finding] = [finding for finding in trial.findings if finding.code == "no-value"]
    assert (
        "timed out" in finding.message
        or "no response within" in finding.message
        or "too many samples" in finding.message
    )
    trial = await trials.check(RULE % RATE, "rules")
    assert any(metric.example is not None and metric.example.values for metric in trial.report.metrics)


async def test_trial_that_takes_too_long_ends(live: Live) -> None:
    trials = live.trials(seconds=0.3)
    with pytest.raises(TrialError, match=r"no result within 0\.3 s"):
        await trials.check(RULE % EXPENSIVE, "rules")


async def test_rule_that_finds_every_series_is_limited(live: Live) -> None:
    rule = RULE.replace('\'packets_total{namespace!="",pod!=""}\'', "'{__name__=~\".+\"}'").replace(
        "matches: '^(.*)_total$', ", "matches: '^(.*)$', "
    )
    trial = await live.trials().check(rule % RATE, "rules")
    assert len(trial.report.series) == 1000
    assert trial.series_left_out == NAMES + 1 - 1000
    assert len(trial.report.metrics) > 1000
