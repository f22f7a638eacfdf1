"""The errors of Prometheus; the package's docstring has the tree."""

from __future__ import annotations

from typing import Final

import msgspec

from adapter.upstream import UpstreamConfigError
from kube.values.printable import printable

# Of a longer text, the beginning and the end: VictoriaMetrics quotes the query before it says why.
_BEGINNING, _END = 100, 300


class PrometheusError(Exception):
    """Prometheus sent no usable response."""


class PrometheusUnavailable(PrometheusError):
    """Prometheus sent no response, or a temporary refusal."""


class PrometheusBusy(PrometheusUnavailable):
    """Too many queries of the same namespace ("" for none) wait already; nothing was sent."""

    def __init__(self, namespace: str) -> None:
        super().__init__("too many queries of the namespace wait already")
        self.namespace = namespace


class PrometheusAccessError(PrometheusUnavailable):
    """The adapter has no credential, or the server refuses it. The message may name accounts and roles of a cloud."""


class PrometheusPartialResponse(PrometheusUnavailable):
    """The response lacks what a part of the server could not read, and `partial_responses` is "fail"."""


class PrometheusTimeout(PrometheusError):
    """There was no response before the deadline."""


class PrometheusSlow(PrometheusTimeout):
    """The request does not wait any longer, since the query is slow; see adapter.planning.slow_queries."""


class PrometheusBadResponse(PrometheusError):
    """The response cannot be Prometheus' own, or is malformed."""


class PrometheusQueryError(PrometheusError):
    """Prometheus refuses the query or selector, or cannot execute it."""


class PrometheusResultError(PrometheusQueryError):
    """The result is of a type without single values, such as a matrix, or has too many."""


class PrometheusConfigError(UpstreamConfigError):
    """The options cannot be used."""


_HINTS: Final = {
    401: "the credentials are missing or wrong",
    403: "the credentials lack a right",
    404: "there is no Prometheus API at this address; is a path prefix missing?",
}
"""Of responses without a text."""


class _ErrorObject(msgspec.Struct):
    message: str = ""


class Refusal(msgspec.Struct, rename="camel"):
    """Prometheus' own error: errorType and error. Google and Azure send an object as error, AWS only a message."""

    error_type: str = ""
    error: str | _ErrorObject = ""
    message: str = ""

    @property
    def text(self) -> str:
        """The message."""
        error = self.error.message if isinstance(self.error, _ErrorObject) else self.error
        return error or self.message


# msgspec describes a type at its first use, and crashes if two threads do that at the same time: so here.
_REFUSAL: Final = msgspec.json.Decoder(Refusal)


def decode_refusal(body: bytes) -> Refusal:
    """Return what the body of an unsuccessful response says; an empty one if that is of another form."""
    try:
        return _REFUSAL.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Refusal()


def server_text(text: str) -> str:
    """Return a server's text for messages: on one line, not too long, and without what a terminal would obey."""
    flat = " ".join(text.split())
    if len(flat) > _BEGINNING + _END:
        flat = f"{flat[:_BEGINNING]} ... {flat[-_END:]}"
    return printable(flat)


def refusal(status: int, body: bytes) -> PrometheusError:
    """Return the error for an unsuccessful response, by its HTTP status and body.

    Prometheus sends 400 for queries that it cannot parse, 422 for those it cannot execute, 503 for its own timeout.
    """
    refused = decode_refusal(body)
    if 300 <= status < 400:
        return PrometheusUnavailable(f"Prometheus answered with a redirect, status {status}; give the address itself")
    text = server_text(refused.text) or _HINTS.get(status, "")
    message = f"Prometheus answered with status {status}" + (f": {text}" if text else "")
    if refused.error_type in ("timeout", "canceled"):
        return PrometheusTimeout(message)
    if status in (400, 414, 422) or refused.error_type in ("bad_data", "execution"):
        return PrometheusQueryError(message)
    if status in (408, 504):
        return PrometheusTimeout(message)
    if status in (401, 403, 407):
        return PrometheusAccessError(message)
    return PrometheusUnavailable(message)
