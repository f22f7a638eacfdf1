"""What is answered at /openapi/v2 and below /openapi/v3, made once for each set of groups that is served.

As in Kubernetes, an address with the hash of its document never changes what it means, so that clients may keep the
answer for ever; one with another hash leads to the right one.
"""

from __future__ import annotations

import email.utils
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from adapter.content.encoding import Encoded, preferred
from adapter.openapi.description import describe, describe_common
from adapter.openapi.documents import openapi_v2, openapi_v3
from adapter.openapi.protobuf import encode_v2
from kube.status import not_acceptable

GroupVersions = tuple[tuple[str, str], ...]

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# The second spelling is no valid media type, and is what clients ask for; the first one goes out.
_PROTOBUF_SPELLINGS: Final = (_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
_YEAR_SECONDS: Final = 365 * 24 * 3600
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class OpenApiPage:
    """A document and its entity tag; `location` instead, where it is at another address.

    Attributes:
        content: the document.
        tag: its entity tag.
        location: the path where it is; "" for here.
        is_final: whether it will never be another one at this address.
    """

    content: Encoded
    tag: str = ""
    location: str = ""
    is_final: bool = False

    def headers(self, *, now: float) -> dict[str, str]:
        """Those that go out beside the usual ones; `now` is in seconds since the epoch."""
        if self.location:
            return {"Location": self.location}
        if self.is_final:
            expires = email.utils.formatdate(now + _YEAR_SECONDS, usegmt=True)
            return {"Cache-Control": "public, immutable", "Expires": expires}
        return {}


class OpenApiPages:
    """Finds the pages.

    Args:
        version: this software's, for the documents.
    """

    def __init__(self, version: str) -> None:
        self._published = functools.lru_cache(maxsize=_KEPT)(lambda served: _Published(served, version))

    def v2(self, served: GroupVersions, *, accept: str) -> OpenApiPage:
        """The one document of version 2 for what is served, (group, version) each.

        Raises:
            StatusError: 406 if the client takes neither JSON nor protobuf.
        """
        published = self._published(served)
        page = preferred(accept, {_JSON: published.v2, **dict.fromkeys(_PROTOBUF_SPELLINGS, published.v2_protobuf)})
        return _acceptable(page, f"{_JSON}, {_PROTOBUF}")

    def v3(self, served: GroupVersions, path: str, *, given_hash: str, accept: str) -> OpenApiPage | None:
        """A document of version 3, such as that of `apis/custom.metrics.k8s.io/v1beta2`; "" is the index of all.

        None where there is no such document.

        Raises:
            StatusError: 406 if the client does not take JSON.
        """
        found = self._published(served).v3.get(path)
        if found is None:
            return None
        page = _acceptable(preferred(accept, {_JSON: found}), _JSON)
        right_hash = page.tag.strip('"')
        if not path or not given_hash:
            return page
        if given_hash != right_hash:
            return OpenApiPage(Encoded(b"", _JSON), location=_address(path, right_hash))
        return OpenApiPage(page.content, page.tag, is_final=True)


class _Published:
    """The pages for one set of versions of groups."""

    def __init__(self, served: GroupVersions, version: str) -> None:
        apis = {f"apis/{group}/{number}": describe(group, number) for group, number in served}
        common = describe_common(dict.fromkeys(group for group, _ in served))
        operations = [*(one for found, _ in apis.values() for one in found), *common.values()]
        definitions = [one for _, found in apis.values() for one in found]
        self.v2 = _page(openapi_v2(operations, definitions, version=version))
        self.v2_protobuf = _tagged(Encoded(encode_v2(operations, definitions, version=version), _PROTOBUF))
        documents = {path: openapi_v3(*found, version=version) for path, found in apis.items()}
        documents |= {path: openapi_v3([one], (), version=version) for path, one in common.items()}
        self.v3 = {path: _page(document) for path, document in sorted(documents.items())}
        addresses = {path: _address(path, page.tag.strip('"')) for path, page in self.v3.items()}
        self.v3[""] = _page({"paths": {path: {"serverRelativeURL": address} for path, address in addresses.items()}})


def _page(document: Mapping[str, Any]) -> OpenApiPage:
    return _tagged(Encoded(msgspec.json.encode(document) + b"\n", _JSON))


def _tagged(content: Encoded) -> OpenApiPage:
    return OpenApiPage(content, f'"{hashlib.sha512(content.body).hexdigest().upper()}"')


def _address(path: str, document_hash: str) -> str:
    return f"/openapi/v3/{path}?hash={document_hash}"


def _acceptable(page: OpenApiPage | None, names: str) -> OpenApiPage:
    if page is None:
        raise not_acceptable(f"only the following media types are accepted: {names}")
    return page
