"""The recorded cases as tests, and the runner itself: what is wrong must never look right."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.conformance.__main__ import main
from tests.conformance.comparison import difference
from tests.conformance.runner import CORPUS, RECORDED, Skip, find_file, load_judge, run_file

CASES = {
    "hpa_validation": 350,
    "label_selectors": 1064,
    "normalize": 2198,
    "quantity": 2658,
    "reconcile_traces": 300,
    "replica_calculator": 3147,
}
"""How many were recorded, all of which count: none may be passed over."""


@pytest.mark.parametrize("name", CORPUS)
def test_recorded_cases(name: str) -> None:
    path = find_file(RECORDED, name)
    assert path is not None
    outcome = run_file(path, load_judge(name))
    assert [f"line {failure.line}: {failure.difference}" for failure in outcome.failures[:5]] == []
    assert (outcome.passed, outcome.skipped) == (CASES[name], 0)


def _conformance(directory: Path) -> Result:
    return CliRunner().invoke(main, ["--corpus-dir", str(directory)])


def _write(directory: Path, name: str, *cases: dict[str, Any]) -> None:
    (directory / name).write_text("".join(json.dumps(case) + "\n" for case in cases))


@pytest.fixture
def one_kilo() -> dict[str, Any]:
    return {"kind": "fromMilli", "milli": 1_000_000, "decimalSI": "1k", "binarySI": "1k"}


def test_each_file_gets_a_line_and_all_passed_is_status_0(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo, one_kilo)
    result = _conformance(tmp_path)
    assert "quantity.jsonl: 2 passed, 0 failed\n" in result.output
    assert f"label_selectors.jsonl: not in {tmp_path}, left out\n" in result.output
    assert result.exit_code == 0


def test_a_wrong_case_is_counted_shown_and_status_1(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo, one_kilo | {"decimalSI": "1000"})
    result = _conformance(tmp_path)
    assert "quantity.jsonl: 1 passed, 1 failed\n" in result.stdout
    assert "line 2:" in result.stderr
    assert "decimalSI: expected '1000', got '1k'" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize("name", CORPUS)
def test_every_judge_notices_another_result(name: str) -> None:
    """Give each of some cases the recorded result of another: the judge must object to nearly all."""
    path = find_file(RECORDED, name)
    assert path is not None
    with gzip.open(path, "rt") as file:
        cases = [json.loads(line) for line, _ in zip(file, range(60), strict=False)]
    judge = load_judge(name)
    noticed = tried = 0
    for case, other in zip(cases, cases[7:], strict=False):
        swapped = _with_result_of(case, other)
        if swapped is None or swapped == case:
            continue
        tried += 1
        try:
            noticed += judge(swapped) is not None
        except (Skip, LookupError):
            noticed += 1
    assert tried > 5
    assert noticed == tried


def _with_result_of(case: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    """Return the case with the other's result, or None where the two are not of the same form."""
    if "steps" in case:
        swapped = json.loads(json.dumps(case))
        swapped["steps"][0]["output"] = other["steps"][0]["output"]
        return swapped if swapped["steps"] != case["steps"] else None
    results = [key for key in case if key in _RESULTS]
    if set(results) != {key for key in other if key in _RESULTS} or case.get("kind") != other.get("kind"):
        return None
    return case | {key: other[key] for key in results}


_RESULTS = (
    {"output"}
    | {"ok", "error", "canonical", "milliValue", "value", "sign", "float", "decimalSI", "binarySI"}
    | {"empty", "requirements", "matches"}
    | {"decodeError", "defaultedSpec", "errors"}
)


def test_a_crash_of_our_code_fails_the_case_alone(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", {"kind": "parse"}, one_kilo)
    result = _conformance(tmp_path)
    assert "quantity.jsonl: 1 passed, 1 failed\n" in result.stdout
    assert "KeyError" in result.stderr


def test_a_line_that_is_not_json_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "quantity.jsonl").write_text("{\n")
    assert "quantity.jsonl: 0 passed, 1 failed\n" in _conformance(tmp_path).stdout


def test_a_file_that_nothing_judges_is_not_called_passed(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo)
    _write(tmp_path, "tarot.jsonl", one_kilo)
    result = _conformance(tmp_path)
    assert "tarot.jsonl: NOT JUDGED, no tests/conformance/tarot.py\n" in result.output
    assert result.exit_code == 1


def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    result = _conformance(tmp_path)
    assert "no recorded cases" in result.output
    assert result.exit_code == 1


def test_flagged_and_skipped_cases_are_counted_apart(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo, one_kilo | {"valueWrong": True}, one_kilo | {"milli": 7})

    def judge(case: dict[str, Any]) -> str | None:
        if case["milli"] == 7:
            raise Skip
        return None

    outcome = run_file(tmp_path / "quantity.jsonl", judge)
    assert str(outcome) == "2 passed, 0 failed, 1 skipped (1 compared but for numbers flagged in the recording)"


def test_gzipped_files_and_the_environment_variable(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "label_selectors.jsonl.gz", tmp_path)
    result = CliRunner(env={"CORPUS_DIR": str(tmp_path)}).invoke(main, [])
    assert "label_selectors.jsonl: 1064 passed, 0 failed\n" in result.output


def test_differences_name_the_place() -> None:
    assert difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": None}) == (
        "a[1].b: expected 2, got 3\nc: expected nothing, got None"
    )
    assert difference(1.0, 1) is None
    assert difference(2**53 + 1, 2**53) is not None
    assert difference(True, 1) is not None
