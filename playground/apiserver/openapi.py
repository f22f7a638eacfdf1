"""OpenAPI, as little as kubectl needs: which kinds are there, and no schema for any of them.

kubectl fetches version 2, as protobuf, before it validates or applies; an empty document tells it that nothing is known
of any kind, and it skips the checks that it does on its own side. In version 3 newer kubectls look whether the server
can do a dry run of a kind.
"""

from __future__ import annotations

from typing import Final

from playground.apiserver.objects import Object
from playground.apiserver.resource_types import RESOURCE_TYPES, ResourceType, resource_types_of

_INFO: Final = {"title": "Kubernetes", "version": "v1.36.0"}

OPENAPI_V2: Final[Object] = {"swagger": "2.0", "info": _INFO, "paths": {}}
OPENAPI_V2_PROTOBUF_TYPES: Final = (
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
)
"""Both spellings are asked for; the first one is a valid media type and goes out."""


def _text_field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field, of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


# openapi.v2.Document {swagger = 1, info = 2}, openapi.v2.Info {title = 1, version = 2}
OPENAPI_V2_PROTOBUF: Final = _text_field(1, b"2.0") + _text_field(
    2, b"".join(_text_field(number, text.encode()) for number, text in enumerate(_INFO.values(), start=1))
)


def openapi_v3_index() -> Object:
    """/openapi/v3: where the documents of the group versions are."""
    paths = dict.fromkeys(_root(kind) for kind in RESOURCE_TYPES)
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi_v3(group: str, version: str) -> Object | None:
    """The document of one group version, or None where it is not served here."""
    kinds = resource_types_of(group, version)
    if not kinds:
        return None
    return {"openapi": "3.0.0", "info": _INFO, "paths": {_item_path(kind): _item(kind) for kind in kinds}}


def _root(kind: ResourceType) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _item_path(kind: ResourceType) -> str:
    namespace = "namespaces/{namespace}/" if kind.namespaced else ""
    return f"/{_root(kind)}/{namespace}{kind.plural}/{{name}}"


def _item(kind: ResourceType) -> Object:
    what = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    dry_run = {"name": "dryRun", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    return {"patch": {"x-kubernetes-group-version-kind": what, "parameters": [dry_run], "responses": {}}}
