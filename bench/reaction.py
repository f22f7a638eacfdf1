"""Measure how long a step of load takes until replicas are written: `python -m bench.reaction`.

The load of applications rises at random moments from 100 to 450 packets a second. With a target of 100 for each pod,
that is one replica before, and five after. Measured are the seconds until the first write of a scale, and until five
replicas are written, as a watch of the Deployments sees them. Each application has an HPA of its own with Kubernetes'
defaults, on the rate of a counter of its pods, and there are as many as repetitions. They are measured at the same
time, those with all scrape intervals, too; one setup of adapter and controller after the other, in one cluster.

Where the seconds of the first write go: until a sample after the step (`scraped`), until the rate in Prometheus is
beyond the tolerance of 10 % (`visible`), and the rest until the write: freshness, aggregation layer, sync period.

If KUBEBUILDER_ASSETS has kube-apiserver and kube-controller-manager, these are used; PEER is a prometheus-adapter to
compare with. Otherwise the playground's API server serves the cluster, and milliscale alone is measured.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.figures import cpu_seconds, write_lines
from bench.processes import KCM, controller, has_controller_manager, registered_adapter
from bench.reaction_cluster import RIGHT, Application, Interval, ReactionCluster, reaction_cluster
from kube.api.client import KubeError
from kube.api.status import StatusError
from kube.process.runtime import run
from playground.processes import ChildProcess

_START_SECONDS: Final = 120.0
_SETTLED_SYNCS: Final = 2
_SYNC: Final = 15.0
# The range of rates is that of so many scrapes.
_SCRAPES: Final = {5: 3}
_USUAL_SCRAPES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """An adapter and a controller."""

    name: str
    peer: bool = False
    controller_manager: bool = False
    adapter_flags: tuple[str, ...] = ()
    controller_flags: tuple[str, ...] = ()


SETUPS: Final = (
    Setup(name="prometheus-adapter, kube-controller-manager", peer=True, controller_manager=True),
    Setup(name="adapter, kube-controller-manager", controller_manager=True),
    Setup(name="adapter and autoscaler"),
    Setup(name="the same, eager", controller_flags=("--eager=true",)),
    Setup(name="the same, tuned", adapter_flags=("--metrics-freshness=1s",), controller_flags=("--eager=true",)),
)


class Row(msgspec.Struct, kw_only=True):
    """One setup with one scrape interval; times in seconds since the step, medians and the worst."""

    setup: str
    scrape: int
    window: int
    steps: int
    scraped: float
    visible: float
    rest: float
    """From there to the first write."""
    first: float
    first_worst: float
    right: float
    right_worst: float
    not_right: int
    """How many had not the right number after `seconds`."""
    seconds: float
    writes: float
    """The median number of writes until the right number."""
    queries_a_minute: float
    """Of all scrape intervals."""
    adapter_cores: float
    controller_cores: float
    firsts: list[float]
    rights: list[float]


@dataclass(frozen=True, slots=True)
class _Running:
    adapter: ChildProcess
    controller: ChildProcess


def _rules(intervals: Sequence[Interval], *, recorded: bool) -> str:
    """Return rules for both adapters. The second section is for an API that is registered, and not used."""
    text = "rules:\n"
    for one in intervals:
        series = f"{one.metric}:rate" if recorded else "packets_total"
        rate = f"<<.Series>>{{<<.LabelMatchers>>}}{'' if recorded else f'[{one.window}s]'}"
        text += (
            f'- seriesQuery: \'{series}{{namespace="{one.namespace}",pod!=""}}\'\n'
            "  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}\n"
            f"  name: {{as: {one.metric}}}\n"
            f"  metricsQuery: 'sum({rate if recorded else f'rate({rate})'}) by (<<.GroupBy>>)'\n"
        )
    return (
        f"{text}externalRules:\n- seriesQuery: 'up{{namespace!=\"\"}}'\n"
        "  resources: {overrides: {namespace: {resource: namespace}}}\n"
        "  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'\n"
    )


@dataclass(kw_only=True)
class _Bench:
    """One run; what the options of the command are."""

    cluster: ReactionCluster
    folder: Path
    intervals: Sequence[Interval]
    repetitions: int
    seconds: float
    recorded: bool
    sync_period: float | None
    freshness: str | None

    async def measure(self, setups: Sequence[Setup]) -> AsyncIterator[list[Row]]:
        """Yield the rows of each setup, which has applications of its own."""
        applications = [
            [
                Application(f"app-{number}-{each}", interval)
                for interval in self.intervals
                for each in range(self.repetitions)
            ]
            for number in range(len(setups))
        ]
        await self.cluster.create([one for some in applications for one in some])
        # A rate needs all of its range before it is that of the load.
        await asyncio.sleep(max(one.window + 2 * one.scrape for one in self.intervals) + _SYNC)
        for number, (setup, some) in enumerate(zip(setups, applications, strict=True)):
            yield await self._measure(number, setup, some)

    async def _measure(self, number: int, setup: Setup, applications: Sequence[Application]) -> list[Row]:
        async with self._running(number, setup, applications[0]) as running:
            await self.cluster.create_hpas(applications)
            await self._until_settled(applications)
            before = (await self.cluster.queries(), *self._cpu(running), time.monotonic())
            period = max(one.scrape for one in self.intervals)
            async with asyncio.TaskGroup() as tasks:
                for one in applications:
                    tasks.create_task(self._step(one, random.uniform(0, max(period, _SYNC))))
            after = (await self.cluster.queries(), *self._cpu(running), time.monotonic())
            queries, adapter, controller, seconds = (new - old for new, old in zip(after, before, strict=True))
            for child in (running.adapter, running.controller):
                if child.exit_status is not None:
                    raise click.ClickException("\n".join(child.last_lines()))
        await self.cluster.remove(applications)
        costs = {
            "queries_a_minute": round(queries / seconds * 60, 1),
            "adapter_cores": round(adapter / seconds, 3),
            "controller_cores": round(controller / seconds, 3),
        }
        return [await self._row(setup, one, applications, costs) for one in self.intervals]

    async def _step(self, application: Application, delay: float) -> None:
        await asyncio.sleep(delay)
        self.cluster.step(application)
        end = time.monotonic() + self.seconds
        while not application.done and time.monotonic() < end:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.5)

    async def _row(
        self, setup: Setup, interval: Interval, applications: Sequence[Application], costs: dict[str, float]
    ) -> Row:
        some = [one for one in applications if one.interval == interval]
        seen = [await self.cluster.in_prometheus(one, recorded=self.recorded) for one in some]
        firsts, rights, writes = [], [], []
        for one in some:
            times = [at - one.stepped for at, _ in one.writes]
            right = next((index for index, (_, replicas) in enumerate(one.writes) if replicas >= RIGHT), None)
            firsts.append(round(times[0] if times else self.seconds, 2))
            rights.append(round(self.seconds if right is None else times[right], 2))
            writes.append(len(times) if right is None else right + 1)
        return Row(
            setup=setup.name,
            scrape=interval.scrape,
            window=interval.window,
            steps=len(some),
            scraped=round(statistics.median(one for one, _ in seen), 2),
            visible=round(statistics.median(one for _, one in seen), 2),
            rest=round(statistics.median(at - one for at, (_, one) in zip(firsts, seen, strict=True)), 2),
            first=round(statistics.median(firsts), 2),
            first_worst=max(firsts),
            right=round(statistics.median(rights), 2),
            right_worst=max(rights),
            not_right=sum(not one.done for one in some),
            seconds=self.seconds,
            writes=statistics.median(writes),
            **costs,
            firsts=firsts,
            rights=rights,
        )

    def _cpu(self, running: _Running) -> tuple[float, float]:
        return cpu_seconds(running.adapter.pid), cpu_seconds(running.controller.pid)

    async def _until_settled(self, applications: Sequence[Application]) -> None:
        """Wait until each HPA has a value, and a random time, so that the controllers' syncs are at any time."""
        async with asyncio.timeout(_START_SECONDS):
            while await self.cluster.measured(applications) < len(applications):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.5)
        await asyncio.sleep(_SETTLED_SYNCS * _SYNC)

    @asynccontextmanager
    async def _running(self, number: int, setup: Setup, example: Application) -> AsyncIterator[_Running]:
        kubeconfig, folder = self.cluster.cluster.kubeconfig, self.folder / str(number)
        await asyncio.to_thread(folder.mkdir)
        peer = [os.environ.get("PEER", ""), "--client-qps=100000", "--client-burst=100000"]
        freshness = [] if self.freshness is None else [f"--metrics-freshness={self.freshness}"]
        ours = [sys.executable, "-m", "adapter", "serve", *(setup.adapter_flags or freshness)]
        name, flags = "autoscaler", [*setup.controller_flags]
        if self.sync_period is not None:
            flags.append(f"--horizontal-pod-autoscaler-sync-period={self.sync_period:g}s")
        if setup.controller_manager:
            name = KCM
        else:
            flags += ["--leader-elect=false", "--state-configmap="]
        async with registered_adapter(
            self.cluster.client,
            folder,
            admin=kubeconfig,
            prometheus_url=self.cluster.prometheus.url,
            rules=_rules(self.intervals, recorded=self.recorded),
            command=[*(peer if setup.peer else ours), "--metrics-relist-interval=1m"],
        ) as adapter:
            await self._until_served(adapter, example)
            async with controller(name, kubeconfig, folder, *flags) as child:
                yield _Running(adapter, child)

    async def _until_served(self, adapter: ChildProcess, example: Application) -> None:
        interval = example.interval
        path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{interval.namespace}/pods/*/{interval.metric}"
        async with asyncio.timeout(_START_SECONDS):
            while adapter.exit_status is None:
                try:
                    found = await self.cluster.client.get(path, {"labelSelector": f"app={example.name}"})
                except (StatusError, KubeError):
                    pass
                else:
                    if found.get("items"):
                        return
                await asyncio.sleep(0.5)
        raise click.ClickException("\n".join(adapter.last_lines()))


def _setups(names: Sequence[str]) -> list[Setup]:
    manager = has_controller_manager()
    possible = [
        one for one in SETUPS if (manager or not one.controller_manager) and (os.environ.get("PEER") or not one.peer)
    ]
    return [one for one in possible if not names or one.name in names]


def _table(rows: Sequence[Row]) -> str:
    """Return the rows as two tables in Markdown: times by scrape interval, and what each setup costs."""
    times = "scraped | visible | rest | first write | worst | five replicas | worst | writes"
    lines = [
        f"| scrape interval, range | | {times} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in sorted(rows, key=lambda row: row.scrape):
        late = f"{row.not_right} of {row.steps} not in {row.seconds:.0f}"
        worst = late if row.not_right else f"{row.right_worst:.1f}"
        window = f"{row.window // 60}m" if row.window % 60 == 0 else f"{row.window}s"
        lines.append(
            f"| {row.scrape} s, `[{window}]` | {row.setup} | {row.scraped:.1f} | {row.visible:.1f} |"
            f" {row.rest:.1f} |"
            f" {row.first:.1f} | {row.first_worst:.1f} | {row.right:.1f} | {worst} | {row.writes:g} |"
        )
    costs = {row.setup: (row.queries_a_minute, row.adapter_cores, row.controller_cores) for row in rows}
    lines += ["", "| | queries | adapter's cores | controller's cores |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {name} | {queries:.0f} | {adapter:.3f} | {controller:.3f} |"
        for name, (queries, adapter, controller) in costs.items()
    ]
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--repetitions", type=click.IntRange(1, 100), default=20, show_default=True, help="Steps of each row.")
@click.option("--scrape", "scrapes", type=click.IntRange(1), multiple=True, default=(5, 15, 30), show_default=True)
@click.option(
    "--window", type=click.IntRange(2), help="Range of the rates in seconds.  [default: 3 scrapes of 5 s, or 4]"
)
@click.option("--pod-startup", type=click.FloatRange(0), default=3.0, show_default=True, help="Seconds until Ready.")
@click.option("--sync-period", type=click.FloatRange(1), help="Of both controllers, in seconds.")
@click.option("--freshness", help="The adapter's --metrics-freshness, except that of the tuned setup.")
@click.option("--recorded", is_flag=True, help="A recording rule computes the rates, every scrape interval.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=240.0, show_default=True, help="The longest wait for a step."
)
@click.option("--setup", "names", multiple=True, help="Measure only this one, by its name in the table.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-reaction.jsonl"), show_default=True)
def main(
    *,
    scrapes: tuple[int, ...],
    window: int | None,
    pod_startup: float,
    names: tuple[str, ...],
    output: Path,
    recorded: bool,
    **options: Any,
) -> None:
    """Measure and print."""
    intervals = [
        Interval(scrape=one, window=window or one * _SCRAPES.get(one, _USUAL_SCRAPES)) for one in sorted(scrapes)
    ]

    async def measured(folder: Path) -> None:
        rows: list[Row] = []
        async with reaction_cluster(folder, intervals, ready_seconds=pod_startup, recorded=recorded) as cluster:
            bench = _Bench(cluster=cluster, folder=folder, intervals=intervals, recorded=recorded, **options)
            async for some in bench.measure(_setups(names)):
                await asyncio.to_thread(write_lines, output, some)
                rows += some
                print(_table(some), flush=True)
        print(_table(rows), flush=True)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run(measured(Path(folder)))


if __name__ == "__main__":
    main()
