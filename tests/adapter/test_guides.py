"""`check` of rules files from public guides, offline and with a real Prometheus."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from adapter.cli import main
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import RULES
from tests.samples import counter, gauge

GUIDES = RULES / "guides"
DOCS = Path(__file__).parent.parent.parent / "docs"
ERROR, WARNING = "error", "warning"
# Findings about each file's text, and further ones with the series.
FOUND: dict[str, tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]] = {
    "vllm.yaml": ([(WARNING, "no-label-matchers", "rules[0].metricsQuery")], []),
    "gateway-latency.yaml": ([(WARNING, "may-be-nan", "rules[0].metricsQuery")], []),
    "chart-and-own.yaml": (
        [(WARNING, "may-overlap", "rules[3]")],
        # An own rule comes after the chart's, and wins.
        [(WARNING, "overlap", "rules[2]")],
    ),
    "written-labels.yaml": ([], []),
    "mistakes.yaml": (
        [
            (ERROR, "no-object-label", "rules[0].metricsQuery"),
            (ERROR, "wrong-delimiters", "rules[1].metricsQuery"),
            (WARNING, "several-values", "rules[2].metricsQuery"),
        ],
        [
            (WARNING, "no-value", "rules[0]"),
            (ERROR, "no-value", "rules[1]"),
            (ERROR, "several-values", "rules[2].metricsQuery"),
            (ERROR, "no-object-name", "rules[3]"),
        ],
    ),
    "quantile.yaml": ([], []),
    "metricsql.yaml": (
        [(WARNING, "not-promql", "rules[0].metricsQuery")],
        [(ERROR, "no-value", "rules[0]")],  # which this server, Prometheus, says
    ),
    "node-address.yaml": (
        [],
        [
            (ERROR, "no-object-name", "resourceRules.cpu.nodeQuery"),
            (ERROR, "no-object-name", "resourceRules.memory.nodeQuery"),
        ],
    ),
    "node-label.yaml": ([], []),
    "node-joined.yaml": ([], []),
}


def with_prometheus(test: Callable[..., Any]) -> Any:
    """Mark a test that uses the Prometheus of this module, which is started once."""
    group = pytest.mark.xdist_group("guides")
    return pytest.mark.e2e(group(pytest.mark.asyncio(loop_scope="module")(test)))


def check(file: str, *flags: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status of `check` and its report."""
    result = CliRunner().invoke(main, ["check", f"--config={GUIDES / file}", "-o", "json", *flags])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.output)


def reported(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return sorted((one["severity"], one["code"], one["where"]) for one in report["findings"])


def loaded() -> list[Series]:
    """Return series for the guides: two namespaces with pods of the same names, gateways, and two nodes."""
    pods = [{"namespace": space, "pod": "web-0"} for space in ("default", "shop")]
    nodes = [{"node": f"node-{number}", "instance": f"10.0.0.{number}:10250"} for number in (1, 2)]
    return [
        *(gauge("vllm:num_requests_waiting", value, **pod) for pod, value in zip(pods, (1, 1000), strict=True)),
        *(counter("http_requests_total", 5, **pod, code=code) for pod in pods for code in ("200", "500")),
        *(gauge("http_in_flight", 2, **pod) for pod in pods),
        *(
            counter("http_duration_seconds_bucket", share, **pod, le=le)
            for pod in pods
            for le, share in (("0.1", 1), ("+Inf", 2))
        ),
        *(
            counter(f"kong_upstream_latency_ms_{kind}", per_second, exported_namespace="shop", exported_service="cart")
            for kind, per_second in (("sum", 50), ("count", 2))
        ),
        gauge("DCGM_FI_DEV_GPU_UTIL", 71, exported_namespace="shop", exported_pod="web-0", gpu="0"),
        gauge("rabbitmq_queue_messages_ready", 12, namespace="shop", queue="orders"),
        gauge("node_load1", 3, instance="10.0.0.1:9100"),
        *(gauge("kube_node_info", 1, node=one["node"], internal_ip=one["instance"][:-6]) for one in nodes),
        *(counter("container_cpu_usage_seconds_total", 0.5, id="/", **one) for one in nodes),
        *(gauge("container_memory_working_set_bytes", 2**20, id="/", **one) for one in nodes),
        *(
            counter("container_cpu_usage_seconds_total", cores, container=name, **pod, **nodes[0])
            for pod, factor in zip(pods, (1, 10), strict=True)
            for name, cores in (("app", 0.25 * factor), ("proxy", 0.05 * factor))
        ),
        *(gauge("container_memory_working_set_bytes", 2**20, container="app", **pod, **nodes[0]) for pod in pods),
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrometheusServer]:
    async with PrometheusServer(tmp_path_factory.mktemp("guides"), samples=openmetrics(loaded())) as running:
        yield running


def test_every_guide_has_expected_findings() -> None:
    assert set(FOUND) == {file.name for file in GUIDES.iterdir()}


@pytest.mark.parametrize("file", FOUND)
def test_offline_findings(file: str) -> None:
    findings, _ = FOUND[file]
    status, report = check(file)
    assert reported(report) == sorted(findings)
    assert status == int(any(severity == ERROR for severity, _, _ in findings))


@with_prometheus
@pytest.mark.parametrize("file", FOUND)
async def test_online_findings(server: PrometheusServer, file: str) -> None:
    offline, more = FOUND[file]
    seen = {where for _, code, where in more if code == "several-values"}
    # The series show whether rules overlap, and whether objects have several values.
    kept = [one for one in offline if one[1] != "may-overlap" and one[2] not in seen]
    findings = [*kept, *more]
    flags = [f"--prometheus-url={server.url}", "--metrics-max-age=1h"]
    status, report = await asyncio.to_thread(check, file, *flags)
    found = [one for one in reported(report) if one[0] != "advice"]  # which a scrape interval of 10 s brings
    assert found == sorted(findings), report["findings"]
    assert status == int(any(severity == ERROR for severity, _, _ in findings))


def examples(report: dict[str, Any], rule: str) -> dict[str, list[tuple[str, str]]]:
    """Return the values of a rule's examples, by metric."""
    [found] = [one for one in report["rules"] if one["rule"] == rule]
    return {
        one["metric"]: [(value["of"], value["value"]) for value in one["example"]["values"]]
        for one in found["metrics"]
        if one["example"] is not None
    }


@with_prometheus
async def test_example_is_the_value_in_its_own_namespace(server: PrometheusServer) -> None:
    _, report = await asyncio.to_thread(check, "vllm.yaml", f"--prometheus-url={server.url}")
    # The series with the largest value is the example.
    assert examples(report, "rules[0]")["pods/num_requests_waiting"] == [("shop/web-0", "1k")]


@with_prometheus
@pytest.mark.parametrize("file", ["node-label.yaml", "node-joined.yaml"])
async def test_resource_rules_have_examples_of_one_pod_and_one_node(server: PrometheusServer, file: str) -> None:
    _, report = await asyncio.to_thread(check, file, f"--prometheus-url={server.url}")
    [(pod, cores)] = examples(report, "resourceRules.cpu.containerQuery")["pods"]
    assert milli(cores) == pytest.approx({"default/web-0": 300, "shop/web-0": 3000}[pod], rel=0.01)
    [(node, cores)] = examples(report, "resourceRules.cpu.nodeQuery")["nodes"]
    assert node in ("node-1", "node-2")
    assert milli(cores) == pytest.approx(500, abs=5)


def milli(text: str) -> int:
    return int(text.removesuffix("m")) if text.endswith("m") else 1000 * int(text)


def test_documented_resource_rules_are_those_of_the_guides() -> None:
    page = (DOCS / "resource-metrics.md").read_text()
    first, *_ = re.findall(r"```yaml\n(resourceRules:.*?)```", page, re.DOTALL)
    assert first == (GUIDES / "node-label.yaml").read_text().partition("\n")[2]
    joined = (GUIDES / "node-joined.yaml").read_text()
    [query] = re.findall(r"  ```yaml\n( +nodeQuery: \|\n.*?)\n  ```", page, re.DOTALL)
    assert [line.strip() for line in query.splitlines()] == [
        line.strip() for line in re.findall(r"nodeQuery: \|.*?\n      \)\n", joined, re.DOTALL)[0].splitlines()
    ]
