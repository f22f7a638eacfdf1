"""No value is without effect, and the documentation names those whose defaults differ from prometheus-adapter's."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.test_prometheus_adapter_values import DEFAULTS
from tests.helm_engine import IMAGE, render
from tools.render_chart import CHART, load_helm

ON: Final = {"enabled": True}
HELM_PAGE: Final = Path(__file__).resolve().parents[2] / "docs/helm.md"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())

# Everything on, so that each value has a place to be seen; a second time for what excludes each other.
EVERYTHING: Final[dict[str, Any]] = {
    "replicas": 4,
    "rules": {"resource": {"cpu": {}}, "external": [{}]},
    "certManager": ON,
    "networkPolicy": ON,
    "ui": ON,
    "service": {"ipDualStack": ON},
    "metricRules": ON,
    "autoscaler": {"enabled": True, "ui": ON},
}
OTHERWISE: Final[dict[str, Any]] = {
    "certManager": {"enabled": False},
    "tls": {"enable": True, "ca": "CA", "certificate": "C", "key": "K"},
    "podDisruptionBudget": {"maxUnavailable": None},
}
# The longest objects.
LONGEST: Final[dict[str, Any]] = {"monitoring": ON, "autoscaler": {"enabled": True, "ownHPAs": True}}
# Values for which the change below is not valid, or makes no difference.
SAMPLES: Final[dict[str, Any]] = {
    "autoscaler.enabled": False,
    "autoscaler.mode": "dry-run",
    "dnsPolicy": "None",
    "image.pullPolicy": "Always",
    "metricRules.enabled": False,
    "prometheus.path": "/prometheus",
    "service.type": "NodePort",
    "tls.enable": True,
}


def leaves(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of values.yaml with its path; what Kubernetes defines is one value."""
    closed = {"livenessProbe", "readinessProbe", "podSecurityContext", "securityContext", "nodeSelector"}
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in closed:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield path + key, value


def changed(path: str, value: Any) -> Any:
    """Return another value of the same type."""
    if path in SAMPLES:
        return SAMPLES[path]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return (
            [*value, "sample"] if path.endswith((".resources", ".pullSecrets", "extraArguments")) else [{"name": "x"}]
        )
    if isinstance(value, dict):
        return {"sample": "x"}
    return "7" if value is None else "17m"


def nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {
        **first,
        **{
            key: merged(first[key], value) if isinstance(value, dict) and isinstance(first.get(key), dict) else value
            for key, value in second.items()
        },
    }


@cache
def rendered(values: str) -> str:
    """What the chart renders for values (JSON), or Helm's message; without the schema, which has tests of its own."""
    helm = load_helm()
    with helm.Chart.load(CHART) as chart:
        try:
            return str(chart.render({**IMAGE, **json.loads(values)}))
        except helm.HelmError as error:
            return str(error)


@pytest.mark.parametrize("key", VALUES)
def test_every_value_has_an_effect(key: str) -> None:
    bases = [EVERYTHING, merged(EVERYTHING, OTHERWISE), LONGEST]
    assert all("apiVersion" in rendered(json.dumps(base)) for base in bases)
    for path, value in leaves({key: VALUES[key]}):
        changes = [json.dumps(merged(base, nested(path, changed(path, value)))) for base in bases]
        assert any(
            rendered(change) != rendered(json.dumps(base)) for base, change in zip(bases, changes, strict=True)
        ), path


def rows(section: str) -> list[list[str]]:
    """The rows of the table in a section of the page, without its head."""
    text = HELM_PAGE.read_text().split(f"{section}\n", 1)[1].split("\n#", 1)[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:2] == "| "][2:]


def test_page_lists_the_defaults_that_differ() -> None:
    """All but empty values, and the user's own: the names of fields that Kubernetes defines are below their value."""
    theirs, ours = dict(leaves(DEFAULTS)), dict(leaves(VALUES))
    empty: tuple[object, ...] = (None, "", [], {})
    differ = {
        path
        for path, value in theirs.items()
        if ours.get(path) != value and not (value in empty and ours.get(path) in empty)
    }
    listed = {name for row in rows("### Defaults that differ") for name in re.findall(r"`([\w.]+)`", row[0])}
    # The text of `resources` and `affinity` is in the templates, because a value replaces it as a whole.
    missing = {path for path in differ if not any(path == name or path.startswith(f"{name}.") for name in listed)}
    assert missing == {"tls.ca", "tls.certificate", "tls.key"}  # comments there
    assert all(name.split(".")[0] in VALUES for name in listed)


def test_choices_on_the_page_are_valid() -> None:
    """Its blocks are checked with those of the other pages."""
    chosen = [value for row in rows("## Choose") for value in re.findall(r"`([\w.]+: [^`]+)`", row[1])]
    assert len(chosen) > 10
    for value in chosen:
        path, _, given = value.partition(": ")
        render(merged({"autoscaler": ON}, nested(path, yaml.safe_load(given))))
