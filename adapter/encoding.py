"""Answers as bytes: which media type the client wants, and what the documents look like in it.

The documents are msgspec structs whose fields stand in the order in which Kubernetes writes them. An answer is JSON
unless Accept prefers something else that is spoken here. A client that prefers protobuf, as the HPA controller does,
gets JSON with the right Content-Type, which every Kubernetes client reads; it never gets 406, which is for clients
that ask for something that no Kubernetes API speaks, such as text/html.
"""

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from adapter.values import ExternalMetricValue, MetricValue
from kube.quantity import Quantity
from kube.selectors import LabelSelector, Operator
from kube.status import StatusError

__all__ = ["Conversion", "Encoded", "MediaType", "Representation", "custom_list", "external_list"]


class MediaType(enum.Enum):
    """What documents are written as."""

    JSON = "application/json"
    YAML = "application/yaml"


# What may stand in Accept, and what is answered for it; the first is the default.
_SPOKEN = {
    ("application", "json"): MediaType.JSON,
    ("application", "yaml"): MediaType.YAML,
    ("application", "vnd.kubernetes.protobuf"): MediaType.JSON,
}
# Command lines and browsers, which Kubernetes answers with indented JSON.
_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
# metav1.LabelSelector has no "not equal"; it says the same with a list of one.
_EXPRESSION_OPERATORS = {
    Operator.NOT_EQUALS: "NotIn",
    Operator.NOT_IN: "NotIn",
    Operator.IN: "In",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
    Operator.GREATER_THAN: "Gt",
    Operator.LESS_THAN: "Lt",
}
# libyaml's, where PyYAML was built with it: an answer can be long.
_YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NAMES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A body and its Content-Type."""

    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a document is wanted as: Accept's parameters `as`, `g` and `v`."""

    kind: str
    group: str
    version: str

    def __str__(self) -> str:
        return f"g={self.group};v={self.version};as={self.kind}"


@dataclass(frozen=True, slots=True)
class Representation:
    """How one client wants its answers.

    Attributes:
        media_type: what they are written as; None for something that they cannot become, such as a Table.
        pretty: whether JSON is indented.
        conversion: what the document is wanted as, if not as itself.
    """

    media_type: MediaType | None = MediaType.JSON
    pretty: bool = False
    conversion: Conversion | None = None

    @classmethod
    def negotiate(
        cls, accept: str, *, pretty: str = "", user_agent: str = "", offered: Collection[Conversion] = ()
    ) -> Representation:
        """Choose by the Accept header, the `pretty` parameter and, where that is absent, the client's kind.

        A conversion is chosen only where it is `offered`.

        Raises:
            StatusError: 406 if no media type in Accept is spoken here.
        """
        indented = pretty.lower() in ("1", "t", "true") or (not pretty and user_agent.startswith(_PEOPLE))
        clauses = _parse_accept(accept)
        if not clauses:
            return cls(MediaType.JSON, indented)
        spoken = [(clause, media_type) for clause in clauses if (media_type := clause.spoken()) is not None]
        for clause, media_type in spoken:
            if clause.conversion is None or clause.conversion in offered:
                return cls(media_type, indented, clause.conversion)
        if spoken:
            return cls(None, indented)
        raise StatusError(
            406,
            "NotAcceptable",
            f"406: Not Acceptable\n\nAvailable representations: {_NAMES}, application/json;stream=watch, "
            "application/vnd.kubernetes.protobuf;stream=watch",
            details={},
        )

    def encode(self, document: msgspec.Struct | dict[str, Any]) -> Encoded:
        """Write a document.

        Raises:
            StatusError: 406 if it was wanted as something that it cannot become, such as a Table. Kubernetes, too,
                finds that out only once there is an answer.
        """
        if self.media_type is None:
            raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {_NAMES}")
        if self.media_type is MediaType.YAML:
            text: str = yaml.dump(msgspec.to_builtins(document), Dumper=_YAML_DUMPER, allow_unicode=True)
            return Encoded(text.encode(), self._content_type(self.media_type))
        body = msgspec.json.encode(document)
        if self.pretty:
            body = msgspec.json.format(body, indent=2)
        return Encoded(body + b"\n", self._content_type(self.media_type))

    def _content_type(self, media_type: MediaType) -> str:
        return f"{media_type.value};{self.conversion}" if self.conversion else media_type.value

    def encode_error(self, error: StatusError) -> Encoded:
        """Write an error's Status, which every client must be able to read: as JSON where nothing else fits."""
        return Representation(self.media_type or MediaType.JSON, self.pretty).encode(error.body())


@dataclass(frozen=True, slots=True)
class _Clause:
    kind: str
    subtype: str
    quality: float
    conversion: Conversion | None

    def spoken(self) -> MediaType | None:
        """What is answered for it, if anything."""
        for (kind, subtype), media_type in _SPOKEN.items():
            if self.kind in (kind, "*") and self.subtype in (subtype, "*"):
                return media_type
        return None


def _parse_accept(header: str) -> list[_Clause]:
    """The clauses of an Accept header, most wanted first, and wildcards after what they stand for."""
    clauses = []
    for text in header.split(","):
        name, *parameters = (part.strip() for part in text.split(";"))
        kind, slash, subtype = name.lower().partition("/")
        if not slash:
            if kind != "*":
                continue
            subtype = "*"
        values = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in parameters)}
        try:
            quality = float(values.get("q", "1"))
        except ValueError:
            quality = 1.0
        wanted = Conversion(values["as"], values.get("g", ""), values.get("v", "")) if "as" in values else None
        if quality > 0:
            clauses.append(_Clause(kind, subtype, quality, wanted))
    return sorted(clauses, key=lambda clause: (-clause.quality, clause.kind == "*", clause.subtype == "*"))


class _ListMeta(msgspec.Struct):
    pass


class _ObjectReference(msgspec.Struct, omit_defaults=True, rename="camel"):
    kind: str
    namespace: str = ""
    name: str = ""
    api_version: str = ""


class _MetricIdentifier(msgspec.Struct):
    name: str
    selector: dict[str, Any] | None


class _MetricValue(msgspec.Struct, omit_defaults=True, rename="camel"):
    described_object: _ObjectReference
    metric: _MetricIdentifier
    timestamp: str
    value: str
    window_seconds: int | None = None


class _LegacyMetricValue(msgspec.Struct, omit_defaults=True, rename="camel"):
    """An item of v1beta1: the metric's name and selector are not grouped, and the window has another name."""

    described_object: _ObjectReference
    metric_name: str
    timestamp: str
    value: str
    selector: dict[str, Any] | None
    window: int | None = None


class _ExternalMetricValue(msgspec.Struct, omit_defaults=True, rename="camel"):
    metric_name: str
    metric_labels: dict[str, str] | None
    timestamp: str
    value: str
    window: int | None = None


class _List(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    metadata: _ListMeta
    items: list[Any]


def custom_list(version: str, values: Iterable[MetricValue]) -> msgspec.Struct:
    """The MetricValueList of custom.metrics.k8s.io/`version` (v1beta1 or v1beta2)."""
    item = _legacy_item if version == "v1beta1" else _item
    return _List("MetricValueList", f"custom.metrics.k8s.io/{version}", _ListMeta(), [item(value) for value in values])


def external_list(values: Iterable[ExternalMetricValue]) -> msgspec.Struct:
    """The ExternalMetricValueList of external.metrics.k8s.io/v1beta1."""
    items = [
        _ExternalMetricValue(
            metric_name=value.metric,
            metric_labels=None if value.labels is None else dict(value.labels),
            timestamp=_timestamp(int(value.timestamp)),
            value=str(Quantity.from_milli(value.milli)),
            window=value.window_seconds,
        )
        for value in values
    ]
    return _List("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1", _ListMeta(), items)


def _item(value: MetricValue) -> _MetricValue:
    return _MetricValue(
        described_object=_reference(value),
        metric=_MetricIdentifier(value.metric, _selector_object(value.selector)),
        timestamp=_timestamp(int(value.timestamp)),
        value=str(Quantity.from_milli(value.milli)),
        window_seconds=value.window_seconds,
    )


def _legacy_item(value: MetricValue) -> _LegacyMetricValue:
    return _LegacyMetricValue(
        described_object=_reference(value),
        metric_name=value.metric,
        timestamp=_timestamp(int(value.timestamp)),
        value=str(Quantity.from_milli(value.milli)),
        selector=_selector_object(value.selector),
        window=value.window_seconds,
    )


def _reference(value: MetricValue) -> _ObjectReference:
    described = value.described_object
    return _ObjectReference(described.kind, described.namespace, described.name, described.api_version)


@functools.lru_cache(maxsize=64)
def _timestamp(seconds: int) -> str:
    """RFC 3339, as metav1.Time is written. The samples of one answer share few moments, hence the cache."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _selector_object(selector: LabelSelector | None) -> dict[str, Any] | None:
    """A parsed selector as metav1.LabelSelector: equality as matchLabels, everything else as an expression."""
    if selector is None or selector.empty:
        return None
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for requirement in selector.requirements:
        if requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS):
            labels[requirement.key] = requirement.values[0]
            continue
        expression: dict[str, Any] = {"key": requirement.key, "operator": _EXPRESSION_OPERATORS[requirement.operator]}
        if requirement.values:
            expression["values"] = list(requirement.values)
        expressions.append(expression)
    return ({"matchLabels": labels} if labels else {}) | ({"matchExpressions": expressions} if expressions else {})
