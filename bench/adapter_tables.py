"""The tables of docs/performance.md and README.md from a run of `make bench-adapter` with PEER.

    python -m bench.adapter_tables bench-adapter.jsonl

A file may hold several runs; the last figure of each scenario counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from bench.adapter import Row
from bench.adapter_environment import BARE, OURS, PEER, UNCACHED

_CONNECTIONS = 16
_NAMES = {"single pod": "one pod", "10 of 20 pods": "`*` with a selector, 10 of 20 pods", "external": "external"}
_SERVERS = {OURS: "adapter", UNCACHED: "adapter, `--metrics-freshness=0s`", PEER: "prometheus-adapter"}

Rows = dict[tuple[str, str, int], Row]


def tables(rows: Iterable[Row]) -> list[str]:
    """Return the tables as Markdown, without those that have no figures."""
    found: Rows = {(row.server, row.scenario, row.connections): row for row in rows}
    made = (_readme(found), _main(found), _by_connections(found), _lists(found), _wide(found))
    return ["\n".join(table) for table in made if len(table) > 2]


def _readme(rows: Rows) -> list[str]:
    servers = (PEER, OURS, UNCACHED)
    table = _head("", "prometheus-adapter 0.12.0", "adapter", "adapter, one query per request")
    for scenario, name in _NAMES.items():
        cells = [rows.get((server, scenario, _CONNECTIONS)) for server in servers]
        table += _line(name, *(f"{_shown(row.rps)}/s, p99 {_shown(row.p99)} ms" if row else "" for row in cells))
    return table


def _main(rows: Rows) -> list[str]:
    bare = rows.get((BARE, "any", _CONNECTIONS))
    if bare is None:
        return []
    table = _head("scenario", "server", "rps", "p50 ms", "p99 ms", "queries", "CPU us a request", "of aiohttp's")
    table += _line("any", "aiohttp, one handler", *_figures(bare, bare))
    for scenario, name in _NAMES.items():
        for server, called in _SERVERS.items():
            row = rows.get((server, scenario, _CONNECTIONS))
            if row is not None:
                table += _line(name, called, *_figures(row, bare))
    return table


def _figures(row: Row, bare: Row) -> Sequence[str]:
    ratio = f"{row.cpu_us / bare.cpu_us:.1f}"
    return (_shown(row.rps), _shown(row.p50), _shown(row.p99), f"{row.queries:,}", _shown(row.cpu_us), ratio)


def _by_connections(rows: Rows) -> list[str]:
    numbers = (4, 8, 16, 32)
    table = _head("one pod, connections", *map(str, numbers))
    for server in (OURS, PEER):
        found = [rows.get((server, "single pod", number)) for number in numbers]
        if all(found):
            table += _line(f"{_SERVERS[server]}: rps", *(_shown(row.rps) for row in found if row))
            table += _line("p99 ms", *(_shown(row.p99) for row in found if row))
    return table


def _lists(rows: Rows) -> list[str]:
    numbers = (625, 1250, 2500, 5000)
    table = _head("pods in the response", *(f"{number:,}" for number in numbers))
    for server in (OURS, PEER):
        found = [rows.get((server, f"list of {number}", 1)) for number in numbers]
        if all(found):
            table += _line(_SERVERS[server], *(_shown(row.p50) for row in found if row))
    return table


def _wide(rows: Rows) -> list[str]:
    numbers = (12_500, 25_000, 50_000, 100_000)
    table = _head("series", *(f"{number:,}" for number in numbers))
    for suffix, name in (("", "one object"), (", external", "external")):
        found = [rows.get((OURS, f"one of {number} series{suffix}", _CONNECTIONS)) for number in numbers]
        if all(found):
            table += _line(f"{name}: rps", *(_shown(row.rps) for row in found if row))
            table += _line("p99 ms, worst", *(f"{_shown(row.p99)}, {_shown(row.worst)}" for row in found if row))
            table += _line("peak memory, MiB", *(f"{row.rss_peak:,.0f}" for row in found if row))
    return table


def _head(first: str, *names: str) -> list[str]:
    return [f"| {' | '.join((first, *names))} |", f"| --- |{' ---: |' * len(names)}"]


def _line(*cells: str) -> list[str]:
    return [f"| {' | '.join(cells)} |"]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


@click.command(help=__doc__)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(file: Path) -> None:
    """Print the tables."""
    rows = [msgspec.json.decode(line, type=Row) for line in file.read_bytes().splitlines()]
    print("\n\n".join(tables(rows)))


if __name__ == "__main__":
    main()
