"""Values files of the prometheus-adapter chart install the same with ours: each value has the effect that it has there.

`record` has rendered the files with that chart. A file decides only about the values that it sets; docs/helm.md lists
the defaults that differ.
"""

import json
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from adapter.cli import main as adapter_main
from adapter.rules import parse_rules
from tests.chart.effects import EFFECTS, Rendered
from tests.chart.record import FOLDER, NAMESPACE, RELEASE, VALUES, load, rendered_file
from tests.helm_engine import render
from tools.render_chart import ChartError, objects

DEFAULTS: Final[dict[str, Any]] = json.loads((FOLDER / "defaults.json").read_text())["values"]
# Commented out in the chart's values.yaml, or used in its templates alone.
FURTHER: Final = {"dnsPolicy"}

FILES: Final = pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)


def ours(values: dict[str, Any]) -> Rendered:
    return Rendered(objects(render(values, release=RELEASE, namespace=NAMESPACE)))


def theirs(path: Path) -> Rendered:
    return Rendered(list(yaml.safe_load_all(rendered_file(path).read_text())))


@FILES
def test_each_value_has_the_same_effect(path: Path) -> None:
    values = load(path)
    installed, expected = ours(values), theirs(path)
    for key, value in values.items():
        assert (key, EFFECTS[key](installed, value)) == (key, EFFECTS[key](expected, value))


@FILES
def test_rules_and_registered_apis_are_the_same(path: Path) -> None:
    installed, expected = ours(load(path)), theirs(path)
    assert installed.rules() == expected.rules()
    assert [entry[0] for entry in installed.registered()] == [entry[0] for entry in expected.registered()]


@FILES
def test_flags_are_the_same(path: Path) -> None:
    """Except for places in our pods, and for the verbosity, which is ours unless it is set."""
    values = load(path)
    installed, expected = ours(values).flags, theirs(path).flags
    expected.pop("/adapter")
    for places in ("--cert-dir", "--tls-cert-file", "--tls-private-key-file", "--config"):
        assert (places in installed) == (places in expected)
        installed.pop(places, None)
        expected.pop(places, None)
    if "logLevel" not in values:
        expected.pop("--v")
    assert installed.pop("--shutdown-delay-duration") == "5s"
    assert installed == expected


@FILES
def test_adapter_loads_the_rules(path: Path) -> None:
    for entry in ours(load(path)).of_kind("ConfigMap"):
        if "rules.yaml" in entry["data"]:
            loaded = parse_rules(entry["data"]["rules.yaml"], source=path.name)
            assert loaded.custom or loaded.external or loaded.resource


@FILES
def test_adapter_knows_the_flags(path: Path) -> None:
    command = adapter_main.commands["serve"]
    parser = command.make_parser(click.Context(command))
    given, rest, _ = parser.parse_args(list(ours(load(path)).container["args"]))
    assert (rest, given["prometheus_url"]) == ([], ours(load(path)).flags["--prometheus-url"])


def test_files_set_every_value_of_the_chart() -> None:
    keys = DEFAULTS.keys() | FURTHER
    assert EFFECTS.keys() == keys
    assert {key for path in VALUES for key in load(path)} == keys
    rules = {key for path in VALUES for key in load(path).get("rules", {})}
    assert rules == {"default", "custom", "external", "resource", "existing"}


def test_all_default_values_of_the_chart_are_accepted() -> None:
    """As in a file that began with `helm show values`."""
    with pytest.raises(ChartError, match=r"prometheus-adapter's own image: set image.repository and image.tag"):
        render(DEFAULTS)
    rendered = ours({**DEFAULTS, "image": {"repository": "registry.example/milliscale"}})
    assert rendered.deployment["spec"]["replicas"] == 1
    assert rendered.deployment["spec"]["strategy"] == DEFAULTS["strategy"]
    assert rendered.of_kind("PodDisruptionBudget") == []
    assert rendered.flags["--v"] == "4"


def test_existing_config_map_is_read_where_the_chart_has_it() -> None:
    rendered = ours({"rules": {"existing": "adapter-config"}})
    (mount,) = (each for each in rendered.container["volumeMounts"] if each["name"] == "rules")
    assert rendered.flags["--config"] == f"{mount['mountPath']}/config.yaml"
    assert rendered.of_kind("ConfigMap") == []
