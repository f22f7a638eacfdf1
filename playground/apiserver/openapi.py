"""OpenAPI, as little as kubectl needs: no schema for any kind, which makes it skip the checks it does on its own side.

kubectl fetches version 2 as protobuf before it validates, applies or explains; an empty document tells it that nothing
is known of any kind. Version 3 is an index without entries.
"""

from __future__ import annotations

from typing import Final

from playground.apiserver.objects import Object

__all__ = ["OPENAPI_V2", "OPENAPI_V2_PROTOBUF", "OPENAPI_V2_PROTOBUF_TYPES", "OPENAPI_V3"]

_TITLE: Final = "Kubernetes"
_VERSION: Final = "v1.36.0"

OPENAPI_V2: Final[Object] = {"swagger": "2.0", "info": {"title": _TITLE, "version": _VERSION}, "paths": {}}
OPENAPI_V3: Final[Object] = {"paths": {}}

# Each spelling has been in use by some kubectl.
OPENAPI_V2_PROTOBUF_TYPES: Final = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)


def _text_field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field, of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


# openapi.v2.Document {swagger = 1, info = 2}, openapi.v2.Info {title = 1, version = 2}
OPENAPI_V2_PROTOBUF: Final = _text_field(1, b"2.0") + _text_field(
    2, _text_field(1, _TITLE.encode()) + _text_field(2, _VERSION.encode())
)
