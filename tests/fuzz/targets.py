"""What must be true of each parser for any bytes: it returns or raises its own error, and what it returns can be used.

A target raises anything else for a bug. Nothing is imported that only tests need: `make fuzz` has its own environment.
"""

from __future__ import annotations

import contextlib
import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from adapter import promql
from adapter.content import protobuf
from adapter.content.encoding import Representation, accepts_json
from adapter.content.values import (
    CustomMetricList,
    ExternalMetricList,
    ExternalMetricValue,
    MetricValue,
    ObjectReference,
    to_milli,
)
from adapter.gotemplate import Template, TemplateError, Value
from adapter.prometheus.errors import PrometheusError
from adapter.prometheus.long_responses import ListReader
from adapter.prometheus.results import Vector, VectorReader, decode
from adapter.prometheus.series import SeriesReader
from adapter.rules import RulesError, parse_rules
from adapter.rules.goregex import GoRegex, GoRegexError
from adapter.schedules.cron import Cron
from adapter.schedules.holidays import read_holidays
from autoscaler.core.history import LONG_AGO_MS
from autoscaler.core.quantities import canonical_quantity
from autoscaler.loop import histories
from autoscaler.objects.hpa import default_hpa, track_hpa
from autoscaler.objects.validation import validate_hpa
from autoscaler.objects.workloads import parse_owned, parse_scale, parse_workload, track_pod
from kube.api.objects import ParseError
from kube.api.status import StatusError
from kube.security.authentication import ANONYMOUS, Authenticator, FrontProxyUsers, RawHeaders, User
from kube.security.request_info import RequestInfo, Target
from kube.security.trust import CertificateBundle, ClientTrust, FrontProxy
from kube.values.durations import DurationError, format_duration, parse_duration
from kube.values.field_selectors import FieldSelector, FieldSelectorError
from kube.values.quantity import Quantity, QuantityError
from kube.values.selectors import LabelSelector, SelectorError
from tests.golden.protobuf import decode_protobuf
from tests.restricted_queries import assert_restricted

_INT64 = range(-(2**63), 2**63)
_LABELS: tuple[dict[str, str], ...] = ({}, {"app": "web"}, {"app": "", "tier": "1"})
_QUERY_FIELDS: dict[str, Value] = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="ns",pod=~"a|b"',
    "LabelValuesByName": {"namespace": "ns", "pod": "a|b"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}
_RULE_BYTES = 64 * 1024
_PROXY = FrontProxy(
    ca=CertificateBundle("", ()),
    allowed_names=frozenset(),
    username_headers=("x-remote-user",),
    group_headers=("x-remote-group",),
    uid_headers=("x-remote-uid",),
    extra_prefixes=("x-remote-extra-",),
)
_ZONE = ZoneInfo("Europe/Berlin")
_NOW_MS = 1_800_000_000_000


@dataclass(frozen=True, slots=True)
class FuzzTarget:
    """A function that reads bytes, and the most that it is given."""

    name: str
    read: Callable[[bytes], None]
    max_bytes: int = 4096


def quantity(data: bytes) -> None:
    """Values fit 64 bits, and the canonical form is a quantity whose canonical form is itself."""
    with contextlib.suppress(QuantityError):
        parsed = Quantity.parse(_text(data))
        assert parsed.milli_value() in _INT64
        assert parsed.value() in _INT64
        assert not math.isnan(parsed.as_float())
        # Kubernetes loses the exponent of numbers above 1000E, and writes thousands of digits of others.
        with contextlib.suppress(QuantityError):
            canonical = canonical_quantity(_text(data))
            assert canonical_quantity(str(Quantity.parse(canonical))) == str(Quantity.parse(canonical))


def selector(data: bytes) -> None:
    """A selector's text is a selector for the same labels; durations and field selectors are read beside it."""
    text = _text(data)
    with contextlib.suppress(SelectorError):
        parsed = LabelSelector.parse(text)
        again = LabelSelector.parse(str(parsed))
        assert [parsed.matches(labels) for labels in _LABELS] == [again.matches(labels) for labels in _LABELS]
    with contextlib.suppress(FieldSelectorError):
        FieldSelector.parse(text).matches(name="web", namespace="ns")
    with contextlib.suppress(DurationError):
        format_duration(parse_duration(text))
    with contextlib.suppress(SelectorError):
        LabelSelector.from_object(_json(data))


def template(data: bytes) -> None:
    """A template renders a text, or says what is wrong with it."""
    with contextlib.suppress(TemplateError):
        assert isinstance(Template(_text(data), fields=tuple(_QUERY_FIELDS)).render(_QUERY_FIELDS), str)


def rules(data: bytes) -> None:
    """A rules file is read, or refused with one line that names it."""
    try:
        parse_rules(_text(data), source="rules.yaml")
    except RulesError as error:
        assert "\n" not in str(error)
        assert "rules.yaml" in str(error)


def calendar(data: bytes) -> None:
    """A calendar of holidays is refused, or has holidays in any year."""
    with contextlib.suppress(ValueError):
        found = read_holidays(_text(data), _ZONE)
        for since in (0, 1_774_569_600, 4_000_000_000):
            for start, end in found.spans(since, since + 30 * 86_400):
                assert start <= end


def cron(data: bytes) -> None:
    """A cron expression is refused, or has a next and a previous time within five years, or none."""
    with contextlib.suppress(ValueError):
        expression = Cron(_text(data), _ZONE)
        following = expression.next(1_774_569_600)
        assert following is None or expression.previous(following) == following > 1_774_569_600


def promql_query(data: bytes) -> None:
    """A query is parsed and examined; so is a regular expression."""
    text = _text(data)
    with contextlib.suppress(promql.PromqlError):
        tree = promql.parse(text)
        promql.result_labels(tree)
        promql.can_be_nan(tree)
        for one in promql.selectors(tree):
            promql.matchers(one)
    with contextlib.suppress(GoRegexError):
        regex = GoRegex(text[:200])
        regex.matches(text)
        regex.expand("$1_${0}", text)


def tenant_query(data: bytes) -> None:
    """A query of a namespace's rule is refused, or each of its selectors gets the namespace."""
    for restrict in (promql.restrict_query, promql.restrict_selector):
        with contextlib.suppress(promql.PromqlError):
            restricted = restrict(_text(data), label="namespace", value="shop")
            assert_restricted(restricted, matcher='namespace="shop"')
            assert restrict(restricted, label="namespace", value="shop") == restricted


def accept(data: bytes) -> None:
    """Any Accept header chooses an encoding, or is refused with 406; an error can be sent in each case."""
    text = _text(data)
    try:
        Representation.negotiate(text).encode({"kind": "List"})
    except StatusError as error:
        assert error.code == 406
        Representation.for_error(text).encode_error(error)
    accepts_json(text)


def protobuf_documents(data: bytes) -> None:
    """A standard decoder reads back the values that were encoded, whatever the texts are."""
    texts = [*_text(data).split("\0"), "", "", "", ""]
    number = int.from_bytes(data[:8], "big", signed=True)
    labels = {key: value for key, value in zip(texts[3::2], texts[4::2], strict=False) if key or value}
    external = ExternalMetricValue(
        metric=texts[0], labels=labels, timestamp=number & 0xFFFFFFFF, window_seconds=None, milli=number
    )
    (item,) = decode_protobuf(protobuf.encode(ExternalMetricList([external])))["items"]
    assert (item.get("metricName", ""), item.get("metricLabels", {})) == (texts[0], labels)
    described = ObjectReference(api_version="v1", kind=texts[1], namespace=texts[2], name=texts[0])
    custom = MetricValue(
        described_object=described,
        metric=texts[1],
        selector=None,
        timestamp=number & 0xFFFFFFFF,
        window_seconds=number & 0xFFFF,
        milli=number,
    )
    for version in ("v1beta1", "v1beta2"):
        (item,) = decode_protobuf(protobuf.encode(CustomMetricList(version, [custom])))["items"]
        found = item["describedObject"]
        assert (found.get("kind", ""), found.get("namespace", ""), found.get("name", "")) == (
            described.kind,
            described.namespace,
            described.name,
        )


def status(data: bytes) -> None:
    """The error of any response of an API server can be sent on, as JSON and as protobuf."""
    error = StatusError.from_body(500, data)
    msgspec.json.decode(Representation().encode_error(error).body)
    protobuf.encode_error(error)


def front_proxy_headers(data: bytes) -> None:
    """The front proxy's headers name a user that a review can hold; without its certificate they name nobody."""
    headers = _headers(data)
    users = FrontProxyUsers(_PROXY)
    with contextlib.suppress(StatusError):
        user = users.user(headers)
        assert user == users.user(headers)
        if user is not None:
            assert user.name
            msgspec.json.encode(user)
    authenticator = Authenticator(ClientTrust, _NoTokens(), clock=lambda: 0.0)  # type: ignore[arg-type]
    with contextlib.suppress(StatusError):
        assert _result(authenticator.authenticate(None, headers)) == ANONYMOUS


def request_line(data: bytes) -> None:
    """A request's attributes follow from its decoded path, which has no empty segments, dots or control characters."""
    with contextlib.suppress(StatusError):
        target = Target.parse(data.decode("utf-8", "surrogateescape"))
        assert not {"", ".", ".."} & set(target.segments)
        info = RequestInfo.of("GET", target)
        if info.is_resource:
            parts = [info.namespace, info.resource, info.subresource]
            assert all(part in target.segments for part in parts if part)
        msgspec.json.encode(info)


def prometheus(data: bytes) -> None:
    """Samples are read, or there is a PrometheusError; in pieces they are those of the whole."""
    try:
        whole = decode(data)
    except PrometheusError:
        whole = None
    in_pieces = _in_pieces(VectorReader(), data)
    if isinstance(whole, Vector):
        for sample in whole.samples:
            to_milli(sample.value)
            msgspec.json.encode(sample)
        if in_pieces is not None:
            assert repr(in_pieces.value.samples) == repr(whole.samples)  # by their texts, as NaN differs from itself
    _in_pieces(SeriesReader(), data)


def saved_history(data: bytes) -> None:
    """A saved history is restored or refused, and never has samples of the future."""
    content = data if data.startswith(b"\x1f\x8b") else gzip.compress(data, 0, mtime=0)
    with contextlib.suppress(histories.SavedHistoryError):
        entries = histories.decode(content, now_ms=_NOW_MS)
        for entry in entries.values():
            history = entry.history
            times = [sample.time_ms for sample in history.recommendations]
            times += [sample.time_ms for sample in (*history.scale_up_events, *history.scale_down_events)]
            assert all(LONG_AGO_MS <= time <= _NOW_MS for time in times)
        histories.encode(entries, now_ms=_NOW_MS)


def kubernetes_object(data: bytes) -> None:
    """Any JSON is an HPA, a pod or a scale, or none; what is read can be encoded."""
    raw = _json(data)
    hpa = track_hpa(raw)
    if hpa is not None:
        msgspec.json.encode(hpa.status, enc_hook=str)
    track_pod(raw)
    if isinstance(raw, dict):
        for parse in (validate, default_hpa, parse_scale, parse_workload, parse_owned):
            with contextlib.suppress(ParseError):
                parse(raw)


def validate(raw: dict[str, Any]) -> None:
    """Check an HPA as the API server does."""
    assert all(isinstance(error, str) for error in validate_hpa(raw, scale_to_zero=True))


TARGETS = {
    target.name: target
    for target in (
        FuzzTarget("quantity", quantity, 64),
        FuzzTarget("selector", selector, 512),
        FuzzTarget("template", template, 1024),
        FuzzTarget("rules", rules, _RULE_BYTES),
        FuzzTarget("calendar", calendar, 2048),
        FuzzTarget("cron", cron, 64),
        FuzzTarget("promql", promql_query, 1024),
        FuzzTarget("tenant-query", tenant_query, 1024),
        FuzzTarget("accept", accept, 1024),
        FuzzTarget("protobuf", protobuf_documents),
        FuzzTarget("status", status),
        FuzzTarget("headers", front_proxy_headers, 2048),
        FuzzTarget("request-line", request_line, 1024),
        FuzzTarget("prometheus", prometheus, 16 * 1024),
        FuzzTarget("saved-history", saved_history, 16 * 1024),
        FuzzTarget("objects", kubernetes_object, 16 * 1024),
    )
}


class _NoTokens:
    """Reviews tokens: none is valid."""

    async def review(self, token: str) -> User | None:
        token.encode()  # a review is JSON
        return None


def _in_pieces(reader: ListReader[Any], data: bytes) -> Any:
    size = 1 + len(data) // 7
    try:
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
        return reader.finish()
    except PrometheusError:
        return None


def _result(coroutine: Any) -> Any:
    """Return the result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits")


def _headers(data: bytes) -> RawHeaders:
    """Headers as aiohttp has them: names are tokens, values have no line ends."""
    pairs = (line.partition(b":")[::2] for line in data.replace(b"\r", b"").split(b"\n"))
    return tuple((name, value) for name, value in pairs if name and name.isascii() and b" " not in name)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "ignore")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
