"""Render the kustomize manifests, also with components, as a user's overlay does."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from playground.binaries import find
from tools.render_chart import FAST_LOADER

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"

Object = dict[str, Any]
Objects = dict[tuple[str, str], Object]


def render_with(folder: Path, *components: str, base: str = "base") -> Objects:
    """Write an overlay with components into a folder, and return its objects by kind and name."""
    root = Path("../" * len(folder.parts[1:])) / MANIFESTS.relative_to("/")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(root / base)],
        "components": [str(root / "components" / name) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    text = subprocess.run([find("kubectl"), "kustomize", folder], check=True, capture_output=True, text=True).stdout
    return {(entry["kind"], entry["metadata"]["name"]): entry for entry in yaml.load_all(text, Loader=FAST_LOADER)}


def definitions(name: str) -> Objects:
    """Return the CustomResourceDefinitions of a folder of manifests/crds; overlays do not contain them."""
    folder = MANIFESTS / "crds" / name
    resources = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    found = [yaml.safe_load((folder / each).read_text()) for each in resources]
    return {(entry["kind"], entry["metadata"]["name"]): entry for entry in found}
