"""The commands `check` and `explain`: flags, exit status, output, and files that contain rules."""

from __future__ import annotations

import asyncio
import json
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapter.cli import main
from adapter.commands.printing import print_explanation, print_report
from adapter.diagnosis.report import Finding, MetricReport, Report, RuleReport, SeriesReport, Severity
from kube.web.explanation import Example, Explanation, Value
from playground.prometheus import PrometheusServer, openmetrics
from playground.prometheus import Series as Loaded
from tests.adapter.diagnosis_env import (
    CLI_RULES,
    POD,
    invoke,
)

LIST = CLI_RULES.partition("rules:\n")[2]


def indented(text: str, spaces: int) -> str:
    """Return an indented block that begins on a new line."""
    return "\n" + textwrap.indent(text, " " * spaces)


@pytest.mark.e2e
async def test_check_and_explain_with_a_real_prometheus(tmp_path: Path) -> None:
    start = time.time() - 600
    points = [(start + step, 10.0 * step) for step in range(0, 1201, 10)]
    (tmp_path / "rules.yaml").write_text(CLI_RULES)
    async with PrometheusServer(tmp_path / "data", samples=openmetrics([Loaded("hits_total", POD, points)])) as server:

        def run(*arguments: str) -> tuple[int, str]:
            flags = [f"--config={tmp_path / 'rules.yaml'}", f"--prometheus-url={server.url}", "--metrics-max-age=1h"]
            result = CliRunner().invoke(main, [*arguments, *flags])
            assert result.exception is None or isinstance(result.exception, SystemExit), result.output
            return result.exit_code, result.output

        status, text = await asyncio.to_thread(run, "check")
        assert status == 0
        assert 'sum(rate(hits_total{namespace="shop",pod="web-0"}[5m])) by (pod)' in text
        assert text.endswith("0 errors, 0 warnings\n")
        status, text = await asyncio.to_thread(run, "check", "-o", "json")
        assert json.loads(text)["rules"][0]["metrics"][1]["example"]["of"] == "shop/web-0"
        status, text = await asyncio.to_thread(run, "explain", "pods/hits_per_second", "-n", "shop")
        assert (status, text.splitlines()[0]) == (0, "pods/hits_per_second is made by rules[0] of series hits_total")
        status, text = await asyncio.to_thread(run, "explain", "pods/hit_per_second")
        assert status == 1
        assert "did you mean pods/hits_per_second" in text


REPORT = Report(
    asked_prometheus=True,
    findings=(
        Finding(severity=Severity.ERROR, code="bad", where="rules[0]", message="it is wrong " * 8, about="up"),
        Finding(severity=Severity.WARNING, code="odd", where="rules[0].name.as", message="why?", about="up"),
    ),
    rules=(
        RuleReport(
            rule="rules[0]",
            about="up",
            series=(
                SeriesReport(name="up", metric="up", labels={"pod": "pods"}),
                SeriesReport(name="down", left_out_by="name.matches"),
            ),
            metrics=(
                MetricReport(
                    metric="pods/up",
                    series="up",
                    merges=True,
                    example=Example(
                        of="shop/web-0", queries=("sum(up)",), values=(Value(of="shop/web-0", value="585708m"),)
                    ),
                ),
                MetricReport(metric="namespaces/up", series="up", hidden_by="rules[1]"),
            ),
        ),
        RuleReport(rule="rules[1]", about="sideways"),
        RuleReport(rule="rules[2]", about="o", series=tuple(SeriesReport(name=f"s{n}") for n in range(7))),
    ),
)


def test_report_lists_rules_with_series_and_metrics_and_then_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_report(REPORT)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "rules[0]  up",
        "  up: pod=pods",
        "    pods/up (merges)",
        "      shop/web-0 = 585.7",
        "      sum(up)",
        "    namespaces/up (overlapped by rules[1])",
        "  down: left out by name.matches",
        "rules[1]  sideways",
        "  no series",
        "rules[2]  o",
        *(f"  s{n}: none" for n in range(5)),
        "  and 2 more without metrics",
        "",
        "rules[0]  up",
        f"  error: {'it is wrong ' * 8} [bad]",
        "  warning: name.as: why? [odd]",
        "1 error, 1 warning",
    ]


def test_exit_status_of_check(tmp_path: Path) -> None:
    warned = CLI_RULES.replace("{<<.LabelMatchers>>}", "")
    broken = CLI_RULES.replace("^(.*)_total$", "^(.*)_count$")
    assert invoke(tmp_path, CLI_RULES, "check") == (0, "0 errors, 0 warnings\n")
    assert invoke(tmp_path, warned, "check")[0] == 0
    assert invoke(tmp_path, warned, "check", "--strict")[0] == 1
    status, text = invoke(tmp_path, broken, "check")
    assert status == 1
    assert text.startswith(
        'rules[0]  hits_total{namespace!="",pod!=""}\n  error: name.matches: \'^(.*)_count$\' matches no series'
    )
    status, text = invoke(tmp_path, "rules: [{seriesQuery: a}]", "check")
    assert (status, text.count("\n")) == (1, 1)
    status, text = invoke(tmp_path, broken, "check", "-o", "json")
    [finding] = json.loads(text)["findings"]
    assert (finding["code"], finding["about"]) == ("dead-filter", 'hits_total{namespace!="",pod!=""}')


def test_multi_line_queries_are_printed_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    query = "sum by (pod) (\n  # all of them\n  rate(hits_total[5m])\n)\n"
    example = Example(of="shop/web-0", queries=(query,), values=(Value(of="shop/web-0", value="1"),))
    metric = MetricReport(metric="pods/hits", series="hits_total", example=example)
    rule = RuleReport(rule="rules[0]", about="hits_total{\n}", metrics=(metric,))
    print_report(Report(asked_prometheus=True, findings=(), rules=(rule,)))
    assert capsys.readouterr().out.splitlines() == [
        "rules[0]  hits_total{ }",
        "  hits_total",
        "    pods/hits",
        "      shop/web-0 = 1",
        "      sum by (pod) ( rate(hits_total[5m]) )",
        "",
        "0 errors, 0 warnings",
    ]
    print_explanation(Explanation(target="pods/hits", rule="rules[0]", example=example))
    assert capsys.readouterr().out.splitlines()[1] == "  query  sum by (pod) ( rate(hits_total[5m]) )"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CLI_RULES, ""),
        (CLI_RULES + "---\n", ""),
        ("", ""),
        (
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: monitoring, name: adapter-config}\n"
                f"data:\n  config.yaml: |{indented(CLI_RULES, 4)}"
            ),
            "ConfigMap monitoring/adapter-config: data.config.yaml",
        ),
        (
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"
                'data: {prometheus.yml: "groups:\\n- rules: [!x {}]"}\n---\n'
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: adapter-config}\n"
                f"data:\n  config.yaml: |{indented(CLI_RULES, 4)}"
            ),
            "ConfigMap adapter-config: data.config.yaml",
        ),
        (
            f"prometheus: {{url: 'http://x'}}\nrules:\n  default: false\n  custom:{indented(LIST, 2)}",
            "values of a Helm chart, rules; rules[N] is custom[N], externalRules[N] external[N]",
        ),
        (
            f"prometheus-adapter:\n  rules:\n    custom:{indented(LIST, 4)}",
            (
                "values of a Helm chart, prometheus-adapter, rules; rules[N] is custom[N], externalRules[N] external[N]"
                "; the chart's default rules stand before these, and are not here"
            ),
        ),
        (
            (
                "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {namespace: m, name: pa}\n"
                f"spec:\n  values:\n    rules:\n      default: false\n      custom:{indented(LIST, 6)}"
            ),
            "HelmRelease m/pa: spec.values, rules; rules[N] is custom[N], externalRules[N] external[N]",
        ),
        (
            (
                "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: pa}\n"
                f"spec:\n  source:\n    helm:\n      values: |\n        rules:\n          custom:{indented(LIST, 10)}"
            ),
            (
                "Application pa: spec.source.helm.values, rules; rules[N] is custom[N], externalRules[N] external[N];"
                " the chart's default rules stand before these, and are not here"
            ),
        ),
    ],
)
def test_rules_are_found_in_manifests_and_chart_values(tmp_path: Path, text: str, found: str) -> None:
    status, output = invoke(tmp_path, text, "check", "-o", "json")
    report = json.loads(output)
    assert (status, report["found"]) == (0, found)
    assert [one["code"] for one in report["findings"]] == ["no-rules"] * (not text)
    broken = text.replace("^(.*)_total$", "^(.*)_count$")
    status, output = invoke(tmp_path, broken, "check")
    assert (status, "[dead-filter]" in output) == ((1, True) if text else (0, False))
    assert output.startswith(f"found in {found}\n" if found else "rules[0]  " if text else "")


def test_check_reports_each_rules_file_of_a_manifest_and_explain_refuses_several(tmp_path: Path) -> None:
    one, other = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  a: |{indented(CLI_RULES, 4)}---\n"
        for name in ("one", "two")
    )
    status, text = invoke(tmp_path, one + other.replace("^(.*)_total$", "^(.*)_count$"), "check")
    assert status == 1
    assert [line for line in text.splitlines() if line.startswith("found")] == [
        "found in ConfigMap one: data.a",
        "found in ConfigMap two: data.a",
    ]
    status, text = invoke(tmp_path, one + other, "explain", "pods/x", "--prometheus-url=http://x")
    assert status == 2
    assert "several rules files: ConfigMap one: data.a and ConfigMap two: data.a" in " ".join(text.split())


METRIC_RULE = """
apiVersion: milliscale.io/v1
kind: MetricRule
metadata: {namespace: shop, name: %s}
spec: {type: Pods, metric: hits, query: 'sum(rate(hits_total[2m])) by (%s)'}
---
"""


def test_metric_rules_are_checked_one_by_one_with_the_names_of_their_fields(tmp_path: Path) -> None:
    status, text = invoke(tmp_path, METRIC_RULE % ("web", "pod") + METRIC_RULE % ("my.api", "po"), "check")
    assert status == 1
    first, errors, second, name, finding, end = text.splitlines()
    assert (first, errors, second) == (
        "found in MetricRule shop/web",
        "0 errors, 0 warnings",
        "found in MetricRule shop/my.api",
    )
    assert name == "MetricRule shop/my.api  hits"
    assert finding.startswith("  error: spec.query: ")
    assert end == "1 error, 0 warnings"


def test_all_invalid_metric_rules_of_a_manifest_are_named(tmp_path: Path) -> None:
    broken = (METRIC_RULE % ("web", "pod")).replace("Pods", "Pod")
    status, text = invoke(tmp_path, broken + METRIC_RULE % ("api", "pod") + broken.replace("web", "other"), "check")
    assert status == 1
    assert "MetricRule shop/web: spec.type: expected External, Pods or Object, got 'Pod'" in text
    assert "MetricRule shop/other: spec.type: " in text


def test_metric_rules_of_a_list_name_servers_of_a_rules_file_in_the_manifest(tmp_path: Path) -> None:
    rule = (
        "  - kind: ClusterMetricRule\n    metadata: {name: queue}\n"
        "    spec: {type: External, metric: queue, query: sum(queue), prometheus: east}\n"
    )
    listed = f"apiVersion: v1\nkind: List\nitems:\n{rule}"
    servers = "---\nrules: []\nprometheusServers: {east: {url: 'http://east'}}\n"
    status, text = invoke(tmp_path, listed, "check")
    assert status == 1
    assert "ClusterMetricRule queue: spec.prometheus: there is no server 'east' in prometheusServers" in text
    status, text = invoke(tmp_path, listed + servers, "check")
    assert (status, "found in ClusterMetricRule queue\n0 errors" in text) == (0, True)


def test_metric_rule_can_be_explained(tmp_path: Path) -> None:
    status, text = invoke(
        tmp_path, METRIC_RULE % ("web", "pod"), "explain", "pods/hits", "--prometheus-url=http://127.0.0.1:1"
    )
    assert (status, text.splitlines()[0]) == (1, "pods/hits is made by MetricRule shop/web")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", "there are no rules in it, but Pod a"),
        (
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {config.yaml: 'rules: {}'}\n",
            "ConfigMap a: data.config.yaml: rules: expected a list, got a mapping",
        ),
        ("prometheus: {}\nrulez: []\n", "unknown key `prometheus`"),
    ],
)
def test_files_without_rules_are_refused(tmp_path: Path, text: str, message: str) -> None:
    status, output = invoke(tmp_path, text, "check")
    assert status == 1
    assert message in output


def test_check_takes_max_age_without_relist_interval(tmp_path: Path) -> None:
    assert invoke(tmp_path, CLI_RULES, "check", "--metrics-max-age=5m")[0] == 0
    refused = invoke(tmp_path, CLI_RULES, "check", "--metrics-max-age=5m", "--metrics-relist-interval=6m")
    assert refused[0] == 2
    status, text = invoke(tmp_path, CLI_RULES, "serve", "--metrics-max-age=5m")
    assert (status, "max age must not be less than relist interval" in text) == (2, True)


def test_unreachable_prometheus_is_a_finding(tmp_path: Path) -> None:
    status, text = invoke(tmp_path, CLI_RULES, "check", "--prometheus-url=http://127.0.0.1:1")
    assert status == 1
    assert "its series cannot be listed: Prometheus cannot be reached: Connection refused" in text


def test_context_is_one_of_the_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{contexts: [{name: prod, context: {cluster: prod}}]}")
    status, text = invoke(tmp_path, CLI_RULES, "check", f"--kubeconfig={path}", "--context=staging")
    assert (status, text) == (1, f"Error: kubeconfig {path}: there is no context staging, but prod\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "pods/x"], "--prometheus-url is required"),
        (["explain", "pods", "--prometheus-url=http://x"], "names no metric; write RESOURCE/METRIC"),
        (["explain", "pods/x", "--prometheus-url=http://x", "--name=a", "-l", "b=c"], "not both"),
        (["explain", "pods/x", "--prometheus-url=http://x", "-l", "b in"], "Invalid value for '-l'"),
    ],
)
def test_wrong_flags_end_with_status_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    status, text = invoke(tmp_path, CLI_RULES, *arguments)
    assert status == 2
    assert message in text
