"""JSON bodies, and the forms of objects that clients ask for in their Accept header.

Objects are sent as they are, as a Table for `kubectl get`, or as PartialObjectMetadata. Clients that prefer protobuf
also accept JSON, and get that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from kube.api.status import bad_request, not_acceptable
from playground.apiserver import protobuf
from playground.apiserver.errors import not_in_the_demo, unsupported_media_type
from playground.apiserver.objects import Object

JSON: Final = "application/json"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_META_GROUP: Final = "meta.k8s.io"
_META_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of objects in a response; `version` is that of meta.k8s.io."""

    kind: Literal["", "Table", "PartialObjectMetadata"] = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion of the form."""
        return f"{_META_GROUP}/{self.version}"


def negotiate(accept: str) -> Form:
    """Return the first form in an Accept header that is served.

    Raises:
        StatusError: 406, there is none.
    """
    for entry in accept.split(",") if accept.strip() else ["*/*"]:
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media_type not in (JSON, "*/*", "application/*"):
            continue
        wanted = options.get("as", "")
        if not wanted:
            return Form()
        if options.get("g") != _META_GROUP or options.get("v") not in _META_VERSIONS:
            continue
        if wanted == "Table":
            return Form("Table", options["v"])
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Form("PartialObjectMetadata", options["v"])
    raise not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {JSON}, {JSON};stream=watch")


def decode_body(content: bytes, content_type: str, *, accepted: Sequence[str] = (JSON,)) -> Any:
    """Decode the body of a request; `content_type` may have parameters.

    Raises:
        StatusError: 415 or 501, another format; 400, malformed JSON.
    """
    media_type = content_type.partition(";")[0].strip()
    if media_type == _PROTOBUF:
        found = protobuf.decode(content)
        if found is None:
            raise not_in_the_demo(
                "it reads JSON, and this command of kubectl sends protobuf; "
                "add `--dry-run=client -o yaml | kubectl apply -f -`"
            )
        return found
    if media_type and media_type not in accepted:
        raise unsupported_media_type(accepted)
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request cannot be decoded: {error}") from error


def encode(obj: Object) -> bytes:
    """Encode an object as JSON."""
    return msgspec.json.encode(obj)
