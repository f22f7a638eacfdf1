"""Scaling end to end: Prometheus, the adapter and the autoscaler as processes, kubectl, TLS."""

import asyncio
import csv
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from autoscaler.cli import main as autoscaler
from kube.api.status import StatusError
from kube.values.quantity import Quantity
from playground.bundle import METRIC_PATHS, Bundle
from playground.install import apply
from playground.recording import replay_recording
from playground.scenario import HPAS, NAMESPACE, SWINGING
from playground.scoreboard import Scoreboard
from playground.tasks import background
from replay.hpa_files import read_hpa_file
from tests.autoscaler.ui.pages import Document
from tests.e2e.bundle.conftest import TIMING
from tests.e2e.tools import fetch, kubectl
from tests.eventually import eventually
from tests.objects import hpa
from tests.replay.builders import pods_metric
from tools.reference.metrics import adapter_metrics, autoscaler_metrics, exposed_name, health_metrics, label_names

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("bundle"),
]

HPAS_PATH = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scoreboard(bundle: Bundle) -> AsyncIterator[Scoreboard]:
    scoreboard = Scoreboard(bundle.client, NAMESPACE, swinging=SWINGING)
    async with background(scoreboard.run()):
        await scoreboard.wait_synced()
        yield scoreboard


async def all_swung(bundle: Bundle, scoreboard: Scoreboard) -> bool:
    bundle.check()
    return scoreboard.all_swung


def condition(hpa: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = hpa.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})


async def test_kubectl_reads_packets_per_second_of_every_pod(bundle: Bundle) -> None:
    result = await kubectl(bundle, "get", "--raw", METRIC_PATHS[0])
    assert result.status == 0, result.errors
    metrics = result.json
    assert (metrics["kind"], metrics["apiVersion"]) == ("MetricValueList", "custom.metrics.k8s.io/v1beta2")
    described = {item["describedObject"]["name"] for item in metrics["items"]}
    assert {name.split("-")[0] for name in described} == {"router", "shop"}
    for item in metrics["items"]:
        assert item["describedObject"]["kind"] == "Pod"
        assert item["describedObject"]["namespace"] == NAMESPACE
        assert item["metric"]["name"] == "packets_per_second"
        assert Quantity.parse(item["value"]).milli_value() >= 0
        assert item["timestamp"]


async def test_kubectl_reads_object_and_external_metrics(bundle: Bundle) -> None:
    service = (await kubectl(bundle, "get", "--raw", METRIC_PATHS[1])).json["items"][0]
    assert service["describedObject"]["kind"] == "Service"
    assert service["describedObject"]["name"] == "shop"
    queue = (await kubectl(bundle, "get", "--raw", METRIC_PATHS[2])).json["items"][0]
    assert (queue["metricName"], queue["metricLabels"]) == ("queue_depth", {"queue": "orders"})


async def test_unknown_metric_is_not_found(bundle: Bundle) -> None:
    result = await kubectl(bundle, "get", "--raw", METRIC_PATHS[0].replace("packets_per_second", "unheard_of"))
    assert result.status == 1
    assert "NotFound" in result.errors


async def test_the_metrics_apis_are_discovered_and_available(bundle: Bundle) -> None:
    listed = await bundle.client.get("/apis/apiregistration.k8s.io/v1/apiservices")
    ours = [entry for entry in listed["items"] if entry["spec"].get("group", "").endswith(".metrics.k8s.io")]
    assert len(ours) == 3
    assert all(condition(entry, "Available").get("status") == "True" for entry in ours)
    resources = await bundle.client.get("/apis/custom.metrics.k8s.io/v1beta2")
    names = {entry["name"] for entry in resources["resources"]}
    assert {"pods/packets_per_second", "services/requests_per_second"} <= names


async def test_page_of_a_metric_has_the_promql_that_the_adapter_explains_through_the_api_server(bundle: Bundle) -> None:
    path = f"metric?metric=pods/packets_per_second&namespace={NAMESPACE}&labelSelector=app%3Drouter"
    status, page = await fetch(bundle.autoscaler_ui_url + path)
    assert status == 200
    query = Document(page).find("pre").text
    assert query.startswith(f'sum(rate(packets_total{{namespace="{NAMESPACE}",pod')
    assert "router-" in query


async def test_every_hpa_scales_up_and_down(bundle: Bundle, scoreboard: Scoreboard) -> None:
    await eventually(lambda: all_swung(bundle, scoreboard), within=90, every=0.5)
    assert any(event.reason == "SuccessfulRescale" and "New size" in event.message for event in scoreboard.events)
    for standing in scoreboard.standings:
        assert standing.tally.lowest >= 1
        assert standing.tally.highest >= 3, "the peak of the load needs six pods"
    table = (await kubectl(bundle, "get", "hpa", f"--namespace={NAMESPACE}")).output
    assert re.search(r"router +Deployment/router +\S+/100", table), table


async def test_recording_is_replayed(bundle: Bundle, scoreboard: Scoreboard, tmp_path: Path) -> None:
    assert scoreboard.all_swung

    async def replayed_scales() -> bool:
        end = time.time()
        comparison = await asyncio.to_thread(
            replay_recording,
            bundle.prometheus.url,
            start=end - bundle.workload.elapsed + 10,
            end=end,
            timing=TIMING,
            cache=tmp_path,
        )
        assert comparison.reality is not None
        return all(each.summary.scale_events >= 2 and each.summary.max_replicas >= 3 for each in comparison.columns)

    await eventually(replayed_scales, within=90, every=1)


@pytest.mark.parametrize("name", ["router", "shop", "worker"])
async def test_kept_decisions_are_replayed(bundle: Bundle, scoreboard: Scoreboard, name: str) -> None:
    assert scoreboard.all_swung
    window = f"--horizontal-pod-autoscaler-downscale-stabilization={TIMING.downscale_stabilization}s"
    command = [
        *("replay", f"--hpa={NAMESPACE}/{name}", f"--kubeconfig={bundle.kubeconfig}"),
        *(f"--server={bundle.autoscaler_url}", window),
    ]
    printed = await asyncio.to_thread(CliRunner().invoke, autoscaler, command)
    assert printed.exit_code == 0, printed.output
    assert re.search("all [0-9]+ decisions are the same as the autoscaler's", printed.stdout), printed.stdout


@pytest.mark.parametrize("name", ["router", "shop", "worker"])
async def test_what_if_has_the_replicas_of_the_command(bundle: Bundle, name: str, tmp_path: Path) -> None:
    hpa = next(file.document for file in read_hpa_file(HPAS) if file.hpa.name == name)
    hpa["spec"]["maxReplicas"] = 4
    (tmp_path / "hpa.yaml").write_text(yaml.safe_dump(hpa))
    window = f"--horizontal-pod-autoscaler-downscale-stabilization={TIMING.downscale_stabilization}s"
    command = ["replay", f"--hpa={tmp_path / 'hpa.yaml'}", f"--server={bundle.autoscaler_url}", window, "--output=csv"]
    status, page = await fetch(f"{bundle.autoscaler_ui_url}hpas/{NAMESPACE}/{name}/what-if?maxReplicas=4")
    assert status == 200, page
    printed = await asyncio.to_thread(CliRunner().invoke, autoscaler, command)
    assert printed.exit_code == 0, printed.output

    scales = Document(page).find("ol", class_="scales").find_all("li")
    shown = [re.match("(....-..-..) (..:..:..) ([0-9]+) -> ([0-9]+): ", each.text) for each in scales]
    rows = [row for row in csv.DictReader(printed.stdout.splitlines()) if row["replicas"] != row["desiredReplicas"]]
    expected = [(*row["timestamp"][:19].split("T"), row["replicas"], row["desiredReplicas"]) for row in rows]
    assert shown
    # The command may have later decisions.
    assert [match and match.groups() for match in shown] == expected[: len(shown)]


async def test_hpa_without_target_does_not_affect_others(bundle: Bundle, scoreboard: Scoreboard) -> None:
    lost = hpa("lost", pods_metric("packets_per_second", "1"), target="nowhere", namespace=NAMESPACE)
    await bundle.client.post(HPAS_PATH, lost)
    try:

        async def target_not_found() -> bool:
            able = condition(await bundle.client.get(f"{HPAS_PATH}/lost"), "AbleToScale")
            return (able.get("status"), able.get("reason")) == ("False", "FailedGetScale")

        assert await eventually(target_not_found, within=20)
        ups = {standing.hpa.name: standing.tally.ups for standing in scoreboard.standings}

        async def others_scale() -> bool:
            return all(standing.tally.ups > ups[standing.hpa.name] for standing in scoreboard.standings)

        assert await eventually(others_scale, within=60, every=0.5)
    finally:
        await bundle.client.delete(f"{HPAS_PATH}/lost")


async def test_rbac_of_the_manifests_suffices(bundle: Bundle, scoreboard: Scoreboard) -> None:
    await eventually(lambda: all_swung(bundle, scoreboard), within=90, every=0.5)
    for child in (bundle.adapter, bundle.autoscaler):
        log = child.log.read_text().lower()
        assert "forbidden" not in log
        assert "traceback" not in log


async def test_adapter_rejects_identity_headers_from_others_than_the_front_proxy(bundle: Bundle) -> None:
    spoofed = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    status, body = await fetch(bundle.adapter_url + METRIC_PATHS[0], spoofed)
    assert status in (401, 403), body
    assert '"kind":"Status"' in body


async def test_adapter_rejects_an_invalid_token(bundle: Bundle) -> None:
    invalid_token = {"Authorization": "Bearer none"}
    status, _ = await fetch(bundle.adapter_url + METRIC_PATHS[0], invalid_token)
    assert status == 401


async def test_both_processes_serve_health_and_metrics(bundle: Bundle) -> None:
    for url in (bundle.adapter_url, bundle.autoscaler_url):
        for path in ("/livez", "/readyz"):
            assert (await fetch(url + path))[0] == 200, url + path
    status, text = await fetch(f"{bundle.autoscaler_url}/metrics")
    assert status == 200
    assert "horizontal_pod_autoscaler_controller_reconciliations_total" in text


async def scraper(bundle: Bundle) -> dict[str, str]:
    """Return the headers of a service account that may read metrics."""
    name, account = {"name": "scraper"}, {"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}
    rbac = "rbac.authorization.k8s.io"
    role = {"rules": [{"nonResourceURLs": ["/metrics", "/metrics/slis"], "verbs": ["get"]}]}
    binding = {"roleRef": {"apiGroup": rbac, "kind": "ClusterRole", **name}, "subjects": [account]}
    await apply(
        bundle.client,
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**name, "namespace": "default"}},
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": name, **role},
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": name, **binding},
        ],
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await bundle.client.post("/api/v1/namespaces/default/serviceaccounts/scraper/token", request)
    return {"Authorization": f"Bearer {response['status']['token']}"}


# Served with --metric-rules, --rules-config-maps or --hpa-annotations.
_WITH_RULE_OBJECTS = {"milliscale_adapter_rule_objects", "milliscale_adapter_rule_object_conditions"}


async def test_every_metric_is_documented(bundle: Bundle) -> None:
    documented = {
        "adapter": {exposed_name(metric): label_names(metric) for metric in adapter_metrics()},
        "autoscaler": {exposed_name(metric): label_names(metric) for metric in autoscaler_metrics()},
        "health": {exposed_name(metric): label_names(metric) for metric in health_metrics()},
    }
    for url, page in (
        (f"{bundle.autoscaler_url}/metrics", "autoscaler"),
        (f"{bundle.autoscaler_url}/metrics/slis", "health"),
        (f"{bundle.adapter_url}/metrics", "adapter"),
        (f"{bundle.adapter_url}/metrics/slis", "health"),
    ):
        status, text = await fetch(url, await scraper(bundle))
        assert status == 200, text
        served = [each for each in text_string_to_metric_families(text) if not each.name.endswith("_created")]
        assert {exposed_name(metric) for metric in served} == set(documented[page]) - _WITH_RULE_OBJECTS
        for metric in served:
            if metric.samples:
                assert sorted(label_names(metric)) == sorted(documented[page][exposed_name(metric)]), metric.name


async def test_metric_of_an_absent_object_is_not_found(bundle: Bundle) -> None:
    with pytest.raises(StatusError) as error:
        await bundle.client.get(METRIC_PATHS[1].replace("shop", "closed"))
    assert error.value.code == 404
