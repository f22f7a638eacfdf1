"""The components for the Prometheus operator: they select the base's pods, and alert on existing metrics."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.serving.telemetry import Telemetry as AdapterTelemetry
from autoscaler.loop.telemetry import Telemetry as AutoscalerTelemetry
from playground.binaries import find

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
PROCESSES = ["adapter", "autoscaler"]

Object = dict[str, Any]


def render(process: str, folder: Path) -> dict[str, Object]:
    """The base with the component, by kind; of several kinds of workload and monitor only those of the process."""
    root = Path("../" * len(folder.parts[1:])) / MANIFESTS.relative_to("/")
    kustomization = {"resources": [str(root / "base")], "components": [str(root / f"components/{process}-monitoring")]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    text = subprocess.run([find("kubectl"), "kustomize", folder], check=True, capture_output=True, text=True).stdout
    return {
        entry["kind"]: entry
        for entry in yaml.safe_load_all(text)
        if entry["metadata"]["labels"].get("app.kubernetes.io/component") == process
    }


def alerts(objects: dict[str, Object]) -> list[Object]:
    (group,) = objects["PrometheusRule"]["spec"]["groups"]
    return list(group["rules"])


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_adapter_is_scraped_and_alerts_use_its_job(tmp_path: Path) -> None:
    objects = render("adapter", tmp_path)
    service, monitor = objects["Service"], objects["ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    jobs = {job for alert in alerts(objects) for job in re.findall(r'job="([^"]*)"', alert["expr"])}
    assert jobs == {service["metadata"]["name"]}


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_autoscaler_is_scraped_and_alerts_use_its_job(tmp_path: Path) -> None:
    objects = render("autoscaler", tmp_path)
    template, monitor = objects["Deployment"]["spec"]["template"], objects["PodMonitor"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    jobs = {job for alert in alerts(objects) for job in re.findall(r'job="([^"]*)"', alert["expr"])}
    assert jobs == {f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"}


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("process", PROCESSES)
def test_prometheus_loads_the_alerts(process: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(render(process, tmp_path)["PrometheusRule"]["spec"]))
    ended = subprocess.run([find("promtool"), "check", "rules", rules], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("process", PROCESSES)
def test_metrics_in_alerts_exist(process: str, tmp_path: Path) -> None:
    adapter = AdapterTelemetry()
    RuleTelemetry(adapter.registry)
    texts = {"adapter": generate_latest(adapter.registry), "autoscaler": AutoscalerTelemetry().render()}
    served = set(re.findall(r"^# TYPE (\S+)", texts[process].decode(), flags=re.MULTILINE)) | {"up"}
    wanted = {
        metric.removesuffix("_bucket")
        for alert in alerts(render(process, tmp_path))
        for metric in re.findall(r"(\w+)(?=[{\[])", alert["expr"])
    }
    assert wanted
    assert wanted <= served
