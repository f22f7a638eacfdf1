"""`python -m autoscaler run` as a process: how it starts, stops and speaks."""

import asyncio
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.autoscaler.cluster import Cluster, running_cluster
from tests.eventually import eventually
from tests.kube.scripted import ScriptedServer

SOON = 20.0
LIMIT = 5.0
"""Seconds in which a process must end, whatever it is at."""


class Autoscaler:
    """The process, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []

    async def listen(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.said.append(line.decode().rstrip())

    @property
    def port(self) -> int:
        """Where its endpoint is."""
        found = re.search(r"health and metrics on \S+ port (\d+)", "\n".join(self.said))
        assert found, "not listening yet"
        return int(found[1])

    async def get(self, path: str) -> str:
        """A page of its endpoint."""
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return await response.text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit status, once it has ended."""
        return await asyncio.wait_for(self._process.wait(), LIMIT)


@asynccontextmanager
async def autoscaler(kubeconfig: Path, *arguments: str) -> AsyncIterator[Autoscaler]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", "run", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", "--metrics-port=0", "--leader-elect=false", "--state-configmap=", *arguments),
        stderr=asyncio.subprocess.PIPE,
    )
    running = Autoscaler(process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as cluster:
        cluster.add_deployment("web", replicas=1)
        cluster.add_hpa("web")
        cluster.metrics.value = "30"
        cluster.metrics.held = asyncio.Event()
        yield cluster


async def asked_for_metrics(cluster: Cluster) -> bool:
    return cluster.metrics.asked > 0


async def test_a_step_in_flight_is_finished_before_it_ends(cluster: Cluster) -> None:
    assert cluster.metrics.held is not None
    async with autoscaler(cluster.kubeconfig) as process:
        await eventually(lambda: asked_for_metrics(cluster), within=SOON, every=0.01)
        process.signal(signal.SIGTERM)

        async def stopping() -> bool:
            return any("stopping" in line for line in process.said)

        await eventually(stopping, within=SOON, every=0.01)
        cluster.metrics.held.set()
        assert await process.ended() == 0
    assert cluster.replicas("web") == 3
    assert cluster.condition("web", "AbleToScale") == ("True", "SucceededRescale")
    assert [reason for reason, _, _ in await cluster.events("web")] == ["SuccessfulRescale"]
    assert "Traceback" not in "\n".join(process.said)


async def test_a_step_that_hangs_does_not_keep_it(cluster: Cluster) -> None:
    assert cluster.metrics.held is not None
    async with autoscaler(cluster.kubeconfig) as process:
        await eventually(lambda: asked_for_metrics(cluster), within=SOON, every=0.01)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    cluster.metrics.held.set()
    assert cluster.replicas("web") == 1
    assert "Traceback" not in "\n".join(process.said)


async def test_without_an_api_server_it_waits_and_says_so_once(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        kubeconfig = ScriptedServer(url=f"http://127.0.0.1:{nobody.getsockname()[1]}").kubeconfig(tmp_path)
        async with autoscaler(kubeconfig) as process:

            async def waits() -> bool:
                return "hpas failed: not listed yet" in await process.get("/readyz")

            await eventually(waits, within=SOON)
            assert await process.get("/livez") == "ok"
            await asyncio.sleep(2)  # time for a few tries
            process.signal(signal.SIGINT)
            assert await process.ended() == 0
    complaints = [line for line in process.said if "cannot be reached" in line]
    assert len(complaints) == 2, "one for the HPAs, one for the pods"
    assert "Traceback" not in "\n".join(process.said)


async def test_an_address_in_use_is_one_clear_line_and_status_1(tmp_path: Path) -> None:
    kubeconfig = ScriptedServer(url="http://127.0.0.1:1").kubeconfig(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with autoscaler(kubeconfig, f"--metrics-port={port}") as process:
            assert await process.ended() == 1
    assert len(process.said) == 1
    assert process.said[0].startswith(f"Error: --bind-address=127.0.0.1 --metrics-port={port}: cannot serve there: ")
    assert process.said[0].endswith("address already in use")
