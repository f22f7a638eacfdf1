"""Run kube-controller-manager's HPA controller and the autoscaler as processes in one cluster."""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from playground.cluster import Cluster
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess

ROOT = Path(__file__).parent.parent.parent
ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
# Short sync periods and windows for both.
_TIMING = (
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--horizontal-pod-autoscaler-downscale-stabilization=2s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=1ms",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1ms",
)

needs_controller_manager = [pytest.mark.kubebuilder("kube-controller-manager"), pytest.mark.e2e]
"""Marks of tests that run kube-controller-manager."""


@asynccontextmanager
async def started(name: str, command: Sequence[str | Path], folder: Path) -> AsyncIterator[None]:
    """Run a process, which must not end before the context does."""
    child = await ChildProcess.start(name, command, log=folder / f"{name}.log", directory=ROOT)
    async with child:
        yield
        assert child.exit_status is None, child.last_lines()


def controller_manager(
    cluster: Cluster, folder: Path, *flags: str, timing: Sequence[str] = _TIMING
) -> list[str | Path]:
    """Return the command of kube-controller-manager with its HPA controller only."""
    return [
        ASSETS / "kube-controller-manager",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder / 'controller-manager'}",
        "--leader-elect=false",
        "--controllers=horizontal-pod-autoscaler-controller",
        *timing,
        *flags,
    ]


def autoscaler(kubeconfig: Path, *flags: str, timing: Sequence[str] = _TIMING) -> list[str | Path]:
    """Return the command of the autoscaler with the feature gates of Kubernetes 1.36."""
    return [
        *(sys.executable, "-m", "autoscaler", "run"),
        f"--kubeconfig={kubeconfig}",
        "--feature-gates=HPAScaleToZero=false",
        f"--bind-address={LOOPBACK}",
        *timing,
        *flags,
    ]
