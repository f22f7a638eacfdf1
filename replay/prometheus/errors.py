"""Errors of one Prometheus: what is wrong, and which flag to change, in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from adapter.prometheus import DEFAULT_SERVER, PrometheusOptions
from adapter.prometheus.errors import decode_refusal, server_text
from adapter.prometheus.results import Notices
from adapter.upstream import CredentialsError, UpstreamConfigError
from replay.load import ReplayError

_SHOWN: Final = 300
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
_MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Words of Prometheus, Thanos, Mimir and VictoriaMetrics for a range that is too long for one query.
_TOO_LARGE: Final = re.compile(r"exceed|too many|too large|too long|limit|maximum", re.IGNORECASE)


class TooLargeError(ReplayError):
    """The server refuses a range query for its size or duration; a shorter range may work."""


class RefusedError(ReplayError):
    """The server refuses a query as wrong."""


class RetriableError(ReplayError):
    """There is no response for now."""


# msgspec describes a type at its first use, and crashes if two threads do that at the same time: so here.
_NOTICES: Final = msgspec.json.Decoder(Notices)


class ServerErrors:
    """The errors of one server, which the messages name without its password."""

    def __init__(self, options: PrometheusOptions) -> None:
        self._options = options
        parts = urlsplit(options.base)
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._is_default = options.name == DEFAULT_SERVER
        self._flag = "--prometheus-url" if self._is_default else f"the url of {options.name} in prometheusServers"

    def malformed(self) -> ReplayError:
        """Return the error for a response that is not Prometheus'."""
        return self._not_prometheus("its response is not that of Prometheus' API")

    def unreachable(self, error: Exception) -> ReplayError:
        """Return the error for a request without a response."""
        url, flag = self.url, self._flag
        match error:
            case CredentialsError():
                flag = "--prometheus-token-file" if self._options.auth is None else "--prometheus-auth"
                return ReplayError(f"{error}; check {flag}")
            case UpstreamConfigError():
                return ReplayError(str(error))
            case TimeoutError():
                return RetriableError(f"{url} sent no response in time; check {flag}")
            case aiohttp.ClientConnectorCertificateError():
                why = getattr(error.certificate_error, "verify_message", "") or "it is for another host"
                return ReplayError(
                    f"{url} has a certificate that cannot be verified ({why}); give --prometheus-ca-file"
                )
            case aiohttp.ClientSSLError():
                return ReplayError(f"TLS with {url} fails ({error.strerror}); check {flag}")
            case OSError(errno=int(errno)) if errno > 0:
                return RetriableError(f"{url} cannot be reached ({os.strerror(errno)}); check {flag}")
        return RetriableError(f"{url} cannot be reached ({type(error).__name__}); check {flag}")

    def refused(self, status: int, headers: Mapping[str, str], body: bytes, path: str, query: str) -> ReplayError:
        """Return the error for an unsuccessful response."""
        refusal = decode_refusal(body)
        why = server_text(refusal.text)
        if status in (401, 403):
            flags = "--prometheus-token-file, --prometheus-header, --prometheus-auth or --prometheus-auth-config"
            return ReplayError(f"{self.url} refuses the credentials (status {status}); give {flags}")
        if 300 <= status < 400:
            location = server_text(headers.get("Location", "another address"))
            return self._not_prometheus(f"it redirects to {location}")
        if status == 413 or refusal.error_type in ("timeout", "canceled"):
            return TooLargeError(why or f"status {status}")
        if status in (400, 422) and why:
            if _TOO_LARGE.search(why) and "parse error" not in why:
                return TooLargeError(why)
            return RefusedError(f"Prometheus refuses the query {shown(query)}: {why}; change it in --config")
        if status in _RETRIED:
            return RetriableError(f"{self.url} fails with status {status}{': ' * bool(why)}{why}; try again later")
        return self._not_prometheus(f"it has no {path} (status {status})")

    def check_complete(self, body: bytes) -> None:
        """Raise RetriableError for a partial response, unless it is allowed, and ReplayError for a malformed one."""
        try:
            partial = _NOTICES.decode(body).partial
        except _MALFORMED as error:
            raise self.malformed() from error
        if partial and self._options.partial_responses == "fail":
            flag = "--prometheus-partial-responses=allow" if self._is_default else "partialResponses: allow"
            raise RetriableError(
                f"{self.url} could read only a part of the series ({server_text(partial)}); try again later, or use"
                f" the part with {flag}"
            )

    def _not_prometheus(self, why: str) -> ReplayError:
        return ReplayError(f"{self.url} is no Prometheus: {why}; check {self._flag}")


def shown(query: str) -> str:
    """Return a query on one line, and not too long, for messages."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
