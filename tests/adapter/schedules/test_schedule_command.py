"""`schedule`: the preview of schedules; and where else people see them: check, explain, pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapter.cli import main
from tests.adapter.metrics_env import CannedPrometheus
from tests.adapter.ui.env import element, pages_env, text_of

RULES = """
externalRules:
- name: office-hours
  schedule:
    timezone: Europe/Berlin
    default: 1
    windows: [{start: "0 8 * * 1-5", end: "0 18 * * 1-5", value: 11, ramp: 10m}]
    dates: [{from: 2026-03-31T12:00, until: 2026-03-31T12:30, value: 22}]
    holidays:
      calendar: |
        BEGIN:VCALENDAR
        BEGIN:VEVENT
        DTSTART;VALUE=DATE:20260401
        END:VEVENT
        END:VCALENDAR
- {name: other, schedule: {default: 5}}
- {name: queue, query: queue}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["schedule", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_preview_has_the_changes(config: Path) -> None:
    """The clocks go forward on 29 March; 1 April is a holiday."""
    output = run("--config", config, "--from", "2026-03-28", "--next", "5d", "--metric", "office-hours")
    title, *table = [line for line in output.splitlines() if line]
    assert title == "office-hours (externalRules[0]), times in Europe/Berlin"
    assert table == [
        "Sat 2026-03-28 00:00 CET  1",
        "Mon 2026-03-30 07:52 CEST  3 to 11 in 5 steps until 08:00",
        "Mon 2026-03-30 18:00 CEST  9 to 1 in 5 steps until 18:08",
        "Tue 2026-03-31 07:52 CEST  3 to 11 in 5 steps until 08:00",
        "Tue 2026-03-31 12:00 CEST  22",
        "Tue 2026-03-31 12:30 CEST  11",
        "Tue 2026-03-31 18:00 CEST  9 to 1 in 5 steps until 18:08",
    ]


def test_json_has_every_change_of_every_schedule(config: Path) -> None:
    office, other = json.loads(
        run("--config", config, "--from", "2026-03-30T17:59:00+02:00", "--next", "3m", "-o", "json")
    )
    assert office == {
        "rule": "externalRules[0]",
        "metric": "office-hours",
        "timezone": "Europe/Berlin",
        "start": "2026-03-30T17:59:00+02:00",
        "value": "11",
        "changes": [{"at": "2026-03-30T18:00:00+02:00", "value": "9"}],
    }
    assert (other["value"], other["timezone"], other["changes"]) == ("5", "UTC", [])


def test_preview_is_of_two_weeks_from_now(config: Path) -> None:
    """They have ten days from Monday to Friday, with a ramp each way."""
    lines = [line for line in run("--config", config, "--metric", "office-hours").splitlines() if "steps until" in line]
    assert 19 <= len(lines) <= 21


def test_metric_rule_manifest_is_previewed(tmp_path: Path) -> None:
    path = tmp_path / "rule.yaml"
    path.write_text(
        "apiVersion: milliscale.io/v1\nkind: MetricRule\nmetadata: {name: a, namespace: shop}\n"
        "spec: {type: External, metric: floor, schedule: {default: 2}}\n"
    )
    assert run("--config", path, "--next", "1d").startswith("floor (MetricRule shop/a), times in UTC")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--metric", "nothing"], 1, "there is no schedule of nothing in it"),
        (["--metric", "queue"], 1, "there is no schedule of queue in it"),
        (["--next", "2y"], 2, "--next must be between 1s and 400d"),
        (["--next", "soon"], 2, "not a duration"),
        (["--from", "tomorrow"], 2, "Invalid"),
        (["--from", "0001-01-01"], 2, "the year must be between 1970 and 2099"),
    ],
)
def test_invalid_arguments_are_refused(config: Path, arguments: list[str], status: int, message: str) -> None:
    assert message in run("--config", config, *arguments, status=status)


def test_file_without_schedules_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("externalRules: [{name: a, query: b}]")
    assert "there is no schedule in it" in run("--config", path, status=1)


def test_explain_and_check_show_value_and_next_change(config: Path) -> None:
    arguments = ["--config", str(config), "--prometheus-url", "http://127.0.0.1:1"]
    explained = CliRunner().invoke(main, ["explain", "external/other", *arguments]).output
    assert explained.splitlines() == [
        "external/other is made by externalRules[1]",
        "  value  5",
        "  no change in the next 8 days",
    ]
    checked = CliRunner().invoke(main, ["check", *arguments]).output
    assert "no change in the next 8 days" in checked
    assert "externalRules[0]" in checked


async def test_page_shows_value_and_next_change(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus()) as env:
        facts = text_of(element(await env.get("/rules/externalRules[1]"), "facts"))
        assert "Metric other Schedule times in UTC" in facts
        examples = text_of(element(await env.get("/rules/externalRules[1]"), "examples"))
        assert "other 5 no change in the next 8 days" in examples
        assert "schedule" in text_of(await env.get("/"))
