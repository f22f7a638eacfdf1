"""OpenAPI 2 and 3 as JSON, from the description of the APIs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from adapter.openapi.description import Definition, Operation, Parameter, Schema, Subject

PRODUCES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
"""What the APIs answer with."""

SUBJECT_EXTENSION: Final = "x-kubernetes-group-version-kind"
"""By which Kubernetes' clients find the kind of a schema or an operation."""

ACTION_EXTENSION: Final = "x-kubernetes-action"
TITLE: Final = "milliscale"
OK: Final = "OK"
V2_PREFIX: Final = "#/definitions/"
_V3_PREFIX: Final = "#/components/schemas/"


def openapi_v2(operations: Iterable[Operation], definitions: Iterable[Definition], *, version: str) -> dict[str, Any]:
    """The one document of OpenAPI 2; `version` is this software's."""
    return {
        "swagger": "2.0",
        "info": {"title": TITLE, "version": version},
        "paths": {one.path: {"get": _operation_v2(one)} for one in operations},
        "definitions": {one.name: _definition(one, V2_PREFIX) for one in definitions},
    }


def openapi_v3(operations: Iterable[Operation], definitions: Iterable[Definition], *, version: str) -> dict[str, Any]:
    """A document of OpenAPI 3, of which there is one for each version of a group."""
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": version},
        "paths": {one.path: {"get": _operation_v3(one)} for one in operations},
        "components": {"schemas": {one.name: _definition(one, _V3_PREFIX) for one in definitions}},
    }


def subject_extension(subject: Subject) -> dict[str, str]:
    """A kind, as extensions name it."""
    return {"group": subject.group, "kind": subject.kind, "version": subject.version}


def _operation_v2(operation: Operation) -> dict[str, Any]:
    return {
        "description": operation.description,
        "operationId": operation.identifier,
        "produces": list(PRODUCES),
        "parameters": [_parameter(one) | {"type": "string"} for one in operation.parameters],
        "responses": {"200": {"description": OK, "schema": _schema(operation.result, V2_PREFIX)}},
    } | _extensions(operation)


def _operation_v3(operation: Operation) -> dict[str, Any]:
    content = {media_type: {"schema": _schema(operation.result, _V3_PREFIX)} for media_type in PRODUCES}
    return {
        "description": operation.description,
        "operationId": operation.identifier,
        "parameters": [_parameter(one) | {"schema": {"type": "string"}} for one in operation.parameters],
        "responses": {"200": {"description": OK, "content": content}},
    } | _extensions(operation)


def _extensions(operation: Operation) -> dict[str, Any]:
    if operation.subject is None:
        return {}
    return {ACTION_EXTENSION: operation.action, SUBJECT_EXTENSION: subject_extension(operation.subject)}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    required = {"required": True} if parameter.place == "path" else {}
    return {"name": parameter.name, "in": parameter.place, "description": parameter.description} | required


def _definition(definition: Definition, prefix: str) -> dict[str, Any]:
    written = _schema(definition.schema, prefix)
    if definition.subject is not None:
        written[SUBJECT_EXTENSION] = [subject_extension(definition.subject)]
    return written


def _schema(schema: Schema, prefix: str) -> dict[str, Any]:
    if schema.definition:
        return {"$ref": prefix + schema.definition}
    written: dict[str, Any] = {"type": schema.type}
    if schema.format:
        written["format"] = schema.format
    if schema.description:
        written["description"] = schema.description
    if schema.required:
        written["required"] = list(schema.required)
    if schema.properties:
        written["properties"] = {name: _schema(one, prefix) for name, one in schema.properties}
    if schema.items is not None:
        written["items"] = _schema(schema.items, prefix)
    if schema.values is not None:
        written["additionalProperties"] = _schema(schema.values, prefix)
    return written
