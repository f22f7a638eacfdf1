"""The chart and the kustomize manifests install the same objects for the same choice."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.choices import BASE_VALUES, CHOICES
from tests.helm_engine import render
from tests.manifests.rendering import MANIFESTS, Objects, definitions, render_with
from tools.render_chart import objects

# What Helm adds to an object.
HELM_KEYS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "checksum/config",  # kustomize adds the hash to the ConfigMap's name instead
    "helm.sh/chart",
    "helm.sh/resource-policy",
}


def without_helm(value: Any) -> Any:
    """Return a part of an object without the keys that Helm adds, and without annotations that are empty then."""
    if isinstance(value, list):
        return [without_helm(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: without_helm(item) for key, item in value.items() if key not in HELM_KEYS}
    return {key: item for key, item in kept.items() if (key, item) != ("annotations", {})}


def without_hash(value: Any, name: str) -> Any:
    """Return a part of an object with the rules' name as it was before kustomize added the hash."""
    if isinstance(value, list):
        return [without_hash(item, name) for item in value]
    if isinstance(value, dict):
        return {key: without_hash(item, name) for key, item in value.items()}
    return "milliscale-rules" if value == name else value


def rights(rules: list[dict[str, list[str]]]) -> set[tuple[str, ...]]:
    """Return each right of a role, whatever rule it is in."""
    keys = ("apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs")
    return {right for rule in rules for right in product(*(rule.get(key, [""]) for key in keys))}


def comparable(found: Objects) -> Objects:
    """Return the objects by kind and name, with rules files and rights as data. Helm creates no Namespace."""
    hashed = [name for kind, name in found if kind == "ConfigMap" and name.startswith("milliscale-rules")]
    same = {}
    for entry in found.values():
        entry = without_helm(without_hash(entry, hashed[0]) if hashed else entry)
        if "rules.yaml" in entry.get("data", {}):
            entry["data"] = yaml.safe_load(entry["data"]["rules.yaml"])
        if entry["kind"] in ("ClusterRole", "Role"):
            entry["rules"] = rights(entry["rules"])
        if entry["kind"] == "Deployment":
            # Several components set the flag --tenant-label.
            for container in entry["spec"]["template"]["spec"]["containers"]:
                container["args"] = list(dict.fromkeys(container["args"]))
        same[entry["kind"], entry["metadata"]["name"]] = entry
    same.pop(("Namespace", "milliscale"), None)
    return same


@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("name", CHOICES)
def test_helm_and_kustomize_render_the_same_objects(name: str, tmp_path: Path) -> None:
    choice = CHOICES[name]
    applied = render_with(tmp_path, *choice.components, base=choice.base)
    if choice.base == "overlays/managed":
        applied |= definitions("")
    if "metric-rules" in choice.components:
        applied |= definitions("metric-rules")
    theirs = comparable(applied)
    rendered = objects(render({**BASE_VALUES, **choice.values}))
    ours = comparable({(entry["kind"], entry["metadata"]["name"]): entry for entry in rendered})
    assert ours.keys() == theirs.keys()
    assert len(rendered) == len(ours)
    for key in theirs:
        assert ours[key] == theirs[key]


@pytest.mark.parametrize("kind", ["overlays", "components"])
def test_each_overlay_and_component_is_compared(kind: str) -> None:
    compared = {choice.base for choice in CHOICES.values()} | {
        f"components/{name}" for choice in CHOICES.values() for name in choice.components
    }
    existing = {f"{kind}/{folder.name}" for folder in (MANIFESTS / kind).iterdir() if folder.is_dir()}
    assert existing - compared <= {"overlays/example"}  # a template for the user's own
