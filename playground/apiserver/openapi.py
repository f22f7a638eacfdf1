"""OpenAPI, as far as kubectl needs it: `apply` looks for the parameter fieldValidation, and `explain` for schemas.

HorizontalPodAutoscalers and MetricRules have the schemas of manifests/crds, other kinds none.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import yaml

from playground.apiserver.objects import Object
from playground.apiserver.resource_types import RESOURCE_TYPES, ResourceType, resource_types_of

PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The format of /openapi/v2. An empty document has no schemas, with which kubectl before 1.27 validates nothing."""

_CRDS: Final = Path(__file__).resolve().parents[1] / "manifests" / "crds"
_NO_SCHEMA: Final = {
    "type": "object",
    "description": "This is the demo's API server: it has schemas of HorizontalPodAutoscalers and MetricRules only.",
}


def group_versions() -> Object:
    """Return /openapi/v3."""
    paths = dict.fromkeys(_path(kind) for kind in RESOURCE_TYPES)
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=demo"} for path in paths}}


def document(group: str, version: str) -> Object | None:
    """Return /openapi/v3/apis/GROUP/VERSION, or None if it has no resources. Reads files: call it in a thread."""
    kinds = resource_types_of(group, version)
    if not kinds:
        return None
    paths: Object = {}
    for kind in kinds:
        which = {"x-kubernetes-group-version-kind": _group_version_kind(kind)}
        collection = f"/{_path(kind)}/{'namespaces/{namespace}/' * kind.namespaced}{kind.plural}"
        paths[collection] = {"get": which}
        parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        paths[f"{collection}/{{name}}"] = {"patch": {**which, "parameters": [parameter]}}
    schemas = {
        kind.kind: {**_schema(kind), "x-kubernetes-group-version-kind": [_group_version_kind(kind)]} for kind in kinds
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "the demo's API server", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _path(kind: ResourceType) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _group_version_kind(kind: ResourceType) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _schema(kind: ResourceType) -> Object:
    schema = _schemas().get(kind.kind, _NO_SCHEMA)
    if kind.custom or schema is _NO_SCHEMA:
        return schema
    return {**schema, "description": "Scales an object by metrics."}


@cache
def _schemas() -> dict[str, Object]:
    """Return the schemas by kind. That of autoscaling/v2 is the one of milliscale.io/v1 (manifests/crds)."""
    found = {}
    for path in _CRDS.rglob("*.yaml"):
        for entry in yaml.safe_load_all(path.read_text()):
            if entry["kind"] == "CustomResourceDefinition":
                found[entry["spec"]["names"]["kind"]] = entry["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found
