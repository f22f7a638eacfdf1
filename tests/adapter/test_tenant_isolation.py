"""Restricted queries on a real Prometheus that has the series of two namespaces.

A second Prometheus has the series of the tenant's namespace only. A restricted query gets the same response from both,
so nothing of the other namespace has an influence on it. From the second, it gets what the original query gets.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import pytest_asyncio
from hypothesis import given, settings

from adapter.prometheus import Destination, PrometheusOptions, PrometheusQueryError, PrometheusServers, Tenant, Vector
from adapter.promql import PromqlError, restrict_query, restrict_selector
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.promql_queries import QUERIES, RESTRICTED, SELECTORS

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

NAMES = ("x", "y", "requests_total", "sum", "offset", "by", "shop:x:sum", "step", "if", "fill")
SECRET = "vault"
"""In each series of the other namespace."""


def series(now: float) -> Iterator[Series]:
    """Yield series of the namespaces shop and bank; in the latter, the values are larger and the labels others."""
    for number, name in enumerate([*NAMES, "latency_bucket"]):
        for index in range(12):
            bank = index >= 6
            labels = {
                "namespace": "bank" if bank else "shop",
                "pod": f"bank-{SECRET}-{index}" if bank else f"shop-{index % 3}",
                "a": SECRET if bank else "ab"[index % 2],
                "le": ["0.1", "1", "+Inf"][index % 3],
                "job": f"j{index}",
            }
            value = (1_000_003 if bank else 1) * (1 + number * 12 + index)
            points = [(now + step * 30, float(value * (step + 200))) for step in range(-130, 3)]
            yield Series(name, labels, points)


@dataclass(frozen=True)
class TwoServers:
    """`both` has the series of both namespaces, `only` those of shop. All queries are evaluated at `now`."""

    both: str
    only: str
    now: float

    def query(self, url: str, query: str) -> dict[str, Any]:
        return _get(url, "query", {"query": query, "time": f"{self.now:.3f}"})

    def series(self, url: str, selector: str) -> dict[str, Any]:
        return _get(url, "series", {"match[]": selector, "start": f"{self.now - 3600:.3f}", "end": f"{self.now:.3f}"})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoServers]:
    now = math.floor(time.time())
    folder = tmp_path_factory.mktemp("prometheus")
    every = list(series(now))
    own = [one for one in every if one.labels["namespace"] == "shop"]
    async with (
        PrometheusServer(folder / "both", samples=openmetrics(every)) as both,
        PrometheusServer(folder / "only", samples=openmetrics(own)) as only,
    ):
        yield TwoServers(both.url, only.url, now)


async def test_hostile_queries_read_nothing_of_another_namespace(prometheus: TwoServers) -> None:
    differ = 0
    for query in RESTRICTED:
        assert_isolated(prometheus, restrict_query(query, label="namespace", value="shop"))
        differ += not alike(prometheus.query(prometheus.both, query), prometheus.query(prometheus.only, query))
    assert differ >= 90, "unrestricted, most of these queries read the other namespace"


async def test_random_queries_read_nothing_of_another_namespace(prometheus: TwoServers) -> None:
    statuses: list[str] = []

    @settings(max_examples=80)
    @given(query=QUERIES)
    def check(query: str) -> None:
        try:
            restricted = restrict_query(query, label="namespace", value="shop")
        except PromqlError:
            return
        if re.search(r"\b(topk|bottomk)\(", query):  # any of those with equal values
            assert SECRET not in json.dumps(prometheus.query(prometheus.both, restricted))
            return
        assert_isolated(prometheus, restricted)
        original = prometheus.query(prometheus.only, query)
        statuses.append(original["status"])
        if "absent" not in query:  # its result has the label of the matcher
            assert alike(original, prometheus.query(prometheus.only, restricted))

    check()
    assert statuses.count("success") > len(statuses) / 2


async def test_random_selectors_list_nothing_of_another_namespace(prometheus: TwoServers) -> None:
    @given(selector=SELECTORS)
    def check(selector: str) -> None:
        try:
            restricted = restrict_selector(selector, label="namespace", value="shop")
        except PromqlError:
            return
        found = prometheus.series(prometheus.both, restricted)
        assert SECRET not in json.dumps(found)
        assert found == prometheus.series(prometheus.only, selector)

    check()


async def test_the_adapters_client_returns_samples_of_the_own_namespace_only(prometheus: TwoServers) -> None:
    destination = Destination(tenant=Tenant(namespace="shop", label="namespace"))
    async with PrometheusServers(PrometheusOptions(url=prometheus.both)) as servers:
        found = [await _result(servers, query, destination) for query in RESTRICTED]
        listed = await servers.series("x", start=0, end=prometheus.now, destination=destination)
    assert sum(isinstance(each, Vector) for each in found) > 80
    assert SECRET not in repr(found)
    assert [one.name for one in listed] == ["x"]


async def _result(servers: PrometheusServers, query: str, destination: Destination) -> object:
    try:
        return await servers.instant(query, destination=destination)
    except PrometheusQueryError as error:
        return error


def assert_isolated(prometheus: TwoServers, restricted: str) -> None:
    """Check that a restricted query has the same response from both servers."""
    both = prometheus.query(prometheus.both, restricted)
    assert SECRET not in json.dumps(both), restricted
    assert alike(both, prometheus.query(prometheus.only, restricted)), restricted


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Compare two responses; errors are alike, since they quote any of several pairs of series."""
    if "error" in (one["status"], other["status"]):
        return bool(one["status"] == other["status"])
    return bool(one["data"]["resultType"] == other["data"]["resultType"]) and _same(_sorted(one), _sorted(other))


def _sorted(response: dict[str, Any]) -> Any:
    result = response["data"]["result"]
    if response["data"]["resultType"] in ("scalar", "string"):
        return result
    return sorted(result, key=lambda entry: json.dumps(entry["metric"], sort_keys=True))


def _same(one: Any, other: Any) -> bool:
    """Compare JSON; the order in which numbers are added changes their last digits."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
        case str(), str() if one != other:
            return _is_number(one) and _is_number(other) and math.isclose(float(one), float(other), rel_tol=1e-9)
    return bool(one == other)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _get(url: str, path: str, parameters: dict[str, str]) -> dict[str, Any]:
    """Send a request. It blocks, as hypothesis does."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(
            "POST", f"/api/v1/{path}", urlencode(parameters), {"Content-Type": "application/x-www-form-urlencoded"}
        )
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()
