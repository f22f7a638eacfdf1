"""What-if: the same replicas as the command, errors in one sentence, and an event loop that is not blocked."""

from __future__ import annotations

import asyncio
import csv
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from autoscaler.cli import main
from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from autoscaler.core.status import rfc3339
from autoscaler.objects.hpa import parse_hpa
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.sources import WhatIfError, WhatIfResult
from replay.what_if import what_if
from tests.imports import imported
from tests.kube.scripted import scripted_server
from tests.replay.builders import cpu_metric, external_metric, hpa_document, make_hpa, object_metric, pods_metric
from tests.replay.live import Live
from tests.replay.test_recorded import wave

FLAGS = ["--horizontal-pod-autoscaler-tolerance=0.05", "--horizontal-pod-autoscaler-downscale-stabilization=90s"]
USAGE = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "90"}}}
CONFIG = Config(tolerance=0.05, downscale_stabilization_ms=90_000)


async def result_of(
    live: Live, changed: HPA | None = None, *, records: list[DecisionRecord] | None = None, **options: Any
) -> WhatIfResult:
    settings = {"config": live.config, "pod_startup": None, "capacity": {}, **options}
    return await what_if(live.hpa, changed or live.hpa, iter(records or live.records), **settings)


@pytest.mark.parametrize(
    ("metrics", "changed", "behavior"),
    [
        ([pods_metric(average="100")], [pods_metric(average="130")], None),
        ([pods_metric(average="100")], [pods_metric(average="160")], {"scaleDown": {"stabilizationWindowSeconds": 30}}),
        ([cpu_metric(50)], [cpu_metric(70)], {"scaleUp": {"tolerance": "0.3"}}),
        ([external_metric(averageValue="100")], [external_metric(averageValue="140")], None),
        ([object_metric(value="100")], [object_metric(value="80")], None),
    ],
    ids=["Pods", "Pods with behavior", "cpu", "External", "Object"],
)
async def test_replicas_are_those_of_the_command(
    tmp_path: Path, metrics: list[dict[str, Any]], changed: list[dict[str, Any]], behavior: Any
) -> None:
    live = Live(make_hpa(*metrics), seed=1, failures=0.02, config=CONFIG)
    live.run(wave(120, low=100, high=1500))
    document = hpa_document(*changed, behavior=behavior)
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(document))

    result = await result_of(live, parse_hpa(document), pod_startup=45.0)

    async def decisions(_: web.Request) -> web.Response:
        return web.Response(
            body=msgspec.json.encode(await live.log.page("shop", "web")), content_type="application/json"
        )

    async with scripted_server() as server:
        server.handlers["/debug/decisions/shop/web"] = decisions
        command = ["replay", f"--hpa={path}", f"--server={server.url}", "--pod-startup=45s", "-o", "csv", *FLAGS]
        printed = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert printed.exit_code == 0, printed.output
    rows = list(csv.DictReader(printed.stdout.splitlines()))
    replicas = [(rows[0]["timestamp"], int(rows[0]["replicas"]))]
    replicas += [
        (row["timestamp"], int(row["desiredReplicas"])) for row in rows if row["replicas"] != row["desiredReplicas"]
    ]
    assert len(replicas) > 5
    assert [(_text(time_ms), count) for time_ms, count in result.replicas] == replicas


def _text(time_ms: int) -> str:
    return rfc3339(time_ms - time_ms % 1000).replace("Z", f".{time_ms % 1000:03}Z")


async def test_result_compares_reality_the_present_and_the_changed_spec() -> None:
    live = Live(make_hpa(), seed=3)
    live.run([200.0] * 10 + [600.0] * 40)
    result = await result_of(live, make_hpa(pods_metric(average="50")), capacity={0: 200.0})
    assert list(result.header) == ["reality", "present spec", "changed spec"]
    figures = {name: cells for name, *cells in result.rows}
    assert figures["replicas: max"][2] == "12"
    assert figures["pod-hours"][2].endswith("%)")
    assert any("one ready pod can serve 200 of rps" in note for note in result.notes)
    assert {"data", "layout"} == set(result.figure)
    assert [time_ms for time_ms, _ in result.sentences] == [time_ms for time_ms, _ in result.replicas[1:]]
    assert result.sentences[0][1].startswith("2 -> 4: rps is 100 against a target of 50 per pod")


async def test_error_is_one_sentence() -> None:
    live = Live(make_hpa(USAGE), seed=4)
    with pytest.raises(WhatIfError, match="there are 0 kept decisions on shop/web, and a replay needs two or more"):
        await result_of(live)
    live.run([200.0] * 4)
    with pytest.raises(WhatIfError, match="no kept decision has a utilization of cpu, so what a pod requests is not k"):
        await result_of(live, make_hpa(cpu_metric()))


async def test_number_of_pods_is_limited() -> None:
    live = Live(make_hpa(), seed=4)
    live.run([200.0] * 4)
    changed = make_hpa(min_replicas=2_000_000_000, max_replicas=2_147_483_647)
    with pytest.raises(WhatIfError, match="at most 10000 replicas, and this one would have 2000000000"):
        await result_of(live, changed, pod_startup=30)


async def test_event_loop_runs_while_a_replay_is_computed() -> None:
    live = Live(make_hpa(), seed=5)
    live.run(wave(300, low=100, high=1500))
    records, threads = live.records, set[int]()

    def noting() -> Iterator[DecisionRecord]:
        for record in records:
            threads.add(threading.get_ident())
            yield record

    replay = asyncio.create_task(
        what_if(live.hpa, make_hpa(pods_metric(average="50")), noting(), config=Config(), pod_startup=30, capacity={})
    )
    iterations = 0
    while not replay.done():
        await asyncio.sleep(0)
        iterations += 1
    assert (await replay).rows
    assert threads == threads - {threading.get_ident()}
    assert iterations > 100


async def test_replay_ends_soon_if_nobody_waits_for_it() -> None:
    live = Live(make_hpa(), seed=6)
    live.run([200.0] * 20)
    records, read, ended = live.records, threading.Event(), threading.Event()

    def endless() -> Iterator[DecisionRecord]:
        try:
            while True:
                read.set()
                yield records[0]
        finally:
            ended.set()

    replay = asyncio.create_task(what_if(live.hpa, live.hpa, endless(), config=Config(), pod_startup=30, capacity={}))
    assert await asyncio.to_thread(read.wait, 10)
    replay.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replay
    # The iterator is closed when the thread no longer has it.
    assert await asyncio.to_thread(ended.wait, 10)


def test_what_if_needs_no_library_that_a_controller_does_not_have() -> None:
    assert imported("import replay.what_if", "pandas", "prometheus_api_client", "requests") == set()
