"""Texts of users, clusters and Prometheus do nothing in a terminal."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from adapter.commands.printing import print_explanation, print_lines, print_report
from adapter.diagnosis.report import Finding, MetricReport, Report, RuleReport, Severity
from autoscaler.commands.explain import print_records
from kube.web.explanation import Example, Explanation, Value
from kubectl_milliscale.status import table
from tests.autoscaler.simulated_cluster import hpa
from tests.autoscaler.test_decision_log import record

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m[/red]\u202eb"
FORBIDDEN = ("\x1b", "\x07", "\x9b", "\u202e")


def explanation() -> None:
    example = Example(of=HOSTILE, queries=(HOSTILE,), values=(Value(HOSTILE, HOSTILE),), problem=HOSTILE)
    print_explanation(
        Explanation(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), example, (HOSTILE,), (HOSTILE,), (HOSTILE,))
    )


def report() -> None:
    metric = MetricReport(metric=HOSTILE, series=HOSTILE, hidden_by=HOSTILE)
    rule = RuleReport(rule=HOSTILE, about=HOSTILE, metrics=(metric,))
    finding = Finding(severity=Severity.ERROR, code="x", where=f"rules[0].{HOSTILE}", message=HOSTILE, about=HOSTILE)
    print_report(Report(rules=(rule,), findings=(finding,), asked_prometheus=True, found=HOSTILE))


def forecast() -> None:
    print_lines([HOSTILE])


def decisions() -> None:
    text = msgspec.json.encode(record(0)).replace(b"default", msgspec.json.encode(HOSTILE)[1:-1])
    print_records(Console(), [msgspec.json.decode(text, type=type(record(0)))])


def status() -> None:
    shown = table([replace(hpa(), name=HOSTILE)], {}, all_namespaces=True, wide=True, width=200)
    Console().print(*shown, sep="\n")


@pytest.mark.parametrize("output", [explanation, report, forecast, decisions, status])
def test_texts_have_no_control_characters_on_a_terminal(
    output: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    output()
    printed = capsys.readouterr().out
    assert "title" in printed
    assert not [one for one in FORBIDDEN if one in printed]
