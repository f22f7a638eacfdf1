"""A load generator for HTTPS: connections that each send the next request as soon as they have a response.

It is a process of its own (`python -m bench.load_generator`), so that its costs can be separated; it reads a task as
JSON from standard input, and writes the outcome as JSON to standard output. Requests are prepared beforehand, except
for the Audit-Id. Of a response it reads only the status and the length.
"""

from __future__ import annotations

import array
import asyncio
import itertools
import ssl
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from bench.recorded_heads import Head
from kube.process.runtime import run

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_CHUNKED = b"transfer-encoding: chunked"
_GRACE_SECONDS = 30.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A load to generate."""

    host: str
    """Where the server is."""
    port: int
    """Its port."""
    certificate: str
    """The client certificate's file, with its key."""
    key: str
    """The key's file."""
    targets: tuple[str, ...]
    """Paths with queries, requested in turn."""
    head: Head
    """The headers of each request."""
    connections: int
    """Their number."""
    seconds: float
    """The duration."""
    warm_up: float = 1.0
    """Seconds before requests count."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a load; times are in milliseconds, `cpu_seconds` are the generator's own.

    `all_requests` include the warm-up, `requests` do not.
    """

    requests: int
    all_requests: int
    failed: int
    seconds: float
    requests_per_second: float
    p50: float
    p99: float
    worst: float
    bytes_read: int
    cpu_seconds: float
    failure: str = ""


class Tally:
    """Counts of all connections since the warm-up."""

    def __init__(self) -> None:
        self.counts = False
        self.all = 0
        self.times = array.array("d")
        self.failed = 0
        self.failure = ""
        self.read = 0

    def note(self, seconds: float, status: bytes, response: bytes) -> None:
        """Count a response."""
        self.all += 1
        if not self.counts:
            return
        self.times.append(seconds)
        self.read += len(response)
        if status != b"200":
            self.failed += 1
            self.failure = self.failure or response[:600].decode(errors="replace")


class Connection(asyncio.Protocol):
    """A connection that sends a request as soon as the last one has its response."""

    def __init__(
        self, requests: Sequence[tuple[bytes, bytes]], first: int, tally: Tally, audit_ids: Iterator[bytes]
    ) -> None:
        self._requests = requests
        self._audit_ids = audit_ids
        self._next = first
        self._tally = tally
        self._sent = 0.0
        self._response = bytearray()
        self._complete = 0  # the length of the whole response, or of its head and chunks up to the one that is to come
        self._is_chunked = False
        self._transport: asyncio.Transport | None = None
        self.stopping = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self.opened()

    def opened(self) -> None:
        """Send the first request."""
        self.send()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a response."""
        response = self._response
        response += data
        if not self._complete:
            end = response.find(_HEAD_END)
            if end < 0:
                return
            head = bytes(response[:end]).lower()
            self._is_chunked = _CHUNKED in head
            self._complete = end + 4
            at = head.find(_LENGTH)
            if at >= 0:
                stop = head.find(b"\r\n", at)
                self._complete += int(head[at + len(_LENGTH) : stop if stop > 0 else end])
            elif not self._is_chunked:
                self._fail("a response without a length:\n" + head.decode(errors="replace"))
                return
        if self._is_chunked:
            self._pass_chunks()
        if self._is_chunked or len(response) < self._complete:
            return
        self._tally.note(time.perf_counter() - self._sent, bytes(response[9:12]), bytes(response))
        response.clear()
        self._complete = 0
        self.responded()

    def responded(self) -> None:
        """Send the next request, unless the load is over."""
        if self.stopping:
            self._end()
        else:
            self.send()

    def _pass_chunks(self) -> None:
        """Read the chunks that have arrived; the last one, without trailers, ends the response."""
        response = self._response
        while self._is_chunked and (stop := response.find(b"\r\n", self._complete)) >= 0:
            size = int(response[self._complete : stop], 16)
            self._complete = stop + 2 + size + 2
            self._is_chunked = size > 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Report a lost connection."""
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the server closed a connection: {exc}"))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def send(self) -> None:
        """Send the next request."""
        assert self._transport is not None
        before, after = self._requests[self._next]
        self._next = (self._next + 1) % len(self._requests)
        self._sent = time.perf_counter()
        self._transport.write(before + next(self._audit_ids) + after if after else before)

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(why))
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        assert self._transport is not None
        self._transport.close()


def client_context(task: Task) -> ssl.SSLContext:
    """Return the TLS of a task's connections."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(task.certificate, task.key)
    return context


def audit_ids() -> Iterator[bytes]:
    """Return a different Audit-Id for each request."""
    return (b"%08x-0000-4000-8000-%012x" % (number & 0xFFFFFFFF, number) for number in itertools.count())


async def execute(task: Task) -> Outcome:
    """Generate the load of a task.

    Raises:
        ConnectionError: the server closed a connection, or sent what this does not read.
    """
    context = client_context(task)
    requests = [task.head.of(target) for target in task.targets]
    ids = audit_ids()
    tally = Tally()
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []
    try:
        for index in range(task.connections):
            first = index * len(requests) // task.connections
            _, protocol = await loop.create_connection(
                lambda first=first: Connection(requests, first, tally, ids),  # type: ignore[misc]
                task.host,
                task.port,
                ssl=context,
            )
            connections.append(protocol)
        await _wait_or_fail(connections, task.warm_up)
        tally.counts = True
        started, cpu = time.perf_counter(), time.process_time()
        await _wait_or_fail(connections, task.seconds)
        seconds, used = time.perf_counter() - started, time.process_time() - cpu
        tally.counts = False
        for connection in connections:
            connection.stopping = True
        async with asyncio.timeout(_GRACE_SECONDS):
            await asyncio.gather(*(connection.done for connection in connections))
    finally:
        for connection in connections:
            connection.close()
    return _outcome(tally, seconds, used)


async def _wait_or_fail(connections: Sequence[Connection], seconds: float) -> None:
    done, _ = await asyncio.wait([connection.done for connection in connections], timeout=seconds)
    failures = [failure for one in done if (failure := one.exception()) is not None]
    if done:
        raise failures[0] if failures else ConnectionError("a connection ended")


def _outcome(tally: Tally, seconds: float, used: float) -> Outcome:
    times = sorted(tally.times)
    if not times:
        return Outcome(
            requests=0, all_requests=tally.all, failed=0, seconds=seconds, requests_per_second=0.0, p50=0.0, p99=0.0,
            worst=0.0, bytes_read=0, cpu_seconds=used, failure="no response in time",
        )  # fmt: skip
    return Outcome(
        requests=len(times),
        all_requests=tally.all,
        failed=tally.failed,
        seconds=seconds,
        requests_per_second=len(times) / seconds,
        p50=statistics.median(times) * 1000,
        p99=times[min(len(times) - 1, int(len(times) * 0.99))] * 1000,
        worst=times[-1] * 1000,
        bytes_read=tally.read,
        cpu_seconds=used,
        failure=tally.failure,
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(run(execute(msgspec.json.decode(sys.stdin.buffer.read(), type=Task)))))
