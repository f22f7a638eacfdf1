"""Settings of a process that runs."""

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

from autoscaler.cli import run_controller
from autoscaler.loop.options import Availability, DecisionLogOptions, Options
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.records.audit import AuditSettings
from autoscaler.settings import DEFAULTS
from kube.web.options import UIAddress
from tests.autoscaler.cluster import running_cluster
from tests.autoscaler.process import ALONE, autoscaler
from tests.eventually import eventually
from tests.kube.scripted import respond, scripted_server
from tests.process_parts import Parts, changed, check_settings

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
TAKEN = {
    "coalescing.backoff_seconds",
    "decisions.kept_bytes",
    "events.burst",
    "pages.events_per_second",
    "reconciliation.watched_from",
    "what_if.waiting_per_user",
}
"""Settings whose value a part of the process has; of others it has the group."""


async def test_each_part_of_the_process_has_the_settings(tmp_path: Path) -> None:
    async def no_what_if(*_: object, **__: object) -> Any:
        raise AssertionError

    async with running_cluster(tmp_path) as cluster:
        cluster.add_deployment("web", replicas=2)
        cluster.add_hpa("web")
        settings, parts = changed(DEFAULTS), Parts()
        options = Options(
            kubeconfig=cluster.kubeconfig,
            bind_address="127.0.0.1",
            metrics_port=0,
            ui_address=UIAddress("127.0.0.1", 0),
            availability=Availability(saved_history=SavedHistoryLocation(namespace="kube-system", name="state")),
            decision_log=DecisionLogOptions(
                audit=AuditSettings(path=tmp_path / "audit", max_bytes=2**20, max_backups=1)
            ),
            settings=settings,
        )
        process = asyncio.create_task(run_controller(options, what_if=no_what_if))
        try:
            await eventually(lambda: asyncio.sleep(0, cluster.syncs() > 0))
            check_settings(parts, settings, DEFAULTS, taken=TAKEN)
        finally:
            signal.raise_signal(signal.SIGTERM)
            await process


async def test_a_process_follows_the_settings_of_its_command_line_and_shows_them(tmp_path: Path) -> None:
    given = ["api_server.page_objects=7", "api_server.watch_seconds=1h"]
    async with scripted_server() as server:
        server.handlers[HPAS] = respond({"metadata": {"resourceVersion": "5"}, "items": []})
        flags = (*ALONE, *(f"--setting={each}" for each in given))
        async with autoscaler(server.kubeconfig(tmp_path), *flags) as process:

            async def watching() -> bool:
                return any("watch=true" in request for request in server.requests)

            await eventually(watching)
            assert json.loads(await process.get("/debug/config"))["flags"]["setting"] == given
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    requests = [request for request in server.requests if request.startswith(f"GET {HPAS}?")]
    assert requests[0] == f"GET {HPAS}?limit=7"
    watch = re.search(r"watch=true.*timeoutSeconds=(\d+)", " ".join(requests))
    assert watch
    assert 3600 <= int(watch[1]) <= 7200
