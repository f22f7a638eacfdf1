"""OpenAPI 2 as protobuf: gnostic's openapi.v2.Document, with the field numbers of its OpenAPIv2.proto.

kubectl asks the API server for this form of the whole cluster's document; asked directly, we have it, too. An extension
(`x-...`) is YAML text in it, and JSON is YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from adapter.content.wire import flag, message, string
from adapter.openapi.description import Definition, Operation, Parameter, Schema
from adapter.openapi.documents import (
    ACTION_EXTENSION,
    OK,
    PRODUCES,
    SUBJECT_EXTENSION,
    TITLE,
    V2_PREFIX,
    subject_extension,
)


def encode_v2(operations: Iterable[Operation], definitions: Iterable[Definition], *, version: str) -> bytes:
    """The Document that openapi_v2 writes as JSON."""
    return (
        string(1, "2.0")
        + message(2, string(1, TITLE) + string(2, version))
        + message(8, b"".join(_named(2, one.path, message(2, _operation(one))) for one in operations))
        + message(9, b"".join(_named(1, one.name, _definition(one)) for one in definitions))
    )


def _operation(operation: Operation) -> bytes:
    written = string(3, operation.description) + string(5, operation.identifier)
    written += b"".join(string(6, media_type) for media_type in PRODUCES)
    written += b"".join(message(8, _parameter(one)) for one in operation.parameters)
    response = string(1, OK) + message(2, message(1, _schema(operation.result)))
    written += message(9, _named(1, "200", message(1, response)))
    if operation.subject is not None:
        written += _extension(13, ACTION_EXTENSION, operation.action)
        written += _extension(13, SUBJECT_EXTENSION, subject_extension(operation.subject))
    return written


def _parameter(parameter: Parameter) -> bytes:
    """A ParametersItem: a Parameter that is no body, but a part of the path (4) or of the query (3)."""
    described = string(2, parameter.place) + string(3, parameter.description) + string(4, parameter.name)
    if parameter.place == "path":
        place = message(4, flag(1, is_set=True) + described + string(5, "string"))
    else:
        place = message(3, described + string(6, "string"))
    return message(1, message(2, place))


def _definition(definition: Definition) -> bytes:
    written = _schema(definition.schema)
    if definition.subject is not None:
        written += _extension(31, SUBJECT_EXTENSION, [subject_extension(definition.subject)])
    return written


def _schema(schema: Schema) -> bytes:
    if schema.definition:
        return string(1, V2_PREFIX + schema.definition)
    written = b""
    if schema.format:
        written += string(2, schema.format)
    if schema.description:
        written += string(4, schema.description)
    written += b"".join(string(19, name) for name in schema.required)
    if schema.values is not None:
        written += message(21, message(1, _schema(schema.values)))
    written += message(22, string(1, schema.type))
    if schema.items is not None:
        written += message(23, message(1, _schema(schema.items)))
    if schema.properties:
        written += message(25, b"".join(_named(1, name, _schema(one)) for name, one in schema.properties))
    return written


def _extension(field: int, name: str, value: Any) -> bytes:
    return _named(field, name, string(2, json.dumps(value) + "\n"))


def _named(field: int, name: str, value: bytes) -> bytes:
    """An entry of a map, which gnostic has as a list of names with their values."""
    return message(field, string(1, name) + message(2, value))
