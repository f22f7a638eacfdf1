"""Requests for different objects as one query: Prometheus is asked less, and nobody gets another's values."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.planning.merged import MergedQueries, SendAlone
from adapter.planning.shared_queries import SharedQueries
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusError,
    PrometheusQueryError,
    Sample,
    Scalar,
    Vector,
)
from adapter.rules import RulesError
from kube.deadlines import NO_DEADLINE, Deadline
from kube.selectors import LabelSelector
from tests.adapter.merging_bed import RAW, SUM, external, fetched, rule, source
from tests.adapter.metrics_bed import CannedPrometheus, vector

TENANT = "  prometheus: tenant\n"
ALL = LabelSelector()
HEADERS = "  headers: {X-Scope-OrgID: a}\n"


def result(*pods: str) -> Vector:
    return vector(*(({"namespace": "shop", "pod": pod}, float(index)) for index, pod in enumerate(pods)))


async def ask_now(
    merged: MergedQueries, wanted: CustomSource, *names: str, namespace: str = "shop", selector: str = ""
) -> dict[str, Sample] | None:
    """What there is of a merged answer at this moment; None where a request is to be sent alone."""
    metric_selector = LabelSelector.parse(selector)
    found = await merged.samples(wanted, namespace=namespace, names=names, metric_selector=metric_selector)
    return None if isinstance(found, SendAlone) else dict(found)


async def ask(
    bed: Planner, wanted: CustomSource, *names: str, namespace: str = "shop", selector: str = ""
) -> dict[str, Sample] | None:
    """What there is of a merged answer once the one that is fetched for this request is there."""
    await ask_now(bed.merged, wanted, *names, namespace=namespace, selector=selector)
    await fetched(bed.shared)
    return await ask_now(bed.merged, wanted, *names, namespace=namespace, selector=selector)


@dataclass
class Planner:
    """Merged queries, with a clock that the test moves."""

    prometheus: CannedPrometheus
    shared: SharedQueries
    now: float = 1000.0
    merged: MergedQueries = field(init=False)
    registry: CollectorRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        telemetry = RuleTelemetry(self.registry)
        self.merged = MergedQueries(self.shared, telemetry=telemetry, clock=lambda: self.now)
        telemetry.watch_paused(lambda: ((rule, why.value) for rule, _, why in self.merged.paused()))

    def seen(self, name: str, **labels: str) -> float | None:
        """A metric of the adapter's own."""
        return self.registry.get_sample_value(f"milliscale_adapter_rule_{name}", labels)

    async def fresh(self) -> None:
        """Let every answer end that is kept."""
        await fetched(self.shared)
        for key in list(self.shared._answers._entries):
            self.shared._answers._drop(key)

    async def external(self, wanted: ExternalSource, namespace: str = "a", selector: str = "") -> list[float] | None:
        """The values of a merged answer, or None, once the one that is fetched for this request is there."""
        metric_selector = LabelSelector.parse(selector)
        await self.merged.external(wanted, namespace=namespace, metric_selector=metric_selector)
        await fetched(self.shared)
        found = await self.merged.external(wanted, namespace=namespace, metric_selector=metric_selector)
        return None if isinstance(found, SendAlone) else [sample.value for sample in found.samples]


@asynccontextmanager
async def planner(answers: Vector | Scalar | PrometheusError | CannedPrometheus) -> AsyncIterator[Planner]:
    prometheus = answers if isinstance(answers, CannedPrometheus) else CannedPrometheus(result=answers)
    async with SharedQueries(prometheus, freshness=60.0) as shared:
        yield Planner(prometheus, shared)


async def test_the_second_object_begins_it_and_then_one_query_answers_all() -> None:
    async with planner(result(*(f"web-{n}" for n in range(20)))) as bed:
        wanted = source(SUM)
        assert await ask(bed, wanted, "web-0") is None
        assert await ask(bed, wanted, "web-0") is None
        assert bed.prometheus.queries == []
        for n in range(1, 20):
            assert await ask(bed, wanted, f"web-{n}")
        assert await ask(bed, wanted, "web-1", "web-2")
        assert await ask(bed, wanted, "web-1", namespace="other") == {}
    assert bed.prometheus.queries == ['sum(rate(packets_total{namespace=~".+",pod=~".+"}[5m])) by (pod,namespace)']


@pytest.mark.parametrize(("merge", "queries"), [("always", 1), ("never", 0), ("auto", 0)])
async def test_a_rule_can_demand_and_forbid_it(merge: str, queries: int) -> None:
    async with planner(result("web-0")) as bed:
        await ask(bed, source(SUM, merge), "web-0")
        assert len(bed.prometheus.queries) == queries
        await bed.external(external(RAW, merge))
        assert len(bed.prometheus.queries) == 2 * queries


async def test_very_long_selectors_are_asked_for_alone_and_nothing_of_them_is_kept() -> None:
    values = ",".join(f"v{n}" for n in range(6_000))
    async with planner(result("web-0")) as bed:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for n in range(20):
                selector = f"verb in (x{n},{values})"
                assert await ask(bed, source(SUM, "always"), "web-0", selector=selector) is None
                assert await bed.external(external(RAW, "always"), selector=selector) is None
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert bed.prometheus.queries == []
        assert after - before < 1_000_000


async def test_selectors_of_one_namespace_alone_do_not_make_queries_for_all_namespaces() -> None:
    async with planner(result("web-0", "web-1")) as bed:
        for n in range(50):
            for pod in ("web-0", "web-1", "web-2"):
                assert await ask(bed, source(SUM), pod, selector=f"verb=x{n}") is None
        assert bed.prometheus.queries == []
        assert await ask(bed, source(SUM), "web-0", namespace="other", selector="verb=x0") == {}
        assert len(bed.prometheus.queries) == 1


async def test_of_a_selector_its_text_is_kept() -> None:
    """Its values by themselves would be 60 bytes each."""
    values = ",".join(f"{n:03}" for n in range(240))
    async with planner(result("web-0")) as bed:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for n in range(100):
                assert await bed.external(external(RAW, "always"), selector=f"verb in (x{n},{values})") is not None
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 100 * 6_000


def test_merge_has_three_words() -> None:
    with pytest.raises(RulesError, match=r"rules\[0\].merge: expected auto, always or never, got 'yes'"):
        rule(SUM, "'yes'")


class Numbered(CannedPrometheus):
    """Gives each different question a value of its own, so that one sees whose answer it is."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Destination]] = []

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """One object in one namespace, whatever their labels are."""
        self.asked.append((query, destination))
        names = dict.fromkeys(("pod", "service"), "web-0")
        spaces = dict.fromkeys(("namespace", "ns"), "shop")
        return vector(({**names, **spaces, "queue": "q", "verb": "GET"}, float(len(self.asked))))


async def test_what_belongs_to_different_metrics_is_never_merged() -> None:
    base = source(SUM, "always")
    other_query = msgspec.structs.replace(rule(SUM.replace("sum", "max"), "always"), key="rules[1]")
    tenant, alike = (source(SUM, "always", more=more) for more in (TENANT, TENANT + HEADERS))
    text = "sum(rate({}{{{}}}[5m])) by ({})"
    different = [
        (base, "shop", "", text.format("packets_total", 'namespace=~".+",pod=~".+"', "pod,namespace")),
        (base, "", "", text.format("packets_total", 'pod=~".+"', "pod")),
        (
            base,
            "shop",
            "verb=GET",
            text.format("packets_total", 'verb="GET",namespace=~".+",pod=~".+"', "pod,namespace"),
        ),
        (
            dataclasses.replace(base, series="bytes_total"),
            "shop",
            "",
            text.format("bytes_total", 'namespace=~".+",pod=~".+"', "pod,namespace"),
        ),
        (
            dataclasses.replace(base, resource_label="service"),
            "shop",
            "",
            text.format("packets_total", 'namespace=~".+",service=~".+"', "service,namespace"),
        ),
        (
            dataclasses.replace(base, namespace_label="ns"),
            "shop",
            "",
            text.format("packets_total", 'ns=~".+",pod=~".+"', "pod,ns"),
        ),
        (
            dataclasses.replace(base, group_by=("verb",)),
            "shop",
            "",
            text.format("packets_total", 'namespace=~".+",pod=~".+"', "pod,verb,namespace"),
        ),
        (
            dataclasses.replace(base, rule=other_query),
            "shop",
            "",
            text.format("packets_total", 'namespace=~".+",pod=~".+"', "pod,namespace").replace("sum", "max"),
        ),
        # The same text for other tenants.
        *(
            (
                dataclasses.replace(one, rule=msgspec.structs.replace(one.rule, key=key)),
                "shop",
                "",
                text.format("packets_total", 'namespace=~".+",pod=~".+"', "pod,namespace"),
            )
            for one, key in ((tenant, "rules[2]"), (alike, "rules[3]"))
        ),
    ]
    prometheus = Numbered()
    async with planner(prometheus) as bed:
        for _ in range(2):
            for number, (wanted, namespace, selector, _) in enumerate(different, start=1):
                found = await ask(bed, wanted, "web-0", namespace=namespace, selector=selector)
                assert found is not None
                assert found["web-0"].value == number
    assert prometheus.asked == [(query, wanted.rule.destination) for wanted, _, _, query in different]
    assert len({destination for _, destination in prometheus.asked}) == 3


async def test_nor_is_what_belongs_to_different_external_metrics() -> None:
    base = external(RAW, "always")
    other_query = msgspec.structs.replace(rule(f"rate({RAW}[5m])", "always"), key="rules[1]")
    tenant, alike = (external(RAW, "always", more=more) for more in (TENANT, TENANT + HEADERS))
    different = [
        (base, 'packets_total{namespace=~".+"}'),
        (dataclasses.replace(base, series="bytes_total"), 'bytes_total{namespace=~".+"}'),
        (dataclasses.replace(base, namespace_label="ns"), 'packets_total{ns=~".+"}'),
        (dataclasses.replace(base, rule=other_query), 'rate(packets_total{namespace=~".+"}[5m])'),
        *(
            (
                dataclasses.replace(one, rule=msgspec.structs.replace(one.rule, key=key)),
                'packets_total{namespace=~".+"}',
            )
            for one, key in ((tenant, "rules[2]"), (alike, "rules[3]"))
        ),
    ]
    prometheus = Numbered()
    async with planner(prometheus) as bed:
        for selector in ("", "queue=q", ""):
            for number, (wanted, _) in enumerate(different, start=1):
                assert await bed.external(wanted, "shop", selector) == [number]
                assert await bed.external(wanted, "other", selector) == []
        assert await bed.external(base, "shop", "queue!=q") == []
    assert prometheus.asked == [(query, wanted.rule.destination) for wanted, query in different]


async def test_an_object_with_several_values_is_asked_for_alone() -> None:
    several = vector(*(({"namespace": "shop", "pod": "web-0", "port": port}, 1.0) for port in ("80", "443")))
    async with planner(several) as bed:
        wanted = source(RAW, "always")
        assert await ask(bed, wanted, "web-0") is None
        assert await ask(bed, wanted, "web-1") is not None


async def test_after_a_failure_objects_are_asked_for_alone_for_a_minute() -> None:
    async with planner(PrometheusQueryError("too many samples")) as bed:
        wanted = source(SUM, "always")
        assert await ask(bed, wanted, "web-0") is None
        bed.prometheus.result = result("web-0")
        await bed.fresh()
        bed.now += 59.0
        assert await ask(bed, wanted, "web-0") is None
        assert len(bed.prometheus.queries) == 1
        bed.now += 1.0
        assert await ask(bed, wanted, "web-0")


async def test_so_are_external_metrics_in_all_namespaces_and_by_all_selectors() -> None:
    async with planner(PrometheusQueryError("many-to-many matching in namespace b")) as bed:
        wanted = external(RAW)
        assert await bed.external(wanted, "a") is None
        assert await bed.external(wanted, "b") is None
        bed.prometheus.result = vector(({"namespace": "a", "queue": "q"}, 7.0))
        await bed.fresh()
        bed.now += 59.0
        for selector in ("", "queue=q"):
            assert await bed.external(wanted, "a", selector) is None
        assert len(bed.prometheus.queries) == 1
        bed.now += 1.0
        assert await bed.external(wanted, "a", "queue=q") == [7.0]


async def test_what_was_asked_for_more_than_a_minute_ago_does_not_count() -> None:
    async with planner(result("web-0")) as bed:
        wanted = source(SUM)
        await ask(bed, wanted, "web-0")
        assert await ask(bed, wanted, "web-1") is not None
        bed.now += 61.0  # those two were in the minute before
        assert await ask(bed, wanted, "web-0") is not None
        bed.now += 61.0
        assert await ask(bed, wanted, "web-0") is None
        assert await ask(bed, wanted, "web-1") is not None
        bed.now += 121.0
        assert await ask(bed, wanted, "web-1") is None


async def test_an_answer_that_is_too_long_to_be_kept_is_not_asked_for_again_by_everybody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("adapter.planning.shared_queries._MAX_SAMPLES", 100)
    labels = [{"namespace": "shop", "pod": f"web-{n}"} for n in range(200)]
    with caplog.at_level(logging.INFO, "adapter.planning.merged"):
        async with planner(vector(*((one, 1.0) for one in labels))) as bed:
            for _ in range(4):  # it is tried again after a minute, then after two
                for n in range(10):
                    assert await ask(bed, source(SUM, "always"), f"web-{n}") is None
                    assert await bed.external(external(RAW, "always"), "shop", f"pod=web-{n}") is None
                bed.now += 61.0
            assert bed.seen("merging_paused", rule="rules[0]", reason="too-long") == 2
    assert len(bed.prometheus.queries) == 3 * 2
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2, "once for each group of requests"
    assert all("sent alone for a while: the merged query's result is too long to be kept (" in line for line in logged)


async def test_external_metrics_of_all_namespaces_and_selectors_are_one_query() -> None:
    answers = vector(*(({"namespace": ns, "queue": queue}, 1.0) for ns in ("a", "b") for queue in ("q1", "q2")))
    async with planner(answers) as bed:
        wanted = external(RAW)
        assert await bed.external(wanted, "a", "queue=q1") is None
        for namespace in ("a", "b"):
            for text in ("queue=q1", "queue!=q1", "queue in (q1,q3)", "queue", ""):
                found = await bed.external(wanted, namespace, text)
                if (namespace, text) != ("a", "queue=q1"):
                    assert found == [1.0] * (2 if text in ("queue", "") else 1)
    assert bed.prometheus.queries == ['packets_total{namespace=~".+"}']


async def test_a_selector_that_the_answer_for_all_cannot_serve_is_asked_for_alone_whatever_was_asked_before() -> None:
    async with planner(vector(({"namespace": "a", "queue": "axb"}, 1.0))) as bed:
        wanted = external(RAW, "always")
        assert await bed.external(wanted, "a", "queue=axb") == [1.0]
        assert await bed.external(wanted, "a", "queue in (a.b)") is None
        assert await bed.external(wanted, "a", "queue=axb") == [1.0]


async def test_an_external_metric_without_namespaces_is_one_query_for_all_selectors() -> None:
    async with planner(vector(*(({"queue": f"q{n}"}, float(n)) for n in range(100)))) as bed:
        wanted = external(RAW, namespaced=False)
        for namespace in ("a", "b"):  # of which nobody can tell the difference
            assert await bed.external(wanted, namespace, "queue=q0") is None
        for n in range(1, 100):
            assert await bed.external(wanted, "a", f"queue=q{n}") == [n]
    assert bed.prometheus.queries == ["packets_total{}"]


async def test_a_merged_answer_without_single_values_is_for_nobody() -> None:
    async with planner(Scalar(0.0, 1.0)) as bed:
        wanted = external(f"scalar({RAW})", "always")
        for _ in range(3):
            assert await bed.external(wanted) is None
    assert len(bed.prometheus.queries) == 1


class Held(CannedPrometheus):
    """Answers queries for all objects only when the test says so."""

    def __init__(self, result: Vector) -> None:
        super().__init__(result=result)
        self.open, self.asked = asyncio.Event(), asyncio.Event()

    async def instant(self, query: str, **arguments: Any) -> Vector | Scalar:
        found = await super().instant(query, **arguments)
        if '=~".+"' in query:
            self.asked.set()
            await self.open.wait()
        return found


async def test_no_request_waits_for_a_merged_query() -> None:
    """It is sent in the background; until its answer is there, every request is sent alone, and after its end again."""
    prometheus = Held(result("web-0", "web-1"))
    async with planner(prometheus) as bed:
        wanted = source(SUM)
        for name in ("web-0", "web-1", "web-0", "web-1"):
            assert await ask_now(bed.merged, wanted, name) is None
        await prometheus.asked.wait()
        for kind in (external(RAW), external(RAW)):
            found = await bed.merged.external(kind, namespace="shop", metric_selector=LabelSelector())
            assert isinstance(found, SendAlone)
        assert await ask_now(bed.merged, wanted, "web-0") is None
        prometheus.open.set()
        await fetched(bed.shared)
        assert await ask_now(bed.merged, wanted, "web-0")
        await bed.fresh()
        prometheus.open.clear()
        assert await ask_now(bed.merged, wanted, "web-0") is None
        prometheus.open.set()
        await fetched(bed.shared)
        assert await ask_now(bed.merged, wanted, "web-0")
        assert prometheus.queries.count(prometheus.queries[0]) == 2
        assert bed.seen("requests_total", rule="rules[0]", query="merged") == 2
        assert bed.seen("requests_total", rule="rules[0]", query="alone") == 8
        assert bed.seen("merged_queries_total", rule="rules[0]", outcome="success") == 2


async def test_what_costs_more_than_it_saves_is_not_merged_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """The merged query takes 12 s, and a request's own 20 ms."""
    slow = dataclasses.replace(result(*(f"web-{n}" for n in range(10))), seconds=12.0)
    async with planner(slow) as bed:
        wanted = source(SUM)
        with caplog.at_level(logging.INFO, "adapter.planning.merged"):
            for n in range(10):
                found = await bed.merged.samples(wanted, namespace="shop", names=[f"web-{n}"], metric_selector=ALL)
                assert isinstance(found, SendAlone)
                found.took(0.02)
            await fetched(bed.shared)
            assert await ask_now(bed.merged, wanted, "web-0") is None
        assert len(bed.prometheus.queries) == 1
        assert bed.seen("merging_paused", rule="rules[0]", reason="cost") == 1
        assert "its requests are sent alone for a while: the merged query costs more than it saves" in caplog.text
        other = dataclasses.replace(wanted, rule=msgspec.structs.replace(rule(SUM, "always"), key="rules[1]"))
        assert await ask(bed, other, "web-0"), "what the rule demands is merged whatever it costs"


async def test_failures_are_shown_as_such() -> None:
    async with planner(PrometheusQueryError("too many samples")) as bed:
        assert await ask(bed, source(SUM, "always"), "web-0") is None
        assert bed.seen("merged_queries_total", rule="rules[0]", outcome="failure") == 1
        assert bed.seen("merging_paused", rule="rules[0]", reason="failure") == 1
        bed.prometheus.result = result("web-0")
        await bed.fresh()
        bed.now += 61.0
        assert await ask(bed, source(SUM, "always"), "web-0")
        assert bed.seen("merging_paused", rule="rules[0]", reason="failure") is None
