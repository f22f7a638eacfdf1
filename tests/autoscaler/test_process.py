"""`python -m autoscaler run` as a process: how it starts, stops and speaks."""

import array
import asyncio
import fcntl
import os
import signal
import termios
from pathlib import Path

import pytest

from tests.autoscaler.cluster import Cluster
from tests.autoscaler.process import ALONE, autoscaler
from tests.eventually import PATIENCE, eventually
from tests.kube.scripted import ScriptedServer

SOON = 20.0


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    cluster.metrics.value = "30"
    cluster.metrics.held = asyncio.Event()
    return cluster


async def asked_for_metrics(cluster: Cluster) -> bool:
    return cluster.metrics.requests > 0


async def test_reconciliation_in_flight_finishes_before_the_end(cluster: Cluster) -> None:
    assert cluster.metrics.held is not None
    async with autoscaler(cluster.kubeconfig, *ALONE) as process:
        await eventually(lambda: asked_for_metrics(cluster), within=SOON, every=0.01)
        process.signal(signal.SIGTERM)

        async def stopping() -> bool:
            return any("stopping" in line for line in process.log_lines)

        await eventually(stopping, within=SOON, every=0.01)
        cluster.metrics.held.set()
        assert await process.ended() == 0
    assert cluster.replicas("web") == 3
    assert cluster.condition("web", "AbleToScale") == ("True", "SucceededRescale")
    assert [reason for reason, _, _ in await cluster.events("web")] == ["SuccessfulRescale"]
    assert "Traceback" not in "\n".join(process.log_lines)


async def test_hanging_reconciliation_does_not_block_the_end(cluster: Cluster) -> None:
    assert cluster.metrics.held is not None
    async with autoscaler(cluster.kubeconfig, *ALONE, "--setting=shutdown.reconcile_seconds=100ms") as process:
        await eventually(lambda: asked_for_metrics(cluster), within=SOON, every=0.01)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    cluster.metrics.held.set()
    assert cluster.replicas("web") == 1
    assert "Traceback" not in "\n".join(process.log_lines)


def waiting(reader: int) -> int:
    """How many bytes a pipe holds."""
    number = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, number)
    return number[0]


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the pipe cannot be made small")
async def test_an_audit_fifo_that_is_full_holds_up_neither_reconciliation_nor_the_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert cluster.metrics.held is not None
    cluster.metrics.held.set()
    fifo = tmp_path / "audit"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        size = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        often = "--horizontal-pod-autoscaler-sync-period=20ms"
        async with autoscaler(cluster.kubeconfig, *ALONE, often, f"--audit-log={fifo}") as process:

            async def begun() -> bool:
                return waiting(reader) > 0

            await eventually(begun, within=PATIENCE, every=0.01)
            syncs = cluster.syncs()

            async def goes_on() -> bool:
                return cluster.syncs() >= syncs + 10

            await eventually(goes_on, within=PATIENCE, every=0.01)
            assert 0 < waiting(reader) <= size, "ten records are more than fit in"
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    finally:
        os.close(reader)
    assert any(f"--audit-log={fifo}: not all decisions could be written" in line for line in process.log_lines)


async def test_process_waits_for_the_api_server_and_logs_once(tmp_path: Path) -> None:
    tries = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as nobody:
        kubeconfig = ScriptedServer(url=f"http://127.0.0.1:{nobody.sockets[0].getsockname()[1]}").kubeconfig(tmp_path)
        # The retries of one request take up to 30 s; an error is logged after the last.
        async with autoscaler(kubeconfig, *ALONE, "--setting=api_server.request_seconds=200ms") as process:

            async def waits() -> bool:
                return "hpas failed: not listed yet" in await process.get("/readyz")

            async def both_said() -> bool:
                return len([line for line in process.log_lines if "cannot be reached" in line]) == 2

            await eventually(waits, within=SOON)
            assert await process.get("/livez") == "ok"
            await eventually(both_said)
            enough = tries + 2

            async def tried_again() -> bool:
                return tries >= enough

            await eventually(tried_again)
            process.signal(signal.SIGINT)
            assert await process.ended() == 0
    lines = [line for line in process.log_lines if "cannot be reached" in line]
    assert len(lines) == 2, "one for the HPAs, one for the pods"
    assert "Traceback" not in "\n".join(process.log_lines)
