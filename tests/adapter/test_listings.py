"""Lists of series: shared, repeated, and retried after failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from adapter.catalog.listings import Listings, retries_of_lists
from adapter.catalog.rule_states import NOT_LISTED, RuleState
from adapter.prometheus import PrometheusUnavailable
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.objects import Tenancy, read_object
from kube.api.client import KubeUnreachable
from kube.api.mapping import GroupResource, NoMatchError, ResourceInfo
from tests.adapter.metrics_env import CannedPrometheus, series

pytestmark = pytest.mark.looptime


def rule(selector: str, *, namespace: str = "shop", kind: str = "External") -> Rule:
    """Return a rule of a namespace; "" for all."""
    spec: dict[str, Any] = {"type": kind, "seriesQuery": selector, "metricsQuery": "sum(<<.Series>>)"}
    if kind == "Pods":
        spec["resources"] = {"overrides": {name: {"resource": name} for name in ("pod", "namespace")}}
    obj = {
        "kind": "MetricRule" if namespace else "ClusterMetricRule",
        "metadata": {"namespace": namespace, "name": selector},
        "spec": spec,
    }
    [found] = read_object(obj, servers={}, tenancy=Tenancy()).rules
    assert isinstance(found, Rule)
    return found


class NoResources:
    """An API server without resources, or without a response."""

    is_down = False

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        if self.is_down:
            raise KubeUnreachable("no connection")
        raise NoMatchError(resource, group)


class Lists:
    """The rules of users, with the users of each list, and when it was."""

    def __init__(self, *, limited: bool = True) -> None:
        self.limited = limited
        self.prometheus = CannedPrometheus(found={"jobs": (series("jobs", "pod"),)})
        self.mapper = NoResources()
        self.users: list[str] = []
        self.times: list[float] = []
        self.states: dict[tuple[str, str], RuleState] = {}
        self.listings = Listings(
            self.prometheus,
            self.mapper,
            max_age=60.0,
            relist_interval=100.0,
            clock=lambda: 1000.0,
            monotonic=asyncio.get_running_loop().time,
            random=lambda: 0.625,  # the times are exact
        )

    def use(self, user: str, *rules: AnyRule, now: bool = True) -> None:
        states = [RuleState(rule, problem=NOT_LISTED) for rule in rules]
        self.states |= {(user, state.rule.key): state for state in states}
        self.listings.use(user, self, states, now=now)

    def rule_state(self, user: str, rule: AnyRule) -> RuleState | None:
        return self.states.get((user, rule.key))

    def set_rule_state(self, user: str, state: RuleState) -> None:
        self.states[user, state.rule.key] = state

    def delay(self, seconds: Callable[[str], float]) -> None:
        """Let lists take some seconds, by the selector, and find nothing."""

        async def list_slowly(selector: str, **_: object) -> tuple[()]:
            await asyncio.sleep(seconds(selector))
            return ()

        self.prometheus.series = list_slowly  # type: ignore[method-assign]

    async def publish(self, user: str) -> None:
        self.users.append(user)
        self.times.append(asyncio.get_running_loop().time())


@contextlib.asynccontextmanager
async def lists(*, limited: bool = True) -> AsyncIterator[Lists]:
    """Lists of rules of objects; with `limited` False, of the rules file."""
    found = Lists(limited=limited)
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
        assert found.times == [0.0, 93.75]
        found.use("a")
        await asyncio.sleep(1000)
        assert found.times == [0.0, 93.75]


@pytest.mark.parametrize("limited", [True, False], ids=["object", "file"])
@pytest.mark.parametrize("down", ["Prometheus", "API server"])
async def test_failed_list_is_retried_with_backoff(down: str, limited: bool) -> None:
    async with lists(limited=limited) as found:
        if down == "Prometheus":
            found.prometheus.found["jobs"] = PrometheusUnavailable("no response")
        else:
            found.mapper.is_down = True
        found.use("a", rule("jobs", kind="Pods"))
        await asyncio.sleep(60)
        assert found.times == [0.0, 1.125, 3.375, 7.875, 16.875, 34.875]
        found.mapper.is_down, found.prometheus.found["jobs"] = False, ()
        await asyncio.sleep(100)
        assert len(found.times) == 8
        found.mapper.is_down, found.prometheus.found["jobs"] = True, PrometheusUnavailable("no response")
        await asyncio.sleep(100)
        assert found.times[9] - found.times[8] == 1.125, "after a success, the first wait is short again"


def test_failed_lists_wait_no_longer_than_the_interval() -> None:
    retries = retries_of_lists(5.0, random=lambda: 1.0)
    assert [round(retries.next(), 9) for _ in range(4)] == [1.2, 2.4, 4.8, 5.0]


@pytest.mark.parametrize("all_namespaces", [True, False])
async def test_few_lists_of_objects_are_in_flight(all_namespaces: bool) -> None:
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
        for number in range(40):
            one = rule(f"jobs-{number}", namespace="") if all_namespaces else rule("jobs", namespace=f"team-{number}")
            found.use(str(number), one)
        await asyncio.sleep(20)
        assert (most, len(found.times)) == (8, 40)


@pytest.mark.parametrize(("limited", "namespace"), [(True, "bank"), (False, "")], ids=["object", "file"])
async def test_slow_lists_of_a_namespace_or_of_the_file_do_not_delay_others(limited: bool, namespace: str) -> None:
    async with lists(limited=limited) as found:
        found.delay(lambda selector: 1000 if selector.startswith("slow") else 0)
        found.use("a", *(rule(f"slow_{number}", namespace=namespace and "shop") for number in range(40)))
        await asyncio.sleep(5)
        found.use("c", rule("jobs", namespace=namespace))
        await asyncio.sleep(1)
        assert found.users == ["c"]


@pytest.mark.parametrize("namespace", ["shop", ""])
async def test_new_rules_are_listed_before_repeated_lists(namespace: str) -> None:
    async with lists() as found:
        found.use("a", *(rule(f"jobs_{number}", namespace=namespace) for number in range(10)))
        await asyncio.sleep(93)
        found.delay(lambda _: 10)
        found.users.clear()
        await asyncio.sleep(2)  # the first repeated lists are in flight
        found.use("b", rule("new", namespace=namespace))
        await asyncio.sleep(20)
        assert found.users.index("b") == (1 if namespace else 8)


async def test_list_that_is_needed_again_is_made_at_once() -> None:
    async with lists() as found:
        found.use("a", rule("jobs"))
        await asyncio.sleep(1)
        found.use("a")
        await asyncio.sleep(1000)
        found.use("a", rule("jobs"), now=False)
        await asyncio.sleep(1)
        assert found.times == [0.0, 1001.0]


async def test_rule_without_a_series_query_has_a_list_without_a_request() -> None:
    async with lists() as found:
        found.use(
            "a", QueryRule(metric="m", query="up", resource=GroupResource("", "queue"), key="ClusterMetricRule m")
        )
        await asyncio.sleep(2)
        assert found.times == [0.0, 1.125]
        assert not found.prometheus.listed


@pytest.mark.parametrize("now", [True, False])
async def test_user_that_comes_during_a_list_gets_its_result_and_causes_no_other(now: bool) -> None:
    async with lists() as found:
        found.delay(lambda _: 10)
        found.use("a", rule("jobs"))
        await asyncio.sleep(5)
        found.use("b", rule("jobs"), now=now)
        await asyncio.sleep(20)
        assert (found.users, found.times) == (["a", "b"], [10.0, 10.0])


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


async def test_list_that_ends_after_a_user_is_gone_does_not_change_its_rules() -> None:
    """Also if the user goes while the series are looked up in the cluster."""
    async with lists() as found:
        gone = rule("jobs", kind="Pods")
        looked_up = asyncio.Event()

        async def look_up(resource: str, group: str = "") -> ResourceInfo:
            found.use("b")
            looked_up.set()
            raise NoMatchError(resource, group)

        found.mapper.resource_for = look_up  # type: ignore[method-assign]
        found.use("a", rule("jobs"))
        found.use("b", gone)
        found.use("c", gone)
        await asyncio.sleep(1)
        assert looked_up.is_set()
        assert found.users == ["a", "c"]
        assert found.states["b", gone.key].problem is NOT_LISTED


async def test_lists_are_made_again_on_request() -> None:
    async with lists() as found:
        found.use("a", rule("jobs"))
        found.use("b", rule("other"))
        await asyncio.sleep(1)
        found.listings.list_again("a")
        await asyncio.sleep(1)
        assert found.times == [0.0, 0.0, 1.0]
