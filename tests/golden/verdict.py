"""Compare a response with the expected one.

Permitted differences are first removed from both: times, values within their tolerance, the order of discovery
(which Go takes from a map), addresses and hashes. Then everything must be the same.
"""

from __future__ import annotations

import datetime
import json
import re
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kube.values.quantity import Quantity, QuantityError
from tests.conformance.comparison import difference
from tests.golden.bodies import BodyError, read_body
from tests.golden.cases import Case
from tests.golden.environment import Reply
from tests.golden.expected import NOT_KEPT, OWN, Expected

_SHOWN: Final = 500
_COMPRESSED_FROM: Final = 128 * 1024
_SECONDS_ASIDE: Final = 600.0
_LONGEST_QUERY_SECONDS: Final = 60.0
_OUR_NAMESPACE: Final = re.compile(r"ns-\w+|big")
_ADDRESS: Final = re.compile(r"\b(?:127\.0\.0\.1|localhost)\b")


def differences(case: Case, expectation: Expected, reply: Reply) -> list[str]:
    """Return how a response differs from the expected one; empty if it does not."""
    if reply.status not in expectation.statuses:
        message = " ".join(reply.body[:400].decode(errors="replace").split()) if not reply.encoding else "(compressed)"
        return [f"status: expected {' or '.join(map(str, expectation.statuses))}, got {reply.status}: {message}"]
    return [
        *_in_headers(case, expectation, reply),
        *_in_body(case, expectation, reply),
        *_in_queries(case, expectation, reply),
    ]


def _in_headers(case: Case, expectation: Expected, reply: Reply) -> Iterator[str]:
    expected, got = expectation.content_type, reply.content_type
    if expected.startswith("text/plain; version="):  # Prometheus' text format, of which there are several versions
        expected, got = (re.sub(r"; version=.*", "; version=", text) for text in (expected, got))
    if expected != got:
        yield f"Content-Type: expected {expected!r}, got {got!r}"
    accepts_gzip = "gzip" in (case.header("Accept-Encoding") or "")
    compressed = "gzip" if accepts_gzip and case.size >= _COMPRESSED_FROM else ""
    if reply.encoding != compressed:
        yield f"Content-Encoding: expected {compressed!r}, got {reply.encoding!r}"


def _in_body(case: Case, expectation: Expected, reply: Reply) -> Iterator[str]:
    try:
        got = read_body(reply.content_type, reply.body, encoding=reply.encoding)
    except BodyError as error:
        yield str(error)
        return
    if expectation.document is NOT_KEPT:
        yield from _in_unrecorded(case, got)
        return
    if expectation.says:
        yield from _in_own_message(expectation, got)
    expected = _without_hashes(_sorted(expectation.document))
    found = difference(expected, _settled(expected, _without_hashes(_sorted(got)), expectation))
    if found is not None:
        yield from (textwrap.shorten(line, _SHOWN, placeholder=" ...") for line in found.splitlines())
        yield from _in_names(expected, got, part=expectation.part)
    yield from _in_form(case, expectation, reply)


def _in_form(case: Case, expectation: Expected, reply: Reply) -> Iterator[str]:
    """Compare the indentation of JSON (the recorded size shows it); indented JSON ends without a newline, as in Go."""
    if case.document is None or "(shown: only" in case.title or reply.status != case.status:
        return
    compact = json.dumps(case.document, separators=(",", ":"), ensure_ascii=False).encode()
    was_indented, is_indented = case.size > len(compact) + 2, b'\n  "' in reply.body
    if was_indented is not is_indented:
        yield f"the body is {'' if is_indented else 'not '}indented"
    elif is_indented and reply.body.endswith(b"\n"):
        yield "the body ends with a newline"


def _in_names(expected: Any, got: Any, *, part: bool) -> Iterator[str]:
    """Which entries of a list are missing, and which should not be there; a list's own difference is hard to read."""
    if not isinstance(expected, Mapping) or not isinstance(got, Mapping):
        return
    for key, entries in expected.items():
        if isinstance(entries, list) and isinstance(got.get(key), list):
            names, others = ({str(_name(entry)) for entry in some} for some in (entries, got[key]))
            yield from (f"{key}: {name} is missing" for name in sorted(names - others))
            if not part:
                yield from (f"{key}: {name} should not be there" for name in sorted(others - names))


def _in_own_message(expectation: Expected, got: Any) -> Iterator[str]:
    message = got.get("message") if isinstance(got, Mapping) else None
    if not isinstance(message, str):
        yield f"message: expected one, got {message!r}"
        return
    yield from (
        f"message: expected it to have {text!r}, got {message!r}" for text in expectation.says if text not in message
    )
    if _ADDRESS.search(message):
        yield f"message: it shows an address to clients: {message!r}"


def _in_unrecorded(case: Case, got: Any) -> Iterator[str]:
    """Bodies that were too long to be recorded: at least they are of their kind."""
    if case.segments[:1] == ("metrics",):
        metric = "kubernetes_healthcheck{" if case.segments[1:] == ("slis",) else "apiserver_request_total{"
        if metric not in got:
            yield f"the body has no {metric}"
    elif case.segments[:1] == ("openapi",) and isinstance(got, str):
        if not got:
            yield "the body is empty"
    elif case.segments[:1] == ("openapi",):
        groups = ("/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io")
        below = ("/" + "/".join(case.segments[2:]),) if case.segments[1] == "v3" else groups
        version = got.get("openapi", "") if case.segments[1] == "v3" else got.get("swagger", "")
        if not str(version).startswith("3." if case.segments[1] == "v3" else "2."):
            yield f"it is no OpenAPI {case.segments[1]} document: its version is {version!r}"
        for path in below:
            if not any(str(one).startswith(path) for one in got.get("paths", ())):
                yield f"paths: there is none below {path}"
    else:
        yield "the recording does not have this body, and nothing here can judge it"


def _in_queries(case: Case, expectation: Expected, reply: Reply) -> Iterator[str]:
    own = _seconds(case.query.get("timeout"))
    for one in reply.queries:
        seconds = _seconds(one.timeout)
        if seconds is None or not 0 < seconds <= _LONGEST_QUERY_SECONDS:
            yield f"Prometheus was told no deadline for {one.query}: timeout={one.timeout!r}"
        elif own is not None and seconds > own:
            yield f"Prometheus was told a deadline after the request's own for {one.query}: timeout={one.timeout!r}"
    queries = tuple(dict.fromkeys(one.query for one in reply.queries))
    if expectation.queries is not None and [*map(_common, queries)] != [*map(_common, expectation.queries)]:
        yield f"PromQL: expected {' and '.join(expectation.queries) or 'none'}"
        yield f"        got      {' and '.join(queries) or 'none'}"


def _common(query: str) -> str:
    """A query without the namespaces that each cluster has of itself, where a list of all namespaces stands in it."""

    def ours(found: re.Match[str]) -> str:
        return "|".join(name for name in found[0].split("|") if _OUR_NAMESPACE.fullmatch(name))

    return re.sub(r'(?<=namespace=~")[^"]*', ours, query)


def _seconds(text: str | None) -> float | None:
    try:
        if text is not None and text.endswith("ms"):
            return float(text.removesuffix("ms")) / 1000
        return None if text is None else float(text.removesuffix("s"))
    except ValueError:
        return None


def _sorted(document: Any) -> Any:
    """With the entries of discovery in the order of their names."""
    if isinstance(document, Mapping) and document.get("kind") == "APIResourceList":
        return {
            **document,
            "resources": sorted(document.get("resources", ()), key=lambda entry: str(entry.get("name"))),
        }
    return document


def _without_hashes(document: Any) -> Any:
    """OpenAPI v3's index has a hash of each document."""
    if isinstance(document, Mapping):
        return {
            key: re.sub(r"\?hash=[0-9A-F]{128}$", "?hash=", value)
            if key == "serverRelativeURL" and isinstance(value, str)
            else _without_hashes(value)
            for key, value in document.items()
        }
    return document


def _settled(expected: Any, got: Any, expectation: Expected, key: str = "") -> Any:
    """What was got, with what was expected in the place of everything that may differ."""
    if expected == OWN and isinstance(got, str):
        return expected
    if key == "timestamp" and _is_plausible_time(got):
        return expected
    if key == "serverAddress" and isinstance(got, str) and re.fullmatch(r":\d+|[\w.]+:\d+", got):
        return expected
    if key == "value" and _is_close(expected, got, expectation.tolerance):
        return expected
    if key == "message" and expectation.says and isinstance(got, str):
        return expected
    if expectation.part and isinstance(expected, str) and isinstance(got, str):
        return expected if set(expected.splitlines()) <= set(got.splitlines()) else got
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        keys = [one for one in got if one in expected or not expectation.part]
        return {one: _settled(expected.get(one), got[one], expectation, one) for one in keys}
    if isinstance(expected, list) and isinstance(got, list):
        if expectation.part:
            names = [_name(entry) for entry in expected]
            got = [entry for entry in got if _name(entry) in names]
            if any(isinstance(entry, Mapping) and {"resource", "subresource"} & set(entry) for entry in expected):
                got.sort(key=lambda entry: names.index(_name(entry)))  # as in ordinary discovery, any order will do
        if len(expected) == len(got):
            return [_settled(one, other, expectation) for one, other in zip(expected, got, strict=True)]
    return got


def _name(entry: Any) -> Any:
    """What identifies an entry of a list."""
    if not isinstance(entry, Mapping):
        return entry
    named = entry.get("metadata") or entry.get("describedObject") or entry
    keys = ("version", "resource", "subresource", "metricLabels")
    return named.get("name") or next((entry[key] for key in keys if entry.get(key)), None)


def _is_plausible_time(value: Any) -> bool:
    """Some minutes ago, in either of the two forms; or in the first minutes of 1970, as in canned responses."""
    if isinstance(value, Mapping):
        seconds = value.get("seconds")
    else:
        try:
            seconds = datetime.datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC).timestamp()
        except (ValueError, TypeError):
            return False
    return isinstance(seconds, (int, float)) and (abs(seconds - time.time()) < _SECONDS_ASIDE or seconds < 60)


def _is_close(expected: Any, got: Any, tolerance: float) -> bool:
    try:
        expectation, value = (Quantity.parse(text).milli_value() for text in (expected, got))
    except (QuantityError, TypeError, AttributeError):
        return False
    if tolerance == 0:
        return bool(expected == got)
    return abs(expectation - value) <= tolerance * abs(expectation)
