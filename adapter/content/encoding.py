"""Content negotiation and encoding.

JSON is the default; YAML and protobuf, which the HPA controller prefers, are chosen by Accept. Only lists of metrics,
documents of metrics.k8s.io and errors have a protobuf form; any other document is sent as JSON to a client that prefers
protobuf, since every such client reads JSON. A client that accepts only other media types, such as text/html, gets 406.
"""

from __future__ import annotations

import enum
import gzip
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
import yaml

from adapter.content import protobuf
from adapter.content.values import Document
from kube.api.status import StatusError

Encodable = msgspec.Struct | dict[str, Any]
"""A document: a list of metric values, or anything that msgspec can encode."""

COMPRESS_FROM = 128 * 1024
"""Bodies of fewer bytes are not compressed. Upstream: responsewriters.defaultGzipThresholdBytes"""
_GZIP_LEVEL = 1  # Kubernetes'


class MediaType(enum.Enum):
    """The media types of documents."""

    JSON = "application/json"
    YAML = "application/yaml"
    PROTOBUF = "application/vnd.kubernetes.protobuf"


_PROTOBUF = MediaType.PROTOBUF.value
_SPOKEN = frozenset(media_type.value for media_type in MediaType)
# Command lines and browsers, which get indented JSON from Kubernetes.
_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
# libyaml's dumper if PyYAML was built with it, because responses can be long.
_YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NAMES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_FORM = ("as", "g", "v")
# Results of negotiation are cached for this many Accept headers of up to this length.
_SHORT_ACCEPT = 512
_ACCEPTS = 256


class Encoded(msgspec.Struct, frozen=True):
    """An encoded document."""

    body: bytes
    """Its bytes."""
    content_type: str
    """Its media type."""
    tag: str = ""
    """Its entity tag; "" for none."""
    gzip: bytes | None = None
    """The compressed bytes, if it is long and cached; None: it is compressed when it is sent."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Further headers; they replace the common ones of the same names."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The requested form of a document: Accept's parameters `as`, `g` and `v`."""

    kind: str
    group: str
    version: str

    def __str__(self) -> str:
        return f"g={self.group};v={self.version};as={self.kind}"


@dataclass(frozen=True, slots=True)
class Representation:
    """How a response is encoded."""

    media_type: MediaType | None = MediaType.JSON
    """The media type of the response; None if the requested form, such as a Table, is not available."""
    pretty: bool = False
    """Indent JSON."""
    conversion: Conversion | None = None
    """The requested form of the document; None: unchanged."""

    @classmethod
    def negotiate(
        cls,
        accept: str,
        *,
        pretty: str = "",
        user_agent: str = "",
        offered: Collection[Conversion] = (),
        streamed: bool = True,
    ) -> Representation:
        """Choose by the Accept header and the `pretty` parameter, true by default for browsers and curl.

        A conversion is chosen only if it is `offered`. With `streamed`, an error also lists the media types of watches,
        as it does for all resources.

        Raises:
            StatusError: 406 if Accept has no supported media type. As in Kubernetes, it must name one literally,
                or `*/*`.
        """
        indented = pretty.lower() in ("1", "t", "true") or (not pretty and user_agent.startswith(_PEOPLE))
        if not accept:
            return cls(MediaType.JSON, indented)
        negotiate = _negotiated if len(accept) <= _SHORT_ACCEPT else _negotiate
        return negotiate(accept, tuple(offered), indented, streamed)

    @classmethod
    def for_error(cls, accept: str) -> Representation:
        """Choose for an error, which is sent even if the client accepts no supported media type."""
        return cls.chosen(accept) if accept else cls()

    @classmethod
    def chosen(cls, accept: str, *, indented: bool = False, offered: Collection[Conversion] = ()) -> Representation:
        """Return the first available form in Accept; if none is available, an unavailable one, for the error."""
        for clause in _parse_accept(accept):
            media_type = next(filter(clause.accepts, MediaType), None)
            if media_type is not None and (clause.conversion is None or clause.conversion in offered):
                return cls(media_type, indented or clause.pretty, clause.conversion)
        return cls(None, indented)

    def require_form(self) -> None:
        """Refuse an unavailable form before the document is made. Raises StatusError 406."""
        if self.media_type is None:
            raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {_NAMES}")

    def encode(self, document: Encodable) -> Encoded:
        """Encode a document.

        Raises:
            StatusError: 406 if the requested form is not available, such as a Table. As in Kubernetes, this is checked
            only when the response is written.
        """
        self.require_form()
        if isinstance(document, Document):
            if self.media_type is MediaType.PROTOBUF:
                return Encoded(protobuf.encode(document), _PROTOBUF)
            document = document.document()
        if self.media_type is MediaType.YAML:
            text: str = yaml.dump(msgspec.to_builtins(document), Dumper=_YAML_DUMPER, allow_unicode=True)
            return Encoded(text.encode(), self._content_type(self.media_type))
        body = msgspec.json.encode(document)
        # Go ends a compact document with a newline, and an indented one without.
        body = msgspec.json.format(body, indent=2) if self.pretty else body + b"\n"
        return Encoded(body, self._content_type(MediaType.JSON))

    def _content_type(self, media_type: MediaType) -> str:
        return f"{media_type.value};{self.conversion}" if self.conversion else media_type.value

    def encode_error(self, error: StatusError) -> Encoded:
        """Encode an error's Status; as indented JSON if the client accepts no supported media type."""
        if self.media_type is MediaType.PROTOBUF:
            return Encoded(protobuf.encode_error(error), self.media_type.value)
        fallback = Representation(MediaType.JSON, pretty=True)
        return (Representation(self.media_type, self.pretty) if self.media_type else fallback).encode(error.body())


def _negotiate(accept: str, offered: tuple[Conversion, ...], indented: bool, streamed: bool) -> Representation:
    if not _names_one(accept):
        raise _not_acceptable(f"{_NAMES}, {_STREAMS}" if streamed else _NAMES)
    return Representation.chosen(accept, indented=indented, offered=offered)


_negotiated = lru_cache(maxsize=_ACCEPTS)(_negotiate)


@dataclass(frozen=True, slots=True)
class _Clause:
    kind: str
    subtype: str
    quality: float
    pretty: bool
    conversion: Conversion | None

    def accepts(self, media_type: MediaType) -> bool:
        """Return whether this clause names a media type, or a wildcard for it."""
        kind, _, subtype = media_type.value.partition("/")
        return self.kind in (kind, "*") and self.subtype in (subtype, "*")


def compress(body: bytes) -> bytes:
    """Compress a body with gzip. For use in a thread: zlib releases the GIL, but a MiB takes 10 ms."""
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


def accepts_json(accept: str) -> bool:
    """Return whether a client accepts JSON, be it by a wildcard or without a usable Accept header."""
    clauses = _parse_accept(accept)
    return not clauses or any(clause.accepts(MediaType.JSON) for clause in clauses)


def require_json(accept: str) -> None:
    """Refuse a client that does not accept JSON. Raises StatusError 406."""
    json = MediaType.JSON.value
    if accept and not _names_one(accept, (json,)):
        raise _not_acceptable(json)


def _names_one(accept: str, offered: Collection[str] = _SPOKEN) -> bool:
    names = (clause.partition(";")[0].strip(" ") for clause in accept.split(","))
    return any(name == "*/*" or name in offered for name in names)


def _not_acceptable(names: str) -> StatusError:
    return StatusError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {names}", details={})


def _parse_accept(header: str) -> list[_Clause]:
    """Parse an Accept header into clauses: highest quality first, and among equals wildcards last."""
    clauses = []
    for text in header.split(","):
        name, *parameters = (part.strip() for part in text.split(";"))
        kind, slash, subtype = name.partition("/")
        if not slash:
            if kind != "*":
                continue
            subtype = "*"
        values = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in parameters)}
        try:
            quality = float(values.get("q", "1"))
        except ValueError:
            quality = 1.0
        wanted = Conversion(*(values.get(key, "") for key in _FORM)) if values.keys() & set(_FORM) else None
        clauses.append(_Clause(kind, subtype, quality, values.get("pretty") == "1", wanted))
    return sorted(clauses, key=lambda clause: (-clause.quality, clause.kind == "*", clause.subtype == "*"))
