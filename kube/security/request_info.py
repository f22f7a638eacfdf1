"""The attributes of a request for authorization: verb, group, resource, subresource, name, namespace.

They are derived from the method and the path, and access rules refer to them. Routing interprets the same segments in
the same way, so that the returned object is the authorized one. Two forms of Kubernetes are not supported, because
these APIs do not have them: a verb in the path (/watch/..., /proxy/...), and subresources of a namespace
(/namespaces/NAME/status).

Upstream: request.RequestInfoFactory
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, unquote_plus

import msgspec

from kube.api.status import bad_request
from kube.values.field_selectors import FieldSelector, FieldSelectorError

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = ("list", "watch", "deletecollection")
_MAX_PARAMETERS = 1000
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Query:
    """The query parameters of a request, decoded, in order."""

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, raw: str) -> Query:
        """Decode what follows the `?`, as Go's net/url does.

        A part with a semicolon, or with an invalid `%` escape, is ignored, and bytes that are not UTF-8 become U+FFFD:
        clients may send parameters that are not used here, and errors in these must not matter.

        Raises:
            StatusError: 400 for too many parameters.
        """
        if raw.count("&") >= _MAX_PARAMETERS:
            raise bad_request(f"the query has more than {_MAX_PARAMETERS} parameters")
        if not raw.isascii():  # bytes that are not escaped, of which those that are not UTF-8 are surrogates
            raw = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        pairs = []
        for part in raw.split("&"):
            if part and ";" not in part and not _NO_ESCAPE.search(part):
                name, _, value = part.partition("=")
                pairs.append((unquote_plus(name, errors="replace"), unquote_plus(value, errors="replace")))
        return cls(tuple(pairs))

    def get(self, name: str, default: str = "") -> str:
        """The first value of a parameter."""
        values = self._by_name.get(name)
        return values[0] if values else default

    def getall(self, name: str) -> tuple[str, ...]:
        """Every value of a parameter."""
        return tuple(self._by_name.get(name, ()))

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {}
        for name, value in self.pairs:
            values.setdefault(name, []).append(value)
        return values


@dataclass(frozen=True)
class Target:
    """The target of a request line, decoded: `path` begins with a slash, `segments` are what is between the slashes."""

    path: str
    query: Query

    @classmethod
    def parse(cls, raw: str) -> Target:
        """Decode the path and query of a request line.

        Raises:
            StatusError: 400 for an invalid path: bytes that are not UTF-8, control characters, segments that are empty,
                `.` or `..`, an invalid `%` escape. Also as Query.parse.
        """
        raw_path, _, raw_query = raw.partition("?")
        if _NO_ESCAPE.search(raw_path):
            raise bad_request("invalid request path")
        try:
            path = unquote(raw_path, errors="strict")
        except ValueError as error:
            raise bad_request("invalid request path: it is not UTF-8") from error
        target = cls(path, Query.parse(raw_query))
        if not path.startswith("/") or not path.isprintable() or {"", ".", ".."} & set(target.segments):
            raise bad_request("invalid request path")
        return target

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The path's segments; slashes at its ends do not count."""
        stripped = self.path.strip("/")
        return tuple(stripped.split("/")) if stripped else ()


class RequestInfo(msgspec.Struct, frozen=True, cache_hash=True):
    """The attributes that authorization decides on."""

    verb: str
    """`get`, `list`, `create` ... for a resource; the lower-case method for any other path."""
    path: str
    """The decoded path."""
    is_resource: bool = False
    """Whether this is a resource request; the following fields are empty if not."""
    group: str = ""
    """The API group."""
    version: str = ""
    """The API version."""
    namespace: str = ""
    """The namespace, or "" if the path has none."""
    resource: str = ""
    """The resource; `*` has no special meaning."""
    subresource: str = ""
    """The segments after the name."""
    name: str = ""
    """The object's name, which for a list may stand in its field selector."""

    @classmethod
    def of(cls, method: str, target: Target) -> RequestInfo:
        """Derive the attributes as Kubernetes does."""
        segments = target.segments
        if len(segments) < 4 or segments[0] != "apis":
            return cls(verb=method.lower(), path=target.path)
        group, version, parts = segments[1], segments[2], segments[3:]
        verb = _VERBS.get(method, "")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 1:
            namespace = parts[1]
            parts = parts[2:] or parts
        name = parts[1] if len(parts) > 1 else ""
        if not name:
            if verb == "get":
                verb = "watch" if _is_true(target.query, "watch") else "list"
            elif verb == "delete":
                verb = "deletecollection"
            if verb in _COLLECTION_VERBS:
                name = _selected_name(target.query)
        return cls(
            verb=verb,
            path=target.path,
            is_resource=True,
            group=group,
            version=version,
            namespace=namespace,
            resource=parts[0],
            subresource=parts[2] if len(parts) > 2 else "",
            name=name,
        )


def _selected_name(query: Query) -> str:
    """Return the only name that a list request can return, so the right to it is enough; "" if there are others."""
    try:
        name = FieldSelector.parse(query.get("fieldSelector")).exact_name()
    except FieldSelectorError:
        return ""
    return name if name and name not in (".", "..") and not {"/", "%"} & set(name) else ""


def _is_true(query: Query, parameter: str) -> bool:
    """Parse a boolean parameter like Kubernetes: everything but `false` and `0` is true, even an empty value."""
    return parameter in query and query.get(parameter).lower() not in ("0", "false")
