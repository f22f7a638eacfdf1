"""The components for the Prometheus operator: they select the base's pods, and their rules use existing metrics."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from adapter.forecasts.registry import Forecasts
from adapter.telemetry import Telemetry as AdapterTelemetry
from adapter.telemetry import condition_counts, rule_object_counts
from autoscaler.loop.telemetry import Telemetry as AutoscalerTelemetry
from kube.serving.connection import Connections
from playground.binaries import find
from tests.manifests.rendering import MANIFESTS, Object, render_with

PROCESSES = ["adapter", "autoscaler"]


def render(process: str, folder: Path) -> dict[str, Object]:
    """The base with the component, by kind; of several kinds of workload and monitor only those of the process."""
    return {
        kind: entry
        for (kind, _), entry in render_with(folder, f"{process}-monitoring").items()
        if entry["metadata"]["labels"].get("app.kubernetes.io/component") == process
    }


def rules(objects: dict[str, Object]) -> list[Object]:
    return [rule for group in objects["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]]


def jobs(objects: dict[str, Object]) -> set[str]:
    """Return the jobs of all rules; each rule must select one, or another controller's metrics would count, too."""
    found = [re.findall(r'job="([^"]*)"', rule["expr"]) for rule in rules(objects)]
    assert all(found)
    return {job for each in found for job in each}


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_adapter_is_scraped_and_rules_use_its_job(tmp_path: Path) -> None:
    objects = render("adapter", tmp_path)
    service, monitor = objects["Service"], objects["ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert jobs(objects) == {service["metadata"]["name"]}


@pytest.mark.usefixtures("overlays_can_be_rendered")
def test_autoscaler_is_scraped_and_rules_use_its_job(tmp_path: Path) -> None:
    objects = render("autoscaler", tmp_path)
    template, monitor = objects["Deployment"]["spec"]["template"], objects["PodMonitor"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert jobs(objects) == {f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"}


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("process", PROCESSES)
def test_prometheus_loads_the_rules(process: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(render(process, tmp_path)["PrometheusRule"]["spec"]))
    ended = subprocess.run([find("promtool"), "check", "rules", file], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("process", PROCESSES)
def test_metrics_in_rules_exist(process: str, tmp_path: Path) -> None:
    expected = rules(render(process, tmp_path))
    recorded = {rule["record"] for rule in expected if "record" in rule}
    wanted = {
        metric.removesuffix("_bucket") for rule in expected for metric in re.findall(r"([\w:]+)(?=[{\[])", rule["expr"])
    }
    assert wanted
    assert wanted <= served_metrics(process) | recorded | {"up"}


def served_metrics(process: str) -> set[str]:
    adapter = AdapterTelemetry()
    Connections(limit=1, registry=adapter.registry, metrics_prefix="milliscale_adapter")
    adapter.registry.register(rule_object_counts(dict))
    adapter.registry.register(condition_counts(dict))
    adapter.registry.register(Forecasts())
    texts = {"adapter": generate_latest(adapter.registry), "autoscaler": AutoscalerTelemetry().render()}
    return set(re.findall(r"^# TYPE (\S+)", texts[process].decode(), flags=re.MULTILINE))


def monitoring_section() -> str:
    text = (MANIFESTS.parent / "docs/production.md").read_text()
    return text.partition("## Monitoring\n")[2].partition("\n## ")[0]


def test_scrape_configuration_without_the_operator_is_valid_and_has_the_same_jobs(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", monitoring_section(), flags=re.MULTILINE | re.DOTALL)
    configuration = yaml.safe_load(text)
    documented: dict[str, Object] = {each["job_name"]: each for each in configuration["scrape_configs"]}
    for each in documented.values():
        assert each.pop("kubernetes_sd_configs")  # Debian's Prometheus is built without it
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    command = [str(find("promtool")), "check", "config", "--syntax-only", "prometheus.yml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    used = {
        job
        for process in PROCESSES
        for job in re.findall(r'job="(.*?)"', (MANIFESTS / f"components/{process}-monitoring/alerts.yaml").read_text())
    }
    assert set(documented) == used
    assert documented["milliscale/milliscale-autoscaler"]["honor_labels"] is True
