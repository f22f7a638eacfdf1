"""Alerts and recording rules: promtool runs their unit tests, and each alert has a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from adapter.cli import main as adapter_main
from autoscaler.cli import main as autoscaler_main
from kubectl_milliscale.cli import main as plugin_main
from playground.binaries import find

ROOT = Path(__file__).resolve().parents[2]
TESTS = Path(__file__).parent / "alerts"
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text()
PROCESSES = ["adapter", "autoscaler"]

COMMANDS = {
    "python -m adapter": adapter_main,
    "python -m autoscaler": autoscaler_main,
    "kubectl milliscale": plugin_main,
}
FLAGS_OF_OTHERS = {"--controllers"}  # kube-controller-manager

Rule = dict[str, Any]


def groups_of(process: str) -> list[dict[str, Any]]:
    manifest = yaml.safe_load((ROOT / f"manifests/components/{process}-monitoring/alerts.yaml").read_text())
    return list(manifest["spec"]["groups"])


def alerts_of(process: str) -> list[Rule]:
    return [rule for group in groups_of(process) for rule in group["rules"] if "alert" in rule]


def records_of(process: str) -> set[str]:
    return {rule["record"] for group in groups_of(process) for rule in group["rules"] if "record" in rule}


ALERTS = [pytest.param(alert, id=alert["alert"]) for process in PROCESSES for alert in alerts_of(process)]


def promtool_tests(process: str) -> dict[str, Any]:
    return dict(yaml.safe_load((TESTS / f"{process}.yaml").read_text()))


@pytest.mark.parametrize("process", PROCESSES)
def test_unit_tests_of_promtool_pass(process: str, tmp_path: Path) -> None:
    groups = groups_of(process)
    for group in groups:
        for rule in group["rules"]:
            if "alert" in rule:  # promtool compares all annotations
                rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    (tmp_path / "tests.yaml").write_text((TESTS / f"{process}.yaml").read_text())
    ended = subprocess.run(
        [find("promtool"), "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("process", PROCESSES)
def test_each_alert_is_tested_when_it_fires_and_when_it_does_not(process: str) -> None:
    tested = [test for group in promtool_tests(process)["tests"] for test in group.get("alert_rule_test", ())]
    names = {alert["alert"] for alert in alerts_of(process)}
    assert {test["alertname"] for test in tested if test.get("exp_alerts")} == names
    assert {test["alertname"] for test in tested if not test.get("exp_alerts")} == names


@pytest.mark.parametrize("process", PROCESSES)
def test_each_recording_rule_is_used_by_an_alert_or_tested_itself(process: str) -> None:
    used = " ".join(alert["expr"] for alert in alerts_of(process))
    used += " ".join(
        test["expr"] for group in promtool_tests(process)["tests"] for test in group.get("promql_expr_test", ())
    )
    assert records_of(process)
    assert {record for record in records_of(process) if record not in used} == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_says_what_happened_what_it_means_and_where_to_read_on(alert: Rule) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks.md#{alert['alert'].lower()}")


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_has_a_runbook_with_meaning_impact_diagnosis_and_mitigation(alert: Rule) -> None:
    entry = re.search(rf"^### {alert['alert']}\n(.*?)(?=^##|\Z)", RUNBOOKS, flags=re.MULTILINE | re.DOTALL)
    assert entry is not None
    parts = re.findall(r"^\*\*(\w+)\.\*\*", entry[1], flags=re.MULTILINE)
    assert parts == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    named_by_severity = f"`{alert['alert']}`" in RUNBOOKS.partition("\n## ")[0]
    assert named_by_severity == (alert["labels"]["severity"] != "warning")


def test_there_are_no_runbooks_of_alerts_that_do_not_exist() -> None:
    described = set(re.findall(r"^### (Milliscale\w+)", RUNBOOKS, flags=re.MULTILINE))
    assert described == {alert["alert"] for process in PROCESSES for alert in alerts_of(process)}


def subcommands(command: click.Command) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: each for name, each in found.items() if each is not None}


def flags_of(command: click.Command) -> set[str]:
    own = {flag for parameter in command.params for flag in parameter.opts}
    return own.union(*map(flags_of, subcommands(command).values()))


def test_commands_in_runbooks_exist() -> None:
    called = re.findall(rf"({'|'.join(COMMANDS)}) (\w+)([^`\n]*)", RUNBOOKS)
    assert {program for program, _, _ in called} == set(COMMANDS)
    for program, name, arguments in called:
        command = subcommands(COMMANDS[program])[name]
        assert set(re.findall(r"(?<=\s)--?[a-z-]+", arguments)) <= flags_of(command), (name, arguments)


def test_flags_in_runbooks_exist() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", RUNBOOKS)) - FLAGS_OF_OTHERS
    assert named
    assert named <= set().union(*map(flags_of, COMMANDS.values()))
