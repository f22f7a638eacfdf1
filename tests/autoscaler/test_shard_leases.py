"""Changes of --shards: no object has two owners at any time, whatever the order in which processes come and go.

Processes are leader electors on a fake API server in virtual time: a day passes in a moment, and each time that time
passes or a request is executed the owners are counted.
"""

import asyncio
import copy
import logging
import math
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import combinations, count
from random import Random
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.loop.sharding import SHARDS_ANNOTATION, Shard, ShardLeases
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.status import StatusError
from kube.controller.election import ElectionSettings, LeaderElector
from tests.kube.scripted_api import ScriptedApi

BASE = "scaler"
LEASE_SECONDS = 15.0
LONG = 6 * LEASE_SECONDS
"""Long enough for any Lease to run out, be noticed and be taken."""

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, let the time pass that would have been waited."""

    def __init__(self, passes: Callable[[], None]) -> None:
        super().__init__()
        self.now = 0.0
        self._passes = passes

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits, and nobody for a time"
        self._passes()
        self.now += timeout
        return super().select(0)


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop on which time passes as soon as nobody has anything to do."""

    def __init__(self, passes: Callable[[], None]) -> None:
        self._clock = _Selector(passes)
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class Api:
    """An API server with Leases. Requests are executed one after another, as by etcd."""

    def __init__(self, random: Random) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.may_list = True
        self._random = random
        self._versions = count(1)

    async def call(self, execute: Callable[[], T]) -> T:
        """A request and its response, each of which takes a while; a caller that is gone stops neither."""
        response: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            try:
                result = execute()
            except StatusError as error:
                if not response.cancelled():
                    response.set_exception(error)
            else:
                if not response.cancelled():
                    response.set_result(result)

        asyncio.get_running_loop().call_later(self._random.choice([0.001, 0.02, 0.5]), arrive)
        result = await response
        await asyncio.sleep(self._random.choice([0.001, 0.02, 0.5]))
        return result

    def list(self) -> dict[str, Any]:
        if not self.may_list:
            raise StatusError(403, "", "leases is forbidden")
        return {"items": copy.deepcopy(list(self.leases.values()))}

    def get(self, name: str) -> dict[str, Any]:
        if name not in self.leases:
            raise StatusError(404, "", "not found")
        return copy.deepcopy(self.leases[name])

    def write(self, name: str, body: dict[str, Any], *, new: bool) -> dict[str, Any]:
        stored = self.leases.get(name)
        if (stored is not None) == new:
            raise StatusError(409 if new else 404, "", "no")
        if stored is not None and stored["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
            raise StatusError(409, "", "the object has been modified")
        metadata = {**body["metadata"], "name": name, "resourceVersion": str(next(self._versions))}
        self.leases[name] = copy.deepcopy({**body, "metadata": metadata})
        return copy.deepcopy(self.leases[name])


class Client:
    """A process' connection, which can be cut."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.cut = False

    async def get(self, path: str, query: object = None, *, timeout: float = 5.0) -> dict[str, Any]:
        name = path.partition("/leases/")[2]
        return await self._call(lambda: self._api.get(name) if name else self._api.list(), timeout)

    async def post(self, path: str, body: dict[str, Any], *, timeout: float = 5.0) -> dict[str, Any]:
        return await self._call(lambda: self._api.write(body["metadata"]["name"], body, new=True), timeout)

    async def put(self, path: str, body: dict[str, Any], *, timeout: float = 5.0) -> dict[str, Any]:
        return await self._call(lambda: self._api.write(path.partition("/leases/")[2], body, new=False), timeout)

    async def watch(self, path: str, query: object = None) -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(3600)
        nothing: dict[str, Any]
        for nothing in ():
            yield nothing

    async def _call(self, execute: Callable[[], T], timeout: float) -> T:
        try:
            async with asyncio.timeout(timeout):
                if self.cut:
                    await asyncio.sleep(timeout + 1)
                result = await self._api.call(execute)
                if self.cut:
                    await asyncio.sleep(timeout + 1)
                return result
        except TimeoutError:
            raise KubeUnreachable("timed out") from None


class Process:
    """An autoscaler as far as its Lease is concerned."""

    def __init__(self, api: Api, random: Random, shard: Shard, number: int) -> None:
        self.shard = shard
        self.client = Client(api)
        self.stop = asyncio.Event()
        clock = asyncio.get_running_loop().time
        client = cast("KubeClient", self.client)
        settings_ = ElectionSettings(namespace="default", name=shard.name(BASE), lease_duration=LEASE_SECONDS)
        self.others = ShardLeases(client, settings_, shard=shard, clock=clock)
        self.elector = LeaderElector(
            client,
            settings_,
            identity=f"process-{number}",
            annotations=self.others.annotations,
            may_take=self.others.may_take,
            clock=clock,
            wall_clock=clock,
            random=random.random,
        )
        self.task = asyncio.create_task(self.elector.run(self._work, stop=self.stop))

    async def _work(self) -> None:
        await self.stop.wait()

    @property
    def acts(self) -> bool:
        return self.elector.leading()


def overlap(one: Shard, other: Shard) -> bool:
    """Return True if an object can belong to both: a number has both indexes modulo the counts."""
    return (one.index - other.index) % math.gcd(one.count, other.count) == 0


class Cluster:
    """Processes that come and go, in virtual time."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.api = Api(self.random)
        self.processes: list[Process] = []
        self.twice: list[tuple[Shard, Shard]] = []
        """The processes that owned the same object at the same time."""

    def run(self, story: Callable[["Cluster"], Awaitable[None]]) -> None:
        async def whole() -> None:
            try:
                await story(self)
            finally:
                for process in self.processes:
                    self.kill(process)
                await asyncio.gather(*(each.task for each in self.processes), return_exceptions=True)

        with asyncio.Runner(loop_factory=lambda: VirtualTime(self.check)) as runner:
            runner.run(whole())
        assert self.twice == []

    def check(self) -> None:
        """Record an object with two owners."""
        acting = self.acting()
        self.twice += [pair for pair in combinations(acting, 2) if overlap(*pair)]

    def acting(self) -> list[Shard]:
        return [each.shard for each in self.processes if each.acts]

    def start(self, index: int, count: int) -> Process:
        process = Process(self.api, self.random, Shard(index=index, count=count), len(self.processes))
        self.processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        process.task.cancel()

    async def tick(self) -> None:
        await asyncio.sleep(0.1)

    async def whole_of(self, count: int, *, within: float = LONG) -> None:
        """Wait until every object has an owner, of so many shards."""
        wanted = {Shard(index=index, count=count) for index in range(count)}
        async with asyncio.timeout(within):
            while set(self.acting()) != wanted:
                await self.tick()


# --- changes of the number of shards -------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (3, 2), (2, 4), (2, 1), (3, 5)])
@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_a_rolling_change_waits_for_the_last_of_the_old_processes(old: int, new: int, ends: str) -> None:
    """As a StatefulSet rolls out: new pods are added, then one by one of the old is replaced, the last one first."""

    async def story(cluster: Cluster) -> None:
        before = [cluster.start(index, old) for index in range(old)]
        await cluster.whole_of(old)
        added = [cluster.start(index, new) for index in range(old, new)]
        await asyncio.sleep(LONG)
        assert all(each.others.problem for each in added)
        assert not any(each.shard.name(BASE) in cluster.api.leases for each in added), "a Lease held in vain"
        for index in reversed(range(old)):
            before[index].stop.set() if ends == "stopped" else cluster.kill(before[index])
            await asyncio.gather(before[index].task, return_exceptions=True)
            if index < new:
                cluster.start(index, new)
            await asyncio.sleep(LONG if index else 0)
            assert {each.count for each in cluster.acting()} == ({old} if index else set())
        await cluster.whole_of(new)
        assert not any(each.others.problem for each in cluster.processes)

    Cluster().run(story)


@pytest.mark.parametrize("seed", range(4))
def test_two_that_start_at_the_same_moment_and_count_differently_do_not_both_act(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        both = [cluster.start(0, 2), cluster.start(2, 3)]
        async with asyncio.timeout(LONG):
            while not cluster.acting():
                await cluster.tick()
        await asyncio.sleep(LONG)
        assert sorted(each.acts for each in both) == [False, True]

    Cluster(seed).run(story)


events = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 3), st.integers(1, 4)),
    st.tuples(st.sampled_from(["stop", "kill", "cut", "mend"]), st.integers(0, 9), st.just(0)),
)
pauses = st.sampled_from([0.0, 0.01, 0.3, 3.0, 9.0, 14.0, 40.0])


@given(st.lists(st.tuples(events, pauses), max_size=14), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_no_object_ever_has_two_owners(story: list[tuple[tuple[str, int, int], float]], seed: int) -> None:
    async def play(cluster: Cluster) -> None:
        for (what, number, shards), pause in story:
            if what == "start":
                cluster.start(number % shards, shards)
            elif cluster.processes:
                process = cluster.processes[number % len(cluster.processes)]
                if what == "stop":
                    process.stop.set()
                elif what == "kill":
                    cluster.kill(process)
                else:
                    process.client.cut = what == "cut"
            await asyncio.sleep(pause)
        await asyncio.sleep(20)

    Cluster(seed).run(play)


# --- which Leases count ----------------------------------------------------------------------------------------------


def test_the_lease_has_the_number_of_shards_and_keeps_other_annotations() -> None:
    async def story(cluster: Cluster) -> None:
        (process,) = (cluster.start(0, 1),)
        await cluster.whole_of(1)
        assert cluster.api.leases[BASE]["metadata"]["annotations"] == {SHARDS_ANNOTATION: "1"}
        process.stop.set()
        await process.task
        cluster.api.leases[BASE]["metadata"]["annotations"] = {SHARDS_ANNOTATION: "7", "note": "kept"}
        cluster.start(0, 1)
        await cluster.whole_of(1)
        assert cluster.api.leases[BASE]["metadata"]["annotations"] == {SHARDS_ANNOTATION: "1", "note": "kept"}

    Cluster().run(story)


def held(name: str, **annotations: str) -> dict[str, Any]:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 15}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize("annotations", [{}, {SHARDS_ANNOTATION: "2"}], ids=["of an earlier release", "of two shards"])
def test_a_lease_that_does_not_change_counts_until_it_has_run_out(
    annotations: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.api.leases[f"{BASE}-1"] = held(f"{BASE}-1", **annotations)
        process = cluster.start(0, 3)
        await asyncio.sleep(LEASE_SECONDS - 1)
        assert (process.acts, process.others.problem is None) == (False, False)
        await asyncio.sleep(LEASE_SECONDS)
        assert (process.acts, process.others.problem is None) == (True, True)

    Cluster().run(story)
    counts = "--shards=2" if annotations else "an unknown number of shards"
    problem = f"lease default/scaler-1 is held by another with {counts}, and this process has --shards=3"
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert warnings == [f"waiting before acting: {problem}"]


@pytest.mark.parametrize(
    "leases",
    [
        [held(f"{BASE}-1", **{SHARDS_ANNOTATION: "3"})],
        [held(f"{BASE}-leader"), held("another-1"), held(f"{BASE}-01")],
        [{"metadata": {"name": f"{BASE}-1"}, "spec": {"holderIdentity": ""}}, {"metadata": {"name": f"{BASE}-2"}}],
    ],
    ids=["the same number", "other names", "no holder"],
)
def test_other_leases_do_not_count(leases: Iterable[dict[str, Any]]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.api.leases.update({each["metadata"]["name"]: each for each in leases})
        process = cluster.start(0, 3)
        await asyncio.sleep(5)
        assert process.acts

    Cluster().run(story)


@pytest.mark.parametrize(("shards", "acts"), [(1, True), (3, False)])
def test_without_the_right_to_list_leases_only_one_without_shards_acts(
    shards: int, acts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.api.may_list = False
        process = cluster.start(0, shards)
        await asyncio.sleep(LONG)
        assert process.acts == acts

    Cluster().run(story)
    why = "waiting before acting: the leases of other shards cannot be listed: leases is forbidden"
    assert (why in caplog.text) == (not acts)


@pytest.mark.parametrize("body", [{"items": 5}, {"items": [{}]}, {"items": [{"metadata": {"annotations": [1]}}]}])
async def test_response_that_is_no_list_is_unreachable(
    body: dict[str, Any], api: ScriptedApi, kube: KubeClient
) -> None:
    settings_ = ElectionSettings(namespace="default", name=BASE)
    api.on("GET", settings_.collection, body)
    with pytest.raises(KubeUnreachable, match="no list of leases"):
        await ShardLeases(kube, settings_, shard=Shard()).may_take()


@pytest.mark.parametrize("duration", ["15", -1, None, [], 1e300])
async def test_invalid_lease_duration_counts_as_the_default(duration: Any, api: ScriptedApi, kube: KubeClient) -> None:
    settings_ = ElectionSettings(namespace="default", name=BASE)
    lease = held(f"{BASE}-1")
    lease["spec"]["leaseDurationSeconds"] = duration
    api.on("GET", settings_.collection, {"items": [lease]})
    now = [100.0]
    leases = ShardLeases(kube, settings_, shard=Shard(index=0, count=3), clock=lambda: now[0])
    assert not await leases.may_take()
    now[0] += settings_.lease_duration
    assert await leases.may_take()
