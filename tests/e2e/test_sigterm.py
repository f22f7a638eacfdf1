"""SIGTERM with the flags of the manifests: each kind of process ends by itself, before the kubelet would kill it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from tests.e2e.controllers import ROOT
from tests.e2e.installation import arguments
from tests.e2e.tools import fetch
from tests.eventually import eventually
from tests.manifests.rendering import render_with

pytestmark = pytest.mark.e2e

DELAY = 5.0
"""The shutdown delay of the manifests, in seconds."""
LEASES = {"rules": "milliscale-adapter-rules", "autoscaler": "milliscale-autoscaler"}


def of_the_manifests(folder: Path, name: str, *components: str) -> tuple[list[str], float]:
    """Return the arguments of a Deployment, and the seconds between the kubelet's SIGTERM and its SIGKILL."""
    folder.mkdir()
    deployment = render_with(folder, *components)["Deployment", f"milliscale-{name}"]
    return list(arguments(deployment)), deployment["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30)


async def start_adapter(folder: Path, flags: Sequence[str], kubeconfig: Path) -> ChildProcess:
    command = [*(sys.executable, "-m", "adapter", "serve", *flags, f"--config={folder.parent / 'rules.yaml'}")]
    command += [f"--bind-address={LOOPBACK}", f"--secure-port={free_port()}", f"--cert-dir={folder / 'certificates'}"]
    command += [f"--{use}-kubeconfig={kubeconfig}" for use in ("lister", "authentication", "authorization")]
    return await ChildProcess.start(folder.name, command, log=folder / "log", directory=ROOT)


async def start_autoscaler(folder: Path, flags: Sequence[str], kubeconfig: Path) -> ChildProcess:
    command = [*(sys.executable, "-m", "autoscaler", "run", *flags, f"--kubeconfig={kubeconfig}")]
    command += [f"--bind-address={LOOPBACK}", f"--metrics-port={free_port()}"]
    command += ["--leader-elect-resource-namespace=milliscale"]
    return await ChildProcess.start(folder.name, command, log=folder / "log", directory=ROOT)


async def until_logged(child: ChildProcess, text: str) -> None:
    async def logged() -> bool:
        assert child.exit_status is None, child.last_lines()
        return text in child.log.read_text()

    await eventually(logged)


def seconds_between(log: str, first: str, last: str) -> float:
    """Return the time between two lines of a log."""
    moments = [re.search(rf"^(\S+) .*{each}", log, re.MULTILINE) for each in (first, last)]
    begun, ended = (datetime.fromisoformat(found[1]) for found in moments if found)
    return (ended - begun).total_seconds()


async def test_readiness_probe_passes_without_prometheus_and_fails_after_sigterm(tmp_path: Path) -> None:
    """The Prometheus of the manifests does not exist here. Without endpoints the API groups would be unavailable."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "rules.yaml").write_text("externalRules: [{seriesQuery: up, metricsQuery: up}]")
    deployment = render_with(tmp_path / "plain")["Deployment", "milliscale-adapter"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    path = container["readinessProbe"]["httpGet"]["path"]
    async with PlaygroundApiServer(tmp_path / "api", availability_seconds=0.1) as server:
        adapter = await start_adapter(tmp_path / "alone", list(container["args"]), server.kubeconfig())
        async with adapter:
            await until_logged(adapter, "serving on")
            found = re.search(r"serving on (\S+)", adapter.log.read_text())
            assert found

            async def status(path: str) -> int:
                return (await fetch(found[1] + path))[0]

            async def passes() -> bool:
                return await status(path) == 200

            await eventually(passes)
            assert await status("/readyz") == 500
            adapter.send_signal(signal.SIGTERM)

            async def fails() -> bool:
                return await status(path) == 500

            await eventually(fails, every=0.02)
            adapter.send_signal(signal.SIGTERM)
            assert await adapter.wait() == 0


async def holder(client: KubeClient, lease: str) -> str:
    leases: dict[str, Any] = await client.get("/apis/coordination.k8s.io/v1/leases")
    [held] = [each["spec"] for each in leases["items"] if each["metadata"]["name"] == lease]
    return str(held.get("holderIdentity") or "")


async def test_each_process_ends_before_the_grace_period_of_its_manifest(tmp_path: Path) -> None:
    plain, grace = of_the_manifests(tmp_path / "plain", "adapter")
    rules, _ = of_the_manifests(tmp_path / "rules", "adapter", "metric-rules")
    acting, autoscaler_grace = of_the_manifests(tmp_path / "acting", "autoscaler")
    assert f"--shutdown-delay-duration={DELAY:g}s" in plain
    assert "--metric-rules" in rules
    (tmp_path / "rules.yaml").write_text("externalRules: [{name: first, query: 'vector(7)'}]")
    async with (
        PlaygroundApiServer(tmp_path / "api", availability_seconds=0.1) as server,
        await KubeClient.connect(server.kubeconfig()) as client,
    ):
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "milliscale"}})
        kubeconfig = server.kubeconfig()
        alone = await start_adapter(tmp_path / "alone", plain, kubeconfig)
        writer = await start_adapter(tmp_path / "writer", rules, kubeconfig)
        leader = await start_autoscaler(tmp_path / "leader", acting, kubeconfig)
        async with alone, writer, leader:
            await until_logged(writer, "became leader")
            await until_logged(leader, "became leader")
            other = await start_adapter(tmp_path / "other", rules, kubeconfig)
            standby = await start_autoscaler(tmp_path / "standby", acting, kubeconfig)
            async with other, standby:
                await until_logged(alone, "serving on")
                for second in (other, standby):
                    await until_logged(second, "held by")
                # All at once: a candidate that ends must not take the Lease from a leader that ends.
                adapters = [each.stop(grace=grace) for each in (alone, writer, other)]
                autoscalers = [each.stop(grace=autoscaler_grace) for each in (leader, standby)]
                assert await asyncio.gather(*adapters, *autoscalers) == [0] * 5
                assert [await holder(client, lease) for lease in LEASES.values()] == ["", ""]
    for child in (alone, writer, other):
        log = child.log.read_text()
        assert "Traceback" not in log
        assert DELAY <= seconds_between(log, "stopping in 5 s", "stopped$") < grace
