"""The three patch formats that Kubernetes takes for built-in kinds: JSON patch, merge patch, strategic merge patch.

Strategic merge is a merge patch that knows that some lists are keyed (the containers of a pod by name, conditions by
type) and understands kubectl's directives ($patch, $setElementOrder, $retainKeys, $deleteFromPrimitiveList). Which list
has which key is a property of each Go type upstream; the field names below are unambiguous for the kinds served here.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from kube.status import StatusError, bad_request
from playground.apiserver.objects import Object

_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
PATCH_TYPES: Final = (_JSON_PATCH, _MERGE_PATCH, _STRATEGIC_MERGE_PATCH)

# The keys of keyed lists, in the order in which they are looked for in an item; lists not named here are replaced.
_MERGE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_MERGED_PRIMITIVES: Final = ("finalizers",)


def apply_patch(content_type: str, obj: Object, patch: Any) -> Object:
    """The patched object; neither argument is changed.

    Raises:
        StatusError: 400, the patch is not of its format; 422, it does not fit the object.
    """
    if content_type == _JSON_PATCH:
        result = _json_patch(obj, patch)
    elif not isinstance(patch, dict):
        raise bad_request("error decoding patch: it must be a JSON object")
    elif content_type == _MERGE_PATCH:
        result = _merge(obj, patch)
    else:
        result = _strategic_merge(obj, patch)
    if not isinstance(result, dict):
        raise bad_request("the patched object is no longer a JSON object")
    return result


def _merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _json_patch(document: Any, patch: Any) -> Any:
    """RFC 6902."""
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    result = copy.deepcopy(document)
    for operation in patch:
        try:
            result = _operate(result, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise StatusError(
                422, "Invalid", f"the server rejected our request due to an error in our request: {operation}"
            ) from error
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, copy.deepcopy(operation["value"]))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            _look_up(document, path)
            return _replace(document, path, copy.deepcopy(operation["value"]))
        case "test":
            if _look_up(document, path) != operation["value"]:
                raise ValueError("test failed")
            return document
        case "copy":
            return _add(document, path, copy.deepcopy(_look_up(document, _pointer(operation["from"]))))
        case "move":
            document, value = _remove(document, _pointer(operation["from"]))
            return _add(document, path, value)
    raise ValueError("unknown operation")


def _pointer(text: str) -> list[str]:
    """RFC 6901."""
    if not text:
        return []
    if not text.startswith("/"):
        raise ValueError("a JSON pointer begins with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _look_up(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(part)] if isinstance(document, list) else document[part]
    return document


def _index(part: str) -> int:
    index = int(part)
    if index < 0:
        raise IndexError(part)
    return index


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _look_up(document, path[:-1]), path[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif _index(last) > len(parent):
        raise IndexError(last)
    else:
        parent.insert(_index(last), value)
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _look_up(document, path[:-1]), path[-1]
    parent[_index(last) if isinstance(parent, list) else last] = value
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    parent, last = _look_up(document, path[:-1]), path[-1]
    return document, parent.pop(_index(last) if isinstance(parent, list) else last)


def _strategic_merge(target: Any, patch: Object) -> Object:
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    kept = patch.get("$retainKeys")
    if kept is not None:
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _strategic_merge(result.get(key), value)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key), value)
        else:
            result[key] = value
    for directive, value in patch.items():
        name, _, field = directive.partition("/")
        if name == "$deleteFromPrimitiveList" and isinstance(result.get(field), list):
            result[field] = [item for item in result[field] if item not in value]
        elif name == "$setElementOrder" and isinstance(result.get(field), list):
            result[field] = _reordered(field, result[field], value)
    return result


def _merge_list(field: str, target: Any, patch: list[Any]) -> list[Any]:
    current = target if isinstance(target, list) else []
    if field in _MERGED_PRIMITIVES:
        return current + [item for item in patch if item not in current]
    key = _merge_key(field, patch)
    if key is None:
        return copy.deepcopy(patch)
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and key not in item for item in patch):
        return [copy.deepcopy(item) for item in patch if "$patch" not in item]
    result = list(current)
    for item in patch:
        place = next((index for index, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(_strategic_merge({}, item))
        else:
            result[place] = _strategic_merge(result[place], item)
    return result


def _merge_key(field: str, items: list[Any]) -> str | None:
    """The key by which this list is merged, or None where it is replaced."""
    for key in _MERGE_KEYS.get(field, ()):
        if all(isinstance(item, dict) and (key in item or item.get("$patch") == "replace") for item in items):
            return key
    return None


def _reordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """`items` in the wanted order; those that it does not name go last."""
    key = _merge_key(field, items)
    wanted = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]

    def place(item: Any) -> int:
        value = item.get(key) if isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    return sorted(items, key=place)
