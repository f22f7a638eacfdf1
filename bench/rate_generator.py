"""A load generator with a fixed rate: requests are sent when they are due, whether or not others have responses.

It is a process of its own (`python -m bench.rate_generator`) with a fixed number of open connections, as an API server
has that limits its own requests in flight. It reads a task as JSON from standard input, and writes the outcome as JSON
to standard output. A request that is due while all connections wait for responses is not sent, only counted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bench.figures import cpu_seconds, percentile
from bench.load_generator import Connection, Tally, Task, audit_ids, client_context
from kube.process.runtime import run

_STEP_SECONDS = 0.002
_GRACE_SECONDS = 60.0
_OPENED_AT_ONCE = 32


class RatedTask(Task, frozen=True, kw_only=True):
    """A load with a rate in requests per second, on a server with the process ID `pid`."""

    rate: float
    pid: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The responses of one status: their number, and the milliseconds from the request to the response."""

    count: int
    p50: float
    p99: float
    worst: float


class RatedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a load."""

    seconds: float
    """The duration."""
    due: int
    """Requests that were due."""
    not_sent: int
    """Requests that were not sent, because all connections were waiting."""
    statuses: Mapping[str, Latency]
    """Responses by status."""
    without_retry_after: int
    """Responses with 429 and no Retry-After."""
    closed: int
    """Connections that the server closed."""
    cpu_seconds: float
    """The generator's own."""
    server_cpu_seconds: float
    """The server's."""
    failure: str = ""
    """The first response with another status than 200 and 429."""

    def count(self, status: int) -> int:
        """Return the number of responses with this status."""
        return self.statuses[str(status)].count if str(status) in self.statuses else 0


class _RatedTally(Tally):
    """Times by status."""

    def __init__(self) -> None:
        super().__init__()
        self.by_status: dict[bytes, list[float]] = {}
        self.without_retry_after = 0

    def note(self, seconds: float, status: bytes, response: bytes) -> None:
        if not self.counts:
            return
        self.by_status.setdefault(status, []).append(seconds * 1000)
        if status == b"429":
            self.without_retry_after += b"\r\nretry-after: " not in response.lower()
        elif status != b"200":
            self.failure = self.failure or response[:600].decode(errors="replace")


class _RatedConnection(Connection):
    """A connection that is idle until a request is due."""

    def __init__(
        self,
        requests: Sequence[tuple[bytes, bytes]],
        first: int,
        tally: Tally,
        ids: Iterator[bytes],
        *,
        idle: deque[_RatedConnection],
        events: Counter[str],
    ) -> None:
        super().__init__(requests, first, tally, ids)
        self._idle = idle
        self._events = events
        self.is_open = True

    def opened(self) -> None:
        self._idle.append(self)

    def responded(self) -> None:
        self._idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._events["closed"] += 1
        self.is_open = False


async def execute(task: RatedTask) -> RatedOutcome:
    """Generate the load of a task; connections that the server closes are not opened again."""
    requests = [task.head.of(target) for target in task.targets]
    tally, idle, events, ids = _RatedTally(), deque[_RatedConnection](), Counter[str](), audit_ids()
    connections = await _connect(task, requests, tally, ids, idle, events)
    await _send_at_rate(task.rate, task.warm_up, idle)
    tally.counts = True
    started, cpu, server_cpu = time.perf_counter(), time.process_time(), cpu_seconds(task.pid)
    due, not_sent = await _send_at_rate(task.rate, task.seconds, idle)
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    server_used = cpu_seconds(task.pid) - server_cpu
    async with asyncio.timeout(_GRACE_SECONDS):
        while len(idle) < len(connections) - events["closed"]:  # noqa: ASYNC110 - many connections, one waiter
            await asyncio.sleep(_STEP_SECONDS)
    closed = events["closed"]
    for one in connections:
        one.close()
    return RatedOutcome(
        seconds=seconds,
        due=due,
        not_sent=not_sent,
        statuses={
            status.decode(): Latency(
                count=len(times), p50=percentile(times, 0.5), p99=percentile(times, 0.99), worst=max(times)
            )
            for status, times in tally.by_status.items()
        },
        without_retry_after=tally.without_retry_after,
        closed=closed,
        cpu_seconds=used,
        server_cpu_seconds=server_used,
        failure=tally.failure,
    )


async def _send_at_rate(rate: float, seconds: float, idle: deque[_RatedConnection]) -> tuple[int, int]:
    """Send requests for so many seconds; return how many were due, and how many of them could not be sent."""
    started, due, not_sent = time.perf_counter(), 0, 0
    while (elapsed := time.perf_counter() - started) < seconds:
        while due < elapsed * rate:
            due += 1
            connection = _next_idle(idle)
            if connection is None:
                not_sent += 1
            else:
                connection.send()
        await asyncio.sleep(_STEP_SECONDS)
    return due, not_sent


def _next_idle(idle: deque[_RatedConnection]) -> _RatedConnection | None:
    while idle:
        connection = idle.popleft()
        if connection.is_open:
            return connection
    return None


async def _connect(
    task: RatedTask,
    requests: Sequence[tuple[bytes, bytes]],
    tally: Tally,
    ids: Iterator[bytes],
    idle: deque[_RatedConnection],
    events: Counter[str],
) -> list[_RatedConnection]:
    context = client_context(task)
    opened: list[_RatedConnection] = []
    numbers = iter(range(task.connections))

    async def connect() -> None:
        for number in numbers:
            first = number * len(requests) // task.connections
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda first=first: _RatedConnection(requests, first, tally, ids, idle=idle, events=events),  # type: ignore[misc]
                task.host,
                task.port,
                ssl=context,
            )
            opened.append(connection)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_OPENED_AT_ONCE):
            tasks.create_task(connect())
    return opened


if __name__ == "__main__":
    outcome = run(execute(msgspec.json.decode(sys.stdin.buffer.read(), type=RatedTask)))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
