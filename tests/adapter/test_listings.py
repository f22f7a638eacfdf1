"""Lists of series: shared, repeated, and retried after failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter.catalog.listings import Found, Listing, Listings
from adapter.prometheus import PrometheusUnavailable
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.objects import Tenancy, read_object
from tests.adapter.metrics_env import CannedPrometheus, series

pytestmark = pytest.mark.looptime


def rule(selector: str, *, namespace: str = "shop") -> Rule:
    """Return a rule of a namespace; "" for all."""
    spec = {"type": "External", "seriesQuery": selector, "metricsQuery": "sum(<<.Series>>)"}
    obj = {
        "kind": "MetricRule" if namespace else "ClusterMetricRule",
        "metadata": {"namespace": namespace, "name": "a"},
        "spec": spec,
    }
    [found] = read_object(obj, servers={}, tenancy=Tenancy()).rules
    assert isinstance(found, Rule)
    return found


class Lists:
    """Records the users of each list, and when it was."""

    def __init__(self) -> None:
        self.prometheus = CannedPrometheus(found={"jobs": (series("jobs", "pod"),)})
        self.users: list[str] = []
        self.times: list[float] = []
        self.well = True
        self.listings = Listings(
            self.prometheus,
            max_age=60.0,
            relist_interval=100.0,
            clock=lambda: 1000.0,
            monotonic=asyncio.get_running_loop().time,
            random=lambda: 0.5,
        )

    def use(self, user: str, *rules: AnyRule, now: bool = True) -> None:
        async def on_listed(user: str, _listing: Listing, _found: Found) -> bool:
            self.users.append(user)
            self.times.append(asyncio.get_running_loop().time())
            return self.well

        listings = [*map(self.listings.listing, rules)]
        self.listings.use(user, listings, on_listed, now=listings if now else ())


@contextlib.asynccontextmanager
async def lists() -> AsyncIterator[Lists]:
    found = Lists()
    running = asyncio.create_task(found.listings.run())
    try:
        yield found
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_rules_with_the_same_selector_and_namespace_share_a_list() -> None:
    async with lists() as found:
        found.use("a", rule("jobs"))
        found.use("b", rule("jobs"))
        await asyncio.sleep(1)
        assert found.users == ["a", "b"]
        assert found.prometheus.listed == [("jobs", 940.0, 1000.0)]
        found.use("c", rule("jobs", namespace="bank"))
        await asyncio.sleep(1)
        assert found.users == ["a", "b", "c"]


async def test_list_is_repeated_after_the_interval_until_nobody_needs_it() -> None:
    async with lists() as found:
        found.use("a", rule("jobs"))
        await asyncio.sleep(99)
        assert found.times == [0.0, 95.0]
        found.use("a")
        await asyncio.sleep(1000)
        assert found.times == [0.0, 95.0]


@pytest.mark.parametrize("well", [True, False], ids=["Prometheus fails", "the API server fails"])
async def test_failed_list_is_retried_with_backoff(well: bool) -> None:
    async with lists() as found:
        found.well = well
        if well:
            found.prometheus.found["jobs"] = PrometheusUnavailable("no response")
        found.use("a", rule("jobs"))
        await asyncio.sleep(60)
        assert [round(time, 2) for time in found.times] == [0.0, 0.95, 2.85, 6.65, 14.25, 29.45, 57.95]
        found.well, found.prometheus.found["jobs"] = True, ()
        await asyncio.sleep(100)
        assert len(found.times) == 8


async def test_few_lists_are_in_flight() -> None:
    async with lists() as found:
        in_flight = most = 0

        async def slow(*_: object, **__: object) -> tuple[()]:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(1)
            in_flight -= 1
            return ()

        found.prometheus.series = slow  # type: ignore[method-assign]
        found.use("a", *(rule("jobs", namespace=f"team-{number}") for number in range(40)))
        await asyncio.sleep(20)
        assert (most, len(found.times)) == (8, 40)


async def test_slow_lists_of_a_namespace_do_not_delay_those_of_others() -> None:
    async with lists() as found:

        async def list_slowly(selector: str, **_: object) -> tuple[()]:
            await asyncio.sleep(10 if selector.startswith("slow") else 0)
            return ()

        found.prometheus.series = list_slowly  # type: ignore[method-assign]
        found.use("a", *(rule(f"slow_{number}") for number in range(40)))
        await asyncio.sleep(5)
        found.use("c", rule("jobs", namespace="bank"))
        await asyncio.sleep(1)
        assert found.users == ["c"]


async def test_new_rules_are_listed_before_repeated_lists() -> None:
    async with lists() as found:
        found.use("a", *(rule(f"jobs_{number}") for number in range(10)))
        await asyncio.sleep(94)

        async def list_slowly(selector: str, **_: object) -> tuple[()]:
            await asyncio.sleep(10)
            return ()

        found.prometheus.series = list_slowly  # type: ignore[method-assign]
        found.users.clear()
        await asyncio.sleep(2)  # the first repeated list is in flight
        found.use("b", rule("new"))
        await asyncio.sleep(20)
        assert found.users == ["a", "b"]


async def test_list_that_is_needed_again_is_made_at_once() -> None:
    async with lists() as found:
        found.use("a", rule("jobs"))
        await asyncio.sleep(1)
        found.use("a")
        await asyncio.sleep(1000)
        found.use("a", rule("jobs"), now=False)
        await asyncio.sleep(1)
        assert found.times == [0.0, 1001.0]


async def test_lists_for_all_namespaces_delay_none() -> None:
    """As those of the rules file: neither many of them that hang, nor those of namespaces."""
    async with lists() as found:

        async def hang(selector: str, **_: object) -> tuple[()]:
            await asyncio.sleep(0 if selector == "jobs" else 1000)
            return ()

        found.prometheus.series = hang  # type: ignore[method-assign]
        found.use("a", *(rule(f"hangs_{number}", namespace="") for number in range(40)))
        found.use("b", *(rule("hangs", namespace=f"team-{number}") for number in range(40)))
        await asyncio.sleep(1)
        found.use("c", rule("jobs", namespace=""))
        await asyncio.sleep(1)
        assert found.users == ["c"]


async def test_rule_without_a_series_query_has_a_list_without_a_request() -> None:
    async with lists() as found:
        found.well = False
        found.use("a", QueryRule(metric="queue", query="up", key="MetricRule shop/queue"))
        await asyncio.sleep(2)
        assert [round(time, 2) for time in found.times] == [0.0, 0.95]
        assert not found.prometheus.listed


async def test_user_that_comes_during_a_list_gets_its_result() -> None:
    async with lists() as found:

        async def list_slowly(selector: str, **_: object) -> tuple[()]:
            await asyncio.sleep(10)
            return ()

        found.prometheus.series = list_slowly  # type: ignore[method-assign]
        found.use("a", rule("jobs", namespace=""))
        await asyncio.sleep(5)
        found.use("b", rule("jobs", namespace=""), now=False)
        await asyncio.sleep(6)
        assert found.users == ["a", "b"]


@pytest.mark.parametrize("namespace", ["shop", ""])
async def test_list_that_others_have_is_made_again_for_one_who_needs_it_now(namespace: str) -> None:
    async with lists() as found:
        found.use("a", rule("jobs", namespace=namespace))
        await asyncio.sleep(1)
        found.use("b", rule("jobs", namespace=namespace), now=False)
        await asyncio.sleep(1)
        assert found.users == ["a"]
        found.use("c", rule("jobs", namespace=namespace))
        await asyncio.sleep(1)
        assert found.users == ["a", "a", "b", "c"]
