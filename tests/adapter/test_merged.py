"""Requests for different objects as one query: they get what they would get alone, and Prometheus is asked less."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.planning.merged import MergedQueries, can_merge
from adapter.planning.planner import custom_plan
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.shared_queries import SharedQueries
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusQueryError, Sample, Scalar, Vector
from adapter.prometheus.answers import decode
from adapter.rules import Rule, RulesError, parse_rules
from kube.mapping import GroupResource
from kube.selectors import LabelSelector
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_bed import CannedPrometheus, vector

EVERYTHING = LabelSelector()
SUM = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)"
PODS = GroupResource("", "pods")


def rule(query: str, merge: str = "auto") -> Rule:
    text = f"""
rules:
- seriesQuery: 'packets_total'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: '{query.replace("'", "''")}'
  merge: {merge}
"""
    return parse_rules(text, source="rules.yaml").custom[0]


def source(query: str, merge: str = "auto") -> CustomSource:
    info = CustomMetricInfo(PODS, "packets_total", namespaced=True)
    return CustomSource(info, rule(query, merge), "packets_total", "pod", "namespace")


def external(query: str) -> ExternalSource:
    return ExternalSource("packets_total", rule(query), "packets_total", "namespace")


@pytest.mark.parametrize(
    "query",
    [
        SUM,
        "<<.Series>>{<<.LabelMatchers>>}",
        "max by (<<.GroupBy>>) (max_over_time(<<.Series>>{<<.LabelMatchers>>}[5m]))",
        "sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "histogram_quantile(0.9, sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (le, <<.GroupBy>>))",
    ],
)
def test_templates_that_keep_objects_apart_can_be_merged(query: str) -> None:
    assert can_merge(source(query))


@pytest.mark.parametrize(
    "query",
    [
        "sum(<<.Series>>{<<.LabelMatchers>>})",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (pod)",  # pods of one name in two namespaces
        "topk(1, <<.Series>>{<<.LabelMatchers>>})",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / scalar(sum(<<.Series>>))",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) or vector(0)",
        'sum(<<.Series>>{pod=~"<<index .LabelValuesByName "pod">>",<<.LabelMatchers>>}) by (<<.GroupBy>>)',
        "sum(<<.Series>>) by (<<.GroupBy>>)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<index .GroupBySlice 0>>)",
        "sum(a{<<.LabelMatchers>>}) by (namespace, <<.GroupBy>>) and sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "a{<<.LabelMatchers>>} and sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "sum(a{<<.LabelMatchers>>} / sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)) by (<<.GroupBy>>)",
        'label_replace(<<.Series>>{<<.LabelMatchers>>}, "pod", "x", "", "")',
    ],
)
def test_templates_of_which_nobody_can_tell_are_asked_alone(query: str) -> None:
    assert not can_merge(source(query))


def test_external_metrics_can_be_merged_where_the_namespace_stays_in_the_result() -> None:
    assert can_merge(external("<<.Series>>{<<.LabelMatchers>>}"))
    assert not can_merge(external("max(<<.Series>>{<<.LabelMatchers>>}) by (queue)"))


def result(*pods: str) -> Vector:
    return vector(*(({"namespace": "shop", "pod": pod}, float(index)) for index, pod in enumerate(pods)))


async def ask(
    merged: MergedQueries, wanted: CustomSource, *names: str, namespace: str = "shop"
) -> dict[str, Sample] | None:
    found = await merged.samples(wanted, namespace=namespace, names=names, metric_selector=EVERYTHING, timeout=10.0)
    return None if found is None else dict(found.by_name)


async def test_the_second_object_begins_it_and_then_one_query_answers_all() -> None:
    prometheus = CannedPrometheus(result=result(*(f"web-{n}" for n in range(20))))
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        merged = MergedQueries(shared)
        wanted = source(SUM)
        assert await ask(merged, wanted, "web-0") is None
        assert await ask(merged, wanted, "web-0") is None
        assert prometheus.queries == []
        for n in range(1, 20):
            assert await ask(merged, wanted, f"web-{n}")
        assert await ask(merged, wanted, "web-1", "web-2")
        assert await ask(merged, wanted, "web-1", namespace="other") == {}
    assert prometheus.queries == ['sum(rate(packets_total{namespace=~".+",pod=~".+"}[5m])) by (pod,namespace)']


@pytest.mark.parametrize(("merge", "queries"), [("always", 1), ("never", 0), ("auto", 0)])
async def test_a_rule_can_demand_and_forbid_it(merge: str, queries: int) -> None:
    prometheus = CannedPrometheus(result=result("web-0"))
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        await ask(MergedQueries(shared), source(SUM, merge), "web-0")
    assert len(prometheus.queries) == queries


def test_merge_has_three_words() -> None:
    with pytest.raises(RulesError, match=r"rules\[0\].merge: expected auto, always or never, got 'yes'"):
        rule(SUM, "'yes'")


def test_a_rule_can_demand_it_for_a_form_that_nobody_can_tell_of() -> None:
    query = "label_join(<<.Series>>{<<.LabelMatchers>>}, 'x', 'y', 'z')"
    assert [can_merge(source(query, merge)) for merge in ("auto", "always")] == [False, True]
    assert not can_merge(source(SUM, "never"))


async def test_an_object_with_several_values_is_asked_for_alone() -> None:
    several = vector(*(({"namespace": "shop", "pod": "web-0", "port": port}, 1.0) for port in ("80", "443")))
    prometheus = CannedPrometheus(result=several)
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        merged = MergedQueries(shared)
        wanted = source("<<.Series>>{<<.LabelMatchers>>}", "always")
        assert await ask(merged, wanted, "web-0") is None
        assert await ask(merged, wanted, "web-1") is not None


async def test_after_a_failure_objects_are_asked_for_alone() -> None:
    prometheus = CannedPrometheus(result=PrometheusQueryError("too many samples"))
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        merged = MergedQueries(shared)
        for n in range(5):
            assert await ask(merged, source(SUM, "always"), f"web-{n}") is None
    assert len(prometheus.queries) == 1


async def test_far_more_values_than_are_asked_for_are_not_merged_until_more_are() -> None:
    prometheus = CannedPrometheus(result=result(*(f"web-{n}" for n in range(2000))))
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        merged = MergedQueries(shared)
        await ask(merged, source(SUM), "web-0")
        await ask(merged, source(SUM), "web-1")  # now it is known how many there are
        assert await ask(merged, source(SUM), "web-2") is None
        assert await ask(merged, source(SUM), *(f"web-{n}" for n in range(50)))


async def test_external_metrics_of_all_namespaces_and_selectors_are_one_query() -> None:
    prometheus = CannedPrometheus(
        result=vector(*(({"namespace": ns, "queue": queue}, 1.0) for ns in ("a", "b") for queue in ("q1", "q2")))
    )
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        queries = RuleQueries(shared, telemetry=RuleTelemetry(CollectorRegistry()))
        merged = MergedQueries(shared)
        wanted = external("<<.Series>>{<<.LabelMatchers>>}")
        merged.external(wanted, namespace="a", metric_selector=LabelSelector.parse("queue=q1"))
        for namespace in ("a", "b"):
            for text in ("queue=q1", "queue!=q1", "queue in (q1,q3)", "queue", ""):
                selector = LabelSelector.parse(text)
                plan = merged.external(wanted, namespace=namespace, metric_selector=selector)
                if plan is not None:
                    found = await queries.carry_out(wanted.rule, plan, timeout=None)
                    assert isinstance(found, Vector)
                    assert all(sample.labels["namespace"] == namespace for sample in found.samples)
                    assert len(found.samples) == (2 if text in ("queue", "") else 1)
    assert prometheus.queries == ['packets_total{namespace=~".+"}']


class AtOneMoment:
    """A real Prometheus that evaluates everything at one moment, so that two ways of asking can be compared."""

    def __init__(self, http: aiohttp.ClientSession, url: str, moment: float) -> None:
        self._http, self._url, self._moment = http, url, moment
        self.asked = 0

    async def instant(
        self, query: str, *, timeout: float | None = None, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector | Scalar:
        self.asked += 1
        parameters = {"query": query, "time": f"{self._moment:.3f}"}
        async with self._http.post(f"{self._url}/api/v1/query", data=parameters) as answer:
            return decode(answer.status, await answer.read()).result


NAMESPACES = ("a", "b", "none")
NAMES = ("web.0", "web-0", "web-1", "lonely", "absent")


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[AtOneMoment]:
    moment = time.time() - 60
    times = [moment - 600 + 20 * step for step in range(31)]
    labels = [
        {"namespace": namespace, "pod": pod, "verb": verb, **({"code": "200"} if verb == "GET" else {})}
        for namespace, pods in (("a", NAMES[:4]), ("b", NAMES[:3]))
        for pod in pods
        for verb in ("GET", "POST")
    ]
    samples = openmetrics(
        Series(name, one, [(at, (index + more) * (at - times[0])) for at in times])
        for name, more in (("more_total", 7), ("packets_total", 3))
        for index, one in enumerate(labels)
    )
    async with PrometheusServer(tmp_path, samples=samples) as server, aiohttp.ClientSession() as http:
        yield AtOneMoment(http, server.url, moment)


def template(pick: random.Random) -> str:
    """A metricsQuery, of those that can be merged and of those that cannot."""

    def values(series: str) -> str:
        more = pick.choice(["", "", ',verb="GET"', ',code!=""'])
        selector = f"{series}{{<<.LabelMatchers>>{more}}}"
        function = pick.choice(["{}", "rate({}[5m])", "max_over_time({}[3m])", "abs({})", "-{}", "{} offset 1m"])
        return function.format(selector)

    def aggregated(series: str) -> str:
        operator = pick.choice(["sum", "sum", "max", "min", "avg", "count", "stddev"])
        by = pick.choice(["<<.GroupBy>>"] * 4 + ["<<.GroupBy>>, verb", "pod", "namespace, <<.GroupBy>>"])
        form = pick.choice(["{0}({1}) by ({2})", "{0} by ({2}) ({1})"])
        return form.format(operator, values(series), by)

    one, other = aggregated("<<.Series>>"), aggregated("more_total")
    return pick.choice(
        [
            *(one, one, one, values("<<.Series>>"), f"{one} / {other}", f"{one} + 1", f"{one} > 10"),
            *(f"({one}) and {other}", f"{values('<<.Series>>')} and {other}"),
            *(f"sum({one} / {other}) by (<<.GroupBy>>)", f"sum({values('<<.Series>>')} / {other}) by (<<.GroupBy>>)"),
            *(f"{values('<<.Series>>')} / {values('more_total')}", f"{one} or {other}"),
            *(f"topk(1, {one})", f"quantile(0.5, {one}) by (<<.GroupBy>>)", f"round({one})"),
            f"sum({values('<<.Series>>')})",
        ]
    )  # fmt: skip


@pytest.mark.e2e
@pytest.mark.parametrize("seed", range(4))
async def test_what_is_merged_equals_what_is_asked_for_alone(real: AtOneMoment, seed: int) -> None:
    pick = random.Random(seed)
    merged_at_all = 0
    selectors = [LabelSelector.parse(text) for text in ("", "", "verb=GET", "verb in (GET,POST)", "verb!=GET", "!code")]
    for _ in range(40):
        query = template(pick)
        wanted = source(query)
        selector = pick.choice(selectors)
        async with SharedQueries(real, freshness=60.0) as shared:
            merged = MergedQueries(shared)
            queries = RuleQueries(real, telemetry=RuleTelemetry(CollectorRegistry()))
            for name in NAMES[:2]:  # the second object begins it
                await merged.samples(wanted, namespace="a", names=[name], metric_selector=selector, timeout=None)
            for _ in range(4):
                namespace = pick.choice(NAMESPACES)
                names = sorted(pick.sample(NAMES, pick.randint(1, len(NAMES))))
                together = await merged.samples(
                    wanted, namespace=namespace, names=names, metric_selector=selector, timeout=None
                )
                if together is None:
                    continue
                merged_at_all += 1
                alone = await asked_alone(queries, wanted, namespace, names, selector)
                found = {name: together.by_name[name].value for name in names if name in together.by_name}
                assert found == pytest.approx(alone, rel=1e-12), (query, namespace, names, str(selector))
    assert merged_at_all > 40


async def asked_alone(
    queries: RuleQueries, wanted: CustomSource, namespace: str, names: list[str], selector: LabelSelector
) -> dict[str, float]:
    """Each object's value, by a query for exactly these objects."""
    plan = custom_plan(wanted, names=names, all_objects=False, namespace=namespace, metric_selector=selector)
    found = await queries.carry_out(wanted.rule, plan, timeout=None)
    assert isinstance(found, Vector)
    values: dict[str, float] = {}
    for sample in found.samples:
        values.setdefault(sample.labels["pod"], sample.value)
    return values
