"""`advise`: the table and the JSON of HPAs of all kinds, from an API server and a Prometheus that are stubs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milliscale.cli import main
from replay.reality import carried
from tests.replay.advise_environment import DAY, END, Workload, daily, running, scaled
from tests.replay.builders import START_MS, STEP_MS, load_of, series_of

LOAD = daily(400, 2500)
REPLICAS = scaled(LOAD)
"""Of a controller with the same HPA, and as many as that needs."""


def drained(at: int) -> float:
    """Return the replicas, which were too few for half an hour of one day."""
    hour = END - 3 * DAY + 12 * 3600
    return round(REPLICAS(at) * (0.6 if hour <= at < hour + 1800 else 1))


WORKLOADS = {
    "good": Workload(load=LOAD, replicas=REPLICAS),
    "high": Workload(load=LOAD, replicas=drained),
    "capped": Workload(load=LOAD, replicas=scaled(LOAD, most=18), maximum=18),
    "absent": Workload(load=lambda _: math.nan, replicas=REPLICAS, metric="absent"),
    "broken": Workload(load=LOAD, replicas=REPLICAS, metric="broken", namespace="other"),
}
ENDED = ("--to", str(END))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("advise")
    with running(WORKLOADS, folder) as (url, kubeconfig):
        yield url, kubeconfig


def advise(servers: tuple[str, Path], *arguments: str) -> Result:
    url, kubeconfig = servers
    flags = ["--prometheus-url", url, "--kubeconfig", str(kubeconfig), "--cache-dir", str(kubeconfig.parent / "cache")]
    return CliRunner().invoke(main, ["advise", *flags, "--jobs=1", *arguments])


def documents(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["hpas"]
    return {each["name"]: each for each in found}


def test_most_to_gain_is_first_then_what_is_at_its_maximum_and_what_cannot_be_judged_is_last(
    servers: tuple[str, Path],
) -> None:
    result = advise(servers, "-A", "--from=5d", *ENDED)
    assert (result.exit_code, result.stderr) == (0, "")
    summary, _, header, *rows = result.stdout.splitlines()
    assert summary.startswith("A higher target would save ")
    assert summary.endswith("at 1 of 5 HPAs; 1 at maxReplicas; 2 cannot be judged.")
    assert header.split() == ["HPA", "POD-HOURS", "OVERLOAD", "AT", "MAX", "ADVICE", "SAVES", "SURE?"]
    names = [row.split()[0] for row in rows[:5]]
    assert names == ["shop/high", "shop/capped", "shop/good", "other/broken", "shop/absent"]
    high, capped, good, broken, absent = rows[:5]
    assert " (now 100) " in high
    assert high.split()[-1] == "yes"
    assert "raise maxReplicas: at max 4" in capped
    assert "none: it is good" in good
    assert "no such function" in broken or "Prometheus refuses the query" in broken
    assert "Prometheus has no series absent" in absent
    assert "lower bound" in result.stdout


def test_json_has_the_figures_and_the_whole_reasons(servers: tuple[str, Path]) -> None:
    found = documents(advise(servers, "-A", "-o", "json", *ENDED))
    assert list(found) == ["high", "capped", "good", "broken", "absent"]
    high = found["high"]
    assert high["days"] == 7
    assert 150 < high["capacityAtLeast"]["rps"] < 200
    [target] = high["targets"]
    assert (target["metric"], target["given"]) == ("rps", "100")
    assert 110 < int(target["advised"]) <= 0.9 * high["capacityAtLeast"]["rps"]
    assert high["savedLow"] <= high["savedShare"] <= high["savedHigh"]
    assert high["savedPodHours"] == pytest.approx(high["savedShare"] * high["podHours"])
    assert found["capped"]["atMax"] == pytest.approx(0.41, abs=0.02)
    assert "change it in --config" in found["broken"]["reason"]
    assert "\x1b" not in found["broken"]["reason"]
    assert found["absent"]["podHours"] is None


def test_a_namespace_has_names_without_it(servers: tuple[str, Path]) -> None:
    result = advise(servers, "-n", "other", "--from=4d", *ENDED)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[3].startswith("broken ")
    empty = advise(servers, "-n", "nothing", *ENDED)
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert empty.stderr == "No resources found in nothing namespace.\n"


def test_too_few_days_are_said_and_an_interval_needs_a_week(tmp_path: Path) -> None:
    with running({"new": WORKLOADS["high"]}, tmp_path, start=END - 3 * DAY) as servers:
        [new] = documents(advise(servers, "-A", "-o", "json", *ENDED)).values()
        assert (new["days"], new["sure"]) == (3, "too few days")
        assert new["savedLow"] is None
        assert new["podHours"] > 0


@pytest.mark.parametrize(
    ("workload", "flags", "reason"),
    [
        (Workload(load=LOAD, replicas=REPLICAS, startup=None), (), "give --pod-startup"),
        (Workload(load=LOAD, replicas=lambda _: math.nan), (), "the real replicas are not in Prometheus"),
        (Workload(load=lambda _: 0.0, replicas=lambda _: 1.0), (), "the load is zero"),
        (
            Workload(
                load=LOAD,
                replicas=REPLICAS,
                hpa={"scaleTargetRef": {"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "web"}},
            ),
            (),
            "the names of the pods of a Rollout are not known",
        ),
        (Workload(load=LOAD, replicas=REPLICAS, hpa={"maxReplicas": 0}), (), "spec.maxReplicas"),
        (
            Workload(
                load=LOAD,
                replicas=REPLICAS,
                hpa={
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                        }
                    ]
                },
            ),
            (),
            "what a pod requests of cpu is not known",
        ),
    ],
    ids=["startup", "replicas", "no load", "kind", "invalid", "requests"],
)
def test_what_cannot_be_judged_says_why(
    workload: Workload, flags: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    with running({"web": workload}, tmp_path) as servers:
        [found] = documents(advise(servers, "-A", "--from=5d", "-o", "json", *flags, *ENDED)).values()
    assert reason in found["reason"]


def test_only_sure_savings_are_promised_and_replicas_that_the_load_never_needed_are_named(tmp_path: Path) -> None:
    pinned = Workload(load=LOAD, replicas=lambda _: 40.0)
    other = Workload(load=LOAD, replicas=lambda at: 10.0 + at // 1800 % 20)  # something else scales it
    step = Workload(load=lambda at: 1500.0 if at % DAY < 2700 else 0.0, replicas=REPLICAS)  # too much for one pod
    workloads = {"other": other, "pinned": pinned, "step": replace(step, replicas=scaled(step.load))}
    with running(workloads, tmp_path) as servers:
        summary, _, _, *rows = advise(servers, "-A", "--from=5d", *ENDED).stdout.splitlines()
        found = documents(advise(servers, "-A", "-o", "json", *ENDED))
    assert found["step"]["capacityAtLeast"] == {"rps": 100.0}
    wanted = "No higher target is surely better for 3 HPAs; 1 may save, but not surely; 0 at maxReplicas"
    assert summary.startswith(wanted)
    assert [row.split()[0] for row in rows[:3]] == ["shop/pinned", "shop/step", "shop/other"]
    assert "find out why: at max 100% of the time, which its load never needed" in rows[0]
    assert "none: its overload allows no higher target" in rows[1]
    assert "no: the replay of the present HPA has" in rows[2]


def test_given_time_until_ready_is_used_where_none_is_recorded(tmp_path: Path) -> None:
    with running({"web": Workload(load=LOAD, replicas=REPLICAS, startup=None)}, tmp_path) as servers:
        [found] = documents(advise(servers, "-A", "--from=5d", "--pod-startup=30s", "-o", "json", *ENDED)).values()
    assert (found["reason"], found["advice"]) == ("", "none: it is good")


def test_without_a_scale_up_an_idle_hpa_is_judged_without_the_time_until_ready(tmp_path: Path) -> None:
    idle = Workload(load=lambda _: 40.0, replicas=lambda _: 2.0, minimum=2, startup=None)
    stuck = replace(idle, replicas=lambda _: 9.0)
    with running({"idle": idle, "stuck": stuck}, tmp_path) as servers:
        found = documents(advise(servers, "-A", "--from=5d", "-o", "json", *ENDED))
    assert [each["reason"] for each in found.values()] == ["", ""]
    assert found["idle"]["advice"] == "none for the target: at minReplicas 100% of the time"
    assert found["idle"]["podHours"] == pytest.approx(240, abs=3)
    assert found["stuck"]["advice"] == "find out why: never below 9 replicas, which its load never needed"


def test_names_cannot_control_the_terminal(tmp_path: Path) -> None:
    hostile = "web\x1b]0;title\x07"
    with running({hostile: WORKLOADS["good"]}, tmp_path) as servers:
        result = advise(servers, "-A", "--from=2d", *ENDED)
    assert result.exit_code == 0
    assert not any(character in result.output for character in "\x1b\x07")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("-A", "--prometheus-url=http://127.0.0.1:9"), 1, "cannot be reached"),
        (("-A", "--from=2026-01-02T00:00:00Z", "--to=2026-01-01T00:00:00Z"), 1, "the range is empty"),
        (("-A", "-n", "shop"), 2, "give one of --namespace and --all-namespaces"),
        ((), 2, "give one of --namespace and --all-namespaces"),
    ],
)
def test_exit_status(arguments: tuple[str, ...], status: int, message: str, servers: tuple[str, Path]) -> None:
    result = advise(servers, *arguments)
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_prometheus_must_be_named() -> None:
    result = CliRunner().invoke(main, ["advise", "-A"])
    assert result.exit_code == 2
    assert "give --prometheus-url" in result.stderr


def test_processes_give_the_same_advice_and_a_target_is_at_most_a_share_of_what_reality_carried(tmp_path: Path) -> None:
    workloads: Mapping[str, Workload] = {name: WORKLOADS[name] for name in ("good", "high")}
    with running(workloads, tmp_path) as servers:
        one, two = (
            documents(advise(servers, "-A", "--from=4d", "-o", "json", "--max-target=70%", jobs, *ENDED))
            for jobs in ("--jobs=1", "--jobs=2")
        )
    assert one == two
    [target] = one["high"]["targets"]
    assert 100 < int(target["advised"]) <= 0.7 * one["high"]["capacityAtLeast"]["rps"]


def test_load_of_a_moment_or_at_max_replicas_is_not_what_pods_have_carried() -> None:
    load = load_of(rps=[100.0] * 8 + [400.0] + [300.0] * 8)
    replicas = series_of([2.0] * 9 + [3.0] * 8)
    load = type(load)(start_ms=load.start_ms, end_ms=load.end_ms, series=load.series, replicas=replicas)
    assert carried(load, "rps") == (200.0, START_MS + 8 * STEP_MS)
    assert carried(load, "rps", least_ms=2 * STEP_MS) == (100.0, START_MS + 16 * STEP_MS)
    found = carried(load, "rps", least_ms=2 * STEP_MS, below=3)
    assert found is not None
    assert found[0] == 50.0
    assert carried(load, "rps", least_ms=30 * STEP_MS) is None
    assert carried(load, "rps", scaling_ms=STEP_MS) == (100.0, START_MS + 16 * STEP_MS)
