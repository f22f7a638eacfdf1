"""OpenAPI documents at /openapi/v2 and below /openapi/v3, for the API server that merges them into its own.

v3/ has the documents of OpenAPI 3 as JSON, one for each path of the index, named as in Kubernetes' repository. OpenAPI
2 is derived from them. Lists, times and quantities are described in place instead of by reference to Kubernetes' own
definitions. The API server also has those definitions, with other descriptions; of two definitions with the same name
it keeps both and renames one. The documents do not list the metrics.

As in Kubernetes, URLs contain the hash of their document, so that clients can cache the response forever. A URL with an
outdated hash redirects to the current one.
"""

from __future__ import annotations

import email.utils
import functools
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import msgspec

from adapter.content.encoding import Encoded, accepts_json
from kube.api.status import not_acceptable

GroupVersions = tuple[tuple[str, str], ...]

_JSON: Final = "application/json"
_YEAR_SECONDS: Final = 365 * 24 * 3600
_CACHED: Final = 8


class OpenApiDocuments:
    """The documents of the served groups.

    Args:
        served: the groups, as (group, version).
        version: the version of this software, shown in the documents.
    """

    def __init__(self, served: GroupVersions, version: str) -> None:
        groups = dict.fromkeys(group for group, _ in served)
        paths = [f"apis/{group}/{number}" for group, number in served]
        paths += ["apis", *(f"apis/{group}" for group in groups), "version"]
        documents = {path: _read(path, version) for path in paths}
        self._v2 = _encoded(_v2(documents, version))
        self._v3 = {path: _encoded(document) for path, document in sorted(documents.items())}
        addresses = {path: {"serverRelativeURL": _address(path, one)} for path, one in self._v3.items()}
        self._v3[""] = _encoded({"paths": addresses})

    def v2(self, *, accept: str) -> Encoded:
        """Return the OpenAPI 2 document.

        Raises:
            StatusError: 406 if the client does not accept JSON.
        """
        return _acceptable(self._v2, accept)

    def v3(self, path: str, *, given_hash: str, accept: str, now: float) -> Encoded | None:
        """Return an OpenAPI 3 document, or a redirect, which has no tag; None for an unknown path.

        Args:
            path: such as `apis/custom.metrics.k8s.io/v1beta2`; "" is the index.
            given_hash: the hash in the URL, "" for none.
            accept: the Accept header.
            now: seconds since the epoch.

        Raises:
            StatusError: 406 if the client does not accept JSON.
        """
        if path not in self._v3:
            return None
        document = _acceptable(self._v3[path], accept)
        if not path or not given_hash:
            return document
        address = _address(path, document)
        if not address.endswith(f"={given_hash}"):
            return Encoded(b"", _JSON, headers={"Location": address})
        expires = email.utils.formatdate(now + _YEAR_SECONDS, usegmt=True)
        headers = {"Cache-Control": "public, immutable", "Expires": expires}
        return msgspec.structs.replace(document, headers=headers)


@functools.lru_cache(maxsize=_CACHED)
def openapi_documents(served: GroupVersions, version: str) -> OpenApiDocuments:
    """Return the cached OpenApiDocuments of some groups."""
    return OpenApiDocuments(served, version)


def _read(path: str, version: str) -> dict[str, Any]:
    file = resources.files("adapter.openapi") / "v3" / f"{path.replace('/', '__')}_openapi.json"
    document: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    document["info"]["version"] = version
    return document


def _v2(documents: Mapping[str, dict[str, Any]], version: str) -> dict[str, Any]:
    """Return the OpenAPI 2 document with the content of all OpenAPI 3 documents."""
    paths = {
        path: {method: _operation_v2(operation) for method, operation in item.items()}
        for document in documents.values()
        for path, item in document["paths"].items()
    }
    definitions = {
        name: schema for document in documents.values() for name, schema in document["components"]["schemas"].items()
    }
    merged = {
        "swagger": "2.0",
        "info": {"title": "milliscale", "version": version},
        "paths": paths,
        "definitions": definitions,
    }
    text = msgspec.json.encode(merged).replace(b'"#/components/schemas/', b'"#/definitions/')
    v2: dict[str, Any] = msgspec.json.decode(text)
    return v2


def _operation_v2(operation: Mapping[str, Any]) -> dict[str, Any]:
    content = operation["responses"]["200"]["content"]
    schema = next(iter(content.values()))["schema"]
    parameters = [
        {**{key: value for key, value in one.items() if key != "schema"}, "type": one["schema"]["type"]}
        for one in operation["parameters"]
    ]
    return {
        **operation,
        "produces": list(content),
        "parameters": parameters,
        "responses": {"200": {"description": operation["responses"]["200"]["description"], "schema": schema}},
    }


def _encoded(document: Mapping[str, Any]) -> Encoded:
    body = msgspec.json.encode(document) + b"\n"
    return Encoded(body, _JSON, tag=f'"{hashlib.sha512(body).hexdigest().upper()}"')


def _address(path: str, document: Encoded) -> str:
    return f"/openapi/v3/{path}?hash=" + document.tag.strip('"')


def _acceptable(document: Encoded, accept: str) -> Encoded:
    if not accepts_json(accept):
        raise not_acceptable(f"only the following media types are accepted: {_JSON}")
    return document
