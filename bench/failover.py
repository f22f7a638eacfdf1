"""Measure the time of a failover: `python -m bench.failover`.

Two processes contend for one Lease with kube-controller-manager's times. The leader gets a signal; the time until the
other one starts its workers is measured. SIGTERM is a rollout or a drained node, SIGKILL a lost node, SIGSTOP a process
that hangs or is cut off. Both use a small API server on loopback, or the one of a kubeconfig.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from playground.apiserver import PlaygroundApiServer

_SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)
_NAMESPACE = "default"


class _Process:
    """An autoscaler, and the time since when it acts."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.waits = asyncio.Event()
        self.acts = asyncio.Event()
        self.acts_since = 0.0

    async def listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if b"held by" in line:
                self.waits.set()
            if b"starting" in line and b"workers" in line:
                self.acts_since = time.monotonic()
                self.acts.set()


@asynccontextmanager
async def _autoscaler(kubeconfig: Path) -> AsyncIterator[_Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", "run", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", "--metrics-port=0", f"--leader-elect-resource-namespace={_NAMESPACE}"),
        stderr=asyncio.subprocess.PIPE,
    )
    running = _Process(process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening


async def _failover(kubeconfig: Path, number: signal.Signals) -> float:
    async with _autoscaler(kubeconfig) as first:
        await first.acts.wait()
        async with _autoscaler(kubeconfig) as second:
            await second.waits.wait()
            started = time.monotonic()
            first.process.send_signal(number)
            await second.acts.wait()
            seconds = second.acts_since - started
            second.process.terminate()  # which releases the Lease for the next run
            await second.process.wait()
    return seconds


async def _measure(kubeconfig: Path, runs: int) -> None:
    for number in _SIGNALS:
        seconds = sorted([await _failover(kubeconfig, number) for _ in range(runs)])
        middle = statistics.median(seconds)
        print(f"{number.name:8} {seconds[0]:6.2f} s {middle:6.2f} s {seconds[-1]:6.2f} s", flush=True)


async def _run(kubeconfig: Path | None, runs: int) -> None:
    print("signal       min   median      max")
    if kubeconfig is not None:
        await _measure(kubeconfig, runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        async with PlaygroundApiServer(Path(folder)) as server:
            await _measure(server.kubeconfig(), runs)


@click.command(help=__doc__)
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs with each signal.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="A cluster; its HPAs are scaled.")
def main(runs: int, kubeconfig: Path | None) -> None:
    """Measure and print."""
    asyncio.run(_run(kubeconfig, runs))


if __name__ == "__main__":
    main()
