"""Results expire when their series can have a new sample: how many queries, and how late samples are seen."""

import asyncio
import functools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.sample_times import Selectors
from adapter.planning.vectors import Outcome, VectorCache
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusAccessError,
    PrometheusError,
    PrometheusOptions,
    PrometheusQueryError,
    PrometheusServers,
    PrometheusTimeout,
    PrometheusUnavailable,
    Sample,
    Vector,
)
from playground.load import Load, Traffic, Wave
from playground.prometheus import PrometheusServer, Target
from playground.workload import Workload, WorkloadPod
from tests.adapter.coalescing_rules import SUM, source
from tests.adapter.test_coalescer import objects_query
from tests.deadlines import after

TTL = 5.0
SECONDS = 360
LEARNED = 90
"""Seconds until an interval is waited for: it has been the same for a minute."""
EPOCH = 1_790_000_000.0
RATE = "sum(rate(packets_total[1m])) by (pod)"
DEPTH = "max(queue_depth) by (queue)"
HIGHEST = "max(max_over_time(queue_depth[1m])) by (queue)"


@dataclass
class ScrapedPrometheus:
    """Targets that are scraped every `interval` seconds, each at its phase; times are the event loop's.

    A sample can be queried `scrape_seconds` after its timestamp. `refuses`: the error for the query with the times of
    samples, of another server or a proxy before it. A result has `objects` samples. In the `gap` nothing was scraped. A
    query takes `seconds`, and `seconds_of_times` longer for the times of samples. One more target has had no sample
    since `down_since`.
    """

    interval: float
    phases: Sequence[float]
    scrape_seconds: float = 0.05
    refuses: PrometheusError | None = None
    objects: int = 1
    gap: tuple[float, float] = (0.0, 0.0)
    seconds: float = 0.005
    seconds_of_times: float = 0.0
    down_since: float | None = None
    evaluated: list[float] = field(default_factory=list)
    refused: int = 0

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        now = asyncio.get_running_loop().time()
        timed = "timestamp" in query
        if timed and self.refuses is not None:
            self.refused += 1
            raise self.refuses
        self.evaluated.append(now)
        at = EPOCH + now
        samples = [Sample({"pod": f"web-{number}"}, at, now) for number in range(self.objects)]
        if timed:
            down = () if self.down_since is None else (self.down_since,)
            newest = {math.ceil((EPOCH + one) * 4) for one in (*self.newest(now), *down)}
            samples += [Sample({"milliscale_newest": str(one)}, at, 1.0) for one in newest]
            samples.append(Sample({"milliscale_interval": f"{self.between(now):g}"}, at, float(len(self.phases))))
        seconds = self.seconds + (self.seconds_of_times if timed else 0.0)
        await asyncio.sleep(seconds)
        return Vector(tuple(samples), seconds=seconds)

    def newest(self, now: float) -> list[float]:
        """The timestamp of the newest sample of each target that can be queried."""
        steps = (math.floor((now - self.scrape_seconds - phase) / self.interval) for phase in self.phases)
        return [phase + step * self.interval for phase, step in zip(self.phases, steps, strict=True)]

    def between(self, now: float) -> float:
        """The mean interval of the last minute's samples, as Prometheus computes it."""
        first = self.newest(now)[0]
        steps = [first - self.interval * step for step in range(300)]
        there = [one for one in steps if not self.gap[0] <= one < self.gap[1]]
        recent = [one for one in there if one > now - 60]
        before = next(one for one in there if one <= now - 60)
        return round((there[0] - before) / len(recent) / 0.05) * 0.05

    def unseen(self, result: Vector) -> float:
        """Since when there has been a sample that is not in a result."""
        assert isinstance(result, Vector)
        now, seen = asyncio.get_running_loop().time(), result.samples[0].value
        first = [one + self.interval + self.scrape_seconds for one in self.newest(seen)]
        return max(0.0, now - min(first))


async def eager_client(
    prometheus: ScrapedPrometheus,
    *,
    query: str = RATE,
    seconds: int = SECONDS,
    since: int = LEARNED,
    pause: float = 1.0,
) -> list[float]:
    """Request again after each `pause`; return how late samples were in each response after `since` seconds."""
    late, time = [], asyncio.get_running_loop().time
    start = time()
    async with VectorCache(prometheus, ttl=TTL) as cache:
        while time() < start + seconds:
            result = await cache.instant(query)
            assert isinstance(result, Vector)
            assert [one.labels for one in result.samples] == [{"pod": "web-0"}]
            if time() > start + since:
                late.append(prometheus.unseen(result))
            await asyncio.sleep(pause)
    return late


@pytest.mark.looptime
@pytest.mark.parametrize("interval", [2.0, 5.0, 15.0, 60.0])
@pytest.mark.parametrize("query", [RATE, DEPTH])
async def test_eager_client_causes_one_query_for_each_sample(interval: float, query: str) -> None:
    prometheus = ScrapedPrometheus(interval, phases=[1.3])
    late = await eager_client(prometheus, query=query)
    steady = [at for at in prometheus.evaluated if at > LEARNED]
    assert len(steady) <= (SECONDS - LEARNED) / interval + 1
    assert max(late) <= 1.0  # the quarters of a second, and a quarter until the sample can be queried


@pytest.mark.looptime
async def test_many_clients_cause_one_query_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sends a request at once when a result expires, and Prometheus responds within a millisecond."""
    monkeypatch.setattr("tests.adapter.test_sample_times.EPOCH", EPOCH + 0.0074)  # no clock begins with a full second
    prometheus, time = ScrapedPrometheus(2.0, phases=[1.3], seconds=0.001), asyncio.get_running_loop().time
    async with VectorCache(prometheus, ttl=TTL) as cache:
        while time() < LEARNED + 4:
            await cache.instant(RATE)
            await asyncio.sleep(1.0 if time() < LEARNED else 0.001)
    assert len([at for at in prometheus.evaluated if at > LEARNED]) <= 4 / 2 + 1


@pytest.mark.looptime
@pytest.mark.parametrize("interval", [2.0, 5.0])
async def test_targets_scraped_at_many_times_have_one_query_an_interval_up_to_the_freshness(interval: float) -> None:
    """A sample waits half an interval for it on average, and not for the next request after it, too."""
    prometheus = ScrapedPrometheus(interval, phases=[0.37 * n % interval for n in range(20)])
    seen: dict[float, float] = {}
    async with VectorCache(prometheus, ttl=TTL) as cache:
        while (now := asyncio.get_running_loop().time()) < SECONDS:
            result = await cache.instant(RATE)
            for at in prometheus.newest(result.samples[0].value):
                seen.setdefault(round(at, 3), now)
            await asyncio.sleep(1.0)
    waited = [now - at - prometheus.scrape_seconds for at, now in seen.items() if at > LEARNED]
    assert statistics.mean(waited) <= interval / 2 + 0.1
    assert max(waited) <= min(interval + 1.0, TTL)  # a request in a second
    assert len([at for at in prometheus.evaluated if at > LEARNED]) <= (SECONDS - LEARNED) / interval + 1


@pytest.mark.looptime
@pytest.mark.parametrize("phases", [[0.5, 6.0], [0.7 * n for n in range(20)]])
async def test_samples_are_never_later_than_the_freshness_nor_queries_more(phases: list[float]) -> None:
    prometheus = ScrapedPrometheus(15.0, phases)
    usual = ScrapedPrometheus(15.0, phases, refuses=PrometheusQueryError("unknown function"))
    late, late_usually = await eager_client(prometheus), await eager_client(usual)
    assert len(prometheus.evaluated) <= len(usual.evaluated)
    assert max(late) <= TTL
    assert max(late_usually) <= TTL
    assert usual.refused == 1


@pytest.mark.looptime
@pytest.mark.parametrize(("interval", "pause"), [(2.0, 4.003), (5.0, 7.003), (15.0, 7.003)])
async def test_samples_are_no_later_than_usual_for_a_client_that_is_slower_than_they_are(
    interval: float, pause: float
) -> None:
    prometheus = ScrapedPrometheus(interval, phases=[1.3])
    usual = ScrapedPrometheus(interval, phases=[1.3], refuses=PrometheusQueryError("unknown function"))
    late, late_usually = await eager_client(prometheus, pause=pause), await eager_client(usual, pause=pause)
    assert sum(late) <= sum(late_usually)
    assert max(late) <= TTL


@pytest.mark.looptime
@pytest.mark.parametrize("error", [PrometheusAccessError("no POST"), PrometheusUnavailable("502"), PrometheusTimeout()])
async def test_longer_query_that_fails_is_no_error_of_the_metric(error: PrometheusError) -> None:
    """Such as at a proxy that has a right for GET and none for POST, which long queries are sent with."""
    prometheus = ScrapedPrometheus(15.0, phases=[1.3], refuses=error)
    assert max(await eager_client(prometheus)) <= TTL
    assert prometheus.refused == 1


@pytest.mark.looptime
@pytest.mark.parametrize("outage", [20.0, 50.0, 100.0, 200.0])
@pytest.mark.parametrize("query", [RATE, DEPTH])
async def test_interval_that_an_outage_has_made_longer_is_not_waited_for(query: str, outage: float) -> None:
    """Prometheus was restarted: for a minute there are fewer samples than its interval says."""
    prometheus = ScrapedPrometheus(15.0, phases=[1.3], gap=(-outage, 0.0))
    assert max(await eager_client(prometheus, query=query, since=20)) <= TTL


@pytest.mark.looptime
async def test_target_that_takes_long_to_scrape_is_queried_later_and_one_that_takes_too_long_as_usual() -> None:
    slow = ScrapedPrometheus(15.0, phases=[1.3], scrape_seconds=0.9)
    late = sorted(await eager_client(slow))
    assert late[-1] <= TTL
    assert late[-len(late) // 20] <= 2.0  # but for the times when it is found out
    assert len([at for at in slow.evaluated if at > LEARNED]) <= (SECONDS - LEARNED) / 15 + 4
    slower = ScrapedPrometheus(15.0, phases=[1.3], scrape_seconds=4.0)
    assert max(await eager_client(slower)) <= TTL


@pytest.mark.looptime
async def test_target_that_is_down_is_not_waited_for() -> None:
    prometheus = ScrapedPrometheus(15.0, phases=[1.3], down_since=-20.0)
    assert max(await eager_client(prometheus)) <= 1.0
    assert len([at for at in prometheus.evaluated if at > LEARNED]) <= (SECONDS - LEARNED) / 15 + 1


@pytest.mark.looptime
async def test_query_that_takes_long_is_not_sent_more_often() -> None:
    prometheus = ScrapedPrometheus(2.0, phases=[1.3], seconds=0.06)
    await eager_client(prometheus)
    assert len(prometheus.evaluated) <= SECONDS / (0.9 * TTL) + 1


@pytest.mark.looptime
async def test_what_the_times_of_samples_take_is_no_reason_against_coalescing() -> None:
    """The coalescer compares the seconds of results with those of queries for one request."""
    prometheus = ScrapedPrometheus(30.0, phases=[1.3], seconds_of_times=0.02)
    seconds: list[float] = []

    def observe(outcome: Outcome) -> None:
        assert isinstance(outcome, Vector)
        seconds.append(outcome.seconds)

    async with VectorCache(prometheus, ttl=TTL) as cache:
        fetch = functools.partial(cache.prefetch_query, RATE, DEFAULT_DESTINATION, index=None, observe=observe)
        await fetch()
        for _ in range(SECONDS):
            await asyncio.sleep(1.0)
            if cache.cached((RATE, DEFAULT_DESTINATION)) is None:
                assert None not in await asyncio.gather(*(fetch() for _ in range(3)))
    assert len(seconds) == len(prometheus.evaluated) < SECONDS / TTL  # each once, for all requests that wait
    assert set(seconds) == {0.005}


@pytest.mark.looptime
@pytest.mark.parametrize("interval", [5.0, 30.0])
async def test_result_expires_the_freshness_after_the_next_sample(interval: float) -> None:
    """Requests come together, and then none for longer and longer."""
    prometheus = ScrapedPrometheus(interval, phases=[1.3])
    async with VectorCache(prometheus, ttl=TTL) as cache:
        for pause in range(60):
            for _ in range(20):
                await cache.instant(RATE)
                await asyncio.sleep(0.5)
            await asyncio.sleep(pause)
            assert prometheus.unseen(await cache.instant(RATE)) <= TTL + 0.1


@pytest.mark.looptime
async def test_sample_that_comes_at_another_time_is_late_once() -> None:
    prometheus = ScrapedPrometheus(15.0, phases=[1.3])

    async def restart() -> None:
        await asyncio.sleep(LEARNED + 60)
        prometheus.phases = [9.3]

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(restart())
        late = await eager_client(prometheus)
    beyond = [index for index, one in enumerate(late) if one > TTL]
    assert len(beyond) <= 15
    assert max(late) <= 15.0


@pytest.mark.looptime
async def test_result_without_hits_is_not_refreshed_however_long_it_is_good() -> None:
    prometheus = ScrapedPrometheus(30.0, phases=[1.3])
    async with VectorCache(prometheus, ttl=TTL) as cache:
        for _ in range(LEARNED + 60):
            await cache.instant(RATE)
            await asyncio.sleep(1.0)
        before = len(prometheus.evaluated)
        await asyncio.sleep(600)
        assert len(prometheus.evaluated) <= before + 1
        assert cache.entries == 0


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("query", "objects", "queries"),
    [(DEPTH, 1, 300 / TTL), (DEPTH, 3, 300 / 30), (HIGHEST, 1, 300 / TTL), (RATE, 1, 300 / 30)],
)
async def test_first_value_of_a_new_object_is_not_waited_for_unless_one_target_has_all(
    query: str, objects: int, queries: float
) -> None:
    """A result for all objects lacks a new one; a gauge has its value with the first sample."""
    prometheus = ScrapedPrometheus(30.0, phases=[1.3], objects=objects)
    async with VectorCache(prometheus, ttl=TTL) as cache:
        fetch = functools.partial(
            cache.prefetch_query, query, DEFAULT_DESTINATION, index=("namespace", "pod"), observe=lambda _: None
        )
        await fetch()
        for _ in range(LEARNED + 300):
            await asyncio.sleep(1.0)
            assert cache.cached((query, DEFAULT_DESTINATION)) is not None or await fetch() is not None
    assert queries <= len([at for at in prometheus.evaluated if at > LEARNED]) <= 1.2 * queries + 2


@pytest.mark.looptime
async def test_coalesced_requests_get_a_new_sample_when_it_is_due() -> None:
    prometheus, time = ScrapedPrometheus(15.0, phases=[1.3]), asyncio.get_running_loop().time
    async with VectorCache(prometheus, ttl=TTL) as cache:
        coalescer = MetricsQueryCoalescer(cache, clock=time)
        while time() < SECONDS:
            for name in ("web-0", "web-1"):
                found = await coalescer.cached(objects_query(source(SUM), name))
                if time() > LEARNED:
                    assert found is not None
                    assert prometheus.unseen(found) <= 0.5
            await asyncio.sleep(1.0)
        assert len([at for at in prometheus.evaluated if at > LEARNED]) <= (SECONDS - LEARNED) / 15 + 1
        prometheus.seconds = 60.0  # it hangs: requests are sent alone
        waited: list[float] = []
        for _ in range(30):
            before = time()
            seconds = 20.0 if any(waited) else 0.5
            await coalescer.cached(objects_query(source(SUM), "web-0"), after(seconds))
            waited.append(time() - before)
            await asyncio.sleep(1.0)
        # Half of the time until the first one's deadline, then a second once.
        assert [one for one in waited if one] == pytest.approx([0.25, 1.0])


@pytest.mark.parametrize(
    "query",
    [
        "time() - max(last_success)",
        "max_over_time(rate(x[1m])[5m:30s])",
        "rate(x[1m] offset 5m)",
        "x @ 1700000000",
        '{job="web"}',
        "3",
        "scalar(x)",
        "x if y",
        "a + b + c + d + e",
        "predict_linear(x[1h], 3600)",
    ],
)
def test_query_whose_result_can_change_without_a_sample_is_refreshed_as_usual(query: str) -> None:
    assert Selectors.of(query) is None


def test_range_is_read_in_parentheses_too() -> None:
    selectors = Selectors.of("sum(rate((x[70s]))) / sum(increase(y[1m]))")
    assert selectors is not None
    assert sorted(selectors.ranges) == [("increase", timedelta(minutes=1)), ("rate", timedelta(seconds=70))]


@pytest.mark.looptime
async def test_range_of_no_whole_number_of_intervals_is_refreshed_as_usual() -> None:
    prometheus = ScrapedPrometheus(40.0, phases=[1.3])
    await eager_client(prometheus, seconds=300)
    assert len(prometheus.evaluated) >= 300 / TTL


@pytest.mark.looptime
@pytest.mark.parametrize("labels", [{"milliscale_newest": "soon"}, {"milliscale_interval": "NaN"}])
async def test_times_that_are_no_numbers_are_ignored(labels: dict[str, str]) -> None:
    class Odd(ScrapedPrometheus):
        async def instant(
            self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
        ) -> Vector:
            result = await super().instant(query, deadline=deadline, destination=destination)
            assert isinstance(result, Vector)
            odd = (Sample(labels, EPOCH, math.nan),) if "timestamp" in query else ()
            return Vector((*result.samples, *odd), seconds=0.001)

    prometheus = Odd(15.0, phases=[1.3])
    assert max(await eager_client(prometheus, seconds=LEARNED + 60)) <= 15.0


@pytest.mark.e2e
async def test_real_prometheus_says_when_its_samples_are_due(tmp_path: Path) -> None:
    """Two targets of a real Prometheus, scraped every second: both times and the interval, and the same values."""
    pods = [WorkloadPod(f"web-{n}", "web", ready=True) for n in range(2)]
    load = Load(
        traffic={"web": Traffic(wave=Wave(low=10, high=10, period=1), counters={"packets_total": 1})}, backlogs={}
    )
    query = "sum(rate(packets_total[5s])) by (pod)"
    async with Workload(load) as workload, PrometheusServer(tmp_path, scrape_interval=1.0) as server:
        await workload.set_pods(pods)
        await server.set_targets(
            Target(address=address, labels={"pod": pod}) for pod, address in workload.addresses.items()
        )
        selectors = Selectors.of(query)
        assert selectors is not None
        async with PrometheusServers(PrometheusOptions(url=server.url)) as servers:
            text = re.sub(r"\b1m\b", "4s", selectors.query)  # which the test waits for
            text += '\nor label_replace(timestamp(packets_total), "raw", "yes", "", "")'
            async with asyncio.timeout(60):
                while True:
                    result = await servers.instant(f"({query}\n)\nor {text}")
                    assert isinstance(result, Vector)
                    intervals = [one.labels.get("milliscale_interval") for one in result.samples]
                    if "1" in intervals:
                        break
                    await asyncio.sleep(0.2)
    newest = {float(one.labels["milliscale_newest"]) / 4 for one in result.samples if "milliscale_newest" in one.labels}
    real = {one.labels["pod"]: one.value for one in result.samples if "raw" in one.labels}
    assert newest == {math.ceil(time * 4) / 4 for time in real.values()}
    assert {one.labels.get("pod") for one in result.samples if "raw" not in one.labels} >= {"web-0", "web-1"}
