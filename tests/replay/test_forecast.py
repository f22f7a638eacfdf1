"""`replay --forecast` and `tune --forecast`: HPAs see what the adapter would have served, known at each moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from adapter.forecasts.model import DAY_MINUTES, MINUTE, Floats
from autoscaler.cli import main
from playground.prometheus import Series
from tests.adapter.forecasts.loads import START, STEP, daily_steps, random_walk
from tests.replay.builders import cpu_metric, external_metric, hpa_document, pods_metric
from tests.replay.prometheus_environment import running_prometheus
from tests.replay.test_commands import written

DAY = DAY_MINUTES
METRIC = "packets_per_second"
FLAGS = ("--pod-startup=5m", "--capacity=packets_per_second=10")


def run(command: str, *arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [command, *map(str, arguments)], prog_name="autoscaler")


def replayed(hpa: Path, load: Path, *arguments: str) -> dict[str, Any]:
    result = run("replay", "--hpa", hpa, "--csv", load, *FLAGS, "--output=json", *arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def csv_file(path: Path, values: Floats, *, first: int = 0) -> Path:
    rows = [f"{START + (first + minute) * MINUTE},{value:.3f}" for minute, value in enumerate(values)]
    path.write_text("\n".join([f"timestamp,{METRIC}", *rows, ""]))
    return path


def at(minute: int) -> str:
    return str(START + minute * MINUTE)


@pytest.fixture
def hpa(tmp_path: Path) -> Path:
    return written(tmp_path / "hpa.yaml", hpa_document(pods_metric(METRIC, "7"), max_replicas=1000))


@pytest.fixture
def values() -> Floats:
    """A week whose load doubles at 07:00 for two hours."""
    return daily_steps(7).values.astype(np.float64)


def test_forecast_has_pods_ready_before_a_daily_step_and_is_compared_with_the_plain_hpa(
    tmp_path: Path, hpa: Path, values: Floats
) -> None:
    load = csv_file(tmp_path / "load.csv", values)
    begin = 6 * DAY + STEP - 60
    flags = ("--forecast", f"{METRIC}=5m", "--from", at(begin), "--to", at(begin + 240))
    found = replayed(hpa, load, *flags, "--summary-only")
    [own] = found["replays"]
    plain = found["withoutForecast"]["summary"]
    assert own.keys() == {"hpa", "summary", "worst"}
    assert plain["overloadSeconds"] > 200
    assert own["summary"]["overloadSeconds"] == 0
    assert own["summary"]["podHours"] < 1.03 * plain["podHours"]
    assert found["verdict"].startswith("shop/web needs ")
    assert " than shop/web without forecast in 4h; overload falls from " in found["verdict"]
    assert "let it be served on 1 of 1 days; before these days it would have saved " in found["notes"][2]


def test_later_load_changes_no_earlier_decision(tmp_path: Path, hpa: Path, values: Floats) -> None:
    """A planted spike that is six times the load: only a leak of the future could see it before it comes."""
    spike, begin = 6 * DAY + STEP + 300, 6 * DAY + STEP - 30
    planted = values.copy()
    planted[spike : spike + 5] *= 6
    flags = ("--forecast", "5m", "--from", at(begin), "--to", at(spike + 10))
    without = replayed(hpa, csv_file(tmp_path / "load.csv", values), *flags)["replays"][0]["steps"]
    with_spike = replayed(hpa, csv_file(tmp_path / "spike.csv", planted), *flags)["replays"][0]["steps"]
    before = (spike - begin) * 4
    assert without[:before] == with_spike[:before]
    assert without != with_spike
    assert with_spike[before - 1]["desiredReplicas"] < with_spike[-1]["desiredReplicas"]


def test_without_history_before_the_beginning_the_metric_is_plain_and_a_note_says_why(
    tmp_path: Path, hpa: Path, values: Floats
) -> None:
    load = csv_file(tmp_path / "load.csv", values[6 * DAY : 6 * DAY + 120], first=6 * DAY)
    found = replayed(hpa, load, "--forecast", "5m", "--summary-only")
    assert found["replays"][0]["summary"] == found["withoutForecast"]["summary"]
    note = found["notes"][2]
    assert note.startswith(f"HPAs see the forecast of {METRIC} (horizon: 5m): the highest value expected within the ")
    assert note.endswith(
        "; whether it saves is not known: 0.0 days can be replayed after the first 3, and at least 2 are needed."
    )


def test_gate_keeps_a_forecast_from_being_served_that_would_not_have_saved(tmp_path: Path, hpa: Path) -> None:
    load = csv_file(tmp_path / "load.csv", random_walk(6).values.astype(np.float64))
    flags = ("--from", at(5 * DAY), "--to", at(5 * DAY + 180), "--summary-only", "--forecast")
    gated = replayed(hpa, load, *flags, "5m")
    assert gated["replays"][0]["summary"] == gated["withoutForecast"]["summary"]
    assert "The gate of 3.0% let it be served on 0 of 1 days" in gated["notes"][2]
    ungated = replayed(hpa, load, *flags, f"{METRIC}=5m,gate=off,timezone=Asia/Tokyo,history=1w")
    assert ungated["replays"][0]["summary"] != ungated["withoutForecast"]["summary"]
    assert "(horizon: 5m, gate: off, timezone: Asia/Tokyo, history: 1w): the highest" in ungated["notes"][2]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--forecast=5"], "horizon: not a duration: '5'"),
        (["--forecast=5m,season=1w"], "unknown key `season`"),
        (
            ["--forecast=requests=5m"],
            "--forecast names requests, which is not a metric of the HPAs: packets_per_second",
        ),
        (["--forecast=cpu=5m"], "--forecast names cpu: only Pods, Object and External metrics have one"),
        (["--summary-only"], "--summary-only needs -o json"),
    ],
)
def test_flags_that_cannot_work_say_why(tmp_path: Path, values: Floats, flags: list[str], error: str) -> None:
    metrics = [pods_metric(METRIC, "7"), *([cpu_metric(50)] if "cpu" in error else [])]
    hpa = written(tmp_path / "hpa.yaml", hpa_document(*metrics))
    result = run("replay", "--hpa", hpa, "--csv", csv_file(tmp_path / "load.csv", values[:60]), *FLAGS, *flags)
    assert result.exit_code in (1, 2)
    assert error in result.output


@pytest.mark.e2e
def test_rule_with_a_forecast_is_replayed_by_the_history_in_prometheus(tmp_path: Path, values: Floats) -> None:
    """The further metric that the rule makes is the forecast of the rule's own query, and needs no flag."""
    points = [(float(START + minute * MINUTE), value) for minute, value in enumerate(values.tolist())]
    recorded = [Series("packets", {"namespace": "shop"}, points)]
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "externalRules:\n"
        "- {name: packets, query: sum(packets), forecast: {horizon: 5m, history: 1w, as: packets_ahead}}\n"
    )
    hpas = [
        written(tmp_path / f"{name}.yaml", hpa_document(external_metric(name, averageValue="7"), max_replicas=1000))
        for name in ("packets_ahead", "packets")
    ]
    begin = 6 * DAY + STEP - 60
    model = ("--pod-startup=5m", "--capacity=packets_ahead=10", "--capacity=packets=10", "--output=json")
    flags = ("--from", at(begin), "--to", at(begin + 120), "--summary-only", "--config", str(rules))
    with running_prometheus(tmp_path / "prometheus", recorded=recorded) as server:
        address = ("--prometheus-url", server.url, "--cache-dir", str(tmp_path / "cache"))
        result = run("replay", "--hpa", hpas[0], "--hpa", hpas[1], *address, *model, *flags)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    ahead, plain = (each["summary"] for each in found["replays"])
    assert ahead["overloadSeconds"] == 0
    assert plain["overloadSeconds"] == found["withoutForecast"]["summary"]["overloadSeconds"] > 200


def tuned(load: Path, hpa: Path, *flags: str) -> Result:
    coarse = ("--pod-startup=15m", "--capacity=10", "--step=10m", "--fields=target", "--jobs=1", "--forecast=15m")
    return run("tune", "--hpa", hpa, "--csv", load, *coarse, *flags)


def test_tune_says_what_a_forecast_saves_on_days_that_neither_hpa_has_seen(tmp_path: Path, hpa: Path) -> None:
    load = csv_file(tmp_path / "load.csv", daily_steps(9).values.astype(np.float64))
    result = tuned(load, hpa)
    assert result.exit_code == 0, result.output
    first, effect, sure, *_ = result.stdout.splitlines()
    assert first == f"# A forecast of {METRIC} saves here: write `forecast: {{horizon: 15m}}` in its rule."
    assert effect.startswith("# The best HPA with it against the best one without, on 4 days that neither has seen: ")
    assert sure.endswith("fewer on 4 of 4 days.")
    target = yaml.safe_load(result.stdout)["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
    assert float(str(target).removesuffix("m")) / (1000 if str(target).endswith("m") else 1) > 8


def test_no_forecast_is_a_normal_verdict_of_tune(tmp_path: Path, hpa: Path) -> None:
    load = csv_file(tmp_path / "load.csv", random_walk(9).values.astype(np.float64))
    result = tuned(load, hpa, "--output=json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["forecast"]
    assert found["verdict"] == "does-not-save"
    assert found["savedPodHours"]["share"] < 0.03
    assert len(found["without"]["parts"]) == len(found["with"]["parts"]) == 4
