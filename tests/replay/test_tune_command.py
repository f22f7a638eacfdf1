"""`python -m autoscaler tune` on short load: report, YAML, JSON, page, processes and errors."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec import structs

from autoscaler.cli import main
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from replay.hpa_files import parse_hpa_document
from replay.load import Load, ReplayError
from replay.results import total
from replay.simulation import Settings
from replay.tune import command, report, tuning
from replay.tune.evaluation import Problem, Run, TuneOptions, evaluate
from replay.tune.goal import Goal, Objective, saved_interval
from replay.tune.page import trade_off_figure, tuning_page
from replay.tune.search import Search
from replay.tune.tuning import Tuned, Verdict, tune
from tests.replay.builders import hpa_document, load_of, pods_metric

STEP_MS = 600_000
PER_DAY = 144
CAPACITY = Settings(capacity={"rps": 100.0}, step_ms=STEP_MS)
HPA = hpa_document(pods_metric(average="50"), max_replicas=40)


def waves(days: float, *, surges_from: float = math.inf) -> list[float]:
    """A value for every ten minutes: waves of four hours, a little higher each day; later ones have surges."""
    values = [(600 + 200 * math.sin(step / 24 * math.tau)) * (1 + step / 10_000) for step in range(int(days * PER_DAY))]
    for step in range(len(values)):
        if step >= surges_from * PER_DAY and step % 20 < 3:
            values[step] *= 2
    return values


def problem(
    load: Load, document: Mapping[str, Any] = HPA, *, settings: Settings = CAPACITY, jobs: int = 1, **options: Any
) -> Problem:
    file = parse_hpa_document(document, "hpa.yaml")
    return Problem(
        file=file, load=load, settings=settings, options=TuneOptions(fields=["target"], jobs=jobs, **options)
    )


def tuned_on(
    values: list[float],
    *,
    goal: Goal | None = None,
    jobs: int = 1,
    annotations: dict[str, str] | None = None,
    **options: Any,
) -> Tuned:
    document = hpa_document(pods_metric(average="50"), max_replicas=40, annotations=annotations)
    load = load_of(rps=values, step_ms=STEP_MS)
    return tune(problem(load, document, goal=goal or Goal(), jobs=jobs, **options))


@pytest.fixture
def one_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load changes with each reconciliation, and would be seen minutes later at other phases."""
    monkeypatch.setattr(tuning, "_PHASES", 1)


@pytest.fixture(scope="module")
def better() -> Tuned:
    return tuned_on(waves(5), goal=Goal(max_overload=0.02))


def test_spec_with_needless_pods_gets_a_higher_target_and_the_report_says_what_gets_worse(better: Tuned) -> None:
    assert better.verdict is Verdict.BETTER
    assert better.recommended is not None
    given, found = total(better.given.unseen), total(better.recommended.unseen)
    assert found.pod_hours < 0.8 * given.pod_hours
    assert found.overload_ratio <= 0.02
    printed = report.text(better)
    assert yaml.safe_load(printed) == better.recommended.document
    target = better.recommended.candidate["target"]
    changed = f"target {target:g} (now 50); the target is {target:g}% of the capacity"
    assert printed.startswith(f"# Recommended for shop/web: {changed}.\n")
    fewer = f"{100 * (1 - found.pod_hours / given.pod_hours):.1f}% fewer pod-hours"
    assert f"{fewer}; overload rises from 0% to" in printed
    assert "of requests (2% allowed), scale events" in printed
    assert given.scale_events != found.scale_events
    verb = "rise" if found.scale_events > given.scale_events else "fall"
    assert f"scale events {verb} from {given.scale_events} to {found.scale_events}, flaps" in printed


def test_report_has_the_cost_that_is_saved(better: Tuned) -> None:
    assert better.winner is not None
    given, found = (total(spec.unseen).pod_hours for spec in (better.given, better.winner))
    priced = report.text(replace(better, settings=replace(better.settings, pod_cost=2.0)))
    assert f"% fewer pod-hours (saves {2 * (given - found):,.2f} of {2 * given:,.2f}); overload rises" in priced


def test_share_of_the_capacity_is_that_of_the_rounded_target(better: Tuned) -> None:
    assert better.winner is not None
    settings = replace(better.settings, capacity={"rps": 2 * better.winner.candidate["target"]})
    assert "the target is 50% of the capacity" in report.text(replace(better, settings=settings))


def test_report_has_what_is_assumed_of_pods_and_controller() -> None:
    load = replace(load_of(rps=waves(1), step_ms=STEP_MS), notes=["The real replicas are explained by tolerance 0.2."])
    printed = report.text(tune(problem(load, goal=Goal(max_overload=0.02))))
    assert "# - The real replicas are explained by tolerance 0.2.\n" in printed
    assert "# - Assumed: a new pod is ready after 30s" in printed


def test_text_of_an_hpa_does_not_control_the_terminal() -> None:
    control = "\x1b]0;owned\x07\x9b2J\u202e"
    tuned = tuned_on(waves(5), goal=Goal(max_overload=0.02), annotations={"example.com/note": control})
    assert tuned.recommended is not None
    tuned = replace(tuned, file=replace(tuned.file, hpa=structs.replace(tuned.file.hpa, name=control)))
    for printed in (report.text(tuned), report.json(tuned)):
        assert "owned" in printed
        assert printed.replace("\n", "").isprintable()
        annotated = yaml.safe_load(printed)
        annotated = annotated.get("recommended", annotated)
        assert annotated["metadata"]["annotations"] == {"example.com/note": control}


def test_each_day_is_shown(better: Tuned) -> None:
    assert better.winner is not None
    header, *rows = report.by_day(better)
    printed = report.text(better).splitlines()
    assert len(rows) == 5
    for row, given, found in zip(rows, better.given.unseen, better.winner.unseen, strict=True):
        assert row[1] == f"{given.pod_hours:,.1f}"
        assert row[2] == f"{found.pod_hours:,.1f} ({found.pod_hours / given.pod_hours - 1:+.1%})"
        assert any(row[0] in line and row[2] in line for line in printed)
    assert header[0] == "from"


def test_winner_that_fails_on_a_day_that_its_choice_has_not_seen_is_not_recommended(one_phase: None) -> None:
    # Only the last day has surges. Without it a high target is chosen, and on it that target is overloaded.
    tuned = tuned_on(waves(5, surges_from=4), goal=Goal(max_overload=0.0003, max_flaps=9))
    assert tuned.winner is not None
    assert tuned.winner.unseen[4].overload_ratio > tuned.winner.days[4].overload_ratio
    assert tuned.winner.unseen[:4] == tuned.winner.days[:4]
    assert tuned.verdict is Verdict.REJECTED
    assert tuned.recommended is None
    printed = report.text(tuned)
    assert printed.startswith("# No better spec for shop/web.\n# The best one is not surely better: target")
    assert "# That is not recommended, because overload is above the limit on these days.\n" in printed
    assert "# Targets nearer to the given one were tried, too: none of them is surely better.\n" in printed
    assert "Left out" not in printed
    assert yaml.safe_load(printed) is None
    assert json.loads(report.json(tuned))["recommended"] is None


def test_lower_target_is_recommended_where_the_best_one_fails_on_an_unseen_day(one_phase: None) -> None:
    tuned = tuned_on(waves(5, surges_from=4), goal=Goal(max_overload=0.0005, max_flaps=9))
    assert tuned.verdict is Verdict.BETTER
    assert tuned.winner is not None
    higher = {spec.name: spec.days for spec in tuned.specs if spec.name not in ("given", "tuned")}
    assert min(higher) > f"target {tuned.winner.candidate['target']:g}%", "a higher one was best by all days"
    allowed = tuned.options.goal.max_overload or 0.0
    within = [n for n, days in higher.items() if tuned.options.goal.keeps_limits_with_margin(days, tuned.given.days)]
    assert within
    assert total(tuned.winner.unseen).overload_ratio <= allowed
    [note] = [each for each in report.notes(tuned) if each.startswith("Left out: ")]
    assert note.startswith(f"Left out: {', '.join(within)}. All days together have fewer pod-hours with these, within")


def test_too_few_days_are_said_with_the_numbers() -> None:
    tuned = tuned_on(waves(3), goal=Goal(max_overload=0.02))
    assert tuned.verdict is Verdict.TOO_FEW_DAYS
    assert tuned.winner is not None
    printed = report.text(tuned)
    assert printed.startswith("# Too few days to recommend anything for shop/web: 3 days of load.\n")
    assert re.search(
        r"# The best one: target \d+ \(now 50\); .* of the capacity. It needs \d+\.\d% fewer pod-hours", printed
    )
    assert yaml.safe_load(printed) is None


def test_interval_is_shown_from_a_week_on(better: Tuned) -> None:
    short, week = better, tuned_on(waves(7), goal=Goal(max_overload=0.02))
    assert "90% interval" not in report.text(short)
    assert json.loads(report.json(short))["savedPodHours"]["low"] is None
    assert week.winner is not None
    low, high = saved_interval(
        [each.pod_hours for each in week.winner.unseen], [each.pod_hours for each in week.given.unseen]
    )
    assert f"Pod-hours saved: {low:.1%} to {high:.1%} (90% interval" in report.text(week)
    saved = json.loads(report.json(week))["savedPodHours"]
    assert (saved["low"], saved["high"]) == (low, high)
    assert low < saved["share"] < high


def test_without_a_better_candidate_there_is_none() -> None:
    tuned = tuned_on(waves(5, surges_from=0))
    assert tuned.verdict is Verdict.NONE
    none, more = report.verdict(tuned)
    assert none.startswith("No better spec for shop/web: none of ")
    assert more == "None may have more overload than it. To allow more, give --max-overload, such as 0.1%."
    fixed = tuned_on(waves(5), max_target=50.0)
    assert report.verdict(fixed)[1].startswith("None may have more overload than 0.001%. ")


def test_costlier_spec_is_not_recommended_even_if_only_it_keeps_the_limit(one_phase: None) -> None:
    limit = 0.0001
    tuned = tuned_on(waves(5, surges_from=0), goal=Goal(max_overload=limit))
    assert total(tuned.given.unseen).overload_ratio > limit
    assert tuned.verdict is Verdict.KEEPS_LIMIT
    assert tuned.winner is not None
    assert total(tuned.winner.unseen).overload_ratio <= limit
    assert yaml.safe_load(report.text(tuned)) is None


def test_hpa_at_min_replicas_and_a_day_without_a_second_one_are_named_as_such() -> None:
    document = hpa_document(pods_metric(average="50"), min_replicas=40, max_replicas=40)
    load = load_of(rps=waves(1), step_ms=STEP_MS)
    tuned = tune(problem(load, document))
    assert "It has 40 replicas all the time, its minReplicas, which is never lowered." in report.verdict(tuned)
    day = tuned_on(waves(1), goal=Goal(max_overload=0.02))
    printed = report.text(day)
    assert printed.startswith("# Too few days to recommend anything for shop/web: 1d of load.\n")
    assert "# Each part, by the choice from the other parts:\n" in printed
    assert "Each part, by the choice from the other parts" in tuning_page(day)


def test_less_overload_is_not_bought_with_pods() -> None:
    tuned = tuned_on(waves(5, surges_from=0), goal=Goal(objective=Objective.OVERLOAD))
    assert total(tuned.given.unseen).overload_ratio > 0
    assert tuned.verdict is Verdict.NONE


def test_overload_of_zero_cannot_be_reduced() -> None:
    tuned = tuned_on(waves(5), goal=Goal(objective=Objective.OVERLOAD))
    assert (tuned.verdict, tuned.replays) == (Verdict.NONE, 1)
    assert "the given spec has no overload, so there is nothing to gain" in report.text(tuned)


def test_result_is_the_same_in_several_processes() -> None:
    one, two = (tuned_on(waves(2), jobs=jobs) for jobs in (1, 2))
    assert [spec.candidate for spec in one.specs] == [spec.candidate for spec in two.specs]
    assert [spec.unseen for spec in one.specs] == [spec.unseen for spec in two.specs]


def test_days_add_up_to_the_whole_replay() -> None:
    values = waves(3)
    load = load_of(rps=values, step_ms=STEP_MS)
    days = problem(load).days
    found = evaluate(problem(load), Run({}))
    assert len(found) == 3
    # The days continue each other: a replay of the first two alone has the same figures there.
    first = replace(load, end_ms=days.ends_ms[1])
    assert evaluate(problem(first), Run({})) == found[:2]
    counted = load.end_ms - days.counted_from_ms
    assert total(found).milliseconds == counted
    assert total(found).loads[0][1] == pytest.approx(sum(values[-counted // STEP_MS :]) * STEP_MS / 1000)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_the_search_and_reports_the_best_so_far(jobs: int) -> None:
    def interrupt(search: Search) -> None:
        if search.best.candidate:
            os.kill(os.getpid(), signal.SIGINT)

    load = load_of(rps=waves(5), step_ms=STEP_MS)
    tuned = tune(problem(load, goal=Goal(max_overload=0.02), jobs=jobs), on_progress=interrupt)
    assert tuned.is_interrupted
    assert tuned.winner is not None
    assert "The search was interrupted: this is the best spec so far." in report.text(tuned)


# --- the command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    hpa, load = tmp_path / "hpa.yaml", tmp_path / "load.csv"
    hpa.write_text(yaml.safe_dump({**HPA, "status": {"currentReplicas": 3, "desiredReplicas": 3}}))
    rows = [f"{1_780_000_000 + 600 * step},{value}" for step, value in enumerate(waves(5))]
    load.write_text("\n".join(["timestamp,rps", *rows, ""]))
    return hpa, load


def run(files: tuple[Path, Path], *arguments: str | Path) -> Result:
    hpa, load = files
    common = ("--hpa", hpa, "--csv", load, "--step", "10m", "--pod-startup", "30s", "--jobs", "1")
    limits = ("--capacity", "100", "--fields", "target")
    return CliRunner().invoke(main, ["tune", *map(str, (*common, *limits, *arguments))], prog_name="autoscaler")


def test_command_prints_yaml_and_writes_a_page_and_its_progress_is_lines_without_a_terminal(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LINE_SECONDS", 0)
    page = tmp_path / "tune.html"
    result = run(files, "--max-overload", "2%", "--html", page)
    assert result.exit_code == 0, result.output
    assert re.search(r"^\d+ of at most 34 replays, best so far: -\d+\.\d%$", result.stderr, re.MULTILINE)
    found = yaml.safe_load(result.stdout)
    assert validate_hpa(default_hpa(found), scale_to_zero=False) == []
    assert list(found) == ["apiVersion", "kind", "metadata", "spec"]
    html = page.read_text()
    assert "Tuning of shop/web" in html
    assert not re.search(r'(?:src|href)="?https?:', html.partition("<script>")[0])
    assert "Recommended for shop/web" in html


def test_figure_has_the_trade_off_and_the_days(better: Tuned) -> None:
    traces = trade_off_figure(better)["data"]
    curves = {trace["name"]: trace for trace in traces if trace["type"] == "scatter"}
    assert set(curves) == {"given, other targets", "tuned"}
    assert curves["given, other targets"]["y"] == sorted(curves["given, other targets"]["y"])
    bars = [trace for trace in traces if trace["type"] == "bar"]
    assert [(trace["name"], len(trace["y"])) for trace in bars] == [("given", 5)] * 2 + [("tuned", 5)] * 2


def test_command_prints_json(files: tuple[Path, Path]) -> None:
    document = json.loads(run(files, "--max-overload", "2%", "--max-target", "80%", "-o", "json").stdout)
    assert (document["version"], document["hpa"], document["verdict"]) == (1, "shop/web", "better")
    given, tuned = document["specs"][:2]
    assert (given["name"], given["changes"]) == ("given", {})
    assert tuned["name"] == "tuned"
    assert tuned["changes"]["target"] <= 80
    assert document["recommended"] == tuned["object"]
    assert tuned["unseen"]["podHours"] == pytest.approx(sum(part["podHours"] for part in tuned["unseen"]["parts"]))
    assert document["unseen"]["parts"] == len(tuned["unseen"]["parts"]) == 5
    assert {"overloadRatio", "overloadRequests", "scaleEvents", "flaps"} < tuned["unseen"].keys()


def test_given_target_above_the_highest_one_is_said() -> None:
    """Its pods are fewer than those of all candidates, so that none is better."""
    goal = Goal(max_overload=0.02)
    tuned = tuned_on(waves(5), goal=goal, max_target=40.0)
    assert tuned.verdict is Verdict.NONE
    assert report.verdict(tuned)[1] == (
        "Its target is 50% of the capacity, above --max-target, which is 40%: no higher one was tried."
    )
    assert len(report.verdict(tuned_on(waves(5), goal=goal, max_target=50.0))) == 1


def test_limits_are_flags(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, better: Tuned) -> None:
    passed: list[TuneOptions] = []

    def tuned(*given: Any, **_: Any) -> Tuned:
        passed.append(given[0].options)
        return better

    monkeypatch.setattr(command, "tune_hpa", tuned)
    flags = ("--max-overload=2%", "--max-scale-events=120%", "--max-flaps=0%", "--max-target=80%")
    assert run(files, *flags, "--objective=overload").exit_code == 0
    assert passed[0].goal == Goal(objective=Objective.OVERLOAD, max_overload=0.02, max_scale_events=1.2, max_flaps=0.0)
    assert passed[0].max_target == 80


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--max-overload", "101%"], 2, "101% is not between 0% and 100%"),
        (["--objective", "flaps"], 2, "'flaps' is not one of 'pod-hours', 'overload'"),
        (["--fields", "target,maxReplicas"], 2, "'maxReplicas' is none of target, scaleUp.tolerance"),
        (["--from", "1780000000", "--to", "1780001800"], 1, "30 minutes of load are too short to tune on"),
        (["--hpa", "FILE"], 1, "one HPA is tuned at a time, and these are 2: shop/web, shop/web"),
    ],
)
def test_errors_are_one_sentence(files: tuple[Path, Path], arguments: list[str], status: int, message: str) -> None:
    result = run(files, *(files[0] if each == "FILE" else each for each in arguments))
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_fields_that_leave_nothing_are_an_error(files: tuple[Path, Path]) -> None:
    files[0].write_text(yaml.safe_dump(hpa_document(pods_metric(average="50"), min_replicas=40, max_replicas=40)))
    assert "none of --fields can change" in run(files, "--fields", "minReplicas").stderr


def test_without_capacity_nothing_is_searched(files: tuple[Path, Path]) -> None:
    arguments = ["tune", "--hpa", str(files[0]), "--csv", str(files[1]), "--pod-startup", "30s", "--step", "15s"]
    flags = {"downscale-stabilization": "5m", "tolerance": "0.1"}  # the real replicas are no controller's
    arguments += [f"--horizontal-pod-autoscaler-{name}={value}" for name, value in flags.items()]
    result = CliRunner().invoke(main, arguments, prog_name="autoscaler")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: what a pod of shop/web can serve is not known, so overload is not")
    first, *rows = files[1].read_text().splitlines()
    values = [float(row.split(",")[1]) for row in rows]
    # A row counts until the next one, so these replicas have 60 per pod at each time.
    replicas = [f"{row},{value / 60},{value / 60}" for row, value in zip(rows, values, strict=True)]
    files[1].write_text("\n".join([f"{first},replicas,ready", *replicas]))
    error = CliRunner().invoke(main, arguments, prog_name="autoscaler").stderr
    assert error.endswith("METRIC=QUANTITY; reality carried 60 of rps per ready pod, so it is at least that\n")


def test_zero_load_is_an_error() -> None:
    with pytest.raises(ReplayError, match="the load is zero or has no values"):
        tuned_on([0.0] * PER_DAY)


def test_days_without_load_do_not_count() -> None:
    tuned = tuned_on([*waves(4.5), *[math.nan] * (PER_DAY * 3 // 2)], goal=Goal(max_overload=0.02))
    printed = report.text(tuned)
    assert "1 day of 6 days had no load, and do not count." in printed
    assert "pod-hours on 5 of 5 days" in printed


# --- several metrics


def test_overload_of_any_metric_counts() -> None:
    # With writes at 50 and reads at 100 of 100, only reads is above its capacity.
    load = load_of(writes=[each / 2 for each in waves(5)], reads=waves(5), step_ms=STEP_MS)
    document = hpa_document(pods_metric("writes", "20"), pods_metric("reads", "40"), max_replicas=40)
    settings = Settings(capacity={"writes": 100.0, "reads": 100.0}, step_ms=STEP_MS)
    tuned = tune(problem(load, document, settings=settings, goal=Goal(max_overload=0.01)))
    assert tuned.winner is not None
    assert all(above / whole <= 0.01 for above, whole in total(tuned.winner.days).loads)
    found = parse_hpa_document(tuned.winner.document, "tuned").hpa
    assert all(spec.target.average_value and spec.target.average_value.milli <= 90_000 for spec in found.spec.metrics)
    highest = tuned.specs[-1]
    assert total(highest.days).overload_ratio == max(above / whole for above, whole in total(highest.days).loads)


# --- phases


@pytest.mark.parametrize("sync_period", [None, "20m"])
def test_winner_keeps_the_limits_at_all_phases_of_the_sync_period(sync_period: str | None) -> None:
    annotations = {"milliscale.io/sync-period": sync_period} if sync_period else None
    document = hpa_document(pods_metric(average="50"), max_replicas=40, annotations=annotations)
    load = load_of(rps=[each for each in waves(4) for _ in range(5)], step_ms=STEP_MS // 5)
    goal = Goal(max_overload=0.003 if sync_period else 0.0005, max_flaps=9)
    tuned = tune(problem(load, document, goal=goal))
    assert tuned.winner is not None
    for offset_ms in (0, 400_000, 800_000) if sync_period else (0, 200_000, 400_000):
        found = evaluate(tuned, Run(tuned.winner.candidate, offset_ms))
        assert tuned.options.goal.keeps_limits(found, evaluate(tuned, Run({}, offset_ms)))


# --- --html, progress, signals


@pytest.mark.parametrize("kind", ["no folder", "a folder"])
def test_page_that_cannot_be_written_is_an_error_before_the_search(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(command, "tune_hpa", lambda *_, **__: pytest.fail("it was searched"))
    page = tmp_path / "none" / "tune.html" if kind == "no folder" else tmp_path
    result = run(files, "--html", page)
    assert result.exit_code in (1, 2)
    assert "directory" in result.stderr


def test_report_is_printed_even_if_the_page_cannot_be_written(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: Tuned
) -> None:
    monkeypatch.setattr(command, "tune_hpa", lambda *_, **__: better)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = run(files, "--max-overload", "2%", "--html", tmp_path / "tune.html")
    assert result.exit_code == 1
    assert "shop/web" in result.stdout
    assert "tune.html cannot be written: No space left on device" in result.stderr


def test_sigterm_ends_the_processes() -> None:
    load = load_of(rps=waves(2), step_ms=STEP_MS)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as exit_:
        tune(
            problem(load, goal=Goal(max_overload=0.02), jobs=2),
            on_progress=lambda _: os.kill(os.getpid(), signal.SIGTERM),
        )
    assert exit_.value.code == 128 + signal.SIGTERM
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGTERM) is before
