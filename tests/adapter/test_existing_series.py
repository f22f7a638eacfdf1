"""What a status says about a query that finds nothing, on a real Prometheus with the series of two namespaces."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from adapter.diagnosis.checker import RuleChecker
from adapter.diagnosis.probe import Probe, Selection
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import Destination, PrometheusOptions, PrometheusServers, Tenant
from adapter.rule_objects.status import Verdict, checked_verdict
from adapter.rules import AnyRule, RulesFile, parse_rules
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import metrics_env

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SHOP = Destination(tenant=Tenant(namespace="shop", label="namespace"))
UNRESTRICTED = Destination(tenant=Tenant(namespace="shop"))
NOTHING = "queue_length has no value: the query finds nothing now"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    now = time.time()
    points = [(now + step * 30, 1.0) for step in range(-4, 20)]
    every = [
        Series("own", {"namespace": "shop", "queue": "orders"}, points),
        Series("foreign", {"namespace": "vault", "queue": "secret"}, points),
        Series("both", {"namespace": "shop", "queue": "orders"}, points),
        Series("both", {"namespace": "vault", "queue": "secret"}, points),
    ]
    folder = tmp_path_factory.mktemp("prometheus")
    async with PrometheusServer(folder, samples=openmetrics(every)) as server:
        yield server.url


def rule_of(text: str, destination: Destination) -> AnyRule:
    [rule] = parse_rules(text, source="rules.yaml").all_rules
    return msgspec.structs.replace(rule, key="MetricRule shop/my.queue", namespace="shop", destination=destination)


async def verdict_on(folder: Path, url: str, rule: AnyRule) -> Verdict:
    async with (
        PrometheusServers(PrometheusOptions(url=url)) as prometheus,
        metrics_env(folder, RulesFile(), prometheus) as env,  # type: ignore[arg-type]
    ):
        checker = RuleChecker(prometheus, env.mapper, ListedObjects(env.client), max_age=120.0)
        return await checked_verdict(rule, checker)


async def message(folder: Path, url: str, query: str, destination: Destination = SHOP) -> str:
    text = msgspec.json.encode({"externalRules": [{"name": "queue_length", "query": query}]}).decode()
    rule = rule_of(text, destination)
    verdict = await verdict_on(folder, url, rule)
    assert (verdict.ready, verdict.reason) == (True, "NoValue")
    assert verdict.series == 0, "the number of samples is that of the rule's own query"
    return verdict.message


async def test_status_says_the_query_as_sent_and_which_series_the_namespace_has(tmp_path: Path, url: str) -> None:
    assert await message(tmp_path, url, 'sum(own{queue="x"})  +\nmissing') == (
        f'{NOTHING}; there are series of own and no series of missing with namespace="shop"; the query was sent as '
        'sum(own{namespace="shop",queue="x"}) + missing{namespace="shop"}'
    )


async def test_series_of_another_namespace_are_as_if_they_did_not_exist(tmp_path: Path, url: str) -> None:
    """A metric that only another namespace has, and one that nobody has, get the same message."""
    foreign, nobody = [await message(tmp_path, url, name) for name in ("foreign", "nobody")]
    assert foreign == nobody.replace("nobody", "foreign")
    assert 'there are no series of foreign with namespace="shop"' in foreign


@pytest.mark.parametrize(
    "query",
    [
        '{__name__=~"foreign|bo.*",queue="secret"}',
        'foreign{namespace="vault"}',
        'both{queue="secret"}',
        '{__name__="foreign|own"}',
        'foreign or both{queue="secret"} or nobody',
        "count by (queue) (foreign)",
    ],
)
async def test_status_says_nothing_of_the_values_of_another_namespace(tmp_path: Path, url: str, query: str) -> None:
    said = await message(tmp_path, url, query)
    about, _, sent = said.partition("; the query was sent as ")
    assert 'namespace="shop"' in sent
    assert "vault" not in about
    assert "series of foreign" not in about.replace("no series of foreign", "")


async def test_without_a_tenant_label_all_series_exist_that_the_rule_can_read(tmp_path: Path, url: str) -> None:
    assert await message(tmp_path, url, 'foreign{queue="x"}', UNRESTRICTED) == (
        f'{NOTHING}; there are series of foreign; the query was sent as foreign{{queue="x"}}'
    )


async def test_list_that_finds_nothing_names_the_matcher_that_is_added(tmp_path: Path, url: str) -> None:
    rule = rule_of(
        "externalRules: [{seriesQuery: foreign, metricsQuery: sum(<<.Series>>), resources: {namespaced: false}}]", SHOP
    )
    verdict = await verdict_on(tmp_path, url, rule)
    assert verdict.reason == "NoSeries"
    assert verdict.message == 'its seriesQuery finds no series with namespace="shop" and a sample in the last 2m0s'


async def test_rules_of_the_file_and_pages_say_what_exists_too(tmp_path: Path, url: str) -> None:
    rules = parse_rules("externalRules: [{name: depth, query: 'own > 5'}]", source="rules.yaml")
    async with (
        PrometheusServers(PrometheusOptions(url=url)) as prometheus,
        metrics_env(tmp_path, rules, prometheus) as env,  # type: ignore[arg-type]
    ):
        await env.catalog.relist()
        probe = Probe(env.catalog, prometheus, ListedObjects(env.client), env.mapper)
        source = env.catalog.find_external("depth")
        assert source is not None
        example = await probe.example(source, Selection())
    assert example.reasons == ("the query finds nothing now", "there are series of own")
