"""Start and use `bench.hpa_cluster`, which is a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from bench.hpa_cluster import Order

ROOT = Path(__file__).parent.parent
_T = TypeVar("_T")


class ClusterProcess:
    """The cluster's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, order: Order, reply_type: type[_T]) -> _T:
        """Send an order and return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise click.ClickException("the cluster's process has ended")
        return msgspec.json.decode(line, type=reply_type)


@asynccontextmanager
async def cluster_process(folder: Path, namespaces: int) -> AsyncIterator[ClusterProcess]:
    """Start a cluster with so many namespaces, and stop it at the end of the context."""
    # It logs clients that disconnect during a watch, which is normal here.
    with folder.with_suffix(".log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.hpa_cluster", str(folder), f"--namespaces={namespaces}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    try:
        yield ClusterProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()
