"""Which Prometheus is asked, and how it wants to be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from adapter.prometheus.errors import PrometheusConfigError
from adapter.upstream import ServerAccess

DEFAULT_SERVER = "default"
"""What the server of --prometheus-url is called."""

# VictoriaMetrics refuses longer queries unless told otherwise (-search.maxQueryLen); Prometheus has no such limit.
_MAX_QUERY_BYTES = 16 * 1024
DEFAULT_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions(ServerAccess):
    """Where Prometheus is and how it wants to be asked; see ServerAccess for the rest.

    Attributes:
        name: what the server is called in metrics of our own.
        verb: GET or POST; with POST what is asked is in the body, and long queries always are.
        query_timeout: the most seconds that an instant query may take; less than clients wait for us (30 s), so that
            they get to read what went wrong.
        series_timeout: the most seconds that a series request may take.
        connections: how many queries may be under way at once.
        max_waiting: how many queries of each namespace may wait until fewer are under way; more than there are requests
            in flight, of which most need one.
        max_query_bytes: the longest query that is sent where a rule allows it to be split.

    Raises:
        PrometheusConfigError: two of them do not go together, or one is nonsense.
    """

    what: ClassVar[str] = "Prometheus"
    one: ClassVar[str] = "a Prometheus"
    error: ClassVar[type[PrometheusConfigError]] = PrometheusConfigError

    name: str = DEFAULT_SERVER
    verb: str = "GET"
    query_timeout: float = 20.0
    series_timeout: float = 60.0
    connections: int = DEFAULT_CONNECTIONS
    max_waiting: int = 512
    max_query_bytes: int = _MAX_QUERY_BYTES

    def __post_init__(self) -> None:
        """Refuse what can never work."""
        ServerAccess.__post_init__(self)
        if self.verb not in ("GET", "POST"):
            raise PrometheusConfigError(
                f'unsupported Prometheus HTTP verb "{self.verb}"; supported verbs: "GET" and "POST"'
            )

    def endpoint(self, path: str) -> str:
        """The address of a part of the API, such as "query"."""
        return f"{self.base}/api/v1/{path}"


class Destination(msgspec.Struct, frozen=True):
    """Where a rule's queries go.

    Attributes:
        server: a server of the rules file, or None for the one of --prometheus-url.
        headers: sent with this rule's requests, in the place of the server's own of the same names.
    """

    server: PrometheusOptions | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def max_query_bytes(self) -> int:
        """The longest query to send there."""
        return self.server.max_query_bytes if self.server is not None else _MAX_QUERY_BYTES


DEFAULT_DESTINATION = Destination()
"""The server of --prometheus-url, with nothing added."""
