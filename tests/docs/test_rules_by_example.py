"""docs/rules-by-example.md: each rule makes its metric in a real Prometheus, and each HPA gets the stated decision.

One Prometheus has the series of all examples, and one adapter all rules. Prometheus 2 has no names with dots: a stub
responds to that one query.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from click.testing import CliRunner

from adapter.cli import main
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from tests.docs.example_cluster import ExampleCluster, running_cluster, running_prometheus
from tests.docs.example_pages import DATA, DOCS, Section, merged, sections, series_of
from tests.docs.remote_write import WrittenSeries
from tests.web_servers import served

PAGE = DOCS / "rules-by-example.md"
SECTIONS = {one.title: one for one in sections(PAGE) if one.documents}
EXAMPLES: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "rules-by-example.yaml").read_text())
DOTS = "OpenTelemetry names with dots"
HPA = "HorizontalPodAutoscaler"


@dataclass(frozen=True, slots=True)
class Running:
    """The cluster, and each section's rules with addresses of this machine."""

    cluster: ExampleCluster
    prometheus_url: str
    rules: Mapping[str, dict[str, Any]]


def with_cluster(test: Callable[..., Any]) -> Any:
    """Mark a test that uses the Prometheus and the adapter of this module, which are started once."""
    group = pytest.mark.xdist_group("rules-by-example")
    return pytest.mark.e2e(group(pytest.mark.asyncio(loop_scope="module")(test)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("rules-by-example")
    namespaces = {one["metadata"]["namespace"] for section in SECTIONS.values() for one in hpas(section)}
    series = {title: series_of(example["series"]) for title, example in EXAMPLES.items()}
    dotted = series.pop(DOTS)
    recorded = [group for section in SECTIONS.values() for group in section.recording_rules]
    async with AsyncExitStack() as stack:
        samples = [one for found in series.values() for one in found]
        prometheus_url = await stack.enter_async_context(
            running_prometheus(folder / "prometheus", samples, recording_rules=recorded)
        )
        stub_url = await stack.enter_async_context(prometheus_3(SECTIONS[DOTS].rules["rules"][0]["query"], dotted))
        rules = {title: local_rules(section, prometheus_url) for title, section in SECTIONS.items()}
        rules[DOTS] = merged(
            {"prometheusServers": {"prometheus-3": {"url": stub_url}}},
            {"rules": [{**rule, "prometheus": "prometheus-3"} for rule in rules[DOTS]["rules"]]},
        )
        cluster = await stack.enter_async_context(
            running_cluster(
                folder / "cluster",
                rules=merged(*rules.values()),
                prometheus_url=prometheus_url,
                namespaces=namespaces - {"kube-system"},
            )
        )
        yield Running(cluster, prometheus_url, rules)


def hpas(section: Section) -> list[dict[str, Any]]:
    """Return the section's HPAs. Those of which it shows only a part of the spec get the rest."""
    example = EXAMPLES[section.title]
    shown = [one for one in section.documents if one.get("kind") == HPA or "metrics" in one]
    return [
        one if "kind" in one else completed(one, name, example.get("namespace", "shop"))
        for one, name in zip(shown, example["replicas"], strict=True)
    ]


def completed(spec: Mapping[str, Any], name: str, namespace: str) -> dict[str, Any]:
    """Return an HPA of a Deployment of its name with 1 to 20 replicas, unless the spec has others."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 20, **spec},
    }


def local_rules(section: Section, prometheus_url: str) -> dict[str, Any]:
    """Return a section's rules with the test's Prometheus as each server."""
    rules = section.rules
    for server in rules.get("prometheusServers", {}).values():
        server["url"] = prometheus_url
    return rules


@asynccontextmanager
async def prometheus_3(query: str, series: list[WrittenSeries]) -> AsyncIterator[str]:
    """Respond to one query as Prometheus 3 does, with the last value of each series."""
    result = [
        {
            "metric": {name: value for name, value in one.labels.items() if name != "__name__"},
            "value": [one.points[-1][0], str(one.points[-1][1])],
        }
        for one in series
    ]

    async def respond(request: web.Request) -> web.Response:
        if request.query["query"] != query:
            return web.json_response({"status": "error", "errorType": "bad_data", "error": "another query"}, status=400)
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    application = web.Application()
    application.router.add_get("/api/v1/query", respond)
    async with served(application) as url:
        yield url


def test_each_example_has_series_an_hpa_and_a_decision() -> None:
    assert set(SECTIONS) == set(EXAMPLES)
    for section in SECTIONS.values():
        targets = [one["spec"]["scaleTargetRef"]["name"] for one in hpas(section)]
        assert targets == list(EXAMPLES[section.title]["replicas"])
        assert len(section.decisions) == len(targets)
        assert EXAMPLES[section.title]["source"]


@pytest.mark.parametrize("title", SECTIONS)
def test_hpas_are_valid(title: str) -> None:
    for hpa in hpas(SECTIONS[title]):
        assert validate_hpa(default_hpa(hpa), scale_to_zero=True) == []


@with_cluster
@pytest.mark.parametrize("title", SECTIONS)
async def test_check_finds_nothing(running: Running, tmp_path: Path, title: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(running.rules[title]))
    report = await asyncio.to_thread(check, file, running.prometheus_url)
    # Samples come every 10 s here; what queries cost is measured, and a pause of the machine would count.
    assert [one for one in report["findings"] if one["severity"] != "advice" and one["code"] != "merge-costs"] == []
    for rule in report["rules"]:
        assert rule["metrics"]
        for metric in rule["metrics"]:
            assert metric["example"]["values"], metric


def check(file: Path, prometheus_url: str) -> dict[str, Any]:
    """Return the report of `check`."""
    flags = [f"--config={file}", f"--prometheus-url={prometheus_url}", "-o", "json", "--examples=9"]
    result = CliRunner().invoke(main, ["check", *flags])
    report: dict[str, Any] = json.loads(result.output)
    return report


@with_cluster
@pytest.mark.parametrize("title", SECTIONS)
async def test_hpas_are_decided_as_stated(running: Running, title: str) -> None:
    section, replicas = SECTIONS[title], EXAMPLES[title]["replicas"]
    listed = await running.cluster.listed()
    for hpa, stated in zip(hpas(section), section.decisions, strict=True):
        for metric in hpa["spec"]["metrics"]:
            assert listed_name(metric) in listed
        running.cluster.add_target(hpa, replicas[hpa["spec"]["scaleTargetRef"]["name"]])
        async with running.cluster.with_hpa(hpa):
            sentence = (await running.cluster.decide(hpa)).sentence
            assert stated in (sentence, sentence.partition(":")[0])


def listed_name(metric: Mapping[str, Any]) -> str:
    """Return the name in discovery of a metric of an HPA's spec."""
    match metric:
        case {"type": "Pods", "pods": {"metric": {"name": name}}}:
            return f"pods/{name}"
        case {"type": "Object", "object": {"metric": {"name": name}, "describedObject": described}}:
            group = described["apiVersion"].rpartition("/")[0]
            plural = {"Service": "services", "Ingress": "ingresses", "Deployment": "deployments"}[described["kind"]]
            return f"{plural}.{group}/{name}" if group else f"{plural}/{name}"
        case {"type": "External", "external": {"metric": {"name": name}}}:
            return str(name)
    raise AssertionError(metric)
