"""Lists with many values are encoded in a worker thread, short ones and metrics on the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.content.encoding import Representation
from adapter.serving import routes, usage_routes
from adapter.telemetry import Telemetry
from tests.adapter.serving import EXTERNAL_PATH, CannedUsage, ServedAdapter, served_adapter

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/big/pods/%2A/conn_open"
RESOURCE = "/apis/metrics.k8s.io/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads in which documents were built and encoded."""
    found: set[int] = set()

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any, **more: Any) -> Any:
            found.add(threading.get_ident())
            return work(*arguments, **more)

        return note

    for place, names in (
        (routes, ("CustomMetricList", "ExternalMetricList")),
        (usage_routes, ("UsageDocument", "usage_table")),
        (Representation, ("encode",)),
    ):
        for name in names:
            monkeypatch.setattr(place, name, noted(getattr(place, name)))
    return found


async def body_of(adapter: ServedAdapter, path: str, accept: str) -> bytes:
    reply = await adapter.request_as_master(path, headers={"Accept": accept})
    assert reply.status == 200, reply.body
    return reply.body


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        (CUSTOM, "application/json"),
        (CUSTOM, "application/vnd.kubernetes.protobuf"),
        (EXTERNAL_PATH, "application/json"),
        (f"{RESOURCE}/pods", "application/json"),
        (f"{RESOURCE}/nodes", "application/json"),
        (f"{RESOURCE}/pods", TABLE),
        (f"{RESOURCE}/nodes", TABLE),
    ],
)
async def test_response_with_many_values_is_encoded_in_a_thread(
    tmp_path: Path, threads: set[int], path: str, accept: str
) -> None:
    usage = CannedUsage()
    async with served_adapter(tmp_path, usage=usage) as adapter:
        threads.clear()
        for count, on_loop in ((499, True), (500, False)):
            adapter.metrics.count = usage.count = count
            body = await body_of(adapter, path, accept)
            assert len(body) > 20 * count
            assert (threads == {threading.get_ident()}) is on_loop
            assert (threading.get_ident() in threads) is on_loop
            threads.clear()


async def test_metrics_are_formatted_on_the_event_loop_with_pauses_between_families() -> None:
    """In a thread, they would compete with threads that compute, and both with the event loop."""
    metrics = Telemetry()
    steps: list[str] = []
    collected = asyncio.Event()

    class Rules(Collector):
        def __init__(self, name: str) -> None:
            self.name = name

        def collect(self) -> list[Metric]:
            assert threading.current_thread() is threading.main_thread()
            steps.append(self.name)
            collected.set()
            pause_is_due = time.perf_counter() + 0.02
            while time.perf_counter() < pause_is_due:
                pass
            return [GaugeMetricFamily(self.name, "Rules.", value=2)]

    async def request() -> None:
        await collected.wait()
        steps.append("request")

    for name in ("first", "second"):
        metrics.registry.register(Rules(name))
    task = asyncio.create_task(request())
    body = await metrics.exposition()
    await task
    assert steps == ["first", "request", "second"]
    assert b"first 2.0" in body
    assert b"second 2.0" in body
