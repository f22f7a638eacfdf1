"""OpenAPI 2 as protobuf: gnostic's openapi.v2.Document, with the field numbers of its OpenAPIv2.proto.

Covers what the documents here have. An extension (`x-...`) is YAML text in it, and JSON is YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adapter.content.protobuf import integer, message, string


def encode_v2(document: Mapping[str, Any]) -> bytes:
    """Encode an OpenAPI 2 document."""
    info = string(1, document["info"]["title"]) + string(2, document["info"]["version"])
    paths = (_named(2, path, message(2, _operation(item["get"]))) for path, item in document["paths"].items())
    definitions = (_named(1, name, _schema(schema)) for name, schema in document["definitions"].items())
    return (
        string(1, document["swagger"])
        + message(2, info)
        + message(8, b"".join(paths))
        + message(9, b"".join(definitions))
    )


def _operation(operation: Mapping[str, Any]) -> bytes:
    response = operation["responses"]["200"]
    encoded = message(1, string(1, response["description"]) + message(2, message(1, _schema(response["schema"]))))
    return (
        string(3, operation["description"])
        + string(5, operation["operationId"])
        + b"".join(string(6, media_type) for media_type in operation["produces"])
        + b"".join(message(8, _parameter(parameter)) for parameter in operation["parameters"])
        + message(9, _named(1, "200", encoded))
        + _extensions(13, operation)
    )


def _parameter(parameter: Mapping[str, Any]) -> bytes:
    """Encode a ParametersItem with a Parameter that is part of the path (4) or of the query (3)."""
    described = string(2, parameter["in"]) + string(3, parameter["description"]) + string(4, parameter["name"])
    if parameter["in"] == "path":
        place = message(4, integer(1, 1) + described + string(5, parameter["type"]))
    else:
        place = message(3, described + string(6, parameter["type"]))
    return message(1, message(2, place))


def _schema(schema: Mapping[str, Any]) -> bytes:
    encoded = b"".join(
        string(field, schema[key]) for field, key in ((1, "$ref"), (2, "format"), (4, "description")) if key in schema
    )
    encoded += b"".join(string(19, name) for name in schema.get("required", ()))
    if "additionalProperties" in schema:
        encoded += message(21, message(1, _schema(schema["additionalProperties"])))
    if "type" in schema:
        encoded += message(22, string(1, schema["type"]))
    if "items" in schema:
        encoded += message(23, message(1, _schema(schema["items"])))
    if "properties" in schema:
        properties = (_named(1, name, _schema(one)) for name, one in schema["properties"].items())
        encoded += message(25, b"".join(properties))
    return encoded + _extensions(31, schema)


def _extensions(field: int, described: Mapping[str, Any]) -> bytes:
    found = ((name, msgspec.json.encode(value).decode()) for name, value in described.items() if name.startswith("x-"))
    return b"".join(_named(field, name, string(2, f"{text}\n")) for name, text in found)


def _named(field: int, name: str, value: bytes) -> bytes:
    """Encode an entry of a map, which gnostic has as a list of names with their values."""
    return message(field, string(1, name) + message(2, value))
