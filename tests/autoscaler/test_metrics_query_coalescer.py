"""Coalesced metric queries: when they are merged, and that each caller gets its own response."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.observation import MetricError, MetricResponse, Pod, PodSample, PodsResponse
from autoscaler.loop import metrics_query_coalescer
from autoscaler.loop.metrics_query_coalescer import MetricsQuery, MetricsQueryCoalescer
from autoscaler.loop.pod_owners import PodIndex
from kube.values.selectors import LabelSelector

QUERY = MetricsQuery("default", "packets")
APPS = [f"app-{number}" for number in range(6)]


class Server:
    """A metrics API with values of some pods."""

    def __init__(self, pods: dict[str, dict[str, str]]) -> None:
        self.pods = pods
        self.silent: set[str] = set()
        self.fails_for: Callable[[LabelSelector], bool] = lambda _: False
        self.requests: list[str] = []
        self.gate: asyncio.Event | None = None
        self.reached = asyncio.Semaphore(0)
        """Released by each request."""

    async def fetch(self, selector: LabelSelector) -> PodsResponse | MetricError:
        self.requests.append(str(selector))
        self.reached.release()
        if self.gate is not None:
            await self.gate.wait()
        return self.response(selector)

    def response(self, selector: LabelSelector) -> PodsResponse | MetricError:
        """Return the response for these pods; an error if there are none."""
        if self.fails_for(selector):
            return MetricError(f"no metrics for {selector}")
        names = [name for name, labels in self.pods.items() if selector.matches(labels) and name not in self.silent]
        if not names:
            return MetricError(f"the server could not find the metric for {selector}")
        return PodsResponse({name: PodSample(value=hash(name) % 1000, timestamp_ms=1, window_ms=1) for name in names})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pods_of(apps: Sequence[str]) -> dict[str, dict[str, str]]:
    return {f"{app}-{number}": {"app": app, "tier": "web"} for app in apps for number in range(2)}


def index_of(pods: dict[str, dict[str, str]]) -> PodIndex:
    index = PodIndex()
    for name, labels in pods.items():
        index.apply(("default", name), None, Pod(name=name, namespace="default", labels=labels, phase="Running"))
    return index


def of(*texts: str) -> list[LabelSelector]:
    return [LabelSelector.parse(text) for text in texts]


async def fetch_all(
    coalescer: MetricsQueryCoalescer,
    selectors: Sequence[LabelSelector],
    fetch: Callable[[LabelSelector], Awaitable[MetricResponse]],
) -> list[MetricResponse]:
    return await asyncio.gather(*(coalescer.fetch(QUERY, selector, fetch) for selector in selectors))


@pytest.fixture
def server() -> Server:
    return Server(pods_of(APPS))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coalescer(server: Server, clock: Clock) -> MetricsQueryCoalescer:
    return MetricsQueryCoalescer(index_of(server.pods), clock=clock)


async def test_equal_queries_share_one_request(server: Server, coalescer: MetricsQueryCoalescer) -> None:
    selectors = of("app=app-0", "app=app-0", "app=app-0")
    responses = await fetch_all(coalescer, selectors, server.fetch)
    assert server.requests == ["app=app-0"]
    assert responses == [server.response(selectors[0])] * 3


async def test_selectors_that_differ_in_a_value_are_coalesced(server: Server, coalescer: MetricsQueryCoalescer) -> None:
    selectors = of(*(f"app={app},tier=web" for app in APPS))
    responses = await fetch_all(coalescer, selectors, server.fetch)
    assert server.requests == ["app in (app-0,app-1,app-2,app-3,app-4,app-5),tier=web"]
    assert responses == [server.response(selector) for selector in selectors]


async def test_server_that_ignores_selectors_gets_single_requests(
    server: Server, coalescer: MetricsQueryCoalescer, clock: Clock
) -> None:
    """As without coalescing, each HPA's response has all pods, and its average includes those of others."""
    server.pods |= {"stranger": {"app": "other"}}

    def everything(_: LabelSelector) -> PodsResponse:
        return PodsResponse({name: PodSample(value=1, timestamp_ms=1, window_ms=1) for name in server.pods})

    async def fetch(selector: LabelSelector) -> PodsResponse:
        server.requests.append(str(selector))
        return everything(selector)

    coalescer = MetricsQueryCoalescer(index_of(server.pods), clock=clock)
    selectors = of(*(f"app={app}" for app in APPS))
    assert await fetch_all(coalescer, selectors, fetch) == [everything(each) for each in selectors]
    assert server.requests[1:] == [str(each) for each in selectors]
    assert await fetch_all(coalescer, selectors, fetch) == [everything(each) for each in selectors]
    assert len(server.requests) == 1 + 2 * len(selectors)


async def test_fewer_than_four_selectors_are_not_coalesced(server: Server, coalescer: MetricsQueryCoalescer) -> None:
    selectors = of(*(f"app={app}" for app in APPS[:3]))
    responses = await fetch_all(coalescer, selectors, server.fetch)
    assert sorted(server.requests) == ["app=app-0", "app=app-1", "app=app-2"]
    assert responses == [server.response(selector) for selector in selectors]


async def test_later_query_is_a_new_request(server: Server, coalescer: MetricsQueryCoalescer) -> None:
    server.gate = asyncio.Event()
    first = asyncio.create_task(coalescer.fetch(QUERY, of("app=app-0")[0], server.fetch))
    await server.reached.acquire()
    second = asyncio.create_task(coalescer.fetch(QUERY, of("app=app-0")[0], server.fetch))
    await server.reached.acquire()
    server.gate.set()
    assert await first == await second


async def test_selector_without_pods_in_the_response_sends_its_own_request(
    server: Server, coalescer: MetricsQueryCoalescer
) -> None:
    server.silent = {"app-2-0", "app-2-1"}
    selectors = of(*(f"app={app}" for app in APPS))
    responses = await fetch_all(coalescer, selectors, server.fetch)
    assert server.requests == ["app in (app-0,app-1,app-2,app-3,app-4,app-5)", "app=app-2"]
    assert responses == [server.response(selector) for selector in selectors]
    assert responses[2] == MetricError("the server could not find the metric for app=app-2")


async def test_unknown_pod_stops_merging_for_a_minute(server: Server, coalescer: MetricsQueryCoalescer) -> None:
    server.pods["app-3-new"] = {"app": "app-3", "tier": "web"}
    selectors = of(*(f"app={app}" for app in APPS))
    requests: list[int] = []
    for _ in range(4):
        server.requests.clear()
        await fetch_all(coalescer, selectors, server.fetch)
        requests.append(len(server.requests))
    assert requests == [7, 6, 6, 6]


async def test_failed_coalescing_is_not_retried_for_a_minute(
    server: Server, coalescer: MetricsQueryCoalescer, clock: Clock
) -> None:
    server.fails_for = lambda selector: " in " in str(selector)
    selectors = of(*(f"app={app}" for app in APPS))
    expected = [server.response(selector) for selector in selectors]
    for requests in (7, 6, 6):
        server.requests.clear()
        assert await fetch_all(coalescer, selectors, server.fetch) == expected
        assert len(server.requests) == requests
    clock.now = 60.0
    server.requests.clear()
    await fetch_all(coalescer, selectors, server.fetch)
    assert len(server.requests) == 7


async def test_cached_failures_are_bounded(server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise deleted namespaces and metrics would leak memory."""
    monkeypatch.setattr(metrics_query_coalescer, "_MAX_CACHED", 2)
    coalescer = MetricsQueryCoalescer(index_of(server.pods), clock=clock)
    server.fails_for = lambda selector: " in " in str(selector)
    selectors = of(*(f"app={app}" for app in APPS))
    requests: list[int] = []
    for metric in ("a", "b", "c", "c", "b", "a"):
        server.requests.clear()
        query = MetricsQuery("default", metric)
        await asyncio.gather(*(coalescer.fetch(query, selector, server.fetch) for selector in selectors))
        requests.append(len(server.requests))
    assert requests == [7, 7, 7, 6, 6, 7]


async def test_coalesced_request_has_at_most_50_selectors() -> None:
    apps = [f"a{number:03}" for number in range(120)]
    server = Server(pods_of(apps))
    coalescer = MetricsQueryCoalescer(index_of(server.pods))
    await fetch_all(coalescer, of(*(f"app={app}" for app in apps)), server.fetch)
    assert [text.count(",") + 1 for text in server.requests] == [50, 50, 20]


async def test_waiters_send_their_own_request_when_the_first_is_cancelled(
    server: Server, coalescer: MetricsQueryCoalescer
) -> None:
    server.gate = asyncio.Event()
    selectors = of(*(f"app={app}" for app in APPS))
    tasks = [asyncio.create_task(coalescer.fetch(QUERY, selector, server.fetch)) for selector in selectors]
    await server.reached.acquire()
    tasks[0].cancel()
    server.gate.set()
    responses = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(responses[0], asyncio.CancelledError)
    assert responses[1:] == [server.response(selector) for selector in selectors[1:]]


VALUES = st.sampled_from(["a", "b", "c"])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), VALUES)
SELECTOR = st.one_of(
    st.builds("app={}".format, VALUES),
    st.builds("app={},tier={}".format, VALUES, VALUES),
    st.builds("app={},tier!={}".format, VALUES, VALUES),
    st.builds("app in ({},{})".format, VALUES, VALUES),
    st.just("tier"),
    st.just(""),
)


@given(
    labels=st.lists(LABELS, max_size=12),
    unknown=st.lists(LABELS, max_size=1),
    texts=st.lists(SELECTOR, min_size=1, max_size=12),
    silent=st.sets(st.integers(0, 11), max_size=4),
)
def test_merging_never_changes_a_response(
    labels: list[dict[str, str]], unknown: list[dict[str, str]], texts: list[str], silent: set[int]
) -> None:
    known = {f"pod-{number}": each for number, each in enumerate(labels)}
    server = Server(known | {f"new-{number}": each for number, each in enumerate(unknown)})
    server.silent = {f"pod-{number}" for number in silent}
    selectors = of(*texts)
    responses = asyncio.run(fetch_all(MetricsQueryCoalescer(index_of(known)), selectors, server.fetch))
    assert responses == [server.response(selector) for selector in selectors]
    assert len(server.requests) <= len(set(texts)) + len(texts)
