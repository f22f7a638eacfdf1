"""Settings of a process that runs."""

import json
import re
import signal
from pathlib import Path

from tests.autoscaler.process import ALONE, autoscaler
from tests.eventually import eventually
from tests.kube.scripted import respond, scripted_server

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"


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
