"""Requests and responses of routes, and helpers that most routes use.

The parameters of every Kubernetes list request are validated even if they have no effect here. The errors are those of
metav1.ListOptions' conversion in k8s.io/apimachinery.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec
from aiohttp import hdrs
from cachetools import LRUCache
from multidict import CIMultiDictProxy

from adapter.content.encoding import Conversion, Encodable, Encoded, Representation
from adapter.content.values import CUSTOM_GROUP, EXTERNAL_GROUP, INCLUDED
from adapter.metrics.requests import CustomMetricRequest, ExternalMetricRequest
from adapter.settings import DEFAULTS
from kube.api import status
from kube.api.status import StatusError, bad_request
from kube.security.request_info import Query, RequestInfo, Target
from kube.values.durations import DurationError, parse_duration
from kube.values.field_selectors import FieldSelector, FieldSelectorError
from kube.values.fields import invalid, quote
from kube.values.names import OLDER_LABEL_WORDS
from kube.values.selectors import LabelSelector, SelectorError

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 20
_INT64 = range(-(2**63), 2**63)
_MATCHES = ("Exact", "NotOlderThan", "")
_MATCH = "resourceVersionMatch"
_ANY_FIELDS = FieldSelector.parse("")
_T = TypeVar("_T")
_LINE_BYTES = 1_000
_BYTES_OF_CHARACTER = 30
# Selectors of up to this length are cached, a few kilobytes each.
_SHORT_SELECTOR = 256
_SELECTORS = 4_096
# Encoding this many values takes 1 ms as JSON and 30 ms as YAML; a thread costs 0.1 ms.
_MANY = 500


NOT_GUESSED = {"X-Content-Type-Options": "nosniff"}
"""The headers of a text that browsers must not take for HTML."""


class RequestLine(msgspec.Struct, eq=False):
    """The method and target of a request, parsed. It is cached and shared by requests.

    Attributes:
        method: the HTTP method.
        target: the path and query.
        info: the attributes for authorization.
        is_public: no authentication is needed.
        is_exempt: the limit on requests in flight does not apply: a busy process must pass its probes, and without
            discovery the API server marks the whole API as unavailable.
        timeout: the client's timeout in seconds, infinite if it has none.
        timeout_error: what is wrong with the client's timeout, if anything.
        length: of the raw target, in characters.
        metric: the request for a metric; the router parses it at the first request.
    """

    method: str
    target: Target
    info: RequestInfo
    is_public: bool
    is_exempt: bool
    timeout: float
    timeout_error: str | None
    length: int
    metric: CustomMetricRequest | ExternalMetricRequest | None = None


class RequestLines:
    """Parses request lines; controllers send the same ones every 15 seconds."""

    def __init__(self, is_public: Callable[[str], bool], max_bytes: int = DEFAULTS.caches.requests_bytes) -> None:
        """`is_public` returns True for a path without authentication; `max_bytes` is the size of the cache."""
        self._is_public = is_public
        self._cache: LRUCache[tuple[str, str], RequestLine] = LRUCache(max_bytes, getsizeof=_size)

    def parse(self, method: str, raw_target: str) -> RequestLine:
        """Parse a request line. Raises StatusError 400, as Target.parse."""
        key = (method, raw_target)
        try:
            return self._cache[key]
        except KeyError:
            pass
        target = _own_path(Target.parse(raw_target))
        info = RequestInfo.of(method, target)
        is_public = self._is_public(target.path)
        is_discovery = target.segments[:1] == ("apis",) and not info.is_resource
        timeout, error = _timeout(target)
        line = RequestLine(method, target, info, is_public, is_public or is_discovery, timeout, error, len(raw_target))
        self._cache[key] = line
        return line


def _own_path(target: Target) -> Target:
    """Return /debug/metrics/RESOURCE/METRIC for that path below a metrics API, where the API server forwards it.

    It is authorized as such a path: the right to all metrics does not include how they are made. The path of no metric
    has so many segments.
    """
    segments = target.segments
    if len(segments) == 7 and segments[1] in (CUSTOM_GROUP, EXTERNAL_GROUP) and segments[3:5] == ("debug", "metrics"):
        return Target("/" + "/".join(segments[3:]), target.query)
    return target


def _size(line: RequestLine) -> int:
    """Estimate the bytes of a cached line. Many short parameters are the worst case."""
    return _LINE_BYTES + _BYTES_OF_CHARACTER * line.length


def _timeout(target: Target) -> tuple[float, str | None]:
    text = target.query.get("timeout")
    try:
        seconds = parse_duration(text) if text else 0.0
    except DurationError as error:
        return 0.0, f"invalid timeout specified in the request URL - time: {error.what}"
    return seconds if seconds > 0 else float("inf"), None


class Request(msgspec.Struct, eq=False):
    """A request that has been authorized.

    Attributes:
        line: its method and target.
        headers: its headers.
        deadline: when the response is due, by the event loop's clock.
    """

    line: RequestLine
    headers: CIMultiDictProxy[str]
    deadline: float

    @property
    def target(self) -> Target:
        """The path and query."""
        return self.line.target

    @property
    def info(self) -> RequestInfo:
        """The attributes that were authorized."""
        return self.line.info

    @property
    def accept(self) -> str:
        """The Accept header."""
        return accept(self.headers)

    @property
    def known_tags(self) -> Collection[str]:
        """The entity tags of responses that the client has."""
        return [tag.strip() for tag in self.headers.get(hdrs.IF_NONE_MATCH, "").split(",")]

    def representation(self, offered: Collection[Conversion] = (), *, streamed: bool = True) -> Representation:
        """Negotiate the encoding of the response, and its conversion to one of the `offered` forms.

        `streamed` is False for responses other than resources. Raises StatusError 406.
        """
        return Representation.negotiate(
            accept(self.headers),
            pretty=self.line.target.query.get("pretty"),
            user_agent=self.headers.get(hdrs.USER_AGENT, ""),
            offered=offered,
            streamed=streamed,
        )

    def require_get(self, *others: str) -> None:
        """Refuse other methods than GET and `others`. Raises StatusError 405."""
        if self.line.method != "GET" and self.line.method not in others:
            raise method_not_allowed()

    def label_selector(self, parameter: str) -> LabelSelector:
        """Parse the label selector in a parameter. Raises StatusError 400 in prometheus-adapter's words."""
        text = self.line.target.query.get(parameter)
        try:
            return _cached_selector(text) if len(text) <= _SHORT_SELECTOR else _selector(text)
        except SelectorError as error:
            raise bad_request(str(error)) from error


class Response(msgspec.Struct, frozen=True):
    """A response; `retry_after` is in seconds, if the client should try again."""

    status: int
    content: Encoded
    retry_after: int | None = None


def accept(headers: CIMultiDictProxy[str]) -> str:
    """Return the Accept header; several ones are joined."""
    values = headers.getall(hdrs.ACCEPT, ())
    return values[0] if len(values) == 1 else ",".join(values)


async def encode_list(
    representation: Representation, values: Sequence[_T], document: Callable[[Sequence[_T]], Encodable]
) -> Encoded:
    """Encode the document of some values; in a thread if there are many, so that the event loop is not blocked.

    Raises:
        StatusError: 406, as Representation.encode.
    """
    if len(values) < _MANY:
        return representation.encode(document(values))
    return await asyncio.to_thread(lambda: representation.encode(document(values)))


def method_not_allowed() -> StatusError:
    """Return a 405 with Kubernetes' message."""
    return status.method_not_allowed("the server does not allow this method on the requested resource")


def no_such_resource() -> StatusError:
    """Return a 404 with Kubernetes' message for paths inside an API."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def _selector(text: str) -> LabelSelector:
    return LabelSelector.parse(text, words=OLDER_LABEL_WORDS)


_cached_selector = lru_cache(maxsize=_SELECTORS)(_selector)


def check_numbers(query: Query) -> None:
    """Refuse a `limit` or `timeoutSeconds` that is no number. Raises StatusError 400."""
    for parameter in ("limit", "timeoutSeconds"):
        if parameter not in query:
            continue
        text = query.get(parameter)
        if _INTEGER.fullmatch(text) is None:
            raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
        if len(text.lstrip("+-0")) > _MAX_DIGITS or int(text) not in _INT64:
            raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: value out of range")


def check_list(query: Query) -> None:
    """Refuse contradictory parameters, as the API server does for every list. Raises StatusError 422."""
    forbidden = "FieldValueForbidden"
    causes = []
    match, version = query.get(_MATCH), query.get("resourceVersion")
    if match and not version:
        causes.append((_MATCH, forbidden, f"{_MATCH} is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        causes.append((_MATCH, forbidden, f"{_MATCH} is forbidden when continue is provided"))
    if match not in _MATCHES:
        supported = ", ".join(map(quote, _MATCHES))
        causes.append((_MATCH, "FieldValueNotSupported", f"{quote(match)}: supported values: {supported}"))
    if match == "Exact" and version == "0":
        causes.append((_MATCH, forbidden, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(("sendInitialEvents", forbidden, "sendInitialEvents is forbidden for list"))
    if causes:
        raise _invalid_options(causes)


def field_selector(query: Query) -> FieldSelector:
    """Return the `fieldSelector`. Raises StatusError 400 if it is invalid."""
    text = query.get("fieldSelector")
    if not text:
        return _ANY_FIELDS
    try:
        return FieldSelector.parse(text)
    except FieldSelectorError as error:
        raise bad_request(str(error)) from error


def included_object(query: Query) -> str:
    """Return `includeObject`: how much of its object a row includes. Raises StatusError 400 for other values."""
    text = query.get("includeObject")
    if text and text not in INCLUDED:
        why = invalid("includeObject", text, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return text or INCLUDED[0]


def check_requested_name(query: Query, name: str) -> None:
    """Refuse a `fieldSelector` for another name than the path's. Raises StatusError 400."""
    selector = field_selector(query)
    if selector.terms and selector.exact_name() != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")


def _invalid_options(causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """Return the error for invalid parameters; a cause is (parameter, reason, message)."""
    words = {"FieldValueForbidden": "Forbidden", "FieldValueNotSupported": "Unsupported value"}
    described = [(field, reason, f"{words[reason]}: {text}") for field, reason, text in causes]
    each = [f"{field}: {text}" for field, _, text in described]
    all_of_them = each[0] if len(each) == 1 else f"[{', '.join(each)}]"
    return status.invalid(
        f'ListOptions.meta.k8s.io "" is invalid: {all_of_them}',
        details={
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": reason, "message": text, "field": field} for field, reason, text in described],
        },
    )
