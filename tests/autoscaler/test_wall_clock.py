"""The wall clock is set while the process runs: libfaketime shifts it, and not the monotonic clock.

The tests wait for reconciliations, never for time. A window is either too long for any test, or shorter than each.
"""

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.autoscaler.cluster import Cluster, running_cluster
from tests.autoscaler.process import ALONE, Autoscaler, autoscaler
from tests.eventually import PATIENCE, eventually

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
QUICK = (*ALONE, "--horizontal-pod-autoscaler-sync-period=100ms", "--kube-api-qps=0")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(LIBRARY is None, reason="Debian's package faketime is not installed"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another library is preloaded"),
]


@dataclass
class WallClock:
    """The wall clock of a process, in a file that libfaketime reads each time that the process looks at its clock."""

    file: Path

    def set(self, offset: timedelta) -> None:
        """Let it differ from the real one by so much from now on."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset.total_seconds():+.0f}s\n")
        new.rename(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """For the process."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            # The name that it has in libfaketime 0.9.10, and the one before.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    clock = WallClock(tmp_path / "faketime")
    clock.set(timedelta())
    return clock


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A target of six replicas, all of them needed."""
    async with running_cluster(tmp_path) as cluster:
        cluster.add_deployment("web", replicas=6)
        cluster.add_hpa("web", most=10)
        yield cluster


async def decisions(process: Autoscaler) -> list[dict[str, Any]]:
    page = json.loads(await process.get("/debug/decisions/default/web"))
    found: list[dict[str, Any]] = page["decisions"]
    return found


async def wait_for_reconciliations(cluster: Cluster, number: int) -> None:
    """Wait for so many reconciliations."""
    before = cluster.metrics.requests

    async def taken() -> bool:
        return cluster.metrics.requests >= before + number

    await eventually(taken, within=PATIENCE)


def ahead(decision: dict[str, Any]) -> timedelta:
    """By how much the process' wall clock is ahead."""
    return datetime.fromisoformat(decision["time"]) - datetime.now(UTC)


async def test_a_clock_that_is_set_ten_minutes_forward_ends_no_window(cluster: Cluster, clock: WallClock) -> None:
    async with autoscaler(cluster.kubeconfig, *QUICK, environment=clock.environment) as process:
        await wait_for_reconciliations(cluster, 3)
        clock.set(timedelta(minutes=10))
        cluster.metrics.value = "1"
        await wait_for_reconciliations(cluster, 5)
        last = (await decisions(process))[-1]
        assert ahead(last) > timedelta(minutes=9), "the process lives in another time"
        assert cluster.replicas("web") == 6, "the window is five minutes"
        assert cluster.condition("web", "AbleToScale") == ("True", "ScaleDownStabilized")


async def test_setting_the_clock_back_prolongs_no_window(cluster: Cluster, clock: WallClock) -> None:
    window = "--horizontal-pod-autoscaler-downscale-stabilization=100ms"
    async with autoscaler(cluster.kubeconfig, *QUICK, window, environment=clock.environment) as process:
        await wait_for_reconciliations(cluster, 3)
        clock.set(-timedelta(minutes=30))
        await wait_for_reconciliations(cluster, 2)  # the one that was under way may have looked at its clock before
        cluster.metrics.value = "1"

        async def scaled_down() -> bool:
            return cluster.replicas("web") == 1

        await eventually(scaled_down, within=PATIENCE)
        last = (await decisions(process))[-1]
        assert ahead(last) < -timedelta(minutes=29), "the process lives in another time"
