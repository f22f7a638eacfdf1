"""The spec that was in force, replayed on what real controllers did, without a flag: it does what they did.

tests/data/reality/README.md says how that was recorded.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from replay.commands import replay
from tests.kube.scripted import respond, scripted_server

REALITY = Path(__file__).parent.parent / "data" / "reality"
HPAS = {hpa["metadata"]["name"]: hpa for hpa in yaml.safe_load_all((REALITY / "hpas.yaml").read_text())}
FLAGS = {
    "horizontal-pod-autoscaler-sync-period": "5s",
    "horizontal-pod-autoscaler-downscale-stabilization": "30s",
    "horizontal-pod-autoscaler-tolerance": "0.05",
}


def replayed(name: str, folder: Path, *flags: str) -> Any:
    path = folder / "hpa.json"
    path.write_text(json.dumps(HPAS[name]))
    result = CliRunner().invoke(replay, [f"--hpa={path}", "--output=json", "--summary-only", *flags])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", sorted(HPAS.keys() - {"noisy"}))
def test_of_kube_controller_manager_it_has_the_pod_hours_and_scale_events(name: str, tmp_path: Path) -> None:
    document = replayed(name, tmp_path, f"--csv={REALITY / 'kube-controller-manager' / f'{name}.csv.gz'}")
    ours, real = document["replays"][0]["summary"], document["reality"]["summary"]
    assert real["seconds"] > 4_600
    assert real["scaleEvents"] > 10
    assert ours["podHours"] == pytest.approx(real["podHours"], rel=0.01)
    assert ours["scaleEvents"] == pytest.approx(real["scaleEvents"], rel=0.01, abs=1)


def test_settings_are_found_where_replicas_follow_noise(tmp_path: Path) -> None:
    """Each replay has other replicas soon, also one with the right settings; a shadow has not."""
    document = replayed("noisy", tmp_path, f"--csv={REALITY / 'noisy.csv.gz'}")
    ours, real = document["replays"][0]["summary"], document["reality"]["summary"]
    [note] = [each for each in document["notes"] if "explained" in each]
    assert "downscale stabilization 1m, tolerance 0.15 (" in note
    assert real["scaleEvents"] == 57
    assert ours["podHours"] == pytest.approx(real["podHours"], rel=0.01)


@pytest.mark.parametrize("name", ["pods-default", "pods"])
async def test_of_the_autoscaler_it_makes_all_decisions_again(name: str, tmp_path: Path) -> None:
    recorded = gzip.decompress((REALITY / "autoscaler" / f"{name}.json.gz").read_bytes())

    async def decisions(_: web.Request) -> web.Response:
        return web.Response(body=recorded)

    async with scripted_server() as server:
        server.handlers[f"/debug/decisions/default/{name}"] = decisions
        server.handlers["/debug/config"] = respond({"version": 1, "flags": FLAGS})
        document = await asyncio.to_thread(replayed, name, tmp_path, f"--server={server.url}")
    assert document["replays"][0]["summary"]["scaleEvents"] > 10
    made = f"default/{name}: all {len(json.loads(recorded)['decisions'])} decisions are the same as the autoscaler's."
    assert made in document["notes"]
