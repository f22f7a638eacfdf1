"""kube-controller-manager scales ahead of a step that the load makes every day, through the aggregated API."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from playground.install import apply
from playground.prometheus import Series, openmetrics
from tests.e2e.controllers import needs_controller_manager
from tests.e2e.rule_objects_stage import hpa, stage
from tests.eventually import eventually
from tests.objects import deployment, namespace
from tests.replay.builders import external_metric

pytestmark = [*needs_controller_manager, pytest.mark.xdist_group("controller_manager_rules")]

DAY = 86_400
DAYS = 8
LOW, HIGH = 100.0, 400.0
STEP_AFTER = 280.0
"""Seconds until the load rises today; within the horizon of 5 minutes from the beginning."""
LABELS = {"namespace": "ahead", "app": "web"}


def recorded(step: float) -> str:
    """Return the last days of a load that rises at the same time every day, for two hours."""
    first = (int(time.time()) // 60 - DAYS * 1440) * 60
    times = range(first, int(time.time()), 60)
    points = [(at, HIGH if (at - step) % DAY < 7200 else LOW + at % 7) for at in times]
    return openmetrics([Series("orders", LABELS, points)])


async def test_deployment_is_scaled_before_the_load_rises(tmp_path: Path) -> None:
    step = time.time() + STEP_AFTER
    rule = {
        "apiVersion": "milliscale.io/v1",
        "kind": "MetricRule",
        "metadata": {"name": "orders", "namespace": "ahead"},
        "spec": {
            "type": "External",
            "metric": "orders",
            "query": "max(orders)",  # the series that is scraped continues the one of the days before
            "forecast": {"horizon": "5m", "history": "7d", "as": "orders-expected"},
        },
    }
    async with stage(tmp_path, "metric-rules", samples=recorded(step)) as running:
        running.gauges.values['orders{namespace="ahead",app="web"}'] = LOW
        objects = [namespace("ahead"), rule]
        for name, metric in (("plain", "orders"), ("ahead", "orders-expected")):
            scaled = deployment(name, namespace="ahead", replicas=1)
            objects += [scaled, hpa("ahead", name, external_metric(metric, averageValue="100"))]
        await apply(running.client, objects)

        async def replicas(name: str) -> int:
            found = await running.client.get(f"/apis/apps/v1/namespaces/ahead/deployments/{name}")
            return int(found["spec"]["replicas"])

        async def scaled_ahead() -> bool:
            assert running.adapter.exit_status is None, running.adapter.last_lines()
            assert await replicas("ahead") >= 4, running.adapter.last_lines()
            return True

        await eventually(scaled_ahead, within=120)
        assert await replicas("plain") <= 2  # the load is what it was
        assert time.time() < step
        assert running.gauges.values['orders{namespace="ahead",app="web"}'] == LOW

        async def status_says_so() -> bool:
            path = "/apis/milliscale.io/v1/namespaces/ahead/metricrules/orders"
            status = (await running.client.get(path)).get("status", {})
            assert status.get("forecast", "").startswith("served"), status
            return True

        await eventually(status_says_so, within=60)
