"""Measure time and memory for listing a cluster's pods: `python -m bench.hpa_listing`.

A cluster has pods of realistic size (`bench.hpa_cluster`). A new process lists them into a store, whole like the
autoscaler, and another one their metadata only, like the adapter. Each reports the time, the longest lag of its event
loop, and its peak and remaining memory.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from adapter.metrics.objects import metadata_of
from autoscaler.objects.workloads import PODS, track_pod
from bench.figures import cpu_seconds, peak_mib, rss_mib, show, write_lines
from bench.hpa_cluster import PODS_EACH, Grown, Order, cluster_process
from bench.processes import lines_process
from kube.api.client import KubeClient
from kube.cache.label_index import LabelIndex
from kube.cache.store import Store
from kube.process.runtime import run, watch_loop
from playground.kube_apiserver import find_assets

_LOOK_SECONDS = 0.005
_VIEWS: dict[str, Callable[[Any], Any]] = {"autoscaler": track_pod, "adapter": metadata_of}


class Listing(msgspec.Struct, kw_only=True):
    """One process; a row of the table."""

    process: str
    api_server: str
    pods: int
    seconds: float
    """Until all pods were in the store and its index."""
    cpu_seconds: float
    stall_ms: float
    """The longest lag of the event loop."""
    before_mib: float
    """Resident memory before the list."""
    peak_mib: float
    """The peak while listing, above `before_mib`."""
    kept_mib: float
    """The increase over `before_mib`."""


async def _list(process: str, kubeconfig: Path) -> Listing:
    pid = os.getpid()
    index: LabelIndex[Any] = LabelIndex()
    stalls = [0.0]
    async with await KubeClient.connect(kubeconfig) as client:
        store: Store[Any] = Store(
            client, PODS, _VIEWS[process], metadata_only=process == "adapter", on_change=index.apply
        )
        gc.collect()
        before, cpu, started = rss_mib(pid), cpu_seconds(pid), time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(watch_loop(stalls.append, interval=_LOOK_SECONDS)),
                tasks.create_task(store.run()),
            ]
            await store.wait_synced()
            seconds, cpu = time.monotonic() - started, cpu_seconds(pid) - cpu
            # A last stall is noticed by the look after it.
            await asyncio.sleep(2 * _LOOK_SECONDS)
            for task in running:
                task.cancel()
        gc.collect()
        return Listing(
            process=process,
            api_server="playground" if find_assets(os.environ) is None else "kube-apiserver",
            pods=len(store),
            seconds=round(seconds, 2),
            cpu_seconds=round(cpu, 2),
            stall_ms=round(max(stalls) * 1000, 1),
            before_mib=round(before, 1),
            peak_mib=round(peak_mib(pid) - before, 1),
            kept_mib=round(rss_mib(pid) - before, 1),
        )


async def _measure(folder: Path, pods: int) -> list[Listing]:
    async with cluster_process(folder / "cluster", 50) as cluster:
        grown = await cluster.send(Order(grow=-(-pods // PODS_EACH)), Grown)
        rows = []
        for process in _VIEWS:
            flags = f"--follow={process}", f"--kubeconfig={grown.kubeconfig}"
            async with lines_process("bench.hpa_listing", *flags) as child:
                rows.append(await child.read(Listing))
        return rows


@click.command(help=__doc__)
@click.option("--pods", type=click.IntRange(1), default=20_000, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-listing.jsonl"), show_default=True)
@click.option("--follow", type=click.Choice(list(_VIEWS)), hidden=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), hidden=True)
def main(*, pods: int, output: Path, follow: str | None, kubeconfig: Path | None) -> None:
    """Measure and print."""
    if follow is not None and kubeconfig is not None:
        print(msgspec.json.encode(run(_list(follow, kubeconfig))).decode())
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = run(_measure(Path(folder), pods))
    show(f"A list of {pods} pods", rows)
    write_lines(output, rows)


if __name__ == "__main__":
    main()
