"""Measure the CPU time of a start: `python -m bench.cold_start`.

Each process starts as in a pod, with a service account, until its readiness probe passes. On a node that gives a pod
100m, ten times the CPU time passes until then.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import Final

import aiohttp
import click

from bench.figures import cpu_seconds
from playground.apiserver import PlaygroundApiServer
from playground.in_pod import NAMESPACE, ServiceAccount
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess

_ROOT: Final = Path(__file__).resolve().parent.parent
_POLL_SECONDS: Final = 0.05
_ADAPTER: Final = ("adapter", "serve", "--prometheus-url=http://127.0.0.1:9", "--shutdown-delay-duration=100ms")
_KINDS: Final = {
    "adapter": _ADAPTER,
    "adapter --metric-rules": (*_ADAPTER, "--metric-rules", "--tenant-label=namespace"),
    "autoscaler": ("autoscaler", "run", f"--leader-elect-resource-namespace={NAMESPACE}"),
}


async def _start(folder: Path, account: ServiceAccount, name: str) -> float:
    """Start a process, and return its CPU time in seconds when its readiness probe passes."""
    module, *arguments = _KINDS[name]
    port = free_port()
    if module == "adapter":
        url = f"https://{LOOPBACK}:{port}/readyz?exclude=metrics"
        arguments += [f"--secure-port={port}", f"--config={folder / 'rules.yaml'}", f"--cert-dir={folder / 'certs'}"]
    else:
        url = f"http://{LOOPBACK}:{port}/readyz"
        arguments += [f"--metrics-port={port}"]
    command = account.command(module, *arguments, f"--bind-address={LOOPBACK}")
    log = folder / "log"
    async with aiohttp.ClientSession() as http:
        process = await ChildProcess.start(name, command, log=log, directory=_ROOT)
        async with process:
            while True:
                if process.exit_status is not None:
                    raise click.ClickException("\n".join(process.last_lines()))
                try:
                    async with http.get(url, ssl=False) as response:
                        if response.status == 200:
                            return cpu_seconds(process.pid)
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(_POLL_SECONDS)


async def _measure(runs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = _ROOT / "manifests/base/rules.yaml"
        (folder / "rules.yaml").write_bytes(await asyncio.to_thread(rules.read_bytes))
        async with PlaygroundApiServer(folder / "api") as server:
            account = ServiceAccount(folder / "service-account", server)
            click.echo("| process | CPU time until ready, s: min | median |\n| --- | ---: | ---: |")
            for kind in _KINDS:
                await _start(folder, account, kind)  # compiles modules that are new
                found = [await _start(folder, account, kind) for _ in range(runs)]
                click.echo(f"| {kind} | {min(found):.2f} | {statistics.median(found):.2f} |")


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=9, show_default=True, help="Starts of each process.")
def main(*, runs: int) -> None:
    """Measure the CPU time of a start until the process is ready."""
    asyncio.run(_measure(runs))


if __name__ == "__main__":
    main()
