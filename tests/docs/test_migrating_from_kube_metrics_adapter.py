"""docs/migrating-from-kube-metrics-adapter.md: each HPA gets the values that kube-metrics-adapter would store for it.

The adapter reads the annotations of the page's HPAs, and its queries go to a real Prometheus. The other side is
tests.docs.kube_metrics_adapter, which follows kube-metrics-adapter's source.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
import yaml

from adapter.rules.model import ScheduleRule
from adapter.rules.objects import Tenancy, read_object
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from kube.api.status import StatusError
from kube.values.quantity import Quantity
from tests.docs.blocks import blocks, commands
from tests.docs.example_cluster import ExampleCluster, running_cluster, running_prometheus
from tests.docs.example_pages import DOCS, sections, series_of
from tests.docs.kube_metrics_adapter import Stored, scheduled_value, stored_values
from tests.eventually import eventually
from tests.manifests.rendering import render_with

HPA = "HorizontalPodAutoscaler"
SECTIONS = {one.title: one for one in sections(DOCS / "migrating-from-kube-metrics-adapter.md")}
ANNOTATED = {
    title: one
    for title, section in SECTIONS.items()
    for one in section.of_kind(HPA)
    if one["metadata"].get("annotations")
}
SHOP = '{{namespace="{ns}"}}'
HOST = 'skipper_serve_host_duration_seconds_count{{host="{host}",namespace="skipper-{ns}"}}'
LOADS: dict[str, tuple[dict[str, Any], ...]] = {
    "An external metric": tuple(
        {'events_total{{namespace="{ns}",processed="true"}}': value} for value in ("35/s", "0/s", "0.0049/s")
    ),
    "Several queries with one name": (
        {f"parcels_waiting{SHOP}": 170, f"parcels_late{SHOP}": 31.25},
        {f"parcels_waiting{SHOP}": 170},
        {f"parcels_waiting{SHOP}": float("nan"), f"parcels_late{SHOP}": float("-7.5")},
    ),
    "Another server": ({f"searches_total{SHOP}": "64/s", f"documents_to_index{SHOP}": 1234},),
    "A metric of an object": ({f"checkouts_total{SHOP}": "70/s"}, {}),
    "Requests per second of hosts": ({},),
}
CASES = [(title, number) for title, loads in LOADS.items() for number in range(len(loads))]
REPLICAS = 3


def with_cluster(test: Callable[..., Any]) -> Any:
    """Mark a test that uses the Prometheus and the adapter of this module, which are started once."""
    group = pytest.mark.xdist_group("migrating-from-kube-metrics-adapter")
    return pytest.mark.e2e(group(pytest.mark.asyncio(loop_scope="module")(test)))


def namespace(title: str, number: int) -> str:
    """Return the namespace of a load."""
    return f"{ANNOTATED[title]['metadata']['name']}-{number}"


def moved(hpa: dict[str, Any], namespace: str, prometheus_url: str) -> dict[str, Any]:
    """Return an HPA of the page in another namespace, with its queries, and with the URL of the real Prometheus."""
    text = json.dumps(hpa).replace('"namespace": "shop"', f'"namespace": "{namespace}"')
    text = text.replace('namespace=\\"shop\\"', f'namespace=\\"{namespace}\\"')
    result: dict[str, Any] = json.loads(text.replace("https://platform-prometheus.example", prometheus_url))
    return result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ExampleCluster, str]]:
    folder = tmp_path_factory.mktemp("migrating-from-kube-metrics-adapter")
    loads = [(LOADS[title][number], namespace(title, number)) for title, number in CASES]
    series = [one for load, ns in loads for one in series_of({key.format(ns=ns): load[key] for key in load})]
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(running_prometheus(folder / "prometheus", series))
        [servers] = [one for section in SECTIONS.values() for one in section.documents if "prometheusServers" in one]
        here = {name: {"url": url, "tenants": True} for name in servers["prometheusServers"]}
        rules: dict[str, Any] = {"prometheusServers": here}
        rules["externalRules"] = [{"name": "of_the_file", "query": "vector(1)"}]
        rules["rules"] = [{"name": "of_the_file", "query": "up", "resources": {"pod": "pod"}}]
        cluster = await stack.enter_async_context(
            running_cluster(
                folder / "cluster",
                rules=rules,
                prometheus_url=url,
                namespaces=[ns for _, ns in loads],
                flags=["--hpa-annotations"],
            )
        )
        yield cluster, url


def test_each_example_is_compared() -> None:
    assert set(ANNOTATED) == set(LOADS)
    for hpa in ANNOTATED.values():
        assert validate_hpa(default_hpa(hpa), scale_to_zero=False) == []


async def served_value(cluster: ExampleCluster, ns: str, metric: dict[str, Any]) -> int | None:
    """Return the milli-value that an HPA controller gets; None if there is none."""
    source = metric[metric["type"].lower()]
    name = source["metric"]["name"]
    labels = source["metric"].get("selector", {}).get("matchLabels", {})
    selector = quote(",".join(f"{key}={value}" for key, value in labels.items()))
    if metric["type"] == "Object":
        [kind, described] = [source["describedObject"][key] for key in ("kind", "name")]
        path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{ns}/{kind.lower()}s/{described}/{name}"
        query = f"metricLabelSelector={selector}"
    else:
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{ns}/{name}"
        query = f"labelSelector={selector}"
    try:
        items = (await cluster.client.get(f"{path}?{query}"))["items"]
    except StatusError as error:
        if error.code != 404:
            raise
        return None
    if not items:
        return None
    [item] = items
    if metric["type"] == "External":
        assert item["metricLabels"] == labels
    return Quantity.parse(item["value"]).milli_value()


@with_cluster
@pytest.mark.parametrize(("title", "number"), CASES)
async def test_hpa_gets_the_values_of_kube_metrics_adapter(
    running: tuple[ExampleCluster, str], title: str, number: int
) -> None:
    cluster, url = running
    ns = namespace(title, number)
    hpa = moved(ANNOTATED[title], ns, url)
    stored = await stored_values(hpa, url, aliases={"platform": url}, replicas=REPLICAS)
    async with cluster.with_hpa({**hpa, "status": {"currentReplicas": REPLICAS, "desiredReplicas": REPLICAS}}):
        for metric in hpa["spec"]["metrics"]:
            name = metric[metric["type"].lower()]["metric"]
            expected = next((one.milli for one in stored if is_of(one, name)), None)

            async def same() -> bool:
                assert await served_value(cluster, ns, metric) == expected  # noqa: B023  # awaited within the loop
                return True

            await eventually(same)


def is_of(stored: Stored, metric: dict[str, Any]) -> bool:
    """Return whether a stored value is of a metric of an HPA."""
    return (stored.metric, stored.labels) == (metric["name"], metric.get("selector", {}).get("matchLabels", {}))


COMMANDS = [
    command
    for block in blocks("console")
    if block.page == "docs/migrating-from-kube-metrics-adapter.md"
    for command, _ in commands(block)
]


def test_commands_list_the_servers_and_collectors_of_annotations() -> None:
    hpas = yaml.safe_dump({"items": [*ANNOTATED.values()]})
    listings = [command.removeprefix("kubectl get hpa -A -o yaml | ") for command in COMMANDS if "| sed" in command]
    servers, collectors = [[line.split()[1] for line in _run(one, hpas).splitlines()] for one in listings]
    assert servers == ["https://platform-prometheus.example", "platform"]
    assert collectors == ["prometheus"]


def _run(command: str, text: str) -> str:
    return subprocess.run(["bash", "-c", command], input=text, capture_output=True, text=True, check=True).stdout


def test_commands_name_objects_of_the_manifests(tmp_path: Path) -> None:
    objects = render_with(tmp_path)
    [binding] = [command for command in COMMANDS if "clusterrolebinding" in command]
    [(role, namespace, account)] = re.findall(r"--clusterrole=(\S+).*--serviceaccount=(\S+):(\S+)", binding, re.DOTALL)
    groups = {group for rule in objects["ClusterRole", role]["rules"] for group in rule["apiGroups"]}
    assert "external.metrics.k8s.io" in groups
    assert objects["ServiceAccount", account]["metadata"]["namespace"] == namespace
    [patch] = [command for command in COMMANDS if "kubectl patch apiservice" in command]
    [(name, spec)] = re.findall(r"apiservice (\S+) .*-p '(.*)'", patch, re.DOTALL)
    assert json.loads(spec)["spec"]["service"] == objects["APIService", name]["spec"]["service"]


def test_metric_rule_has_the_values_of_the_scaling_schedule() -> None:
    section = SECTIONS["Schedules"]
    [scaling], [manifest] = section.of_kind("ScalingSchedule"), section.of_kind("MetricRule")
    [rule] = read_object(manifest, servers={}, tenancy=Tenancy()).rules
    assert isinstance(rule, ScheduleRule)
    start = datetime.datetime(2026, 12, 20, tzinfo=datetime.UTC)
    times = [start + datetime.timedelta(minutes=minute) for minute in range(7 * 24 * 60)]
    without_ramps = {**scaling, "spec": {**scaling["spec"], "scalingWindowDurationMinutes": 0}}
    values = set()
    for time in times:
        theirs, ours = scheduled_value(scaling, time), rule.schedule.milli_at(time.timestamp()) / 1000
        if theirs == scheduled_value(without_ramps, time):
            assert ours == theirs, time
            values.add(theirs)
        assert abs(ours - theirs) <= 100 / 5, time  # one step of a ramp
    assert values == {0, 60, 100}
