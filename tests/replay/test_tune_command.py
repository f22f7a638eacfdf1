"""`python -m autoscaler tune` on short load: report, YAML, JSON, page, processes and errors."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from autoscaler.cli import main
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from replay.hpa_files import parse_hpa_document
from replay.load import ReplayError
from replay.simulation import Settings
from replay.tune import command, report, tuning
from replay.tune.bounds import parse_bounds
from replay.tune.evaluation import Evaluation, Figures, Problem, evaluate, total
from replay.tune.goal import Goal, Objective, gain_interval
from replay.tune.page import trade_off_figure
from replay.tune.split import split_load
from replay.tune.tuning import TuneOptions, Verdict, tune
from tests.replay.builders import hpa_document, load_of, pods_metric

STEP_MS = 60_000
CAPACITY = Settings(capacity={"rps": 100.0}, step_ms=STEP_MS)
ONLY_TARGET = {
    "minReplicas": "given",
    "scaleUp.stabilizationWindowSeconds": "given",
    "scaleDown.stabilizationWindowSeconds": "given",
    "scaleUp.tolerance": "given",
    "scaleDown.tolerance": "given",
    "scaleUp.policies": "given",
    "scaleDown.policies": "given",
}
HPA = hpa_document(pods_metric(average="50"))


def waves(hours: int, *, surge_from: int | None = None) -> list[float]:
    """A value per minute: waves of half an hour; later ones have surges that come at once."""
    values = [600 + 200 * math.sin(minute / 30 * math.tau) for minute in range(hours * 60)]
    for minute in range(len(values) if surge_from is None else surge_from * 60, len(values)):
        if minute % 20 < 3:
            values[minute] *= 2
    return values


def tuned_on(values: list[float], *, goal: Goal | None = None, trials: int = 12, jobs: int = 1) -> tuning.Tuned:
    load = load_of(rps=values, step_ms=STEP_MS)
    options = TuneOptions(goal=goal or Goal(), bounds=parse_bounds(ONLY_TARGET), trials=trials, jobs=jobs)
    return tune(parse_hpa_document(HPA, "hpa.yaml"), load, CAPACITY, options)


def test_spec_with_needless_pods_gets_a_higher_target() -> None:
    tuned = tuned_on(waves(3), goal=Goal(max_overload=0.01))
    assert tuned.verdict is Verdict.BETTER
    assert tuned.recommended is not None
    given, found = total(tuned.given.unseen), total(tuned.recommended.unseen)
    assert found.pod_hours < 0.8 * given.pod_hours
    assert found.overload_ratio <= 0.01
    printed = report.text(tuned)
    assert yaml.safe_load(printed) == tuned.recommended.document
    assert re.search(r"^# Recommended for shop/web: target \d+%\.$", printed, re.MULTILINE)


def test_winner_that_fails_on_the_unseen_part_is_not_recommended() -> None:
    tuned = tuned_on(waves(3, surge_from=2))
    assert tuned.verdict is Verdict.REJECTED
    assert tuned.winner is not None
    assert tuned.recommended is None
    printed = report.text(tuned)
    assert printed.startswith("# No better spec for shop/web within these bounds.\n")
    assert yaml.safe_load(printed) is None
    assert json.loads(report.json(tuned))["recommended"] is None


def test_without_a_better_candidate_there_is_none() -> None:
    tuned = tuned_on(waves(3, surge_from=0))
    assert tuned.verdict is Verdict.NONE
    assert "# No better spec for shop/web within these bounds: none of " in report.text(tuned)


def test_costlier_spec_is_not_recommended_even_if_only_it_keeps_the_limit() -> None:
    limit = 0.0005
    tuned = tuned_on(waves(3, surge_from=0), goal=Goal(max_overload=limit))
    assert total(tuned.given.unseen).overload_ratio > limit
    assert tuned.verdict is Verdict.KEEPS_LIMIT
    assert tuned.winner is not None
    assert total(tuned.winner.unseen).overload_ratio <= limit
    assert yaml.safe_load(report.text(tuned)) is None


def test_less_overload_is_not_bought_with_pods() -> None:
    tuned = tuned_on(waves(3, surge_from=0), goal=Goal(objective=Objective.OVERLOAD))
    assert total(tuned.given.unseen).overload_ratio > 0
    assert tuned.verdict is Verdict.NONE


def test_result_is_the_same_in_several_processes() -> None:
    one, two = (tuned_on(waves(2), trials=2, jobs=jobs) for jobs in (1, 2))
    assert [spec.candidate for spec in one.specs] == [spec.candidate for spec in two.specs]
    assert [spec.unseen for spec in one.specs] == [spec.unseen for spec in two.specs]
    assert one.trials == two.trials


def test_parts_add_up_to_the_whole_replay() -> None:
    load = load_of(rps=waves(3), step_ms=STEP_MS)
    split = split_load(load)
    problem = Problem(document=HPA, load=load, settings=CAPACITY, split=split)
    whole = evaluate(problem, {}, parts=split.parts)
    assert len(whole.parts) == split.parts
    # The unseen parts continue the training ones: a replay of the training part alone has the same figures there.
    assert evaluate(problem, {}, parts=split.train).parts == whole.parts[: split.train]
    counted = load.end_ms - load.start_ms - split.warm_up_ms
    assert total(whole.parts).loads[0][1] == pytest.approx(sum(waves(3)[-counted // STEP_MS :]) * 60, rel=0.01)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_the_search_and_reports_the_best_so_far(jobs: int) -> None:
    def interrupt(search: Any) -> None:
        if search.best is not None:
            os.kill(os.getpid(), signal.SIGINT)

    load = load_of(rps=waves(3), step_ms=STEP_MS)
    options = TuneOptions(goal=Goal(max_overload=0.01), trials=1000, jobs=jobs)
    tuned = tune(parse_hpa_document(HPA, "hpa.yaml"), load, CAPACITY, options, on_progress=interrupt)
    assert tuned.is_interrupted
    assert tuned.winner is not None
    assert "The search was interrupted: this is the best spec so far." in report.text(tuned)


# --- the command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    hpa, load = tmp_path / "hpa.yaml", tmp_path / "load.csv"
    hpa.write_text(yaml.safe_dump({**HPA, "status": {"currentReplicas": 3, "desiredReplicas": 3}}))
    rows = [f"{1_780_000_000 + 60 * minute},{value}" for minute, value in enumerate(waves(2))]
    load.write_text("\n".join(["timestamp,rps", *rows, ""]))
    return hpa, load


def run(files: tuple[Path, Path], *arguments: str | Path) -> Result:
    hpa, load = files
    common = ("--hpa", hpa, "--csv", load, "--step", "1m", "--jobs", "1", "--trials", "10", "--pod-startup", "30s")
    return CliRunner().invoke(main, ["tune", *map(str, (*common, *arguments))], prog_name="autoscaler")


@pytest.fixture
def only_target(tmp_path: Path) -> Path:
    path = tmp_path / "bounds.yaml"
    path.write_text(yaml.safe_dump(ONLY_TARGET))
    return path


def test_command_prints_yaml_and_writes_a_page(files: tuple[Path, Path], only_target: Path, tmp_path: Path) -> None:
    page = tmp_path / "tune.html"
    result = run(files, "--capacity", "100", "--max-overload", "1%", "--bounds", only_target, "--html", page)
    assert result.exit_code == 0, result.output
    found = yaml.safe_load(result.stdout)
    assert validate_hpa(default_hpa(found), scale_to_zero=False) == []
    assert list(found) == ["apiVersion", "kind", "metadata", "spec"]
    html = page.read_text()
    assert "Tuning of shop/web" in html
    assert not re.search(r'(?:src|href)="?https?:', html.partition("<script>")[0])
    assert "Recommended for shop/web" in html


def test_figure_has_the_trade_off_and_the_parts() -> None:
    tuned = tuned_on(waves(3), goal=Goal(max_overload=0.01))
    traces = trade_off_figure(tuned)["data"]
    curves = {trace["name"]: trace for trace in traces if trace["type"] == "scatter"}
    assert set(curves) == {"given, unseen", "given, searched", "tuned, unseen", "tuned, searched"}
    assert curves["given, unseen"]["y"] == sorted(curves["given, unseen"]["y"])
    bars = [trace for trace in traces if trace["type"] == "bar"]
    assert [(trace["name"], len(trace["y"])) for trace in bars] == [("given", 12)] * 2 + [("tuned", 12)] * 2


def test_hpa_without_a_namespace_gets_none(files: tuple[Path, Path], only_target: Path) -> None:
    document = hpa_document(pods_metric(average="50"))
    del document["metadata"]["namespace"]
    files[0].write_text(yaml.safe_dump(document))
    result = run(files, "--capacity", "100", "--max-overload", "1%", "--bounds", only_target)
    assert yaml.safe_load(result.stdout)["metadata"] == {"name": "web"}


def test_command_prints_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    bounds = tmp_path / "bounds.yaml"
    bounds.write_text(yaml.safe_dump({**ONLY_TARGET, "target": ["80%", "90%"]}))
    result = run(files, "--capacity", "100", "--max-overload", "1%", "--bounds", bounds, "-o", "json")
    document = json.loads(result.stdout)
    assert (document["version"], document["hpa"], document["verdict"]) == (1, "shop/web", "better")
    given, tuned = document["specs"][:2]
    assert (given["name"], given["changes"]) == ("given", {})
    assert tuned["name"] == "tuned"
    assert 80 <= tuned["changes"]["target"] <= 90
    assert document["recommended"] == tuned["object"]
    assert tuned["unseen"]["podHours"] == pytest.approx(sum(part["podHours"] for part in tuned["unseen"]["parts"]))


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--max-overload", "0.1"], 2, "'0.1' is not a percentage such as 0.1%"),
        (["--max-overload", "101%"], 2, "101% is not between 0% and 100%"),
        (["--objective", "flaps"], 2, "'flaps' is not one of 'pod-hours', 'overload'"),
        (["--train", "95%"], 2, "95% is not between 10% and 90%"),
        (
            ["--capacity", "100", "--from", "1780000000", "--to", "1780000600"],
            1,
            "10 minutes of load are too short to tune on",
        ),
    ],
)
def test_errors_are_one_sentence(files: tuple[Path, Path], arguments: list[str], status: int, message: str) -> None:
    result = run(files, *arguments)
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_several_hpas_are_an_error(files: tuple[Path, Path]) -> None:
    result = run(files, "--hpa", files[0])
    assert result.exit_code == 1
    assert "one HPA is tuned at a time, and these are 2: shop/web, shop/web" in result.stderr


def test_bounds_that_leave_nothing_are_an_error(files: tuple[Path, Path], tmp_path: Path) -> None:
    bounds = tmp_path / "bounds.yaml"
    bounds.write_text(yaml.safe_dump({**ONLY_TARGET, "target": "given"}))
    result = run(files, "--bounds", bounds, "--capacity", "100")
    assert "the bounds leave nothing to search: give a range to a field" in result.stderr


def test_zero_load_is_an_error() -> None:
    with pytest.raises(ReplayError, match="the load is zero or has no values"):
        tuned_on([0.0] * 120)


def test_without_capacity_nothing_is_searched(files: tuple[Path, Path]) -> None:
    result = run(files)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: what a pod of shop/web can serve is not known, so overload is not")


def test_figures_add_up() -> None:
    assert total([Figures(1, ((2, 4),), 1), Figures(3, ((0, 4),), 2)]) == Figures(4, ((2, 8),), 3)
    assert Figures(1, ((2, 4),)).overload_ratio == 0.5
    assert Figures(1, ((2, 4), (9, 10), (0, 0))).overload_ratio == 0.9
    assert Figures().overload_ratio == 0
    assert Evaluation((), True, 0.0).is_complete


# --- several metrics


def test_overload_of_any_metric_counts() -> None:
    # With writes at 50 and reads at 100 of 100, only reads is above its capacity.
    load = load_of(writes=[each / 2 for each in waves(3)], reads=waves(3), step_ms=STEP_MS)
    file = parse_hpa_document(hpa_document(pods_metric("writes", "20"), pods_metric("reads", "40")), "hpa.yaml")
    settings = Settings(capacity={"writes": 100.0, "reads": 100.0}, step_ms=STEP_MS)
    options = TuneOptions(goal=Goal(max_overload=0.001), bounds=parse_bounds(ONLY_TARGET), trials=12, jobs=1)
    tuned = tune(file, load, settings, options)
    assert tuned.winner is not None
    found = parse_hpa_document(tuned.winner.document, "tuned").hpa
    for totals in (tuned.winner.train, tuned.winner.unseen):
        assert all(above / whole <= 0.001 for above, whole in total(totals).loads)
    targets = [spec.target.average_value for spec in found.spec.metrics]
    assert all(target is not None and target.milli <= 100_000 for target in targets)
    spec = next(spec for spec in tuned.specs if spec.name == "given, target 40%")
    assert total(spec.train).overload_ratio == max(above / whole for above, whole in total(spec.train).loads)


# --- limits of the search


@pytest.mark.parametrize("trials", [1, 5, 16, 40])
def test_trials_are_the_most_replays_of_the_search(trials: int) -> None:
    load = load_of(rps=waves(2), step_ms=STEP_MS)
    options = TuneOptions(goal=Goal(max_overload=0.01), trials=trials, jobs=1)
    tuned = tune(parse_hpa_document(HPA, "hpa.yaml"), load, CAPACITY, options)
    assert tuned.trials <= trials
    assert tuned.trials >= trials // 2


def test_winner_keeps_the_limit_at_all_phases_of_the_sync_period() -> None:
    values = waves(3)
    load = load_of(rps=[each for each in values for _ in range(4)], step_ms=STEP_MS // 4)
    file = parse_hpa_document(HPA, "hpa.yaml")
    tuned = tune(file, load, CAPACITY, TuneOptions(bounds=parse_bounds(ONLY_TARGET), trials=20, jobs=1))
    assert tuned.winner is not None
    problem = Problem(document=file.document, load=load, settings=CAPACITY, split=tuned.split)
    for offset_ms in (0, STEP_MS // 3, 2 * STEP_MS // 3):
        given, found = (
            evaluate(problem, each, parts=tuned.split.train, offset_ms=offset_ms)
            for each in ({}, tuned.winner.candidate)
        )
        assert total(found.parts).overload_ratio <= total(given.parts).overload_ratio
    assert tuned.verdict is Verdict.BETTER


# --- nothing to gain, nothing to check by


def test_overload_of_zero_cannot_be_reduced() -> None:
    tuned = tuned_on(waves(3), goal=Goal(objective=Objective.OVERLOAD))
    assert total(tuned.given.unseen).overload_ratio == 0
    assert tuned.verdict is Verdict.NONE
    assert tuned.trials == 0
    assert "the given spec has no overload on the training part, so there is nothing to gain" in report.text(tuned)
    assert not Goal(objective=Objective.OVERLOAD).is_better(tuned.given.unseen, tuned.given.unseen)


def test_unseen_part_without_load_is_an_error() -> None:
    values = waves(3)
    with pytest.raises(ReplayError, match="that the search does not see, the last 4 parts of 15 min, has no load"):
        tuned_on([*values[:123], *[math.nan] * 57])  # a few values do not make it one
    with pytest.raises(ReplayError, match="to search on, the first 8 parts of 15 min, has no load"):
        tuned_on([*[math.nan] * 120, *values[120:]])


def test_unseen_parts_without_load_do_not_count() -> None:
    values = waves(3)
    tuned = tuned_on([*values[:150], *[math.nan] * 30], goal=Goal(max_overload=0.01))
    printed = report.text(tuned)
    assert "2 parts of 15 min of the unseen 4 parts of 15 min had no load." in printed
    assert "fewer on 2 of 2 parts of 15 min" in printed
    assert tuned.winner is not None
    low, high = gain_interval(tuned.winner.unseen[:2], tuned.given.unseen[:2], seed=tuned.options.seed)
    assert f"Pod-hours saved: {low:.1%} to {high:.1%} (90 % interval" in printed
    assert json.loads(report.json(tuned))["savedPodHours"] == {"low": low, "high": high}
    assert (low, high) != gain_interval(tuned.winner.unseen, tuned.given.unseen, seed=tuned.options.seed)


# --- candidates that the API server refuses


def test_bound_that_the_api_server_refuses_is_an_error(files: tuple[Path, Path], tmp_path: Path) -> None:
    bounds = tmp_path / "bounds.yaml"
    bounds.write_text(yaml.safe_dump({"minReplicas": [0, 3]}))
    result = run(files, "--capacity", "100", "--bounds", bounds)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "bounds: minReplicas 0" in result.stderr
    assert "must specify at least one Object or External metric to support scaling to zero replicas" in result.stderr
    assert len(result.stderr.splitlines()) == 1


# --- --html, progress, signals


@pytest.mark.parametrize("kind", ["no folder", "a folder"])
def test_page_that_cannot_be_written_is_an_error_before_the_search(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: pytest.fail("it was searched"))
    page = tmp_path / "none" / "tune.html" if kind == "no folder" else tmp_path
    result = run(files, "--capacity", "100", "--html", page)
    assert result.exit_code in (1, 2)
    assert "directory" in result.stderr


def test_report_is_printed_even_if_the_page_cannot_be_written(
    files: tuple[Path, Path], only_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = run(files, "--capacity", "100", "--bounds", only_target, "--html", tmp_path / "tune.html")
    assert result.exit_code == 1
    assert "shop/web" in result.stdout
    assert "tune.html cannot be written: No space left on device" in result.stderr


def test_progress_is_a_line_every_ten_seconds_without_a_terminal(
    files: tuple[Path, Path], only_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LINE_SECONDS", 0)
    result = run(files, "--capacity", "100", "--max-overload", "1%", "--bounds", only_target)
    assert re.search(r"^\d+ of 10 replays, best so far: -\d+\.\d%$", result.stderr, re.MULTILINE)


def test_sigterm_ends_the_processes() -> None:
    load = load_of(rps=waves(2), step_ms=STEP_MS)
    options = TuneOptions(goal=Goal(max_overload=0.01), trials=1000, jobs=2)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as exit_:
        tune(
            parse_hpa_document(HPA, "hpa.yaml"),
            load,
            CAPACITY,
            options,
            on_progress=lambda _: os.kill(os.getpid(), signal.SIGTERM),
        )
    assert exit_.value.code == 128 + signal.SIGTERM
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGTERM) is before
