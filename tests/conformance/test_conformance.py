"""The recorded cases as tests, and tests of the runner: a wrong result must not pass."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.conformance.__main__ import main
from tests.conformance.comparison import difference
from tests.conformance.runner import CORPUS, RECORDED, Skip, find_file, load_check, run_file

CASES = {
    "hpa_validation": 350,
    "label_selectors": 1064,
    "normalize": 2198,
    "quantity": 2658,
    "reconcile_traces": 300,
    "replica_calculator": 3147,
}
"""The number of recorded cases; none may be skipped."""


@pytest.mark.parametrize("name", CORPUS)
def test_recorded_cases(name: str) -> None:
    path = find_file(RECORDED, name)
    assert path is not None
    outcome = run_file(path, load_check(name))
    assert [f"line {failure.line}: {failure.difference}" for failure in outcome.failures[:5]] == []
    assert (outcome.passed, outcome.skipped) == (CASES[name], 0)


def _conformance(directory: Path) -> Result:
    return CliRunner().invoke(main, ["--corpus-dir", str(directory)])


def _write(directory: Path, name: str, *cases: dict[str, Any]) -> None:
    (directory / name).write_text("".join(json.dumps(case) + "\n" for case in cases))


@pytest.fixture
def one_kilo() -> dict[str, Any]:
    return {"kind": "fromMilli", "milli": 1_000_000, "decimalSI": "1k", "binarySI": "1k"}


def test_each_file_has_a_line_and_all_passed_is_status_0(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo, one_kilo)
    result = _conformance(tmp_path)
    assert "quantity.jsonl: 2 passed, 0 failed\n" in result.output
    assert f"label_selectors.jsonl: not in {tmp_path}, left out\n" in result.output
    assert result.exit_code == 0


def test_failed_case_is_counted_and_shown_and_status_is_1(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo, one_kilo | {"decimalSI": "1000"})
    result = _conformance(tmp_path)
    assert "quantity.jsonl: 1 passed, 1 failed\n" in result.stdout
    assert "line 2:" in result.stderr
    assert "decimalSI: expected '1000', got '1k'" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize("name", CORPUS)
def test_every_check_finds_a_changed_result(name: str) -> None:
    """Give each of some cases the recorded result of another: the check must find a difference in each."""
    path = find_file(RECORDED, name)
    assert path is not None
    with gzip.open(path, "rt") as file:
        cases = [json.loads(line) for line, _ in zip(file, range(60), strict=False)]
    check = load_check(name)
    found = tried = 0
    for case, other in zip(cases, cases[7:], strict=False):
        swapped = _with_result_of(case, other)
        if swapped is None or swapped == case:
            continue
        tried += 1
        try:
            found += check(swapped) is not None
        except (Skip, LookupError):
            found += 1
    assert tried > 5
    assert found == tried


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


def test_exception_fails_its_case_only(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", {"kind": "parse"}, one_kilo)
    result = _conformance(tmp_path)
    assert "quantity.jsonl: 1 passed, 1 failed\n" in result.stdout
    assert "KeyError" in result.stderr


def test_invalid_json_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "quantity.jsonl").write_text("{\n")
    assert "quantity.jsonl: 0 passed, 1 failed\n" in _conformance(tmp_path).stdout


def test_file_without_check_is_a_failure(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo)
    _write(tmp_path, "tarot.jsonl", one_kilo)
    result = _conformance(tmp_path)
    assert "tarot.jsonl: NOT CHECKED, no tests/conformance/tarot.py\n" in result.output
    assert result.exit_code == 1


def test_empty_directory_is_an_error(tmp_path: Path) -> None:
    result = _conformance(tmp_path)
    assert "no recorded cases" in result.output
    assert result.exit_code == 1


def test_flagged_and_skipped_cases_are_counted_separately(tmp_path: Path, one_kilo: dict[str, Any]) -> None:
    _write(tmp_path, "quantity.jsonl", one_kilo, one_kilo | {"valueWrong": True}, one_kilo | {"milli": 7})

    def check(case: dict[str, Any]) -> str | None:
        if case["milli"] == 7:
            raise Skip
        return None

    outcome = run_file(tmp_path / "quantity.jsonl", check)
    assert str(outcome) == "2 passed, 0 failed, 1 skipped (1 compared but for numbers flagged in the recording)"


def test_directory_is_read_from_the_environment_and_files_may_be_gzipped(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "label_selectors.jsonl.gz", tmp_path)
    result = CliRunner(env={"CORPUS_DIR": str(tmp_path)}).invoke(main, [])
    assert "label_selectors.jsonl: 1064 passed, 0 failed\n" in result.output


def test_differences_have_the_path() -> None:
    assert difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": None}) == (
        "a[1].b: expected 2, got 3\nc: expected nothing, got None"
    )
    assert difference(1.0, 1) is None
    assert difference(2**53 + 1, 2**53) is not None
    assert difference(True, 1) is not None
