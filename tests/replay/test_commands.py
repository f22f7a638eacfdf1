"""`python -m autoscaler replay`: flags, sources, outputs and errors."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import functools
import json
import logging
import math
import re
import sqlite3
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from autoscaler.cli import main
from autoscaler.commands import debug_client
from autoscaler.core.config import Config
from kube.api.client import ClientSettings, KubeClient
from playground.prometheus import PrometheusServer
from replay.hpa_files import read_hpa_file
from replay.load import Load, Series
from replay.prometheus.source import PrometheusSettings
from replay.simulation import Settings
from tests.imports import imported
from tests.kube.scripted import ScriptedServer, respond, scripted_server
from tests.replay.builders import cpu_metric, hpa_document, pods_metric
from tests.replay.live import Live
from tests.replay.prometheus_environment import NAMESPACE, RULES, SECONDS, START, running_prometheus
from tests.replay.test_recorded import wave

HPA = hpa_document(pods_metric("packets_per_second", "50"), max_replicas=10)
CPU = cpu_metric(50)
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": NAMESPACE},
    "spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "500m"}}}]}}},
}


def replay(*arguments: str | Path, startup: str | None = "30s") -> Result:
    flags = [] if startup is None else [f"--pod-startup={startup}"]
    return CliRunner().invoke(main, ["replay", *flags, *map(str, arguments)], prog_name="autoscaler")


@pytest.fixture
def hpa(tmp_path: Path) -> Path:
    return written(tmp_path / "hpa.yaml", HPA)


def written(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """An hour at a value every minute: 100, and 300 from half an hour on."""
    path = tmp_path / "load.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", "packets_per_second", "cpu"])
        rows.writerows((START + 60 * minute, 100 if minute < 30 else 300, 1.0) for minute in range(60))
    return path


def test_table(hpa: Path, load: Path) -> None:
    result = replay("--hpa", hpa, "--csv", load)
    assert result.exit_code == 0, result.output
    lines = {line[:24].strip(): line[24:].split() for line in result.output.splitlines()}
    assert lines["replicas: max"] == ["6"]
    assert result.output.startswith("shop/web needs 4.0 pod-hours in 1h; overload is unknown without --capacity.\n")
    assert "Overload is unknown without what one ready pod can serve: give --capacity." in result.output


def test_model_of_the_workload_is_that_of_the_flags(hpa: Path, load: Path) -> None:
    flags = ["--offset", "5s", "--pod-startup", "2m", "--capacity", "20", "--initial-replicas", "2"]
    result = replay("--hpa", hpa, "--csv", load, *flags, "-o", "csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert rows[0]["timestamp"] == "2026-01-05T00:00:05.000Z"
    scaled = next(index for index, row in enumerate(rows) if row["desiredReplicas"] == "4")
    assert [row["ready"] for row in rows[scaled + 1 : scaled + 9]] == ["2"] * 7 + ["4"]
    result = replay("--hpa", hpa, "--csv", load, *flags)
    assert "one ready pod can serve 20 of packets_per_second" in result.output


@pytest.mark.parametrize(
    ("flags", "first", "last"),
    [
        (["--from", "2026-01-05T00:30:00Z"], "00:30:00", "00:59:45"),
        (["--to", "2026-01-05T01:15:00+01:00"], "00:00:00", "00:14:45"),
        (["--from", str(START + 1800), "--to", str(START + 2400)], "00:30:00", "00:39:45"),
        (["--from", "10m", "--to", "2026-01-05T00:30:00Z"], "00:20:00", "00:29:45"),
        (["--from", "10m"], "00:50:00", "00:59:45"),
    ],
)
def test_time_flags_narrow_a_file(hpa: Path, load: Path, flags: list[str], first: str, last: str) -> None:
    rows = list(csv.DictReader(replay("--hpa", hpa, "--csv", load, *flags, "-o", "csv").stdout.splitlines()))
    assert [row["timestamp"][11:19] for row in (rows[0], rows[-1])] == [first, last]


def test_page_is_written(hpa: Path, load: Path, tmp_path: Path) -> None:
    result = replay("--hpa", hpa, "--csv", load, "--html", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert "</html>" in (tmp_path / "r.html").read_text()
    result = replay("--hpa", hpa, "--csv", load, "--html", tmp_path / "none" / "r.html")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path}/none/r.html cannot be written: No such file or directory\n",
    )


def test_requests_come_from_flags_or_from_the_workload_beside_the_hpa(tmp_path: Path, load: Path) -> None:
    of_cpu = {**HPA, "spec": {**HPA["spec"], "metrics": [CPU]}}
    alone = written(tmp_path / "alone.yaml", of_cpu)
    result = replay("--hpa", alone, "--csv", load)
    assert result.exit_code == 1
    assert (
        "shop/web: what a pod requests of cpu is not known, no workload is given: give --request cpu=" in result.stderr
    )
    states_none = {**DEPLOYMENT, "spec": {"template": {"spec": {"containers": [{"name": "app"}]}}}}
    result = replay("--hpa", written(tmp_path / "none.yaml", of_cpu, states_none), "--csv", load)
    assert result.exit_code == 1
    assert f"is not known, Deployment web in {tmp_path}/none.yaml states none: give --request cpu=" in result.stderr
    assert "needs 2.0 pod-hours" in replay("--hpa", alone, "--csv", load, "--request", "cpu=1").output
    beside = written(tmp_path / "beside.yaml", of_cpu, DEPLOYMENT)
    assert "needs 4.0 pod-hours" in replay("--hpa", beside, "--csv", load).output
    assert "needs 1.0 pod-hours" in replay("--hpa", beside, "--csv", load, "--request", "cpu=2000m").output


def test_time_until_ready_is_not_needed_where_nothing_depends_on_pods(tmp_path: Path, load: Path) -> None:
    target = {"type": "AverageValue", "averageValue": "50"}
    queue = {"type": "External", "external": {"metric": {"name": "packets_per_second"}, "target": target}}
    of_queue = written(tmp_path / "queue.yaml", {**HPA, "spec": {**HPA["spec"], "metrics": [queue]}})
    assert "needs 4.0 pod-hours" in replay("--hpa", of_queue, "--csv", load, startup=None).output
    result = replay("--hpa", of_queue, "--csv", load, "--capacity=60", startup=None)
    assert "is not recorded: give --pod-startup" in result.stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--csv", "LOAD", "--prometheus-url", "http://localhost:9090"], "one of --prometheus-url, --csv and --server"),
        (["--csv", "LOAD", "--server", "http://localhost:8080"], "one of --prometheus-url, --csv and --server"),
        (["--server", "localhost"], "'localhost' must be the autoscaler's URL"),
        (["--server", "http://localhost:8080", "--step", "30s"], "--step has no effect with --server"),
        (["--server", "http://localhost:8080", "--config", "LOAD"], "--config has no effect with --server"),
        (["--csv", "LOAD", "--config", "LOAD"], "--config has no effect with --csv"),
        (["--csv", "LOAD", "--from", "2026-01-05"], "'2026-01-05' has no time zone: write 2026-01-05T00:00:00Z"),
        (["--csv", "LOAD", "--from", "1e99"], "1e99 is not a time in Unix seconds"),
        (["--csv", "LOAD", "--from", "-1h"], "-1h must not be negative"),
        (["--csv", "LOAD", "--request", "500m"], "'500m' must be [CONTAINER/]RESOURCE=QUANTITY, such as cpu=500m"),
        (["--csv", "LOAD", "--request", "cpu=lots"], "'lots' is not a quantity such as 500m or 2Gi"),
        (["--csv", "LOAD", "--capacity", "-1"], "-1 must be greater than 0"),
        (["--csv", "LOAD", "--pods", "web-("], "'web-(' is not a regular expression"),
        (["--csv", "LOAD", "--step", "0s"], "0s must be longer than 0s"),
        (["--csv", "LOAD", "--tolerance", "1"], "No such option"),
    ],
)
def test_wrong_flags_exit_with_2(hpa: Path, load: Path, flags: list[str], expected: str) -> None:
    result = replay("--hpa", hpa, *(str(load) if flag == "LOAD" else flag for flag in flags))
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "flags",
    [
        ["--hpa", "HPA", "--csv", "none"],
        ["--hpa", "none.yaml", "--csv", "LOAD"],
        ["--hpa", "HPA", "--prometheus-url", "http://127.0.0.1:1", "--config", "none"],
    ],
)
def test_missing_file_exits_with_1(hpa: Path, load: Path, flags: list[str]) -> None:
    result = replay(*(str({"HPA": hpa, "LOAD": load}.get(flag, flag)) for flag in flags))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: none")
    assert result.stderr.endswith("No such file or directory\n")
    assert result.stderr.count("\n") == 1


def test_hpas_of_different_targets_are_refused(tmp_path: Path, hpa: Path, load: Path) -> None:
    target = {**HPA["spec"]["scaleTargetRef"], "name": "worker"}
    other = {**HPA, "spec": {**HPA["spec"], "scaleTargetRef": target}}
    result = replay("--hpa", hpa, "--hpa", written(tmp_path / "other.yaml", other), "--csv", load)
    assert result.exit_code == 1
    assert "have the targets Deployment/shop/web and Deployment/shop/worker; replay HPAs of the same" in result.stderr


@pytest.mark.parametrize("in_one_hpa", [True, False])
def test_metrics_of_different_kinds_with_the_same_name_are_refused(
    tmp_path: Path, hpa: Path, load: Path, in_one_hpa: bool
) -> None:
    target = {"type": "AverageValue", "averageValue": "90"}
    external = {"type": "External", "external": {"metric": {"name": "packets_per_second"}, "target": target}}
    metrics = [*(HPA["spec"]["metrics"] if in_one_hpa else []), external]
    other = written(tmp_path / "other.yaml", {**HPA, "spec": {**HPA["spec"], "metrics": metrics}})
    given = [other] if in_one_hpa else [hpa, other]
    result = replay(*(f"--hpa={path}" for path in given), "--csv", load)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: Pods metric packets_per_second of shop/web and External metric packets_per_second of shop/web have the "
        "same name, so one load cannot have both: rename one\n"
    )


@pytest.mark.parametrize("output", ["table", "json"])
def test_output_that_cannot_be_written_is_one_sentence(hpa: Path, load: Path, output: str) -> None:
    command = [
        sys.executable,
        "-m",
        "autoscaler",
        "replay",
        "--hpa",
        str(hpa),
        "--csv",
        str(load),
        "--pod-startup=1s",
        "-o",
        output,
    ]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "Error: standard output cannot be used: No space left on device\n"


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_assumptions_are_beside_each_output(hpa: Path, load: Path, output: str) -> None:
    result = replay("--hpa", hpa, "--csv", load, "-o", output)
    note = "Assumed: a new pod is ready after 30s"
    assert note in (result.stdout if output == "table" else result.stderr)
    assert output != "json" or note in " ".join(json.loads(result.stdout)["notes"])


def test_error_leaves_the_log_as_it_was(hpa: Path) -> None:
    level = logging.getLogger().level
    assert replay("--hpa", hpa, "--prometheus-url", "http://127.0.0.1:1").exit_code == 1
    assert logging.getLogger().level == level


# --- imports -------------------------------------------------------------------------------------------------------


def test_controller_imports_nothing_of_a_replay() -> None:
    program = "from autoscaler.cli import main; main(['run', '--help'], standalone_mode=False)"
    assert imported(program, "replay", "adapter", "prometheus_api_client", "requests") == set()


def test_file_needs_no_library_of_prometheus(hpa: Path, load: Path) -> None:
    flags = ["replay", "--pod-startup=1s", "--hpa", str(hpa), "--csv", str(load)]
    program = f"from autoscaler.cli import main; main({flags}, standalone_mode=False)"
    assert imported(program, "prometheus_api_client", "requests", "replay.commands") == {"replay.commands"}


def test_missing_library_is_named(hpa: Path) -> None:
    code = "import sys; sys.modules['prometheus_api_client'] = None; from autoscaler.cli import main; main()"
    flags = ["--prometheus-url", "http://127.0.0.1:1"]
    command = [sys.executable, "-c", code, "replay", "--pod-startup=1s", "--hpa", str(hpa), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pip install 'milliscale[replay]'" in ended.stderr


# --- Prometheus ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def cached(folder: Path) -> int:
    """Return the number of cached ranges."""
    with contextlib.closing(sqlite3.connect(folder / "chunks.sqlite")) as database:
        [(count,)] = database.execute("SELECT count(*) FROM chunks")
    assert isinstance(count, int)
    return count


@pytest.mark.e2e
@pytest.mark.xdist_group("replay-prometheus-commands")
def test_load_of_prometheus(prometheus: PrometheusServer, hpa: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    times = ["--from", str(START), "--to", str(START + SECONDS)]
    flags = ["--prometheus-url", prometheus.url, "--cache-dir", str(tmp_path / "cache"), *times]
    result = replay("--hpa", hpa, *flags, "--config", tmp_path / "rules.yaml")
    assert result.exit_code == 0, result.output
    [largest] = [line.split() for line in result.output.splitlines() if line.strip().startswith("replicas: max")]
    assert largest == ["replicas:", "max", "3", "3"]  # of reality, and of the replay
    assert result.stderr == ""  # no progress bar, for this is no terminal
    # The metric, the replicas and the ready ones; and again every 5 s, which shows the settings of the controller.
    assert cached(tmp_path / "cache") == 6

    flags[3] = str(tmp_path / "given")  # with all settings given, nothing is read twice to find them
    given = [f"--horizontal-pod-autoscaler-{name}" for name in ("downscale-stabilization=1m", "tolerance=0.2")]
    result = replay("--hpa", hpa, *flags, *given, "--step=30s", "--config", tmp_path / "rules.yaml")
    assert result.exit_code == 0, result.output
    assert cached(tmp_path / "given") == 3

    longer = ["--from", str(START - 2 * 24 * 3600), "--step=60s", "--offset=10s"]
    result = replay("--hpa", hpa, *flags, *longer, "--config", tmp_path / "rules.yaml", "-o", "json", "--summary-only")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert "No metric has a value before 2026-01-05 00:01:00, so the replay begins then." in document["notes"]
    assert document["replays"][0]["summary"]["seconds"] == document["reality"]["summary"]["seconds"] == 7130
    assert document["replays"][0]["summary"]["noMetricsSeconds"] == 0

    result = replay("--hpa", hpa, *flags)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: shop/web: there is no metric pods/packets_per_second: Prometheus has no")
    (tmp_path / "rules.yaml").write_text("rules: [{seriesQuery: x}]")
    result = replay("--hpa", hpa, *flags, "--config", tmp_path / "rules.yaml")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {tmp_path}/rules.yaml: rules[0]")


def read_of(value: Callable[[float], float], replicas: Callable[[float], float]) -> Callable[..., Load]:
    """Return a function in place of `read_prometheus`, by the metric and the real replicas at each second."""

    def read(_: object, settings: PrometheusSettings) -> Load:
        times = array("q", settings.times)
        real, metric = (
            Series(times_ms=times, values=array("d", [each(time / 1000) for time in times]), hold_ms=settings.step_ms)
            for each in (replicas, value)
        )
        series, start_ms = {"packets_per_second": metric}, settings.times.start
        return Load(start_ms=start_ms, end_ms=settings.end_ms, series=series, replicas=real, ready_replicas=real)

    return read


def test_real_scale_events_within_a_sync_period_of_the_replay_all_count(
    hpa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = [START + 301, START + 309]
    read = read_of(lambda _: 100.0, lambda time: 2.0 + sum(each <= time for each in raised))
    monkeypatch.setattr("replay.prometheus.source.read_prometheus", read)
    source = ["--prometheus-url=http://127.0.0.1:9", f"--from={START + 10}", f"--to={START + 600}"]
    result = replay("--hpa", hpa, *source, "-o", "json", "--summary-only")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert any("a reconciliation every 15s" in note for note in document["notes"])
    assert document["reality"]["summary"]["scaleEvents"] == 2
    assert document["reality"]["summary"]["seconds"] == document["replays"][0]["summary"]["seconds"] == 600


def test_beginning_of_the_load_is_noted_also_if_it_is_read_again_with_another_sync_period(
    hpa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value(time: float) -> float:
        return 100.0 if time >= START else math.nan

    def found(*arguments: Any) -> tuple[Settings, str]:
        return replace(arguments[2], step_ms=60_000), ""

    monkeypatch.setattr("replay.prometheus.source.read_prometheus", read_of(value, lambda time: 2.0))
    monkeypatch.setattr("replay.commands.fit", found)
    source = ["--prometheus-url=http://127.0.0.1:9", f"--from={START - 600}", f"--to={START + 1800}"]
    result = replay("--hpa", hpa, *source, "-o", "json", "--summary-only")
    notes = json.loads(result.stdout)["notes"]
    assert any("a reconciliation every 1m" in note for note in notes)
    assert "No metric has a value before 2026-01-05 00:00:00, so the replay begins then." in notes


# --- the cluster ---------------------------------------------------------------------------------------------------


def cluster(server: ScriptedServer, **objects: dict[str, Any]) -> None:
    async def respond(request: web.Request) -> web.Response:
        return web.json_response(found[request.path])

    found = {
        f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/web": objects["hpa"],
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web": objects["deployment"],
    }
    server.handlers.update(dict.fromkeys(found, respond))


async def test_hpa_of_the_cluster_by_its_name_with_and_without_its_namespace(tmp_path: Path, load: Path) -> None:
    async with scripted_server() as server:
        served = {**HPA, "spec": {**HPA["spec"], "metrics": [CPU]}, "status": {"currentReplicas": 1}}
        cluster(server, hpa=served, deployment=DEPLOYMENT)
        kubeconfig = server.kubeconfig(tmp_path)
        kubeconfig.write_text(kubeconfig.read_text().replace("context:\n", f"context:\n    namespace: {NAMESPACE}\n"))
        flags = ["--kubeconfig", str(kubeconfig), "--csv", str(load)]
        for name in ("shop/web", "web"):
            result = await asyncio.to_thread(replay, "--hpa", name, *flags)
            assert result.exit_code == 0, result.output
            assert result.output.startswith("shop/web needs 4.0 pod-hours")
        result = await asyncio.to_thread(replay, "--hpa", "shop/other", *flags)
        assert result.exit_code == 1
        assert "there is no HorizontalPodAutoscaler shop/other in the cluster" in result.stderr


@pytest.mark.parametrize(
    ("name", "flags", "problem"), [("hpaa", [], "not .*"), ("shop/hpaa", ["--context=other"], ".*context other.*")]
)
def test_name_without_a_cluster_or_a_file_is_an_error_that_says_why_there_is_no_cluster(
    load: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, flags: list[str], problem: str
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if flags:
        (tmp_path / "config").write_text("{contexts: [], clusters: [], users: []}")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    result = replay("--hpa", name, "--csv", load, *flags)
    assert result.exit_code == 1
    expected = rf"Error: HPA {name} cannot be read from the cluster: {problem} \(there is no file {name}\)\n"
    assert re.fullmatch(expected, result.stderr)


async def test_cluster_that_cannot_be_reached(tmp_path: Path, load: Path) -> None:
    async with scripted_server() as server:
        path = server.kubeconfig(tmp_path)
    result = await asyncio.to_thread(replay, "--hpa", "shop/web", "--kubeconfig", str(path), "--csv", str(load))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: HPA shop/web: ")
    assert "check --kubeconfig and --context" in result.stderr


# --- kept decisions


@pytest.fixture
async def autoscaler(hpa: Path) -> AsyncIterator[tuple[str, Live]]:
    """The URL of an autoscaler that has kept some decisions on the HPA."""
    live = Live(read_hpa_file(hpa)[0].hpa, seed=1)
    live.run([50.0] * 5 + [300.0] * 55)

    async def decisions(_: web.Request) -> web.Response:
        page = await live.log.page("shop", "web")
        return web.Response(body=msgspec.json.encode(page), content_type="application/json")

    async with scripted_server() as server:
        server.handlers["/debug/decisions/shop/web"] = decisions
        yield server.url, live


async def test_load_of_kept_decisions(autoscaler: tuple[str, Live], hpa: Path, tmp_path: Path) -> None:
    url, live = autoscaler
    spec = {**HPA["spec"], "maxReplicas": 4}
    changed = written(tmp_path / "changed.yaml", {**HPA, "spec": spec})

    result = await asyncio.to_thread(replay, "--hpa", hpa, "--hpa", changed, "--server", url)

    assert result.exit_code == 0, result.output
    assert "shop/web: all 60 decisions are the same as the autoscaler's." in result.stdout
    assert "the decisions differ from the autoscaler's: 4 replicas instead of " in result.stdout
    rows = await asyncio.to_thread(replay, "--hpa", hpa, "--server", url, "-o", "csv")
    replicas = [(row["timestamp"], row["desiredReplicas"]) for row in csv.DictReader(rows.stdout.splitlines())]
    assert replicas == [(each.time, str(each.desired_replicas)) for each in live.records]


async def test_settings_are_those_of_the_running_autoscaler(hpa: Path) -> None:
    config = Config(downscale_stabilization_ms=30_000, tolerance=0.3)
    live = Live(read_hpa_file(hpa)[0].hpa, seed=1, config=config)
    live.run(wave(120, low=50, high=450))
    flags = {"horizontal-pod-autoscaler-downscale-stabilization": "30s", "horizontal-pod-autoscaler-tolerance": "0.3"}
    async with scripted_server() as server:

        async def decisions(_: web.Request) -> web.Response:
            return web.Response(body=msgspec.json.encode(await live.log.page("shop", "web")))

        server.handlers["/debug/decisions/shop/web"] = decisions
        without = await asyncio.to_thread(replay, "--hpa", hpa, "--server", server.url, startup=None)
        server.handlers["/debug/config"] = respond({"version": 1, "flags": {**flags, "v": "2"}})
        result = await asyncio.to_thread(replay, "--hpa", hpa, "--server", server.url, startup=None)
        given = await asyncio.to_thread(
            replay, "--hpa", hpa, "--server", server.url, "--horizontal-pod-autoscaler-tolerance=0.1", startup=None
        )
    assert result.stdout.startswith("shop/web needs as many pod-hours as reality in ")
    assert "all 120 decisions are the same as the autoscaler's" in result.stdout
    assert "s (the median of the recorded scale-ups, of which there are " in result.stdout
    assert "the decisions differ from the autoscaler's" in without.stdout
    assert "The autoscaler's flags are not known (" in without.stdout
    assert "the decisions differ from the autoscaler's" in given.stdout


async def test_text_of_a_server_does_not_control_the_terminal(hpa: Path) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=500, text="\x1b]0;owned\x07\x1b[2J\x9b1m")

    async with scripted_server() as server:
        server.handlers["/debug/decisions/shop/web"] = refuse
        result = await asyncio.to_thread(replay, "--hpa", hpa, "--server", server.url)
    assert result.exit_code == 1
    assert result.stderr.rstrip("\n").isprintable()
    assert "owned" in result.stderr


async def test_response_in_drops_ends_at_the_deadline(
    hpa: Path, load: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte would extend a timeout of the connection; see also test_range_client."""
    monkeypatch.setattr(debug_client, "_TIMEOUT_SECONDS", 0.1)
    connect = functools.partial(KubeClient.connect, settings=ClientSettings(request_seconds=0.1))
    monkeypatch.setattr(KubeClient, "connect", connect)

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.005)

    async with scripted_server() as server:
        path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/web"
        server.handlers = dict.fromkeys((path, "/debug/decisions/shop/web"), drip)
        kept = await asyncio.to_thread(replay, "--hpa", hpa, "--server", server.url)
        flags = ["--kubeconfig", str(server.kubeconfig(tmp_path)), "--csv", str(load)]
        cluster = await asyncio.to_thread(replay, "--hpa", "shop/web", *flags)
    assert (kept.exit_code, kept.stderr) == (
        1,
        f"Error: {server.url}/debug/decisions/shop/web: no response within 0.1s\n",
    )
    assert cluster.exit_code == 1
    assert "Error: HPA shop/web: the API server" in cluster.stderr
    assert cluster.stderr.count("\n") == 1


def test_time_until_ready_is_required_or_measured(hpa: Path, load: Path, tmp_path: Path) -> None:
    result = replay("--hpa", hpa, "--csv", load, startup=None)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: how long a new pod takes to become ready is not recorded: give --pod-startup"
    )
    lines = load.read_text().splitlines()
    rows = [f"{line},{4 if index > 30 else 2},{4 if index > 32 else 2}" for index, line in enumerate(lines[1:])]
    recorded = tmp_path / "recorded.csv"
    recorded.write_text("\n".join([f"{lines[0]},replicas,ready", *rows, ""]))
    result = replay("--hpa", hpa, "--csv", recorded, startup=None)
    assert "ready after 2m0s (the median of the recorded scale-ups, of which there are 1), ready pods" in result.stdout


async def test_time_flags_narrow_kept_decisions(autoscaler: tuple[str, Live], hpa: Path) -> None:
    url, live = autoscaler
    first, last = live.records[10].time, live.records[20].time
    result = await asyncio.to_thread(replay, "--hpa", hpa, "--server", url, "--from", first, "--to", last, "-o", "csv")
    times = [row["timestamp"] for row in csv.DictReader(result.stdout.splitlines())]
    assert times == [each.time for each in live.records[10:20]]


async def test_kept_decisions_that_cannot_be_read(autoscaler: tuple[str, Live], tmp_path: Path) -> None:
    url, _ = autoscaler
    other = written(tmp_path / "other.yaml", {**HPA, "metadata": {"name": "other", "namespace": "shop"}})
    result = await asyncio.to_thread(replay, "--hpa", other, "--server", url)
    assert result.exit_code == 1
    assert f"Error: {url}/debug/decisions/shop/other: " in result.stderr
