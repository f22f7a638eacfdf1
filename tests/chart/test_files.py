"""The chart's files, its metadata, and Helm's own checks."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.choices import CHOICES
from tools.chart_files import COPIES
from tools.render_chart import CHART


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.name)
def test_copies_are_those_of_the_manifests(copy: Path) -> None:
    assert copy.read_bytes() == COPIES[copy].read_bytes(), "run make chart-files"


def test_each_file_is_used() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert {path.name for path in (CHART / "files").iterdir()} == set(re.findall(r"files/([\w.-]+)", templates))


@pytest.mark.parametrize("name", [None, *CHOICES])
def test_helm_lint_finds_nothing(name: str | None) -> None:
    import helm_python as helm

    values: dict[str, Any] = {} if name is None else dict(CHOICES[name].values)
    report = helm.lint(CHART, values, strict=True)
    assert report["errors"] == []
    # "icon is recommended" is information.
    assert [message for message in report["messages"] if message["severity"] > 1] == []


def test_package_has_what_a_user_needs(tmp_path: Path) -> None:
    import helm_python as helm

    archive = Path(helm.package(CHART, destination=tmp_path, version="1.2.3", app_version="1.2.3"))
    assert archive.name == "milliscale-1.2.3.tgz"
    with helm.Chart.load(archive) as chart:
        assert chart.schema is not None
        rendered = chart.render({"rules": {"default": True}}, name="metrics", namespace="shop")
    (deployment,) = yaml.safe_load_all(rendered["milliscale/templates/adapter-deployment.yaml"])
    assert deployment["metadata"]["name"] == "metrics-milliscale-adapter"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "milliscale:1.2.3"
