"""Send the adapter ten times as many requests as it can serve: `make bench-overload`.

It first finds the sustainable rate: the highest one at which every request is served with 200, 99 % of them within a
second. Then it sends ten times that rate for a minute, over 1,000 connections; an API server has at most 600 requests
in flight by default. Meanwhile it probes /livez and /readyz over new connections, like a kubelet. Exit status 1: a
promise of docs/reliability.md is broken.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import click
import msgspec

from bench.adapter import MIXED
from bench.adapter_environment import AdapterEnvironment, Server, adapter_environment
from bench.figures import Cost, percentile, show
from bench.processes import generate_load
from bench.rate_generator import RatedOutcome, RatedTask
from playground.apiserver.pki import client_tls
from playground.ports import LOOPBACK

_TIMES = 10
_WARM_UP_SECONDS = 3.0  # the first requests wait for Prometheus
_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Shares of the highest rate, which 16 connections reach that send without pause."""
_P99_MS = 1000.0
_MEMORY_MIB = 512.0
_PROBE_SECONDS = 0.5
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=5)
"""The timeout of the manifests' probes."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A load; rates in requests per second, times in milliseconds, memory in MiB, CPU in cores."""

    load: str
    due: float
    sent: float
    ok: float
    rejected: float
    other: int
    ok_p50: float
    ok_p99: float
    ok_worst: float
    rejected_p99: float
    probes: int
    probes_failed: int
    probe_p99: float
    rss_peak: float
    cpu: float
    cpu_load: float


class _Probes:
    """Requests to the health endpoints, each over a new connection; times in milliseconds."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.times: list[float] = []
        self.failures: list[str] = []

    async def run(self) -> None:
        """Probe until cancelled."""
        context = client_tls()
        while True:
            for path in ("/livez", "/readyz"):
                await self._probe(path, context)
            await asyncio.sleep(_PROBE_SECONDS)

    async def _probe(self, path: str, context: ssl.SSLContext) -> None:
        started = time.perf_counter()
        try:
            connector = aiohttp.TCPConnector(ssl=context, force_close=True)
            async with (
                aiohttp.ClientSession(timeout=_PROBE_TIMEOUT, connector=connector) as session,
                session.get(f"https://{LOOPBACK}:{self._port}{path}") as response,
            ):
                text = await response.text()
                if response.status != 200:
                    self.failures.append(f"{path}: {response.status} {text}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failures.append(f"{path}: {error!r}")
        self.times.append((time.perf_counter() - started) * 1000)


async def measure(name: str, server: Server, *, rate: float, connections: int, seconds: float) -> tuple[Row, list[str]]:
    """Generate a load; return its figures, and which promises it broke."""
    probes = _Probes(server.port)
    probing = asyncio.create_task(probes.run())
    outcome = await _generate(server, rate=rate, connections=connections, seconds=seconds)
    probing.cancel()
    ok, rejected = outcome.statuses.get("200"), outcome.statuses.get("429")
    other = sum(each.count for status, each in outcome.statuses.items() if status not in ("200", "429"))
    row = Row(
        load=name,
        due=outcome.due / outcome.seconds,
        sent=(outcome.due - outcome.not_sent) / outcome.seconds,
        ok=outcome.count(200) / outcome.seconds,
        rejected=outcome.count(429) / outcome.seconds,
        other=other + outcome.closed,
        ok_p50=ok.p50 if ok else 0.0,
        ok_p99=ok.p99 if ok else 0.0,
        ok_worst=ok.worst if ok else 0.0,
        rejected_p99=rejected.p99 if rejected else 0.0,
        probes=len(probes.times),
        probes_failed=len(probes.failures),
        probe_p99=percentile(probes.times, 0.99),
        rss_peak=Cost.of(server.process.pid).peak,
        cpu=outcome.server_cpu_seconds / outcome.seconds,
        cpu_load=outcome.cpu_seconds / outcome.seconds,
    )
    return row, _broken(row, outcome, probes.failures)


def _broken(row: Row, outcome: RatedOutcome, probe_failures: Sequence[str]) -> list[str]:
    checks = {
        "no request was served": row.ok > 0,
        f"p99 of what is served is {row.ok_p99:.0f} ms": row.ok_p99 < _P99_MS,
        f"{row.other} responses other than 200 and 429, or closed connections: {outcome.failure}": not row.other,
        f"{outcome.without_retry_after} responses with 429 without Retry-After": not outcome.without_retry_after,
        f"{row.rss_peak:.0f} MiB": row.rss_peak < _MEMORY_MIB,
        f"probes failed: {probe_failures[:3]}": not probe_failures,
    }
    return [text for text, holds in checks.items() if not holds]


async def _generate(server: Server, *, rate: float, connections: int, seconds: float) -> RatedOutcome:
    task = server.task(*MIXED, connections=connections, seconds=seconds)
    rated = RatedTask(
        **{**msgspec.structs.asdict(task), "warm_up": _WARM_UP_SECONDS}, rate=rate, pid=server.process.pid
    )
    return await generate_load("bench.rate_generator", rated, RatedOutcome)


async def _sustainable(server: Server, *, connections: int, seconds: float) -> tuple[float, list[Row]]:
    """Return the sustainable rate, and the rows of the loads that were tried."""
    highest = (await server.load(*MIXED, connections=16, seconds=seconds)).requests_per_second
    rows = []
    for share in _SHARES:
        rate = round(highest * share, -1)
        row, _ = await measure(f"{rate:,.0f}/s", server, rate=rate, connections=connections, seconds=seconds)
        rows.append(row)
        if row.ok_p99 < _P99_MS and not row.rejected and not row.other and row.sent > 0.99 * row.due:
            return rate, rows
    show("No rate is sustainable", rows)
    raise click.ClickException(f"no rate is sustainable, not even {rate:,.0f}/s of {highest:,.0f}/s at most")


async def _run(*, seconds: float, connections: int, rate: float | None) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        async with adapter_environment(Path(folder) / "main", peer=None, freshness="5s", alone=True) as environment:
            (server,) = environment.servers
            _print_environment(environment)
            rows: list[Row] = []
            if rate is None:
                rate, rows = await _sustainable(server, connections=connections, seconds=min(seconds, 5.0))
            row, broken = await measure(
                f"{_TIMES} times", server, rate=_TIMES * rate, connections=connections, seconds=seconds
            )
            rows.append(row)
            after, broken_after = await measure(
                "afterwards", server, rate=rate / 2, connections=connections, seconds=min(seconds, 5.0)
            )
            rows.append(after)
            broken += [f"afterwards: {text}" for text in broken_after]
    show("Overload; rates in requests per second, times in ms, memory in MiB, CPU in cores", rows)
    return broken


def _print_environment(environment: AdapterEnvironment) -> None:
    print(f"API server: {'kube-apiserver' if environment.is_real else 'the playground'}")


@click.command(help=__doc__)
@click.option("--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Of the overload.")
@click.option("--connections", type=int, default=1000, show_default=True, help="To the adapter.")
@click.option("--rate", type=float, help="The sustainable rate; by default it is measured.")
def main(*, seconds: float, connections: int, rate: float | None) -> None:
    """Measure and print; exit with 1 if a promise is broken."""
    broken = asyncio.run(_run(seconds=seconds, connections=connections, rate=rate))
    for text in broken:
        print(f"broken: {text}")
    if broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
