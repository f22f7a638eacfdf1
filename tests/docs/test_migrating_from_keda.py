"""docs/migrating-from-keda.md: each HPA ends at the same number of replicas as the ScaledObject above it.

The autoscaler, whose decisions are Kubernetes', decides on both HPAs. Their metrics come from one real Prometheus: one
through the page's rule, the other through a double of KEDA's metrics server (tests.docs.keda) behind the adapter. The
same holds for the HPAs and MetricRules that the command migrate-keda prints for the ScaledObjects.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from kubectl_milliscale.cli import main
from kubectl_milliscale.keda.manifests import read_manifests
from kubectl_milliscale.keda.scaled import Migration
from kubectl_milliscale.keda.servers import Servers
from tests.docs.blocks import blocks, commands
from tests.docs.example_cluster import ExampleCluster, running_cluster, running_prometheus
from tests.docs.example_pages import DOCS, merged, sections, series_of
from tests.docs.keda import ScaledObject, activated, keda_hpa, keda_metrics_server, metric_values

HPA = "HorizontalPodAutoscaler"
PAGE = DOCS / "migrating-from-keda.md"
SECTIONS = {one.title: one for one in sections(PAGE) if one.of_kind("ScaledObject")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The name of a section's objects, the replicas to start from, and loads: the series of each, with values.

    In the names of series, {ns} is the namespace of the load.
    """

    name: str
    starts: tuple[int, ...]
    loads: tuple[dict[str, Any], ...]


REQUESTS = 'http_requests_total{{namespace="{ns}",deployment="web",pod="web-0"}}'
JOBS = 'export_jobs_waiting{{namespace="{ns}"}}'
ORDERS, REFUNDS = 'orders_open{{namespace="{ns}"}}', 'refunds_open{{namespace="{ns}"}}'
COMPARED = {
    "An example": Comparison("web", (2, 9), ({}, *({REQUESTS: f"{rate}/s"} for rate in (0, 90, 215, 1000, 9999)))),
    "To zero": Comparison(
        "export", (0, 3, 12), ({}, *({JOBS: value} for value in (0, 2, 3, 27, 97, 9999, float("nan"))))
    ),
    "Scaling modifiers": Comparison(
        "support",
        (1, 7),
        ({}, {ORDERS: 130}, {REFUNDS: 65}, {ORDERS: 100, REFUNDS: 90}, {ORDERS: 10, REFUNDS: 9}),
    ),
}
CASES = [(title, number) for title, compared in COMPARED.items() for number in range(len(compared.loads))]
PLAIN = "-without-idle"
"""After a ScaledObject's name: the same without minReplicaCount and idleReplicaCount."""
MIGRATED = [(number, title, "") for title, number in CASES if title != "Scaling modifiers"]  # it moves no formula
# With 27 jobs, 5 replicas are within the HPA's tolerance of 10%. KEDA ends there, because it starts from 1 replica.
MIGRATED += [(number, title, PLAIN) for title, number in CASES if title == "To zero" and number != 4]


@dataclass(frozen=True, slots=True)
class Running:
    """The cluster with the rules of the page, and KEDA's metrics server behind its adapter."""

    cluster: ExampleCluster
    prometheus_url: str


def with_cluster(test: Callable[..., Any]) -> Any:
    """Mark a test that uses the Prometheus and the adapter of this module, which are started once."""
    group = pytest.mark.xdist_group("migrating-from-keda")
    return pytest.mark.e2e(group(pytest.mark.asyncio(loop_scope="module")(test)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("migrating-from-keda")
    series = [one for title, number in CASES for one in series_of(load(title, number))]
    async with AsyncExitStack() as stack:
        prometheus_url = await stack.enter_async_context(running_prometheus(folder / "prometheus", series))
        rules = merged(*(one.rules for one in SECTIONS.values()))
        rules["prometheusServers"] = {"mimir": {"url": prometheus_url, "tenants": True}}
        rules["forwardExternal"] = await stack.enter_async_context(
            keda_metrics_server(folder, scaled_object, prometheus_url)
        )
        namespaces = [namespace(title, number) for title, number in CASES]
        cluster = await stack.enter_async_context(
            running_cluster(
                folder / "cluster",
                rules=rules,
                prometheus_url=prometheus_url,
                namespaces=namespaces,
                metric_rules=[one for case in MIGRATED for one in migrated(*case)[:-1]],
            )
        )
        yield Running(cluster, prometheus_url)


def namespace(title: str, number: int) -> str:
    """Return the namespace of a load."""
    return f"{COMPARED[title].name}-{number}"


def load(title: str, number: int) -> dict[str, Any]:
    """Return the series of a load."""
    return {name.format(ns=namespace(title, number)): value for name, value in COMPARED[title].loads[number].items()}


def scaled_object(namespace: str, name: str) -> ScaledObject:
    """Return the page's ScaledObject of a name, in another namespace."""
    [title] = [title for title, compared in COMPARED.items() if compared.name == name.removesuffix(PLAIN)]
    scaled = moved(SECTIONS[title].of_kind("ScaledObject")[0], namespace)
    if name.endswith(PLAIN):
        scaled["metadata"]["name"] = name
        scaled["spec"] = {
            key: value for key, value in scaled["spec"].items() if key not in ("minReplicaCount", "idleReplicaCount")
        }
    return scaled


def migrated(number: int, title: str, variant: str) -> list[dict[str, Any]]:
    """Return the objects that migrate-keda prints for the ScaledObject of a section, in the namespace of a load."""
    scaled = scaled_object(namespace(title, number), COMPARED[title].name + variant)
    return migrated_objects(scaled, hpa_version="milliscale.io/v1")


def migrated_objects(scaled: ScaledObject, *, hpa_version: str) -> list[dict[str, Any]]:
    """Return the objects that migrate-keda prints for a ScaledObject."""
    manifests = read_manifests(json.dumps(scaled), source="x")
    [one] = manifests.scaled
    servers = Servers(default_url="http://prometheus.monitoring:9090")
    migration = Migration(servers=servers, authentications=manifests.authentications, hpa_version=hpa_version)
    return migration.migrate(one).objects


def moved(obj: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object of the namespace shop in another one, with its queries."""
    text = json.dumps(obj).replace('"namespace": "shop"', f'"namespace": "{namespace}"')
    result: dict[str, Any] = json.loads(text.replace('namespace=\\"shop\\"', f'namespace=\\"{namespace}\\"'))
    return result


def test_each_scaled_object_is_compared() -> None:
    assert set(SECTIONS) == set(COMPARED)
    for section in SECTIONS.values():
        [hpa] = section.of_kind(HPA)
        assert validate_hpa(default_hpa(hpa), scale_to_zero=True) == []
        # The window of a scale-down is not part of the comparison.
        [scaled] = section.of_kind("ScaledObject")
        stated = keda_hpa(scaled)["spec"].get("behavior")
        assert hpa["spec"].get("behavior") == (stated or cooldown(scaled))


def cooldown(scaled: ScaledObject) -> dict[str, Any] | None:
    """Return the behavior that replaces the cooldown period of a ScaledObject that scales to zero."""
    seconds = scaled["spec"].get("cooldownPeriod")
    return {"scaleDown": {"stabilizationWindowSeconds": seconds}} if seconds else None


def test_command_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_page = [block for block in blocks("console") if block.page == f"docs/{PAGE.name}"]
    shown = [one for block in on_page for one in commands(block)]
    [(command, output)] = [(command, output) for command, output in shown if "migrate-keda" in command and output]
    (tmp_path / "web.yaml").write_text(json.dumps(scaled_object("shop", "web")))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, shlex.split(command)[2:])
    assert result.output.splitlines() == output.splitlines()


def test_command_makes_the_schedule_that_the_page_shows() -> None:
    [section] = [one for one in sections(PAGE) if one.title == "A cron trigger"]
    [trigger] = next(one["triggers"] for one in section.documents if "triggers" in one)
    [rule], [hpa] = section.of_kind("MetricRule"), section.of_kind(HPA)
    spec = {"scaleTargetRef": {"name": "web"}, "minReplicaCount": 2, "maxReplicaCount": 20, "triggers": [trigger]}
    scaled = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": rule["metadata"] | {"name": "web"}}
    objects = migrated_objects({**scaled, "spec": spec}, hpa_version="autoscaling/v2")
    assert objects[0] == rule
    assert default_hpa(objects[1]) == default_hpa(hpa)


@with_cluster
@pytest.mark.parametrize(("title", "number"), CASES)
async def test_hpa_ends_at_the_same_replicas_as_keda(running: Running, title: str, number: int) -> None:
    hpa = moved(SECTIONS[title].of_kind(HPA)[0], namespace(title, number))
    running.cluster.add_target(hpa, 0)
    await compare(running, hpa, title, number, COMPARED[title].name)


@with_cluster
@pytest.mark.parametrize(("number", "title", "variant"), MIGRATED)
async def test_migrated_hpa_ends_at_the_same_replicas_as_keda(
    running: Running, number: int, title: str, variant: str
) -> None:
    *_, hpa = migrated(number, title, variant)
    hpa["spec"]["scaleTargetRef"]["name"] += f"-migrated{variant}"
    running.cluster.add_target(hpa, 0)
    await compare(running, hpa, title, number, COMPARED[title].name + variant)


async def compare(running: Running, hpa: dict[str, Any], title: str, number: int, name: str) -> None:
    """Compare the replicas at which an HPA and KEDA end for a ScaledObject. Both scale the target of the HPA."""
    scaled = dict(scaled_object(namespace(title, number), name))
    scaled["spec"] = {**scaled["spec"], "scaleTargetRef": {"name": hpa["spec"]["scaleTargetRef"]["name"]}}
    values = await metric_values(scaled, running.prometheus_url)

    async def operator(replicas: int) -> int:
        return activated(scaled, values, replicas)

    async def nobody(replicas: int) -> int:
        return replicas

    for start in COMPARED[title].starts:
        theirs = await settled(running.cluster, keda_hpa(scaled), start, operator)
        ours = await settled(running.cluster, hpa, start, nobody)
        assert ours == theirs, (start, values)


async def settled(
    cluster: ExampleCluster, hpa: dict[str, Any], replicas: int, before: Callable[[int], Awaitable[int]]
) -> int:
    """Return the number of replicas at which an HPA, and `before` each of its reconciliations, changes nothing."""
    hpa = json.loads(json.dumps(hpa))
    hpa["spec"].setdefault("behavior", {}).setdefault("scaleDown", {})["stabilizationWindowSeconds"] = 0
    if hpa["spec"]["minReplicas"] == 0:  # it has scaled the target to zero itself
        hpa["status"] = {"conditions": [{"type": "ScaledToZero", "status": "True"}]}
    async with cluster.with_hpa(hpa):
        for _ in range(20):
            wanted = await before(replicas)
            await cluster.set_replicas(hpa, wanted)
            record = await cluster.decide(hpa)
            assert record.desired_replicas is not None, record.sentence
            if record.desired_replicas == replicas:
                return replicas
            replicas = record.desired_replicas
    raise AssertionError(f"{hpa['metadata']['name']} does not settle")
