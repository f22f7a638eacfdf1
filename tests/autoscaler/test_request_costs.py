"""How many requests many HPAs cost, counted."""

from collections.abc import Callable

import pytest

from autoscaler.core.model import KUBERNETES
from autoscaler.loop.options import Options
from tests.autoscaler.cluster import Cluster, running_controller
from tests.autoscaler.stepped_queue import SteppedQueue

HPAS = 60
PERIOD = 64.0
REQUESTS = 2
"""For 60 HPAs: one merges at most 50 selectors."""
VALUES = ("get", "pods/packets_per_second")
PERIODS = 100
"""After so many at the latest nothing is read or written but values."""


async def test_steady_hpas_cost_only_coalesced_metric_requests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(HPAS):
        cluster.add_deployment(f"app-{number}", replicas=1)
        cluster.add_hpa(f"app-{number}")
    options = Options(
        hpa_apis=(KUBERNETES,), sync_period=PERIOD, qps=0, workers=HPAS, bind_address="127.0.0.1", metrics_port=0
    )
    queue = SteppedQueue(monkeypatch)
    requests, metrics = cluster.server.requests, cluster.metrics

    def reconciled(times: int) -> Callable[[], bool]:
        return lambda: metrics.values == times * HPAS

    async with running_controller(cluster.server.kubeconfig("autoscaler"), options):
        await queue.started(HPAS)
        # The first reconciliations read the scales, and the first statuses are written. How soon the watches bring them
        # depends on the machine.
        for times in range(1, PERIODS):
            requests.clear()
            metrics.requests = 0
            await queue.advance(PERIOD + 1, until=reconciled(times))
            if set(requests.by_user("autoscaler")) == {VALUES}:
                break
        requests.clear()
        metrics.requests = metrics.values = 0
        for times in (1, 2, 3):
            await queue.advance(PERIOD + 1, until=reconciled(times))
    assert metrics.requests == 3 * REQUESTS
    assert set(requests.by_user("autoscaler")) == {VALUES}
