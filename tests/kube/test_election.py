"""LeaderElector."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube.api.client import KubeClient, KubeError
from kube.api.mapping import GroupResource
from kube.controller.election import JITTER, ElectionSettings, LeaderElector, unique_identity
from playground.apiserver import PlaygroundApiServer
from tests.eventually import until
from tests.kube.scripted import connected, raw, scripted_server

# The event loop's time moves on by itself when there is nothing else to do, and the candidates' clocks with it.
pytestmark = pytest.mark.looptime(start=time.monotonic)

QUICK = ElectionSettings(namespace="default", name="lock", lease_duration=1.0, renew_deadline=0.6, retry_period=0.05)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def loop_clock() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Candidate:
    """A candidate that appends to a shared list when it starts and stops acting."""

    elector: LeaderElector
    name: str
    diary: list[str]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    acts: bool = False
    slow_end: float = 0.0

    async def run(self) -> None:
        await self.elector.run(self._work, stop=self.stop)

    async def _work(self) -> None:
        self.acts = True
        self.diary.append(f"{self.name} begins")
        try:
            await self.stop.wait()
            await asyncio.sleep(self.slow_end)
        finally:
            self.diary.append(f"{self.name} ends")
            self.acts = False


@dataclass
class Election:
    """An API server and candidates."""

    server: PlaygroundApiServer
    client: KubeClient
    diary: list[str] = field(default_factory=list)

    def lease(self) -> dict[str, Any]:
        found = self.server.storage.get(GroupResource("coordination.k8s.io", "leases"), "default", "lock")
        assert found is not None, "no Lease yet"
        return found

    def candidate(self, name: str, settings: ElectionSettings = QUICK, **options: Any) -> Candidate:
        elector = LeaderElector(self.client, settings, identity=name, **{"clock": loop_clock, **options})
        return Candidate(elector, name, self.diary)

    async def set(self, **spec: Any) -> None:
        """Write the Lease as another client."""
        await self.client.patch(f"{LEASES}/lock", {"spec": spec})


@pytest.fixture
async def election(tmp_path: Path) -> AsyncIterator[Election]:
    async with PlaygroundApiServer(tmp_path) as server, await KubeClient.connect(server.kubeconfig()) as client:
        yield Election(server, client)


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        for candidate in candidates:
            tasks.create_task(candidate.run())
        try:
            yield
        finally:
            for candidate in candidates:
                candidate.stop.set()


# --- taking, renewing, giving back ---------------------------------------------------------------------------------


async def test_lease_has_the_fields_of_client_go(election: Election) -> None:
    one = election.candidate("one", replace(QUICK, lease_duration=2.5))
    async with running(one):
        await until(lambda: one.acts)
        first = election.lease()["spec"]
        assert first["holderIdentity"] == "one"
        assert first["leaseDurationSeconds"] == 3
        assert first["leaseTransitions"] == 0
        assert first["acquireTime"] == first["renewTime"]
        assert datetime.fromisoformat(first["renewTime"]).microsecond >= 0
        assert first["renewTime"].endswith("Z")
        await until(lambda: election.lease()["spec"]["renewTime"] > first["renewTime"])
        renewed = election.lease()["spec"]
        assert renewed == {**first, "renewTime": renewed["renewTime"]}
    released = election.lease()["spec"]
    assert (released["holderIdentity"], released["leaseDurationSeconds"], released["leaseTransitions"]) == ("", 1, 0)


async def test_lease_is_renewed_without_being_read(election: Election, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one, two = election.candidate("one"), election.candidate("two")
    async with running(one):
        await until(lambda: one.acts)
        reads = election.server.requests.of("get", "leases")
        await asyncio.sleep(3 * QUICK.lease_duration)
        assert election.server.requests.of("get", "leases") == reads
        async with running(two):
            await asyncio.sleep(1.5 * QUICK.lease_duration)
            assert one.acts
            assert not two.acts
        assert election.lease()["spec"]["holderIdentity"] == "one", "a stopped candidate leaves it alone"
    assert caplog.messages.count("lease default/lock: held by one") == 1


async def test_stopped_leader_releases_the_lease_after_its_work_and_is_succeeded_at_once(
    election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    slow = replace(QUICK, lease_duration=60.0, renew_deadline=50.0, retry_period=20.0)
    one, two = election.candidate(unique_identity()), election.candidate("two", slow)
    one.slow_end = 0.2
    one.name = "one"
    async with running(one):
        await until(lambda: one.acts)
        async with running(two):
            await until(lambda: election.server.requests.of("watch", "leases") > 0)
            reads = election.server.requests.of("get", "leases")
            await asyncio.sleep(QUICK.lease_duration)
            assert election.server.requests.of("get", "leases") == reads, "a renewal is no release"
            one.stop.set()
            since = loop_clock()
            await until(lambda: two.acts)
            assert loop_clock() - since < slow.retry_period, "it sees the release before its next retry"
            spec = election.lease()["spec"]
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)
    assert election.diary == ["one begins", "one ends", "two begins", "two ends"]
    spec = election.lease()["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 1)
    assert sum("held by" in message for message in caplog.messages) == 1


async def test_lease_is_released_through_a_slow_api_server_and_after_a_renewal_on_its_way(tmp_path: Path) -> None:
    """A rollout makes the API server slow, and a renewal that was cancelled may still arrive."""
    lease: dict[str, Any] = {}
    stopped = asyncio.Event()
    versions = count(1)

    async def create(request: web.Request) -> web.StreamResponse:
        return stored(await request.json())

    async def read_or_put(request: web.Request) -> web.StreamResponse:
        if not lease:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if request.method == "GET":
            await asyncio.sleep(0.5)
            read = web.json_response(lease)
            if stopped.is_set():
                stopped.clear()
                stored(lease)
            return read
        body = await request.json()
        if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            return web.json_response({"kind": "Status", "code": 409}, status=409)
        return stored(body)

    def stored(body: dict[str, Any]) -> web.StreamResponse:
        lease.update({**body, "metadata": {**body["metadata"], "resourceVersion": str(next(versions))}})
        return web.json_response(lease)

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers = {LEASES: create, f"{LEASES}/lock": read_or_put}
        one = Candidate(LeaderElector(client, QUICK, identity="one", clock=loop_clock), "one", [])
        async with running(one):
            await until(lambda: one.acts)
            stopped.set()
    assert lease["spec"]["holderIdentity"] == ""


# --- taking over ---------------------------------------------------------------------------------------------------


async def test_expired_lease_is_taken_over(
    election: Election,
) -> None:
    one, two = election.candidate("one"), election.candidate("two")
    silenced = asyncio.create_task(one.run())
    await until(lambda: one.acts)
    silenced.cancel()  # as kill -9 does: nothing is given back
    with contextlib.suppress(asyncio.CancelledError):
        await silenced
    since = loop_clock()
    async with running(two):
        await until(lambda: two.acts)
    assert loop_clock() - since >= QUICK.lease_duration
    assert election.diary[-2:] == ["two begins", "two ends"]


@pytest.mark.parametrize("renewed", ["2001-01-01T00:00:00.000000Z", "2101-01-01T00:00:00.000000Z"])
async def test_times_in_the_lease_are_not_trusted(election: Election, renewed: str) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 1, "acquireTime": renewed, "renewTime": renewed}
    await election.client.post(LEASES, {"metadata": {"name": "lock"}, "spec": spec})
    one = election.candidate("one")
    since = loop_clock()
    async with running(one):
        await until(lambda: one.acts)
        assert renewed not in election.lease()["spec"].values()
    assert 1.0 <= loop_clock() - since < 1.0 + 3 * QUICK.retry_period


@pytest.mark.parametrize(("given", "seconds"), [(3, 3.0), (0, QUICK.lease_duration)])
async def test_duration_and_transitions_of_the_holder_count(election: Election, given: int, seconds: float) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": given, "leaseTransitions": 7}
    await election.client.post(LEASES, {"metadata": {"name": "lock"}, "spec": spec})
    one = election.candidate("one")
    async with running(one):
        await asyncio.sleep(0.9 * seconds)
        assert not one.acts
        await asyncio.sleep(0.3 * seconds)
        assert (one.acts, election.lease()["spec"]["leaseTransitions"]) == (True, 8)


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, {"leaseDurationSeconds": 60}])
async def test_lease_without_a_holder_is_taken_at_once(election: Election, spec: dict[str, Any]) -> None:
    others = {"others": "yes"}
    metadata = {"name": "lock", "labels": others, "annotations": others}
    await election.client.post(LEASES, {"metadata": metadata, "spec": spec})
    one = election.candidate("one", replace(QUICK, lease_duration=60.0), annotations={"own": "yes"})
    async with running(one):
        await until(lambda: one.acts)
        taken = election.lease()["metadata"]
        assert (taken["labels"], taken["annotations"]) == (others, {"others": "yes", "own": "yes"})


async def test_candidate_that_may_not_lead_takes_no_lease_and_releases_one_that_it_took(election: Election) -> None:
    answers: list[bool | KubeError] = [False, True, KubeError("away"), False, True, False, True, True]

    async def may_take() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    one = election.candidate("one", may_take=may_take, annotations={"own": "yes"})
    async with running(one):
        await until(lambda: one.acts)
        assert (election.lease()["metadata"]["annotations"], answers) == ({"own": "yes"}, [])
        writes = election.server.requests.of("create", "leases"), election.server.requests.of("update", "leases")
        assert writes[0] == 1
        assert writes[1] >= 4, "released, taken, released, taken"
    assert election.diary == ["one begins", "one ends"]


async def test_there_are_never_two_leaders(election: Election) -> None:
    candidates = [election.candidate(str(number)) for number in range(4)]
    most = 0

    def idle(candidate: Candidate) -> bool:
        return not candidate.acts

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, sum(candidate.acts for candidate in candidates))
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        runs = {each.name: tasks.create_task(each.run()) for each in candidates}
        for turn in range(len(candidates) - 1):
            await until(lambda: any(each.acts for each in candidates))
            holder = next(each for each in candidates if each.acts)
            if turn % 2:
                runs[holder.name].cancel()
            else:
                holder.stop.set()
            await until(partial(idle, holder))
            candidates.remove(holder)
        candidates[0].stop.set()
        await runs[candidates[0].name]
        watching.cancel()
    assert most == 1


# --- losing it -----------------------------------------------------------------------------------------------------


async def test_leader_without_api_server_stops_at_the_renew_deadline_and_returns(election: Election) -> None:
    one = election.candidate("one")
    async with running(one):
        await until(lambda: one.acts)
        await election.server.hang_up()
        since = loop_clock()
        await asyncio.sleep(QUICK.renew_deadline / 2)
        assert one.acts, "some renewals have failed"
        await until(lambda: not one.acts)
        assert loop_clock() - since < QUICK.lease_duration
        assert not one.elector.leading()
        await election.server.listen()
        await until(lambda: one.acts)
        assert election.lease()["spec"]["leaseTransitions"] == 0, "nobody else had it in between"
    assert election.diary == ["one begins", "one ends", "one begins", "one ends"]


@pytest.mark.parametrize("hangs", ["GET", "POST"])
async def test_request_for_a_new_lease_that_hangs_is_sent_again(hangs: str, tmp_path: Path) -> None:
    methods: list[str] = []
    written: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        methods.append(request.method)
        if request.method == hangs and methods.count(hangs) == 1:
            await asyncio.Event().wait()
        if request.method == "GET":
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        written.append(await request.json())
        return web.json_response(written[-1])

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers = {LEASES: handle, f"{LEASES}/lock": handle}
        elector = LeaderElector(client, QUICK, identity="one", clock=loop_clock, annotations={"own": "yes"})
        one = Candidate(elector, "one", [])
        since = loop_clock()
        async with running(one):
            await until(lambda: one.acts)
            assert loop_clock() - since < QUICK.renew_deadline
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    metadata = {"namespace": "default", "name": "lock", "annotations": {"own": "yes"}}
    assert written[0] == {**head, "metadata": metadata, "spec": written[0]["spec"]}


@pytest.mark.parametrize("always", [False, True])
async def test_renewal_that_hangs_is_tried_again_and_does_not_extend_the_deadline(always: bool, tmp_path: Path) -> None:
    created, renewed, never = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def create(request: web.Request) -> web.StreamResponse:
        created.set()
        return web.json_response(await request.json())

    async def read_or_renew(request: web.Request) -> web.StreamResponse:
        if request.method == "PUT":
            if always or not renewed.is_set():
                renewed.set()
                await never.wait()
            return web.json_response(await request.json())
        if created.is_set():
            await never.wait()
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers = {LEASES: create, f"{LEASES}/lock": read_or_renew}
        one = Candidate(LeaderElector(client, QUICK, identity="one", clock=loop_clock), "one", [])
        async with running(one):
            await until(lambda: one.acts)
            await asyncio.sleep(QUICK.lease_duration)
            assert one.acts is not always
            since = loop_clock()
        assert loop_clock() - since < 3, "the release is given up"


async def test_renew_deadline_runs_from_the_start_of_the_request(tmp_path: Path) -> None:
    """A late response does not extend the lead: another candidate may have seen the Lease expire."""
    late, leading, changed = 0.0, [], asyncio.Event()

    def on_change(_: bool) -> None:
        leading.append(elector.leading())
        changed.set()

    async def create(request: web.Request) -> web.StreamResponse:
        nonlocal late
        late += QUICK.renew_deadline
        return web.json_response(await request.json())

    async def read(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers = {LEASES: create, f"{LEASES}/lock": read}
        elector = LeaderElector(
            client,
            QUICK,
            identity="one",
            clock=lambda: loop_clock() + late,
            on_change=on_change,
        )
        async with running(Candidate(elector, "one", [])):
            await changed.wait()
    assert not leading[0]


async def test_leader_stops_at_once_when_the_lease_has_another_holder(
    election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kube.controller.election")
    changes: list[bool] = []
    settings = replace(QUICK, lease_duration=60.0, renew_deadline=50.0)
    one = election.candidate("one", settings, on_change=changes.append)
    async with running(one):
        await until(lambda: one.acts)
        await election.set(holderIdentity="thief", leaseDurationSeconds=1)
        await until(lambda: not one.acts)
        assert election.lease()["spec"]["holderIdentity"] == "thief"
        await until(lambda: one.acts)
    assert changes == [True, False, True, False]
    logged = "became leader, one", "held by thief", "leader election lost", "became leader, one", "released"
    assert caplog.messages == [f"lease default/lock: {message}" for message in logged]


async def test_process_that_was_stopped_past_the_deadline_may_not_act(election: Election) -> None:
    stopped_for = 0.0
    one = election.candidate("one", clock=lambda: loop_clock() + stopped_for)
    assert one.elector.problem() is None
    async with running(one):
        await until(lambda: one.acts)
        assert one.elector.leading()
        stopped_for = QUICK.renew_deadline  # nothing has run since, as after SIGSTOP and SIGCONT
        assert not one.elector.leading()
        assert one.elector.problem() is None
        stopped_for = QUICK.lease_duration + 19.9
        assert one.elector.problem() is None
        stopped_for += 0.2
        assert one.elector.problem() == "failed election renewal on lease default/lock"
    assert one.elector.problem() is None, "a process that is no leader need not renew"


async def test_failure_of_the_work_ends_the_election(election: Election) -> None:
    async def fail() -> None:
        raise RuntimeError("a bug")

    elector = LeaderElector(election.client, QUICK, identity="one")
    with pytest.raises(ExceptionGroup):
        await elector.run(fail, stop=asyncio.Event())
    assert not elector.leading()


# --- odd responses -------------------------------------------------------------------------------------------------


async def test_forbidden_lease_is_logged_once_and_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with scripted_server() as server, connected(server, tmp_path) as client:
        forbidden = {"kind": "Status", "code": 403, "message": 'leases "lock" is forbidden'}
        times: list[float] = []

        async def refuse(_: web.Request) -> web.StreamResponse:
            times.append(loop_clock())
            return web.json_response(forbidden, status=403)

        server.handlers = {f"{LEASES}/lock": refuse}
        elector = LeaderElector(client, QUICK, identity="one", clock=loop_clock, random=lambda: 0.5)
        one = Candidate(elector, "one", [])
        async with running(one):
            await until(lambda: len(times) == 4)
        assert not one.diary
        period = QUICK.retry_period * (1 + JITTER / 2)
        assert [end - start for start, end in pairwise(times[:4])] == pytest.approx([period] * 3)
        # The right to watch this one Lease is enough.
        assert any(each.startswith(f"GET {LEASES}?fieldSelector=metadata.name%3Dlock&") for each in server.requests)
    assert [record.message for record in caplog.records] == ['lease default/lock: leases "lock" is forbidden; retrying']


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "text",
        {"holderIdentity": 7, "leaseDurationSeconds": "x", "leaseTransitions": "y", "acquireTime": 5},
        {"holderIdentity": "", "leaseDurationSeconds": -4, "leaseTransitions": None},
        {"holderIdentity": "one", "acquireTime": 5},
    ],
)
async def test_malformed_lease_has_no_holder(tmp_path: Path, spec: object) -> None:
    def server_with(written: list[Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.method == "PUT":
                written.append(await request.json())
                return web.json_response(written[-1])
            metadata = {"name": "lock", "resourceVersion": "1"} if spec else None
            return web.json_response({"metadata": metadata, "spec": spec})

        return handle

    written: list[Any] = []
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers = {f"{LEASES}/lock": server_with(written)}
        elector = LeaderElector(client, QUICK, identity="one", clock=loop_clock, annotations={"own": "yes"})
        one = Candidate(elector, "one", [])
        async with running(one):
            await until(lambda: one.acts)
    assert (written[0]["metadata"]["annotations"], written[0]["spec"]["holderIdentity"]) == ({"own": "yes"}, "one")
    assert written[0]["spec"]["leaseTransitions"] in (0, 1)
    assert isinstance(written[0]["spec"]["acquireTime"], str)


async def test_malformed_event_of_a_lease_is_no_release(tmp_path: Path) -> None:
    spec: dict[str, Any] = {"holderIdentity": "other", "leaseDurationSeconds": 1}

    async def lease(request: web.Request) -> web.StreamResponse:
        return web.json_response(await request.json() if request.method == "PUT" else {"spec": spec})

    async with scripted_server() as server, connected(server, tmp_path) as client:
        events = {"type": "MODIFIED"}, {"type": "MODIFIED", "object": 7}, {"object": {"spec": {"holderIdentity": ""}}}
        server.handlers = {
            LEASES: raw(b"\n".join(json.dumps(each).encode() for each in events)),
            f"{LEASES}/lock": lease,
        }
        one = Candidate(LeaderElector(client, QUICK, identity="one", clock=loop_clock), "one", [])
        since = loop_clock()
        async with running(one):
            await until(lambda: one.acts)
            assert loop_clock() - since >= spec["leaseDurationSeconds"]


def test_identities_of_two_candidates_on_one_node_differ() -> None:
    assert unique_identity() != unique_identity()
