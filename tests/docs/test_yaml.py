"""Every YAML and JSON block of the documentation is read by the program that it is for."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.prometheus import PrometheusOptions
from adapter.rules import load_rules
from adapter.rules.objects import CLUSTER_METRIC_RULE, CONFIG_MAP, METRIC_RULE, Tenancy
from adapter.rules.objects import read_object as read_rule_object
from autoscaler.objects.hpa import parse_hpa
from playground.binaries import Program, find
from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.kubernetes_types import problems
from tests.helm_engine import render, require_helm
from tools.render_chart import CHART

RULES = {"rules", "externalRules", "resourceRules", "prometheusServers", "forwardExternal"}
HPA_SPEC = {"maxReplicas", "metrics", "behavior"}
KUSTOMIZATION = {"resources", "components", "patches"}
HPA_GROUPS = ("autoscaling", "milliscale.io")
# The servers that rules of the documentation name.
SERVERS = {name: PrometheusOptions(name=name, url="https://prometheus.example") for name in ("mimir",)}

# Blocks that no program here reads, by a part of their text, and why.
UNREAD = {
    "kind: ScaledObject": "KEDA's object, which tests/docs/test_migrating_from_keda.py reads",
    "kind: ScalingSchedule": "kube-metrics-adapter's object, with the MetricRule below it",
    "triggers:\n- type: cron": "a part of a ScaledObject, which tests/docs/test_migrating_from_keda.py reads",
    "kube_node_info{<<.LabelMatchers>>}": "a part of a rule, which tests/adapter/test_guides.py compares",
}
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
YAML = [pytest.param(block, id=block.place) for block in blocks("yaml")]


def documents(block: Block) -> list[Any]:
    return [document for document in yaml.safe_load_all(block.text) if document is not None]


@pytest.mark.parametrize("block", YAML)
def test_yaml_is_read(block: Block, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if any(part in block.text for part in UNREAD):
        return
    for document in documents(block):
        reader = reader_of(document)
        if reader in (read_kustomization, read_patches):
            request.getfixturevalue("overlays_can_be_rendered")
        reader(document, tmp_path)


def reader_of(document: Any) -> Callable[[Any, Path], None]:
    if isinstance(document, list):
        return read_patches
    keys = set(document)
    if keys <= set(VALUES) and not isinstance(document.get("rules"), list):
        return read_values
    if {"apiVersion", "kind"} <= keys:
        return read_object
    for known, reader in READERS:
        if keys <= known:
            return reader
    raise AssertionError(f"what reads {sorted(keys)}?")


def read_object(document: Any, _: Path) -> None:
    group = document["apiVersion"].partition("/")[0]
    labels = document["metadata"].get("labels") or {}
    if document["kind"] in (METRIC_RULE, CLUSTER_METRIC_RULE) or "milliscale.io/rules" in labels:
        read = read_rule_object(document, servers=SERVERS, tenancy=Tenancy(label="namespace"))
        assert (read.error, bool(read.rules)) == ("", True)
        if document["kind"] != CONFIG_MAP:
            return  # tests/docs/test_api_server.py has the API server check it
    if document["kind"] == "HorizontalPodAutoscaler" and group in HPA_GROUPS:
        assert parse_hpa(document)
        document = {**document, "apiVersion": "autoscaling/v2"}  # the same schema
    assert problems(document) == []


def read_rules(document: Any, folder: Path) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(document))
    load_rules(folder / "rules.yaml")


def read_kustomization(document: Any, folder: Path) -> None:
    """Render the example overlay with it, and with the objects that some patches are for."""
    overlay = folder / "manifests/overlays/mine"
    shutil.copytree(ROOT / "manifests", folder / "manifests")
    shutil.copytree(folder / "manifests/overlays/example", overlay)
    file = overlay / "kustomization.yaml"
    example = {**yaml.safe_load(file.read_text()), "resources": ["../../base"]}
    if set(document) == {"patches"}:
        example["components"] = [f"../../components/{name}-network-policy" for name in ("adapter", "autoscaler")]
    file.write_text(yaml.safe_dump(example))
    before = rendered(overlay)
    lists = {key: [*example.get(key, []), *document.get(key, [])] for key in ("components", "patches")}
    file.write_text(yaml.safe_dump({**example, **document, **lists}))
    assert rendered(overlay) != before


def read_patches(document: Any, folder: Path) -> None:
    read_kustomization({"patches": document}, folder)


def rendered(overlay: Path) -> str:
    return execute("kubectl", "kustomize", overlay)


def read_prometheus_configuration(document: Any, folder: Path) -> None:
    for each in document["scrape_configs"]:
        each.pop("kubernetes_sd_configs", None)  # Debian's Prometheus is built without it
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
    execute("promtool", "check", "config", "--syntax-only", folder / "prometheus.yml")


def read_prometheus_rules(document: Any, folder: Path) -> None:
    (folder / "rules.yml").write_text(yaml.safe_dump(document))
    execute("promtool", "check", "rules", folder / "rules.yml")


def read_values(document: Any, _: Path) -> None:
    require_helm()
    assert render(document)  # validates them, too


def execute(program: Program, *arguments: str | Path) -> str:
    ended = subprocess.run([find(program), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def read_hpa_spec(document: Any, folder: Path) -> None:
    """Read a part of an HPA's spec as that of an HPA that has the rest."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metadata = {"name": "web", "namespace": "shop"}
    spec = {"scaleTargetRef": target, "maxReplicas": 20, **document}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
    read_object(hpa, folder)


READERS: list[tuple[set[str], Callable[[Any, Path], None]]] = [
    (RULES, read_rules),
    (HPA_SPEC, read_hpa_spec),
    (KUSTOMIZATION, read_kustomization),
    ({"scrape_configs"}, read_prometheus_configuration),
    ({"groups"}, read_prometheus_rules),
]


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in blocks("json")])
def test_json_is_read(block: Block) -> None:
    json.loads(block.text)


def test_every_reason_is_needed() -> None:
    for part in UNREAD:
        assert any(part in block.text for block in blocks("yaml")), part
