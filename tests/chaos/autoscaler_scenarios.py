"""Faults of the autoscaler's processes: ended at random moments with two replicas, paused, clock, disk, credentials."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.chaos.api_server_scenarios import is_scale_write, need_other_replicas, wait_scaled
from tests.chaos.environment import REPLICAS, Environment
from tests.chaos.exchange import Exchange, Request
from tests.chaos.faketime import FakeClock
from tests.chaos.faults import Fault, Reply, Silence, is_watch, relay
from tests.chaos.measured import MeasuredProcess
from tests.chaos.scenario import Run, Scenario
from tests.eventually import eventually

ONCE = "another replica acts, and writes each decision once"
_GRACE_SECONDS = 10.0
_LEADER = "leader_election_master_status{"
_LOST = "horizontal_pod_autoscaler_controller_audit_records_lost_total"


async def is_leader(process: MeasuredProcess) -> bool:
    """Return whether a process holds the Lease, by its own metrics."""
    return any(value for name, value in (await process.metrics()).items() if name.startswith(_LEADER))


async def leader_of(environment: Environment) -> MeasuredProcess:
    """Wait until one of the autoscalers is the leader, and return it."""

    async def leader() -> MeasuredProcess | None:
        leaders = [each for each in environment.autoscalers if await is_leader(each)]
        return leaders[0] if leaders else None

    found = await eventually(leader)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def two_replicas(run: Run, name: str) -> AsyncIterator[None]:
    """Have two autoscalers; at the end one of them stays."""
    environment = run.environment
    await add_replica(environment, f"{name}-0")
    yield
    survivor = await leader_of(environment)
    for process in environment.autoscalers[:]:
        if process is not survivor:
            environment.autoscalers.remove(process)
            assert await process.child.stop() == 0, f"{process.child.name} ended with another status than 0"


async def add_replica(
    environment: Environment, name: str, *flags: str, variables: Mapping[str, str] | None = None
) -> MeasuredProcess:
    """Start another autoscaler, and wait until it is ready."""
    process = await environment.start_autoscaler(name, *flags, environment=variables)
    environment.autoscalers.append(process)
    await eventually(process.is_ready)
    return process


async def replace_autoscaler(
    environment: Environment, name: str, *flags: str, variables: Mapping[str, str] | None = None
) -> MeasuredProcess:
    """Stop the autoscalers, and start one with other flags or variables."""
    while environment.autoscalers:
        assert await environment.autoscalers.pop().child.stop() == 0
    process = await add_replica(environment, name, *flags, variables=variables)
    await environment.wait_recovered()
    return process


@dataclass(frozen=True, kw_only=True)
class Executed(Fault):
    """The first request is executed, then `action` is called, and there is no response; later ones pass unchanged."""

    action: Callable[[], None]
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def respond(self, exchange: Exchange) -> None:
        if self.done.is_set():
            await relay(exchange)
            return
        self.done.set()
        async with exchange.forward() as response:
            await response.read()
        self.action()
        exchange.close()


async def after_requests(run: Run, *, most: int = 120) -> None:
    """Wait for a random moment: until autoscalers have sent a random number of requests, at most `most`."""
    proxy = run.environment.autoscaler_api
    goal = proxy.requests + run.random.randint(1, most)

    async def sent() -> bool:
        return proxy.requests >= goal

    await eventually(sent, every=0.002)


def ended_by(number: signal.Signals, *, times: int = 5, writing: bool = False) -> Callable[[Run], Awaitable[None]]:
    """Return the coroutine that ends the leader, several times: at a random moment, or when it has written a scale."""

    async def inject(run: Run) -> None:
        environment, name = run.environment, f"{number.name.lower()}-writing" if writing else number.name.lower()
        async with two_replicas(run, name):
            for count in range(1, (times if run.seconds else 1) + 1):
                leader = await leader_of(environment)
                need_other_replicas(environment)
                send = partial(leader.child.send_signal, number)
                if writing:
                    async with environment.autoscaler_api.inject(Executed(match=is_scale_write, action=send)):
                        status = await leader.child.wait()
                else:
                    await after_requests(run)
                    send()
                    status = await leader.child.wait()
                environment.autoscalers.remove(leader)
                assert status == (0 if number is signal.SIGTERM else -number), f"exit status {status}"
                await wait_scaled(environment)
                await add_replica(environment, f"{name}-{count}")

    return inject


async def sigterm_in_silence(run: Run) -> None:
    """End the only autoscaler while the API server sends nothing, and start another one."""
    environment = run.environment
    need_other_replicas(environment)
    (process,) = environment.autoscalers
    async with environment.autoscaler_api.inject(Silence()):
        await after_requests(run, most=3)
        status = await process.child.stop(grace=_GRACE_SECONDS)
        assert status == 0, f"exit status {status} within {_GRACE_SECONDS:g} s"
    environment.autoscalers.remove(process)
    await add_replica(environment, "after-silence")


async def paused(run: Run) -> None:
    """Stop the leader for longer than its Lease lasts, and let it continue."""
    environment = run.environment
    async with two_replicas(run, "paused"):
        leader = await leader_of(environment)
        need_other_replicas(environment)
        await after_requests(run)
        leader.child.send_signal(signal.SIGSTOP)
        try:
            environment.autoscalers.remove(leader)
            await run.hold_until(wait_scaled(environment))
            need_other_replicas(environment)
            await wait_scaled(environment)
            environment.autoscalers.append(leader)
        finally:
            leader.child.send_signal(signal.SIGCONT)

        async def follows() -> bool:
            return await leader.is_ready() and not await is_leader(leader)

        await eventually(follows)
        await environment.wait_for_reconciliations()


async def clock_set(run: Run) -> None:
    """Set the wall clock half an hour forward, then back behind the real time."""
    environment = run.environment
    clock = await FakeClock.create(environment.folder / "clock")
    await replace_autoscaler(environment, "clock", variables=clock.variables)
    for seconds in (1800, -1800, 0):
        await asyncio.to_thread(clock.set, seconds)
        need_other_replicas(environment)
        await run.hold_until(wait_scaled(environment))
        await environment.wait_for_reconciliations(good=True)


async def disk_full(run: Run) -> None:
    """Let all writes to files fail: those of the audit file and of the log."""
    environment = run.environment
    file = environment.folder / "audit.log"
    process = await replace_autoscaler(environment, "disk", f"--audit-log={file}")
    pid = process.child.pid

    async def lost() -> bool:
        return (await process.metrics()).get(_LOST, 0) > 0

    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    need_other_replicas(environment)
    try:
        await run.hold_until(wait_scaled(environment))
        await eventually(lost)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    size = file.stat().st_size

    async def written_again() -> bool:
        return file.stat().st_size > size

    await eventually(written_again)


async def watches_silent(run: Run) -> None:
    """Send nothing on watches, and no FIN, until they count as stale; then let the load fall."""
    environment = run.environment
    process = await replace_autoscaler(environment, "silent", "--watch-bookmark-interval=2s")

    async def is_stale() -> bool:
        return "the watch is silent" in (await process.get("/readyz"))[1]

    if environment.load.needed == REPLICAS:
        need_other_replicas(environment)
        await wait_scaled(environment)
    async with environment.autoscaler_api.inject(Silence(match=is_watch)):
        await eventually(is_stale)
        before = environment.load.needed
        need_other_replicas(environment)
        await run.hold(reconciliations=10)
        replicas = await environment.replicas()
        assert replicas["shop"] == replicas["worker"] == before, f"scaled down to {replicas}"


async def token_rotated(run: Run) -> None:
    """Write a new token to the kubeconfig; the API server refuses the old one from then on."""
    environment = run.environment
    old = await environment.renew_token()

    def is_old(request: Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {old}"

    need_other_replicas(environment)
    async with environment.autoscaler_api.inject(Reply(status=401, match=is_old)):
        await environment.autoscaler_api.close_connections()
        await run.hold_until(environment.wait_recovered())


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="sigterm",
        fault="SIGTERM to the leader of two autoscalers at random moments",
        promise=ONCE,
        inject=ended_by(signal.SIGTERM),
    ),
    Scenario(
        name="sigterm-silent",
        fault="SIGTERM to the autoscaler while the API server sends nothing",
        promise=f"it ends within {_GRACE_SECONDS:g} s, with status 0",
        inject=sigterm_in_silence,
    ),
    Scenario(
        name="sigkill",
        fault="SIGKILL to the leader of two autoscalers at random moments",
        promise=ONCE,
        inject=ended_by(signal.SIGKILL),
    ),
    Scenario(
        name="sigkill-writing",
        fault="SIGKILL to the leader of two autoscalers after it has written a scale, before the response",
        promise=ONCE,
        inject=ended_by(signal.SIGKILL, writing=True),
        short=True,
    ),
    Scenario(
        name="paused",
        fault="the leader of two autoscalers is stopped (SIGSTOP) for longer than its Lease lasts, and continues",
        promise=f"{ONCE}; the old leader writes nothing",
        inject=paused,
    ),
    Scenario(
        name="watches-silent",
        fault="API server: watches send nothing and no FIN (with bookmarks every 2 s), while the load falls",
        promise="nothing is scaled down until the watches work again",
        inject=watches_silent,
    ),
    Scenario(
        name="clock",
        fault="the autoscaler's clock is set forward and back by half an hour",
        promise="HPAs are scaled, once for each decision",
        inject=clock_set,
    ),
    Scenario(
        name="disk-full",
        fault="the disk of the autoscaler's audit file and log is full",
        promise="HPAs are scaled; lost records are counted, and later ones are written",
        inject=disk_full,
    ),
    Scenario(
        name="token",
        fault="the autoscaler's token is rotated, and the old one refused at once",
        promise="HPAs keep their replicas; the new token is used within seconds",
        inject=token_rotated,
    ),
)
