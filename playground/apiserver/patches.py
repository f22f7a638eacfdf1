"""Merge patches, strategic merge patches as far as `kubectl apply` and `kubectl set` need them, and JSON patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kube.api.status import bad_request
from playground.apiserver.encoding import decode_body
from playground.apiserver.errors import not_in_the_demo
from playground.apiserver.objects import copy_of
from playground.apiserver.resource_types import ResourceType

# The lists that are merged by a field of their items; all others are replaced.
_MERGE_KEYS: Final = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "initContainers": ("name",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}


def patched(kind: ResourceType, target: Any, content: bytes, content_type: str) -> Any:
    """Return an object with a patch; `target` is not changed.

    Raises:
        StatusError: 400, the patch cannot be applied; 415, another format.
    """
    media_type = content_type.partition(";")[0].strip() or _MERGE
    if media_type.startswith("application/apply-patch"):
        raise not_in_the_demo("it has no server-side apply; leave out --server-side")
    patches = {key: patch for key, patch in _PATCHES.items() if key != _STRATEGIC or not kind.custom}
    patch = decode_body(content, content_type or _MERGE, accepted=tuple(patches))
    try:
        return patches[media_type](target, patch)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise bad_request(f"the patch cannot be applied: {error}") from error


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the patched value; neither argument is changed. See RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge_patch(target: Any, patch: Any) -> Any:
    """Return the patched value; neither argument is changed. The order of merged lists is that of `target`.

    Upstream: k8s.io/apimachinery/pkg/util/strategicpatch.
    """
    if not isinstance(patch, dict):
        return patch
    retained = patch.get("$retainKeys")
    keeps = patch.get("$patch") != "replace" and isinstance(target, dict)
    result = {key: value for key, value in target.items() if retained is None or key in retained} if keeps else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        merge_key = next((one for one in _MERGE_KEYS.get(key, ()) if any(one in item for item in value or ())), None)
        if value is None:
            result.pop(key, None)
        elif merge_key is not None:
            result[key] = _merged_list(result.get(key) or [], value, merge_key)
        else:
            result[key] = strategic_merge_patch(result.get(key), value)
    return result


def _merged_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    items = {item.get(merge_key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item[merge_key], None)
        else:
            items[item[merge_key]] = strategic_merge_patch(items.get(item[merge_key]), item)
    return list(items.values())


def json_patch(target: Any, patch: Any) -> Any:
    """Return the patched value; `target` is not changed. See RFC 6902; without `move` and `copy`."""
    result = copy_of(target)
    for operation in patch:
        parts = operation["path"].split("/")[1:]
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in parts)
        parent: Any = result
        for part in path:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        key = last if isinstance(parent, dict) else len(parent) if last == "-" else int(last)
        match operation["op"]:
            case "add" if isinstance(parent, list):
                parent.insert(key, operation["value"])
            case "add":
                parent[key] = operation["value"]
            case "replace":
                _ = parent[key]  # must exist
                parent[key] = operation["value"]
            case "remove":
                del parent[key]
            case "test":
                if parent[key] != operation["value"]:
                    raise ValueError(f"testing value {operation['path']} failed")
            case other:
                raise not_in_the_demo(f"it has no JSON patches with {other}")
    return result


_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_PATCHES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "application/json-patch+json": json_patch,
    _MERGE: merge_patch,
    _STRATEGIC: strategic_merge_patch,
}
