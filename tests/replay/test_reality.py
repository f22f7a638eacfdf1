"""The spec that was in force, replayed on what real controllers did, without a flag: it does what they did.

They ran for 79 minutes, with flags that differ from the defaults (`record_reality`).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner

from replay.commands import replay
from tests.kube.scripted import respond, scripted_server
from tests.replay.record_reality import HPAS, REALITY, TIMING, hpa_document


@pytest.fixture(params=HPAS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hpa(name: str, tmp_path: Path) -> Path:
    path = tmp_path / "hpa.json"
    path.write_text(json.dumps(hpa_document(name)))
    return path


def test_of_kube_controller_manager_it_has_the_pod_hours_and_scale_events(name: str, hpa: Path) -> None:
    csv = REALITY / "kube-controller-manager" / f"{name}.csv.gz"
    result = CliRunner().invoke(replay, [f"--hpa={hpa}", f"--csv={csv}", "--output=json", "--summary-only"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    replayed, real = document["replays"][0]["summary"], document["reality"]["summary"]
    assert real["seconds"] > 4_700
    assert real["scaleEvents"] > 10
    assert replayed["podHours"] == pytest.approx(real["podHours"], rel=0.01)
    assert replayed["scaleEvents"] == pytest.approx(real["scaleEvents"], rel=0.01)


@pytest.mark.parametrize("name", ["pods-default", "pods"])
async def test_of_the_autoscaler_it_makes_all_decisions_again(name: str, hpa: Path) -> None:
    recorded = gzip.decompress((REALITY / "autoscaler" / f"{name}.json.gz").read_bytes())

    async def decisions(_: web.Request) -> web.Response:
        return web.Response(body=recorded)

    flags = dict(flag.removeprefix("--").split("=") for flag in TIMING)
    async with scripted_server() as server:
        server.handlers[f"/debug/decisions/default/{name}"] = decisions
        server.handlers["/debug/config"] = respond({"version": 1, "flags": flags})
        command = [f"--hpa={hpa}", f"--server={server.url}", "--output=json", "--summary-only"]
        result = await asyncio.to_thread(CliRunner().invoke, replay, command)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["replays"][0]["summary"]["scaleEvents"] > 10
    made = f"default/{name}: all {len(json.loads(recorded)['decisions'])} decisions are the same as the autoscaler's."
    assert made in document["notes"]
