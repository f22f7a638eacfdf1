"""Coalesced values equal those of single requests: a real Prometheus, and templates of many forms."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec
import pytest

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.metric_queries import ExternalQuery, MetricQuery, ObjectsQuery
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vectors import IndexedVector, VectorCache, matching
from adapter.prometheus import Sample, Vector
from adapter.telemetry import RuleTelemetry
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.coalescing_rules import AtOneMoment, external, source

pytestmark = pytest.mark.e2e

NAMESPACES = ("a", "b", "none")
NAMES = ("web.0", "web-0", "web-1", "lonely", "absent")
SELECTORS = [
    LabelSelector.parse(text)
    for text in (
        *("", "", "verb=GET", "verb in (GET,POST)", "verb!=GET", "verb notin (GET)", "!code", "code", "verb=NONE"),
        *("pod=web-0", "pod!=web-0", "pod in (web-0,lonely)", "pod=web.0", "verb=GET,pod=web-1", "code!=200", "le=1"),
    )
]
TEMPLATES = 60
BOTH = 'rate({__name__=~"(more|packets)_total",<<.LabelMatchers>>}[5m])'


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
    counters = [
        Series(name, one, [(at, (index + more) * (at - times[0])) for at in times])
        for name, more in (("more_total", 7), ("packets_total", 3))
        for index, one in enumerate(labels)
    ]
    buckets = [
        Series("took_bucket", {**one, "le": bound}, [(at, (index + share) * (at - times[0])) for at in times])
        for index, one in enumerate(labels)
        for bound, share in (("0.1", 1), ("1", 4), ("+Inf", 9))
    ]
    # One namespace that has no match for the others' selectors.
    odd = {"namespace": "b", "pod": "web-1", "verb": "GET"}
    doubled = [Series("doubled_total", {**odd, "part": part}, [(at, at - times[0]) for at in times]) for part in "12"]
    samples = openmetrics((*counters, *buckets, *doubled))
    async with PrometheusServer(tmp_path, samples=samples) as server, aiohttp.ClientSession() as http:
        yield AtOneMoment(http, server.url, moment)


class Template:
    """Makes metricsQueries, of those that can be coalesced and of those that cannot."""

    def __init__(self, pick: random.Random, groups: list[str]) -> None:
        """`groups` are what values may be grouped by."""
        self._pick = pick
        self._groups = groups

    def make(self) -> str:
        one, other = self._grouped("<<.Series>>"), self._grouped("more_total")
        own, others = self._values("<<.Series>>"), self._values("more_total")
        by = self._pick.choice(self._groups)
        quantile = f"histogram_quantile(0.9, sum(rate(took_bucket{{<<.LabelMatchers>>}}[5m])) by (le, {by}))"
        return self._pick.choice(
            [
                *(one, one, one, own, own, f"{one} / {other}", f"{one} + 1", f"{one} > 10", f"{one} > bool 10"),
                *(f"({one}) and {other}", f"{own} and {other}", f"{own} unless {others} > 9", f"{one} unless {other}"),
                *(f"sum({one} / {other}) by ({by})", f"sum({own} / {other}) by ({by})", f"{own} / {others}"),
                *(f"{one} or {other}", f"({own}) or ({others})", f"{own} ^ 2 / ({others} + {own})"),
                *(f"topk(1, {one})", f"quantile(0.5, {one}) by ({by})", f"round({one})", f"clamp_max({one}, 50)"),
                *(quantile, quantile, f"{one} * on(pod) {other}", f"{one} / scalar(sum(more_total))", f"sum({own})"),
                *(f"max_over_time({one}[3m:1m])", f"sum({own}) without (verb)", f"absent({own})", f"{own} * 2"),
                *(f"{own} + {self._values('doubled_total')}", BOTH),
                f"<<if eq .Series `packets_total`>>{one}<<else>>{other}<<end>>",
                f"<<if eq .LabelMatchers ``>>{one}<<else>>{other}<<end>>",
            ]
        )  # fmt: skip

    def _values(self, series: str) -> str:
        more = self._pick.choice(["", "", "", ',verb="GET"', ',code!=""', ',pod=~"web.*"', ',namespace!="b"'])
        selector = f"{series}{{<<.LabelMatchers>>{more}}}"
        function = self._pick.choice(
            [
                *("{}", "{}", "rate({}[5m])", "increase({}[4m] offset 1m)", "max_over_time({}[3m])", "abs({})", "-{}"),
                *("{} offset 1m", "avg_over_time(rate({}[2m])[4m:1m])", "timestamp({})"),
                "label_replace({}, 'x', '$1', 'pod', '(.*)')",
            ]
        )  # fmt: skip
        return function.format(selector)

    def _grouped(self, series: str) -> str:
        operator = self._pick.choice(["sum", "sum", "max", "min", "avg", "count", "stddev"])
        form = self._pick.choice(["{0}({1}) by ({2})", "{0} by ({2}) ({1})"])
        return form.format(operator, self._values(series), self._pick.choice(self._groups))


Source = TypeVar("Source", CustomSource, ExternalSource)
Found = Mapping[str, tuple[float, float]]


def seen(samples: Mapping[str, Sample | list[Sample]], names: list[str]) -> Found:
    found = ((name, samples.get(name)) for name in names)
    return {name: (sample.value, sample.timestamp) for name, sample in found if isinstance(sample, Sample)}


async def test_coalesced_custom_equals_single(real: AtOneMoment) -> None:
    pick = random.Random(0)
    templates = Template(pick, ["<<.GroupBy>>"] * 6 + ["<<.GroupBy>>, verb", "pod", "namespace, <<.GroupBy>>"])
    # All rules of one file, behind one coalescer, in random order.
    sources = [numbered(source(templates.make()), number) for number in range(TEMPLATES)]
    selectors = [pick.choice(SELECTORS) for _ in sources]
    alone = RuleQueries(real, telemetry=RuleTelemetry())
    compared = 0
    async with VectorCache(real, ttl=3600.0) as cache:
        coalescer = MetricsQueryCoalescer(cache)
        for metric, selector in sorted(zip(sources * 5, selectors * 5, strict=True), key=lambda _: pick.random()):
            namespace = pick.choice(NAMESPACES)
            names = sorted(pick.sample(NAMES, pick.randint(1, len(NAMES))))
            query = ObjectsQuery(metric, namespace, names, False, selector)
            vector = await coalesced(coalescer, cache, query)
            samples = vector.index.objects(query.index, namespace) if vector is not None else None
            if samples is None or any(isinstance(samples.get(name), list) for name in names):
                continue
            compared += 1
            expected = await objects_alone(alone, query)
            found = seen(samples, names)
            assert found.keys() == expected.keys(), (metric.rule, namespace, names, str(selector))
            for name in found:
                assert found[name] == pytest.approx(expected[name], rel=1e-12, nan_ok=True), (
                    metric.rule,
                    namespace,
                    name,
                )
    assert compared > TEMPLATES / 2


async def coalesced(coalescer: MetricsQueryCoalescer, cache: VectorCache, query: MetricQuery) -> IndexedVector | None:
    """The coalesced result, once the one that is prefetched for this request is there."""
    await coalescer.cached(query)
    await cache.prefetches()
    return await coalescer.cached(query)


async def objects_alone(queries: RuleQueries, query: ObjectsQuery) -> Found:
    """Each object's value and time, by a query for exactly these objects."""
    found = await queries.execute(query, math.inf)
    assert isinstance(found, Vector)
    first: dict[str, Sample | list[Sample]] = {}
    for sample in found.samples:
        first.setdefault(sample.labels["pod"], sample)
    return seen(first, query.names)


@pytest.mark.parametrize("namespaced", [True, False])
async def test_coalesced_external_equals_single(real: AtOneMoment, namespaced: bool) -> None:
    pick = random.Random(0)
    labels = ["namespace", "namespace, pod", "namespace, verb", "namespace, pod, verb", "namespace, pod, verb, code"]
    templates = Template(pick, [*labels, "pod", "verb, pod"])
    sources = [numbered(external(templates.make(), namespaced=namespaced), number) for number in range(TEMPLATES)]
    alone = RuleQueries(real, telemetry=RuleTelemetry())
    compared = 0
    async with VectorCache(real, ttl=3600.0) as cache:
        coalescer = MetricsQueryCoalescer(cache)
        for metric in sorted(sources * 8, key=lambda _: pick.random()):
            namespace, selector = pick.choice(NAMESPACES), pick.choice(SELECTORS)
            query = ExternalQuery(metric, namespace, selector)
            vector = await coalesced(coalescer, cache, query)
            if vector is None:
                continue
            compared += 1
            expected = await series_alone(alone, query)
            found = series_of(await matching(vector, query.labels, selector))
            assert found.keys() == expected.keys(), (metric.rule, namespace, str(selector))
            for key in found:
                assert found[key] == pytest.approx(expected[key], rel=1e-12, nan_ok=True), (metric.rule, namespace, key)
    assert compared > TEMPLATES / 2


Labelled = Mapping[tuple[tuple[str, str], ...], tuple[float, float]]


def series_of(vector: Vector) -> Labelled:
    return {tuple(sorted(one.labels.items())): (one.value, one.timestamp) for one in vector.samples}


async def series_alone(queries: RuleQueries, query: ExternalQuery) -> Labelled:
    """Each series' value and time, by labels, by a query for exactly this namespace and selector."""
    try:
        found = await queries.execute(query, math.inf)
    except StatusError as error:
        raise AssertionError(f"{query.plan().queries} fails, and the coalesced one does not") from error
    assert isinstance(found, Vector)
    return series_of(found)


def numbered(made: Source, number: int) -> Source:
    """A source whose rule has a distinct index in the file."""
    return dataclasses.replace(made, rule=msgspec.structs.replace(made.rule, key=f"rules[{number}]"))
