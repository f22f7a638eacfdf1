"""How often Prometheus is asked, through the whole data path."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.fairness import current_namespace, enter_namespace
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.objects import ListedObjects
from adapter.planning.merged import MergedQueries
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.sample_index import IndexedVector, ObjectLabels
from adapter.planning.shared_queries import Outcome, SharedQueries
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBusy,
    PrometheusOptions,
    PrometheusQueryError,
    PrometheusTimeout,
    Sample,
    Scalar,
    Vector,
)
from adapter.rules import parse_rules
from kube.deadlines import NO_DEADLINE, Deadline
from kube.selectors import LabelSelector
from kube.status import StatusError
from tests.adapter.merging_bed import fetched
from tests.adapter.metrics_bed import (
    NOW,
    CannedPrometheus,
    MetricsBed,
    custom_request,
    external_request,
    metrics_bed,
    packets,
    series,
    vector,
)
from tests.kube.scripted import Turns

ALL = LabelSelector()


def paths(bed: MetricsBed, shared: SharedQueries) -> tuple[CustomMetrics, ExternalMetrics]:
    queries = RuleQueries(shared, telemetry=RuleTelemetry(CollectorRegistry()))
    merged = MergedQueries(shared)
    return (
        CustomMetrics(bed.catalog, queries, ListedObjects(bed.client), bed.mapper, merged=merged, clock=lambda: NOW),
        ExternalMetrics(bed.catalog, queries, merged=merged, clock=lambda: NOW),
    )


async def test_who_joins_a_query_that_another_namespace_may_not_send_asks_again() -> None:
    class Prometheus(CannedPrometheus):
        async def instant(
            self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
        ) -> Vector | Scalar:
            await asyncio.sleep(0)
            if current_namespace() == "noisy":
                raise PrometheusBusy("noisy")
            return await super().instant(query, deadline=deadline, destination=destination)

    async def ask(shared: SharedQueries, namespace: str) -> Vector | Scalar:
        enter_namespace(namespace)
        return await shared.instant("depth", deadline=Deadline.after(5))

    prometheus = Prometheus(result=vector(({}, 5)))
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        asked = [asyncio.create_task(ask(shared, namespace)) for namespace in ("noisy", "quiet", "noisy")]
        first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert second == prometheus.result
    assert isinstance(first, PrometheusBusy)
    assert isinstance(third, PrometheusBusy)
    assert prometheus.queries == ["depth"]


async def test_a_thousand_requests_for_pods_of_many_namespaces_are_a_query_for_all_and_those_before_it_was_there(
    tmp_path: Path,
) -> None:
    rules, prometheus = packets()
    labels = [{"namespace": f"ns-{n}", "pod": f"web-{pod}"} for n in range(10) for pod in range(10)]
    async with metrics_bed(tmp_path, rules, prometheus) as bed, SharedQueries(prometheus, freshness=60.0) as shared:
        await bed.catalog.relist()
        custom, _ = paths(bed, shared)

        async def ask(one: dict[str, str]) -> int:
            values = await custom.values(
                custom_request(
                    resource="pods",
                    group="",
                    namespace=one["namespace"],
                    name=one["pod"],
                    metric="http_packets_per_second",
                    metric_selector=ALL,
                    seconds=10.0,
                )
            )
            assert values[0].timestamp == NOW
            return values[0].milli

        prometheus.result = vector((labels[0], 7.0))
        assert await ask(labels[0]) == 7000
        prometheus.result = vector(*((one, float(number)) for number, one in enumerate(labels)))
        assert await ask(labels[1]) in (0, 1000)  # the canned answer has a web-1 of each namespace
        await fetched(shared)
        for _ in range(10):
            answers = await asyncio.gather(*map(ask, labels[1:]))
            assert answers == [number * 1000 for number in range(1, 100)]
    assert sorted(prometheus.queries) == [
        'sum(rate(http_packets_total{namespace="ns-0",pod="web-0"}[1m])) by (pod)',
        'sum(rate(http_packets_total{namespace="ns-0",pod="web-1"}[1m])) by (pod)',
        'sum(rate(http_packets_total{namespace=~".+",pod=~".+"}[1m])) by (pod,namespace)',
    ]


async def test_an_external_metric_that_cannot_be_merged_is_one_query_for_each_namespace(tmp_path: Path) -> None:
    rules, prometheus = packets()
    prometheus.result = vector(({"queue": "q1", "tier": "gold"}, 3.0))
    async with metrics_bed(tmp_path, rules, prometheus) as bed, SharedQueries(prometheus, freshness=60.0) as shared:
        await bed.catalog.relist()
        _, external = paths(bed, shared)
        for _ in range(20):
            for namespace in ("a", "b"):
                await external.values(
                    external_request(namespace=namespace, metric="queue_depth", selector=ALL, seconds=10.0)
                )
    assert prometheus.queries == [f'max(queue_depth{{namespace="{namespace}"}}) by (queue, tier)' for namespace in "ab"]


async def test_each_request_waits_for_as_long_as_it_has_time() -> None:
    _, prometheus = packets()
    asked, hold = asyncio.Event(), asyncio.Event()
    instant = prometheus.instant

    async def slow(query: str, **arguments: object) -> object:
        asked.set()
        await hold.wait()
        return await instant(query)

    prometheus.instant = slow  # type: ignore[method-assign, assignment]
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        patient = asyncio.create_task(shared.instant("up", deadline=Deadline.after(10.0)))
        await asked.wait()
        with pytest.raises(PrometheusTimeout):
            await shared.instant("up", deadline=Deadline.after(0.01))
        hold.set()
        assert isinstance(await patient, Vector)
    assert prometheus.queries == ["up"]


@pytest.mark.looptime
async def test_prometheus_is_told_the_time_of_the_most_patient_one_who_waits() -> None:
    _, prometheus = packets()
    async with SharedQueries(prometheus, freshness=0.0) as shared:
        await shared.instant("alone", deadline=Deadline.after(3.0))
        together = [Deadline.after(seconds) for seconds in (3.0, 7.0, 5.0)]
        await asyncio.gather(*(shared.instant("together", deadline=deadline) for deadline in together))
        await asyncio.gather(shared.instant("no limit", deadline=Deadline.after(3.0)), shared.instant("no limit"))
    deadlines = dict(zip(prometheus.queries, prometheus.deadlines, strict=True))
    assert deadlines["alone"] < deadlines["together"] == max(together)
    assert deadlines["no limit"] == NO_DEADLINE


@pytest.mark.looptime
async def test_who_joins_one_with_less_time_asks_again_when_that_is_up() -> None:
    _, prometheus = packets()
    asked, instant = asyncio.Event(), prometheus.instant

    async def slow(query: str, *, deadline: Deadline = NO_DEADLINE, **_: object) -> object:
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(deadline.remaining() or 0)
            raise PrometheusTimeout("slow")
        return await instant(query, deadline=deadline)

    prometheus.instant = slow  # type: ignore[method-assign, assignment]
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        hurried = asyncio.create_task(shared.instant("up", deadline=Deadline.after(0.05)))
        await asked.wait()
        assert await shared.instant("up", deadline=Deadline.after(10.0))
        with pytest.raises(PrometheusTimeout):
            await hurried
    assert prometheus.queries == ["up"]


async def test_the_same_query_of_two_tenants_is_two_queries() -> None:
    _, prometheus = packets()
    others = [Destination(headers=(("X-Scope-OrgID", tenant),)) for tenant in "ab"]
    others.append(Destination(server=PrometheusOptions(url="http://other.example")))
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        for number, destination in enumerate((DEFAULT_DESTINATION, *others) * 2):
            prometheus.result = vector(({"pod": "web-0"}, float(number)))
            alone = await shared.instant("up", destination=destination)
            assert isinstance(alone, Vector)
            assert shared.ready("up", destination) is alone
            assert alone.samples[0].value == number % 4
    assert prometheus.destinations == [DEFAULT_DESTINATION, *others]


async def test_values_from_memory_keep_the_time_at_which_they_were_sampled(tmp_path: Path) -> None:
    rules, prometheus = packets()
    sampled = NOW - 40.0
    labels = {"namespace": "shop", "pod": "web-0"}
    prometheus.result = Vector((Sample(labels, sampled, 1.0),))
    async with metrics_bed(tmp_path, rules, prometheus) as bed, SharedQueries(prometheus, freshness=60.0) as shared:
        await bed.catalog.relist()
        custom, external = paths(bed, shared)
        for name in ("web-0", "web-0", "web-1", "web-0"):  # alone, from memory, and then merged
            await fetched(shared)
            with contextlib.suppress(StatusError):  # there is no web-1
                values = await custom.values(
                    custom_request(
                        resource="pods",
                        group="",
                        namespace="shop",
                        name=name,
                        metric="http_packets_per_second",
                        metric_selector=ALL,
                        seconds=10.0,
                    )
                )
                assert [(value.timestamp, value.milli) for value in values] == [(sampled, 1000)]
        for namespace in ("shop", "shop", "other", "shop"):
            items = await external.values(
                external_request(namespace=namespace, metric="queue_depth", selector=ALL, seconds=10.0)
            )
            assert {value.timestamp for value in items} == {sampled}


QUEUES = """
externalRules:
- seriesQuery: queue_depth
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'rate(<<.Series>>{<<.LabelMatchers>>}[5m])'
"""


class FailingForAll(CannedPrometheus):
    """Cannot answer for all namespaces, because of what one of them has."""

    async def instant(self, query: str, **arguments: Any) -> Vector | Scalar:
        found = await super().instant(query, **arguments)
        if '=~".+"' in query:
            raise PrometheusQueryError("vector cannot contain metrics with the same labelset")
        return found


async def test_what_one_namespace_has_does_not_take_an_external_metric_away_from_the_others(tmp_path: Path) -> None:
    prometheus = FailingForAll(found={"queue_depth": (series("queue_depth", "namespace", "queue"),)})
    prometheus.result = vector(({"queue": "q"}, 1.0))
    rules = parse_rules(QUEUES, source="rules.yaml")
    async with metrics_bed(tmp_path, rules, prometheus) as bed, SharedQueries(prometheus, freshness=60.0) as shared:
        await bed.catalog.relist()
        _, external = paths(bed, shared)
        for _ in range(3):
            for namespace in "abc":
                values = await external.values(
                    external_request(namespace=namespace, metric="queue_depth", selector=ALL, seconds=10.0)
                )
                assert [value.milli for value in values] == [1000]
    alone = [f'rate(queue_depth{{namespace="{namespace}"}}[5m])' for namespace in "abc"]
    assert sorted(prometheus.queries) == [*alone, 'rate(queue_depth{namespace=~".+"}[5m])']


async def test_a_long_list_of_an_external_metric_lets_others_go_on(tmp_path: Path) -> None:
    rules, prometheus = packets()
    prometheus.result = vector(*(({"region": f"r{number:05d}"}, number) for number in range(5_000)))
    turns = Turns()
    async with metrics_bed(tmp_path, rules, prometheus) as bed:
        await bed.catalog.relist()
        async with turns.counted():
            found = await bed.external.values(
                external_request(namespace="shop", metric="backlog", selector=ALL, seconds=10.0)
            )
    assert [value.milli for value in found] == [number * 1000 for number in range(5_000)]
    assert turns.count >= 5


class CountedLabels(dict[str, str]):
    """Labels of which one sees when they go."""

    gone = 0

    def __del__(self) -> None:
        CountedLabels.gone += 1


@pytest.mark.parametrize("objects", [None, ("namespace", "pod")])
@pytest.mark.parametrize("several", [False, True])
async def test_very_many_samples_are_freed_a_few_at_a_time(objects: ObjectLabels | None, several: bool) -> None:
    """All at once they would hold up the loop, also when a reload ends the use of all of them."""
    count, prometheus = 20_000, CannedPrometheus()
    CountedLabels.gone = 0
    prometheus.result = Vector(
        tuple(Sample(CountedLabels(namespace="a", pod=f"web-{n // (1 + several)}"), 1.0, 1.0) for n in range(count))
    )
    shared, came, end = SharedQueries(prometheus, freshness=60.0), asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with shared:
            shared.fetch("up", DEFAULT_DESTINATION, objects=objects, observe=lambda _: came.set())
            await end.wait()

    using = asyncio.create_task(use())
    await came.wait()
    await fetched(shared)
    prometheus.result = Vector(())
    end.set()
    at_once = []
    async with asyncio.timeout(60):
        while (before := CountedLabels.gone) < count:
            await asyncio.sleep(0)
            at_once.append(CountedLabels.gone - before)
        await using
    assert max(at_once) <= 1_000


async def test_a_query_in_the_background_is_sent_once_and_its_answer_is_indexed_for_all_who_take_it() -> None:
    prometheus = CannedPrometheus(result=vector(({"namespace": "a", "pod": "web-0"}, 1.0)))
    outcomes: list[Outcome] = []
    came = asyncio.Event()

    def observe(outcome: Outcome) -> None:
        outcomes.append(outcome)
        came.set()

    async with SharedQueries(prometheus, freshness=60.0) as shared:
        for _ in range(3):
            assert shared.ready("up", DEFAULT_DESTINATION) is None
            shared.fetch("up", DEFAULT_DESTINATION, objects=("namespace", "pod"), observe=observe)
        await came.wait()
        found = await shared.instant("up")
        assert shared.ready("up", DEFAULT_DESTINATION) is found
    assert isinstance(found, IndexedVector)
    assert found.index.object_labels == (("namespace", "pod"),)
    assert outcomes == [found]
    assert prometheus.queries == ["up"]
