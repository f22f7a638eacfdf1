"""Measure throughput, latency, CPU and memory of the adapter: `make bench-adapter`.

A run takes some minutes, prints tables and appends every row as a JSON line. PEER=/path/to/prometheus-adapter is
measured in the same run, on the same cluster and Prometheus. docs/performance.md explains the columns.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from bench.adapter_environment import (
    BARE,
    BIG,
    CUSTOM,
    EXTERNAL,
    NAMESPACES,
    OURS,
    PEER,
    PODS,
    UNCACHED,
    AdapterEnvironment,
    Server,
    Totals,
    adapter_environment,
    wide_pod,
)
from bench.figures import Cost, show, write_lines
from bench.load_generator import Outcome

_CONNECTIONS = 16
_BARE_SCENARIO = "any"
_METRIC = "http_requests_per_second"
_LIST = f"{CUSTOM}/namespaces/big/pods/%2A/{_METRIC}"
# Which labels select how many of the pods of the namespace `big`.
_SHARES = {
    BIG // 8: "share%3D1",
    BIG // 4: "share%20in%20%281%2C2%29",
    BIG // 2: "share%20in%20%281%2C2%2C4%29",
    BIG: "app%3Dbig",
}

_SINGLE = tuple(
    f"{CUSTOM}/namespaces/ns-{n}/pods/web-{n}-{pod}/{_METRIC}" for pod in range(PODS) for n in range(NAMESPACES)
)
_SELECTED = tuple(
    f"{CUSTOM}/namespaces/ns-{n}/pods/%2A/{_METRIC}?labelSelector=half%3D{half}"
    for half in ("even", "odd")
    for n in range(NAMESPACES)
)
_EXTERNAL = tuple(
    f"{EXTERNAL}/namespaces/ns-{n}/queue_depth?labelSelector=queue%3Dq{queue}"
    for queue in range(2)
    for n in range(NAMESPACES)
)
MIXED = tuple(
    target
    for index in range(len(_SELECTED))
    for target in (*_SINGLE[index * 8 : index * 8 + 8], _SELECTED[index], _EXTERNAL[index])
)
_NEW_REQUESTS = 30_000


def _new(*targets: str, requests: int = _NEW_REQUESTS) -> tuple[str, ...]:
    """Return targets with an unused parameter, so that each is new to the server."""
    marked = (f"{target}{'&' if '?' in target else '?'}request=" for target in itertools.cycle(targets))
    return tuple(f"{target}{number}" for number, target in zip(range(requests), marked, strict=False))


_MAIN = {"single pod": _SINGLE, "10 of 20 pods": _SELECTED, "external": _EXTERNAL}
_MORE = {"single pod, new": _new(*_SINGLE), "mixed": MIXED}
_Scenario = tuple[str, tuple[str, ...], int, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement; times are in milliseconds, `cpu` columns in cores, memory in MiB.

    `cpu_us` is the server's CPU time per request in microseconds; it depends less on other load than `rps`. `rss_peak`
    is the peak since the process started.
    """

    server: str
    scenario: str
    connections: int
    rps: float
    p50: float
    p99: float
    worst: float
    failed: int
    queries: int
    queries_per_s: float
    cpu_us: float
    cpu: float
    cpu_prometheus: float
    cpu_load: float
    rss: float
    rss_peak: float
    late_25ms: int
    late_100ms: int


async def _measure(
    environment: AdapterEnvironment, server: Server, scenario: str, *targets: str, connections: int, seconds: float
) -> Row:
    before, prometheus = await server.totals(), Cost.of(environment.prometheus.process.pid)
    outcome = await server.load(*targets, connections=connections, seconds=seconds)
    after, prometheus_after = await server.totals(), Cost.of(environment.prometheus.process.pid)
    if outcome.failure:
        print(f"{server.name}, {scenario}: {outcome.failed} failed, such as\n{outcome.failure}", file=sys.stderr)
    # The warm-up is included.
    took = outcome.seconds + 1.0
    used = after.cost.cpu_seconds - before.cost.cpu_seconds
    print(f"{server.name}, {scenario}: {outcome.requests_per_second:,.0f} responses a second", file=sys.stderr)
    return Row(
        server=server.name,
        scenario=scenario,
        connections=connections,
        rps=outcome.requests_per_second,
        p50=outcome.p50,
        p99=outcome.p99,
        worst=outcome.worst,
        failed=outcome.failed,
        queries=after.queries - before.queries,
        queries_per_s=(after.queries - before.queries) / took,
        cpu_us=used / max(outcome.all_requests, 1) * 1e6,
        cpu=used / took,
        cpu_prometheus=(prometheus_after.cpu_seconds - prometheus.cpu_seconds) / took,
        cpu_load=_load_cpu(outcome),
        rss=after.cost.rss,
        rss_peak=after.cost.peak,
        late_25ms=_late(before, after, 0.025),
        late_100ms=_late(before, after, 0.1),
    )


def _load_cpu(outcome: Outcome) -> float:
    return outcome.cpu_seconds / outcome.seconds


def _late(before: Totals, after: Totals, bound: float) -> int:
    """Return how often the event loop's lag was longer than this."""

    def over(totals: Totals) -> int:
        return totals.stalls.get(float("inf"), 0) - totals.stalls.get(bound, 0)

    return over(after) - over(before)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter's figures as multiples of those of aiohttp and of the peer."""

    scenario: str
    server: str
    cpu_of_aiohttp: float
    rps_of_peer: float
    p99_of_peer: float


def _compared(rows: Sequence[Row]) -> list[Comparison]:
    main = {(row.server, row.scenario): row for row in rows if row.connections == _CONNECTIONS}
    bare = main[BARE, _BARE_SCENARIO]
    return [
        Comparison(
            scenario=row.scenario,
            server=server,
            cpu_of_aiohttp=row.cpu_us / bare.cpu_us,
            rps_of_peer=row.rps / peer.rps if peer is not None else 0.0,
            p99_of_peer=row.p99 / peer.p99 if peer is not None else 0.0,
        )
        for (server, scenario), row in main.items()
        if server in (OURS, UNCACHED) and scenario in _MAIN
        for peer in (main.get((PEER, scenario)),)
    ]


def _scenarios(server: str, seconds: float, growth: Sequence[int], *, quick: bool) -> list[_Scenario]:
    if server == BARE:
        return [(_BARE_SCENARIO, _SINGLE, _CONNECTIONS, seconds)]
    main: list[_Scenario] = [(name, targets, _CONNECTIONS, seconds) for name, targets in _MAIN.items()]
    if quick or server == UNCACHED:
        return main
    return [
        *main,
        *((name, targets, _CONNECTIONS, seconds) for name, targets in _MORE.items()),
        *(("single pod", _SINGLE, connections, seconds / 2) for connections in (4, 8, 32)),
        *((name, targets, 1, seconds / 2) for name, targets in _lists().items()),
        *((name, targets, _CONNECTIONS, seconds) for name, targets in _wide(growth).items()),
    ]


async def _run(peer: Path | None, seconds: float, freshness: str, output: Path, wide: int, *, quick: bool) -> None:
    growth = tuple(wide // part for part in (8, 4, 2, 1)) if wide and not quick else ()
    with tempfile.TemporaryDirectory() as folder:
        async with adapter_environment(
            Path(folder) / "main", peer=peer, freshness=freshness, wide=growth
        ) as environment:
            print(f"API server: {'kube-apiserver' if environment.is_real else 'the playground'}; freshness {freshness}")
            rows = [
                await _measure(environment, server, name, *targets, connections=connections, seconds=each)
                for server in environment.servers
                for name, targets, connections, each in _scenarios(server.name, seconds, growth, quick=quick)
            ]
    show("Adapter; times in ms, CPU in microseconds for each request and in cores, memory in MiB", rows)
    show("Beside aiohttp alone and prometheus-adapter (0 where there is none)", _compared(rows))
    await asyncio.to_thread(write_lines, output, rows)
    print(f"every figure is in {output}")


def _lists() -> dict[str, tuple[str, ...]]:
    return {f"list of {pods}": (f"{_LIST}?labelSelector={labels}",) for pods, labels in _SHARES.items()}


def _wide(growth: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """Measure one object, and one external series, of rules with more and more series; 1,000 different ones each."""
    scenarios = {}
    for series in growth:
        pods = range(0, series, max(1, series // 1_000))
        scenarios[f"one of {series} series"] = tuple(
            f"{CUSTOM}/namespaces/ns-{n % NAMESPACES}/pods/{wide_pod(n)}/wide_{series}" for n in pods
        )
        scenarios[f"one of {series} series, external"] = tuple(
            f"{EXTERNAL}/namespaces/ns-{n % NAMESPACES}/wide_{series}?labelSelector=pod%3D{wide_pod(n)}" for n in pods
        )
    return scenarios


@click.command(help=__doc__)
@click.option("--seconds", type=click.FloatRange(min=1), default=6.0, show_default=True, help="For one measurement.")
@click.option("--freshness", default="5s", show_default=True, help="The adapter's --metrics-freshness.")
@click.option("--peer", type=click.Path(path_type=Path), envvar="PEER", help="A prometheus-adapter to compare with.")
@click.option(
    "--wide-series", type=int, default=100_000, show_default=True, help="The most series behind one rule; 0 for none."
)
@click.option("--quick", is_flag=True, help="Only the scenarios that are compared, in about two minutes.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-adapter.jsonl"), show_default=True)
def main(*, seconds: float, freshness: str, peer: Path | None, wide_series: int, quick: bool, output: Path) -> None:
    """Measure and print."""
    asyncio.run(_run(peer, seconds, freshness, output, wide_series, quick=quick))


if __name__ == "__main__":
    main()
