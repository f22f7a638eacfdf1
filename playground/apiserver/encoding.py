"""Bodies in and out: JSON (and YAML in), and the two shorter forms of objects that clients may ask for.

A client names what it can read in its Accept header, best first. Objects go out as they are, as a Table for
`kubectl get`, or as PartialObjectMetadata for those that need no more. Protobuf, which Kubernetes' own components like
better, never goes out; all of them also name JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import yaml

from kube.status import bad_request, not_acceptable
from playground.apiserver.errors import unsupported_media_type
from playground.apiserver.objects import Object
from playground.apiserver.protobuf import PROTOBUF, decode_protobuf

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_ACCEPTED_BODIES: Final = (_JSON, _YAML, PROTOBUF)
_META_GROUP: Final = "meta.k8s.io"
_META_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which objects are wanted; `version` is that of meta.k8s.io."""

    kind: Literal["", "Table", "PartialObjectMetadata"] = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """Of the form itself."""
        return f"{_META_GROUP}/{self.version}"


def negotiate(accept: str) -> Form:
    """The first form in an Accept header that is served.

    Raises:
        StatusError: 406, there is none.
    """
    for entry in accept.split(",") if accept.strip() else ["*/*"]:
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media_type not in (_JSON, "*/*", "application/*"):
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
    raise not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {_JSON}, {_JSON};stream=watch")


def decode_body(content: bytes, content_type: str, *, accepted: tuple[str, ...] = _ACCEPTED_BODIES) -> Any:
    """The body of a request; `content_type` may carry parameters.

    Raises:
        StatusError: 415, another format; 400, it cannot be read.
    """
    media_type = content_type.partition(";")[0].strip() or _JSON
    if media_type not in accepted:
        raise unsupported_media_type(accepted)
    if media_type == PROTOBUF:
        return decode_protobuf(content)
    try:
        return yaml.safe_load(content) if media_type == _YAML else msgspec.json.decode(content)
    except (msgspec.DecodeError, yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error


def encode(obj: Object) -> bytes:
    """An object as JSON."""
    return msgspec.json.encode(obj)
