"""Decode bodies of responses by their media type, so that the same response is equal in every media type."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, Final

import yaml

from tests.golden.cases import Case
from tests.golden.protobuf import PROTOBUF, decode_protobuf

_BASE64: Final = "base64: "


class BodyError(ValueError):
    """A body is not what its headers say."""


def read_body(content_type: str, body: bytes, *, encoding: str = "") -> Any:
    """The document in a body of JSON (also where it says that it is text), YAML or protobuf; the text of any other.

    Raises:
        BodyError: it cannot be read.
    """
    media_type = content_type.partition(";")[0]
    if not body:  # the response to HEAD
        return ""
    try:
        if encoding == "gzip":
            body = gzip.decompress(body)
        match media_type:
            case "application/json":
                return json.loads(body)
            case "application/yaml":
                return yaml.safe_load(body)
            case _ if media_type == PROTOBUF:
                return decode_protobuf(body)
        return json.loads(body) if body.startswith(b"{") else body.decode(errors="replace")
    except (ValueError, OSError, EOFError, yaml.YAMLError) as error:
        raise BodyError(f"the body is no {media_type}: {error}") from error


def recorded_document(case: Case) -> Any:
    """Return the recorded document or text; None if it was not kept."""
    if case.text is None:
        return case.document if case.size else ""
    body = case.text.encode()
    if case.text.startswith(_BASE64):
        body = base64.b64decode(case.text.removeprefix(_BASE64))
    return read_body(case.content_type, body)
