"""Measure how many HPAs one autoscaler handles: `python -m bench.autoscaler`.

The autoscaler runs as a process of its own, bound to one core, in a cluster with more and more HPAs, which counts its
requests (`bench.hpa_cluster`). If KUBEBUILDER_ASSETS has a kube-controller-manager, that gets the same load afterwards.
kube-controller-manager runs without client-side rate limits, the autoscaler with its own. The table is printed, and its
rows are appended to a file as JSON lines.

With `--tenant 40 1 10` there is another namespace, with 40 HPAs of one metric each for which a request takes 10 s; the
intervals are those of the other namespaces.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench.figures import cpu_seconds, peak_mib, rss_mib, write_lines
from bench.hpa_cluster import Ended, Grown, Order, cluster_process
from bench.processes import KCM, LinesProcess, controller, has_controller_manager
from kube.process.runtime import run
from playground.kube_apiserver import find_assets
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.tasks import background

_POINTS = (1000, 1250, 2500, 5000, 10_000)
_PROBE_SECONDS = 0.05
_STALL_MS = 100.0
_AUTOSCALER = "milliscale"
_EAGER = "milliscale --eager"
_OURS = (_AUTOSCALER, _EAGER)
_LIFTED = ("--kube-api-qps=100000", "--kube-api-burst=100000")
_PREFIX = "horizontal_pod_autoscaler_controller"


class Figures(msgspec.Struct, kw_only=True):
    """One controller with one number of HPAs; a row of the table."""

    controller: str
    api_server: str
    hpas: int
    workers: int | None
    """Concurrent reconciliations; None: the controller's default."""
    sync_period: float
    seconds: float
    """Measured time, after the start."""
    synced_hpas: int
    """HPAs with at least two status writes in these seconds."""
    interval_p50: float
    """Seconds between two status writes of an HPA."""
    interval_p99: float
    interval_max: float
    late_seconds: float | None = None
    """The mean delay of reconciliations; only of the autoscaler."""
    syncs_per_second: float
    cpu_cores: float
    """CPU seconds per second."""
    cpu_cores_per_1000_hpas_at_15s: float
    """The same per thousand HPAs, if each had been reconciled every 15 s."""
    cpu_ms_per_sync: float
    rss_mib: float
    peak_mib: float
    """The peak of resident memory since the start."""
    kib_per_hpa: float | None = None
    """The increase over the process without HPAs."""
    stalls: int | None = None
    """How often /healthz took longer than 100 ms, requested 20 times a second."""
    stall_max_ms: float | None = None
    requests_per_second: dict[str, float]
    metric_requests_per_second: float
    metric_values_per_second: float
    server_cpu_cores: float


class _Probe:
    """Requests /healthz repeatedly, and stores the response times."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.milliseconds: list[float] = []

    async def run(self) -> None:
        """Run until cancelled."""
        async with aiohttp.ClientSession() as session:
            while True:
                started = time.monotonic()
                async with session.get(self._url) as response:
                    await response.read()
                self.milliseconds.append((time.monotonic() - started) * 1000)
                await asyncio.sleep(_PROBE_SECONDS)


@dataclass(kw_only=True)
class _Bench:
    """One run; what the options of the command are."""

    load: LinesProcess
    folder: Path
    workers: int | None
    sync_period: float
    warm_up: float
    seconds: float
    cpu: int
    flags: Sequence[str]
    empty_mib: float | None = None

    async def empty(self, kubeconfig: str) -> None:
        """Measure the autoscaler without HPAs."""
        port = free_port()
        async with self._started(_AUTOSCALER, kubeconfig, port) as child:
            await asyncio.sleep(5)
            self.empty_mib = rss_mib(child.pid)

    async def measure(self, name: str, grown: Grown) -> Figures:
        """Measure one controller on the present cluster."""
        port = free_port()
        async with AsyncExitStack() as stack:
            child = await stack.enter_async_context(self._started(name, grown.kubeconfig, port))
            await asyncio.sleep(self.warm_up)
            _check(child)
            probe = None
            late = (0.0, 0.0)
            if name in _OURS:
                probe = _Probe(f"http://{LOOPBACK}:{port}/healthz")
                await stack.enter_async_context(background(probe.run()))
                late = await _late(port)
            await self.load.send(Order(begin=True), Order)
            cpu = cpu_seconds(child.pid)
            await asyncio.sleep(self.seconds)
            cpu = cpu_seconds(child.pid) - cpu
            ended = await self.load.send(Order(end=True), Ended)
            _check(child)
            rss, peak = rss_mib(child.pid), peak_mib(child.pid)
            if probe is not None:
                after = await _late(port)
                late = (after[0] - late[0], after[1] - late[1])
        cores, syncs = cpu / ended.seconds, ended.syncs / ended.seconds
        stalls = None if probe is None else [each for each in probe.milliseconds if each > _STALL_MS]
        kib = None
        if name in _OURS and self.empty_mib is not None:
            kib = (rss - self.empty_mib) * 1024 / grown.hpas
        return Figures(
            controller=name,
            api_server="playground" if find_assets(os.environ) is None else "kube-apiserver",
            hpas=grown.hpas,
            workers=self.workers,
            sync_period=self.sync_period,
            seconds=round(ended.seconds, 1),
            synced_hpas=ended.synced_hpas,
            interval_p50=round(ended.interval_p50, 2),
            interval_p99=round(ended.interval_p99, 2),
            interval_max=round(ended.interval_max, 2),
            late_seconds=round(late[0] / late[1], 4) if late[1] else None,
            syncs_per_second=round(syncs, 1),
            cpu_cores=round(cores, 3),
            cpu_cores_per_1000_hpas_at_15s=round(cpu / max(ended.syncs, 1) * 1000 / 15, 4),
            cpu_ms_per_sync=round(cpu / max(ended.syncs, 1) * 1000, 3),
            rss_mib=round(rss, 1),
            peak_mib=round(peak, 1),
            kib_per_hpa=None if kib is None else round(kib, 1),
            stalls=None if stalls is None else len(stalls),
            stall_max_ms=None if probe is None else round(max(probe.milliseconds, default=0.0), 1),
            requests_per_second={
                what: round(count / ended.seconds, 2) for what, count in ended.requests.items() if count > 0
            },
            metric_requests_per_second=round(ended.metric_requests / ended.seconds, 1),
            metric_values_per_second=round(ended.metric_values / ended.seconds, 1),
            server_cpu_cores=round(ended.server_cpu_seconds / ended.seconds, 3),
        )

    @asynccontextmanager
    async def _started(self, name: str, kubeconfig: str, port: int) -> AsyncIterator[ChildProcess]:
        flags = [f"--horizontal-pod-autoscaler-sync-period={self.sync_period}s"]
        if self.workers is not None:
            flags.append(f"--concurrent-horizontal-pod-autoscaler-syncs={self.workers}")
        ours = name in _OURS
        if ours:
            flags += [
                "--leader-elect-resource-namespace=default",
                *self.flags,
                *(["--eager"] if name == _EAGER else []),
            ]
        else:
            flags += _LIFTED
        async with controller(name, kubeconfig, self.folder, *flags, port=port) as child:
            if ours:
                os.sched_setaffinity(child.pid, {self.cpu})
            yield child


def _check(child: ChildProcess) -> None:
    if child.exit_status is not None:
        raise click.ClickException(f"{child.name} has ended:\n" + "\n".join(child.last_lines(30)))


async def _late(port: int) -> tuple[float, float]:
    """Return sum and count of `schedule_lag_seconds` since the start."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{LOOPBACK}:{port}/metrics") as response:
        text = await response.text()
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        if family.name == f"{_PREFIX}_schedule_lag_seconds"
        for sample in family.samples
        if not sample.labels
    }
    name = f"{_PREFIX}_schedule_lag_seconds"
    return samples.get(f"{name}_sum", 0.0), samples.get(f"{name}_count", 0.0)


_HEAD = (
    f"{'controller':24} {'HPAs':>6} {'p50 s':>6} {'p99 s':>6} {'syncs/s':>7} {'cores':>6} {'ms/sync':>7} "
    f"{'RSS MiB':>7} {'peak MiB':>8} {'KiB/HPA':>7} {'stall ms':>8} {'scale GET/s':>11} {'status/s':>8} "
    f"{'metric/s':>8} {'values/s':>8} {'server cores':>12}"
)


def _row(figures: Figures) -> str:
    requests = figures.requests_per_second
    kib = "-" if figures.kib_per_hpa is None else f"{figures.kib_per_hpa:.1f}"
    stall = "-" if figures.stall_max_ms is None else f"{figures.stall_max_ms:.0f}"
    return (
        f"{figures.controller:24} {figures.hpas:6} {figures.interval_p50:6.2f} {figures.interval_p99:6.2f} "
        f"{figures.syncs_per_second:7.1f} {figures.cpu_cores:6.3f} {figures.cpu_ms_per_sync:7.3f} "
        f"{figures.rss_mib:7.1f} {figures.peak_mib:8.1f} {kib:>7} {stall:>8} "
        f"{requests.get('get deployments/scale', 0.0):11.1f} "
        f"{requests.get('update horizontalpodautoscalers/status', 0.0):8.1f} "
        f"{figures.metric_requests_per_second:8.1f} {figures.metric_values_per_second:8.1f} "
        f"{figures.server_cpu_cores:12.3f}"
    )


def _controllers() -> list[str]:
    return [_AUTOSCALER, KCM] if has_controller_manager() else [_AUTOSCALER]


async def _run(
    folder: Path,
    *,
    points: Sequence[int],
    namespaces: int,
    output: Path,
    controllers: Sequence[str],
    tenant: tuple[int, int, float] | None,
    **options: Any,
) -> None:
    print(_HEAD, flush=True)
    async with cluster_process(folder / "cluster", namespaces) as load:
        bench = _Bench(load=load, folder=folder, **options)
        grown = await load.send(Order(grow=0), Grown)
        if tenant is not None:
            await load.send(Order(tenant=tenant), Order)
        await bench.empty(grown.kubeconfig)
        for point in sorted(points):
            grown = await load.send(Order(grow=point), Grown)
            for name in controllers:
                figures = await bench.measure(name, grown)
                print(_row(figures), flush=True)
                await asyncio.to_thread(write_lines, output, [figures])


@click.command(help=__doc__)
@click.option("--hpas", "points", type=click.IntRange(1), multiple=True, default=_POINTS, show_default=True)
@click.option("--namespaces", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--workers", type=click.IntRange(1), help="Concurrent reconciliations.  [default: the controllers' own]")
@click.option("--sync-period", type=click.FloatRange(1), default=15, show_default=True, help="Seconds.")
@click.option("--warm-up", type=click.FloatRange(0), default=20, show_default=True, help="Seconds before measuring.")
@click.option("--seconds", type=click.FloatRange(1), default=45, show_default=True, help="Seconds to measure.")
@click.option("--cpu", type=int, default=max(os.sched_getaffinity(0)), show_default=True, help="The processor to use.")
@click.option("--peer/--no-peer", default=True, show_default=True, help="Measure kube-controller-manager, if present.")
@click.option("--eager/--no-eager", default=False, show_default=True, help="Measure the autoscaler with --eager, too.")
@click.option("--tenant", type=(int, int, float), help="HPAs of another namespace, metrics of each, seconds of each.")
@click.option("--flag", "flags", multiple=True, help="Another flag for the autoscaler.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-autoscaler.jsonl"), show_default=True)
def main(*, peer: bool, eager: bool, **options: Any) -> None:
    """Measure and print."""
    controllers = [*([_EAGER] if eager else []), *(_controllers() if peer else [_AUTOSCALER])]
    with tempfile.TemporaryDirectory() as folder:
        run(_run(Path(folder), controllers=controllers, **options))


if __name__ == "__main__":
    main()
