"""How fast the adapter answers, and what that costs: `make bench-adapter`.

A run of some minutes prints tables and writes every figure as a line of JSON. PEER=/path/to/prometheus-adapter has that
one measured in the same run, on the same cluster and Prometheus. docs/performance.md says how to read it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from bench.adapter_bed import BIG, CUSTOM, EXTERNAL, NAMESPACES, PODS, AdapterBed, Server, Totals, adapter_bed
from bench.costs import Cost, show, write_lines
from bench.load_generator import Outcome

_CONNECTIONS = 16
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
_MIXED = tuple(
    target
    for index in range(len(_SELECTED))
    for target in (*_SINGLE[index * 8 : index * 8 + 8], _SELECTED[index], _EXTERNAL[index])
)
# Parameters that mean nothing, so that no answer is one that was given before.
_NEW = tuple(f"{target}?request={number}" for number in range(30) for target in _SINGLE)
_SCENARIOS = {
    "single pod": _SINGLE,
    "single pod, new": _NEW,
    "10 of 20 pods": _SELECTED,
    "external": _EXTERNAL,
    "mixed": _MIXED,
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement; times are in milliseconds, `cpu` columns in cores, memory in MiB.

    `per_cpu_s` is how many requests a core would answer if it did nothing else, which says more than `rps` where other
    processes keep the cores busy.
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
    cpu: float
    per_cpu_s: float
    cpu_prometheus: float
    cpu_load: float
    rss: float
    late_25ms: int
    late_100ms: int


async def _measure(
    bed: AdapterBed, server: Server, scenario: str, *targets: str, connections: int, seconds: float
) -> Row:
    before, prometheus = await server.totals(), Cost.of(bed.prometheus.process.pid)
    outcome = await server.load(*targets, connections=connections, seconds=seconds)
    after, prometheus_after = await server.totals(), Cost.of(bed.prometheus.process.pid)
    if outcome.failure:
        print(f"{server.name}, {scenario}: {outcome.failed} failed, such as\n{outcome.failure}", file=sys.stderr)
    # The warm-up costs as well.
    took = outcome.seconds + 1.0
    cpu = (after.cost.cpu_seconds - before.cost.cpu_seconds) / took
    print(f"{server.name}, {scenario}: {outcome.requests_per_second:,.0f} answers a second", file=sys.stderr)
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
        cpu=cpu,
        per_cpu_s=outcome.requests_per_second / cpu if cpu else 0.0,
        cpu_prometheus=(prometheus_after.cpu_seconds - prometheus.cpu_seconds) / took,
        cpu_load=_load_cpu(outcome),
        rss=after.cost.rss,
        late_25ms=_late(before, after, 0.025),
        late_100ms=_late(before, after, 0.1),
    )


def _load_cpu(outcome: Outcome) -> float:
    return outcome.cpu_seconds / outcome.seconds


def _late(before: Totals, after: Totals, bound: float) -> int:
    """How often the event loop was later than this, of all the times that it was looked at."""

    def over(totals: Totals) -> int:
        return totals.stalls.get(float("inf"), 0) - totals.stalls.get(bound, 0)

    return over(after) - over(before)


async def _run(peer: Path | None, seconds: float, freshness: str, output: Path, wide: int) -> None:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        async with adapter_bed(Path(folder) / "main", peer=peer, freshness=freshness, wide_series=wide) as bed:
            print(f"API server: {'kube-apiserver' if bed.is_real else 'the playground'}; freshness {freshness}")
            for server in bed.servers:
                for scenario, targets in _SCENARIOS.items():
                    rows.append(
                        await _measure(bed, server, scenario, *targets, connections=_CONNECTIONS, seconds=seconds)
                    )
                rows += [
                    await _measure(bed, server, "single pod", *_SINGLE, connections=connections, seconds=seconds / 2)
                    for connections in (4, 8, 32)
                ]
                rows += [
                    await _measure(
                        bed, server, f"list of {pods}", f"{_LIST}?labelSelector={labels}", connections=1,
                        seconds=seconds / 2,
                    )
                    for pods, labels in _SHARES.items()
                ]  # fmt: skip
                if wide:
                    target = f"{CUSTOM}/namespaces/ns-{{}}/pods/wide-7d9c5b8f6d-{{:06d}}/wide"
                    targets = tuple(target.format(n % NAMESPACES, n) for n in range(0, wide, max(1, wide // 10_000)))
                    rows.append(
                        await _measure(
                            bed, server, f"one of {wide} series", *targets, connections=_CONNECTIONS, seconds=seconds
                        )
                    )
    show("Adapter; times in ms, CPU in cores, memory in MiB", rows)
    await asyncio.to_thread(write_lines, output, rows)
    print(f"every figure is in {output}")


@click.command(help=__doc__)
@click.option("--seconds", type=click.FloatRange(min=1), default=6.0, show_default=True, help="For one measurement.")
@click.option("--freshness", default="5s", show_default=True, help="The adapter's --metrics-freshness.")
@click.option("--peer", type=click.Path(path_type=Path), envvar="PEER", help="A prometheus-adapter to compare with.")
@click.option("--wide-series", type=int, default=100_000, show_default=True, help="Series behind one rule; 0 for none.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-adapter.jsonl"), show_default=True)
def main(seconds: float, freshness: str, peer: Path | None, wide_series: int, output: Path) -> None:
    """Measure and print."""
    asyncio.run(_run(peer, seconds, freshness, output, wide_series))


if __name__ == "__main__":
    main()
