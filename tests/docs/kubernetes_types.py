"""Validate Kubernetes objects by the types of the generated client, which has those of Kubernetes' OpenAPI."""

import re
from collections.abc import Iterator
from typing import Any

PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str, "object": object}

QUANTITIES = {"averageValue", "value"}


def problems(obj: dict[str, Any]) -> list[str]:
    """Return what is wrong with an object of a built-in kind: unknown fields, wrong types, missing required fields."""
    version = obj["apiVersion"].rpartition("/")[2]
    model = _model(f"{version.capitalize()}{obj['kind']}")
    if model is None:
        return [f"no kind {obj['apiVersion']} {obj['kind']}"]
    return list(_value(obj, model.__name__, obj["kind"]))


def _model(name: str) -> Any:
    """Return a type of the client; None if it has no such one. The import takes a second: only when it is needed."""
    from kubernetes_asyncio.client import models

    return getattr(models, name, None)


def _value(value: Any, type_name: str, place: str) -> Iterator[str]:
    if found := re.fullmatch(r"list\[(.*)\]", type_name):
        if not isinstance(value, list):
            yield f"{place}: must be a list"
            return
        for index, item in enumerate(value):
            yield from _value(item, found[1], f"{place}[{index}]")
    elif found := re.fullmatch(r"dict\((.*?), (.*)\)|dict\[(.*?), (.*)\]", type_name):
        if not isinstance(value, dict):
            yield f"{place}: must be a map"
            return
        for key, item in value.items():
            yield from _value(item, found[2] or found[4], f"{place}.{key}")
    elif type_name in PLAIN:
        expected: Any = PLAIN[type_name]
        if not isinstance(value, expected) or (isinstance(value, bool) and type_name not in ("bool", "object")):
            yield f"{place}: must be {type_name}"
    else:
        yield from _fields(value, _model(type_name), place)


def _fields(value: Any, model: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place}: must be a map"
        return
    types = {model.attribute_map[name]: type_name for name, type_name in model.openapi_types.items()}
    for key, item in value.items():
        if key in types:
            is_number = key in QUANTITIES and type(item) is int  # as Kubernetes reads a quantity
            yield from () if is_number else _value(item, types[key], f"{place}.{key}")
        else:
            yield f"{place}: unknown field {key}"
    try:
        model(**{name: value.get(key) for name, key in model.attribute_map.items()})
    except ValueError as error:  # a required field
        yield f"{place}: {error}"
