"""The addresses and limits of Prometheus servers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from adapter.prometheus.errors import PrometheusConfigError
from adapter.upstream import ServerAccess

PartialResponses: TypeAlias = Literal["fail", "allow"]
"""Whether a partial response is a failure."""

DEFAULT_SERVER = "default"
"""The name of the server of --prometheus-url."""

# VictoriaMetrics refuses longer queries unless told otherwise (-search.maxQueryLen); Prometheus has no such limit.
MAX_QUERY_BYTES = 16 * 1024
# Prometheus executes 20 queries at a time by default (--query.max-concurrency), those of dashboards and rules included.
DEFAULT_CONNECTIONS = 16
# The parameters that the adapter and replay send.
_OWN_PARAMETERS: Final = frozenset({"query", "time", "timeout", "match[]", "start", "end", "step", "limit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions(ServerAccess):
    """One Prometheus; see ServerAccess for the rest.

    Raises:
        PrometheusConfigError: two options exclude each other, or one is invalid.
    """

    what: ClassVar[str] = "Prometheus"
    one: ClassVar[str] = "a Prometheus"
    error: ClassVar[type[PrometheusConfigError]] = PrometheusConfigError

    name: str = DEFAULT_SERVER
    """The server's name in the adapter's own metrics."""
    verb: str = "GET"
    """GET or POST; with POST queries are in the body, and long ones always are."""
    query_timeout: float | None = None
    """Timeout of an instant query, in seconds; None: that of the settings."""
    connections: int = DEFAULT_CONNECTIONS
    """The maximum of queries in flight."""
    max_query_bytes: int = MAX_QUERY_BYTES
    """Longer queries are split, if possible."""
    tenants: bool = False
    """The rules of namespaces may use this server, too; they can always use that of --prometheus-url."""
    partial_responses: PartialResponses = "fail"
    """Whether to "fail" or "allow" those that lack the samples of a part of the server that failed."""
    query_parameters: tuple[tuple[str, str], ...] = ()
    """Added to the URL of every request, such as ("partial_response", "false")."""

    def __post_init__(self) -> None:
        """Check the options."""
        ServerAccess.__post_init__(self)
        if self.verb not in ("GET", "POST"):
            raise PrometheusConfigError(
                f'unsupported Prometheus HTTP verb "{self.verb}"; supported verbs: "GET" and "POST"'
            )
        for name, _ in self.query_parameters:
            if name in _OWN_PARAMETERS:
                raise PrometheusConfigError(f"queryParameters: {name} is set by the adapter for each request")

    @property
    def title(self) -> str:
        """What messages about credentials call the server."""
        return self.what if self.name == DEFAULT_SERVER else f"{self.what} {self.name}"

    def endpoint(self, path: str) -> str:
        """Return the URL of an endpoint of the API, such as "query"."""
        return f"{self.base}/api/v1/{path}"


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """The namespace that a query is made for, and what it may do."""

    namespace: str
    """The namespace; "" for the rules file, which may do everything."""
    label: str = ""
    """The label that every selector of the query gets, with the namespace as its value; "" for none."""
    query_seconds: float = math.inf
    """The longest that a query or a list of series may take."""
    max_samples: float = math.inf
    """The most samples that a result may have, and the most series that a list may have."""


class Destination(msgspec.Struct, frozen=True):
    """The server of a rule's queries."""

    server: PrometheusOptions | None = None
    """A server of the rules file, or None for the one of --prometheus-url."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with this rule's requests; they replace the server's headers of the same names."""
    tenant: Tenant = Tenant(namespace="")
    """Restricts the queries of a namespace's own rules."""


DEFAULT_DESTINATION = Destination()
"""The server of --prometheus-url, without more headers."""
