"""Requests in the terms of authorization and routing. Upstream: k8s.io/apiserver/pkg/endpoints/request.RequestInfo.

Not shared with the adapter's own parser, so that the tests compare two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES: Final = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request."""

    verb: str
    """The API verb for a resource, else the HTTP method in lower case."""
    path: str
    """The decoded path."""
    is_resource: bool = False
    """Whether it names a resource; the following attributes are empty otherwise."""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    """The name of the object; also where a fieldSelector asks for exactly one."""
    subresource: str = ""

    @classmethod
    def parse(cls, method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
        """Read a method, a percent-encoded path and the query parameters."""
        path = unquote(raw_path)
        parts = [unquote(part) for part in raw_path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) >= 3:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 4:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return cls(method.lower(), path)
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 1:
            namespace = rest[1]
            if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
                rest = rest[2:]
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        verb = _VERBS.get(method, method.lower())
        selected = name or _one_name(query.get("fieldSelector", ""))
        if not name:
            verb = _collection_verb(verb, query)
        if verb not in ("list", "watch", "deletecollection"):
            selected = name
        return cls(verb, path, True, group, version, namespace, rest[0], selected, subresource)

    @property
    def counted_as(self) -> str:
        """The resource with its subresource, as RBAC rules name it: "deployments/scale"."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def _collection_verb(verb: str, query: Mapping[str, str]) -> str:
    if verb == "get":
        return "watch" if _is_true(query.get("watch")) else "list"
    return "deletecollection" if verb == "delete" else verb


def _is_true(value: str | None) -> bool:
    return value is not None and value.lower() not in ("false", "0")


def _one_name(field_selector: str) -> str:
    """Return the name if a field selector selects one object by name, else ""."""
    for term in field_selector.split(","):
        key, _, value = term.partition("=")
        if key == "metadata.name":
            return value.removeprefix("=")
    return ""
