"""The dashboards are generated, installed, and complete."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from playground.binaries import find
from tests.manifests.test_monitoring import render, served_metrics
from tools.dashboards import files

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = ["adapter", "autoscaler"]

Object = dict[str, Any]


def load(process: str) -> Object:
    path = ROOT / f"manifests/components/{process}-monitoring/dashboard.json"
    return dict(json.loads(path.read_text()))


def panels(process: str) -> list[Object]:
    return [panel for panel in load(process)["panels"] if panel["type"] != "row"]


PANELS = [
    pytest.param(panel, id=f"{process}-{panel['id']}-{panel['title']}")
    for process in PROCESSES
    for panel in panels(process)
]


@pytest.mark.parametrize("path", files.FILES, ids=lambda path: path.parent.name)
def test_files_are_those_that_are_generated(path: Path) -> None:
    assert path.read_text() == files.render(files.FILES[path]()), "run `make dashboards`"


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("process", PROCESSES)
def test_component_has_the_dashboard_with_the_label_of_grafanas_sidecar(process: str, tmp_path: Path) -> None:
    (text,) = (
        config["data"][f"milliscale-{process}.json"]
        for config in render_all(process, tmp_path, "ConfigMap")
        if config["metadata"]["name"] == f"milliscale-{process}-dashboard"
        and config["metadata"]["labels"]["grafana_dashboard"] == "1"
    )
    assert json.loads(text) == load(process)


def render_all(process: str, folder: Path, kind: str) -> Iterator[Object]:
    render(process, folder)
    text = subprocess.run([find("kubectl"), "kustomize", folder], check=True, capture_output=True, text=True).stdout
    yield from (entry for entry in yaml.safe_load_all(text) if entry["kind"] == kind)


@pytest.mark.parametrize("process", PROCESSES)
def test_panels_are_under_a_row_and_have_their_own_ids_and_titles(process: str) -> None:
    everything = load(process)["panels"]
    assert everything[0]["type"] == "row"
    assert [panel["id"] for panel in everything] == list(range(1, len(everything) + 1))
    titles = [panel["title"] for panel in everything]
    assert len(set(titles)) == len(titles)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in everything]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("panel", PANELS)
def test_panel_has_a_description_a_unit_and_queries_of_the_chosen_data_source(panel: Object) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for each in (panel, *panel["targets"]):
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_rows_are_the_questions_of_an_operator() -> None:
    adapter, autoscaler = (
        [panel["title"] for panel in load(process)["panels"] if panel["type"] == "row"] for process in PROCESSES
    )
    assert adapter == [
        "Is it up, and does it serve?",
        "Is it on time?",
        "Which rules fail, or find nothing?",
        "Where does the time go?",
    ]
    assert autoscaler == [
        "Is it up, and does it act?",
        "Is it on time?",
        "Which HPAs scale, fail or are limited?",
        "Where does the time go?",
        "Other controllers, shadow mode and records",
    ]


def queries(process: str) -> list[str]:
    return [target["expr"] for panel in panels(process) for target in panel["targets"]]


@pytest.mark.parametrize("process", PROCESSES)
def test_metrics_in_queries_exist(process: str) -> None:
    named = {name for query in queries(process) for name in re.findall(r"([\w:]+)(?=\{)", query)}
    named = {re.sub("_(bucket|count)$", "", name) for name in named}
    assert named
    assert named <= served_metrics(process) | {"up"}


@pytest.mark.parametrize("process", PROCESSES)
def test_each_query_selects_the_job(process: str) -> None:
    for query in queries(process):
        assert query.count('{job="$job"') == query.count("{") > 0, query


def test_reasons_in_queries_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "autoscaler").rglob("*.py"))
    selected = [found for query in queries("autoscaler") for found in re.findall(r'reason=~?"([^"]*)"', query)]
    reasons = {reason for found in selected for reason in found.split("|")}
    assert reasons
    assert {reason for reason in reasons if not re.search(f'"{reason.replace(".*", "[A-Za-z]+")}"', source)} == set()
