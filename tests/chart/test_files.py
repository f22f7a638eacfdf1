"""The chart's files, its metadata, and Helm's own checks."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.choices import CHOICES
from tests.helm_engine import IMAGE
from tools.chart_files import COPIES
from tools.render_chart import CHART, load_helm

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.name)
def test_copies_are_those_of_the_manifests(copy: Path) -> None:
    assert copy.read_bytes() == COPIES[copy].read_bytes(), "run make chart-files"


def test_each_file_is_used() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert {path.name for path in (CHART / "files").iterdir()} == set(re.findall(r"files/([\w.-]+)", templates))


@pytest.mark.parametrize("name", [None, *CHOICES])
def test_helm_lint_finds_nothing(name: str | None) -> None:
    helm = load_helm()

    values: dict[str, Any] = {} if name is None else dict(CHOICES[name].values)
    report = helm.lint(CHART, values, strict=True)
    assert report["errors"] == []
    # "icon is recommended" is information.
    assert [message for message in report["messages"] if message["severity"] > 1] == []


def test_package_has_what_a_user_needs(tmp_path: Path) -> None:
    helm = load_helm()

    archive = Path(helm.package(CHART, destination=tmp_path, version="1.2.3", app_version="1.2.3"))
    assert archive.name == "milliscale-1.2.3.tgz"
    with helm.Chart.load(archive) as chart:
        assert chart.schema is not None
        rendered = chart.render({**IMAGE, "rules": {"default": True}}, name="metrics", namespace="shop")
    (deployment,) = yaml.safe_load_all(rendered["milliscale/templates/adapter-deployment.yaml"])
    assert deployment["metadata"]["name"] == "metrics-milliscale-adapter"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "milliscale:1.2.3"


def test_engine_leaves_the_limit_of_open_files() -> None:
    code = (
        "import resource as r; _, hard = r.getrlimit(r.RLIMIT_NOFILE); r.setrlimit(r.RLIMIT_NOFILE, (512, hard));"
        "from tools.render_chart import render; render({'image': {'repository': 'i'}});"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "512\n"


@pytest.mark.parametrize(
    ("values", "status", "output"),
    [
        ("{replicas: 4, image: {repository: i}}", 0, "replicas: 4"),
        ("replicas: 4", 1, "image.repository is not set"),
        ("replicas: many", 1, "render-chart: milliscale:\n- at '/replicas': got string, want integer"),
        ("replicas: [", 1, "render-chart: while parsing"),
    ],
)
def test_render_chart_prints_objects_or_an_error(values: str, status: int, output: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(values)
    command = [sys.executable, "-m", "tools.render_chart", "--values", str(tmp_path / "values.yaml")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert output in (ended.stderr if status else ended.stdout)
    assert status or list(yaml.safe_load_all(ended.stdout))


def test_chart_can_be_a_dependency(tmp_path: Path) -> None:
    """A parent chart passes `global`, and often `enabled`, which its condition reads."""
    shutil.copytree(CHART, tmp_path / "parent/charts/milliscale")
    dependency = "{name: milliscale, version: '*', condition: milliscale.enabled}"
    (tmp_path / "parent/Chart.yaml").write_text(
        f"{{apiVersion: v2, name: parent, version: 1.0.0, dependencies: [{dependency}]}}"
    )
    values = {"global": {"cluster": "test"}, "milliscale": {"enabled": True, "replicas": 3, **IMAGE}}
    with load_helm().Chart.load(tmp_path / "parent") as chart:
        chart.validate_schema(values)
        rendered = chart.render(values, name="platform", namespace="shop")
    deployment = yaml.safe_load(rendered["parent/charts/milliscale/templates/adapter-deployment.yaml"])
    assert (deployment["metadata"]["name"], deployment["spec"]["replicas"]) == ("platform-milliscale-adapter", 3)
