"""Prometheus: instant queries for values, series for discovery.

client, servers    one Prometheus over HTTP, and all servers that rules name; queries of tenants are restricted
options            their addresses and limits
results            decodes responses to queries, and says whether they are partial
series             decodes lists of series
long_responses     decodes long lists in pieces, within a limit of memory for all servers together

Rules, caches and the metrics APIs are not known here.

All failures are one of these. Their messages are for logs: they may quote Prometheus but never contain its address.
`adapter.planning.rule_queries` turns them into errors for clients.

    PrometheusError
      PrometheusUnavailable   no response, or a temporary refusal: connection refused or reset, 5xx, 401, 403, 429
        PrometheusAccessError   there is no credential, or it is refused
        PrometheusPartialResponse   a part of the server failed, so the response lacks samples or series
        PrometheusBusy          not sent, because too many queries of the same namespace wait already
      PrometheusTimeout       no response before the deadline, or Prometheus reports a timeout
        PrometheusSlow          the query is slow, and requests of its namespace may not wait for it now
      PrometheusBadResponse     the response is not Prometheus': not JSON, wrong types, absurdly long
      PrometheusQueryError    Prometheus refuses the query, or cannot execute it: the rule is invalid
        PrometheusResultError   the query works, and its result is neither a vector nor a scalar, or too large
    PrometheusConfigError     the options cannot be used; the message says which
"""

from __future__ import annotations

from adapter.prometheus.client import PrometheusClient, QueryProgress, query_progress
from adapter.prometheus.errors import (
    PrometheusAccessError,
    PrometheusBadResponse,
    PrometheusBusy,
    PrometheusConfigError,
    PrometheusError,
    PrometheusPartialResponse,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusSlow,
    PrometheusTimeout,
    PrometheusUnavailable,
)
from adapter.prometheus.long_responses import MemoryBudget
from adapter.prometheus.options import DEFAULT_DESTINATION, DEFAULT_SERVER, Destination, PrometheusOptions, Tenant
from adapter.prometheus.results import RangeSeries, Sample, Vector, scalar
from adapter.prometheus.series import Series
from adapter.prometheus.servers import PrometheusServers, sent_query

__all__ = [
    "DEFAULT_DESTINATION",
    "DEFAULT_SERVER",
    "Destination",
    "MemoryBudget",
    "PrometheusAccessError",
    "PrometheusBadResponse",
    "PrometheusBusy",
    "PrometheusClient",
    "PrometheusConfigError",
    "PrometheusError",
    "PrometheusOptions",
    "PrometheusPartialResponse",
    "PrometheusQueryError",
    "PrometheusResultError",
    "PrometheusServers",
    "PrometheusSlow",
    "PrometheusTimeout",
    "PrometheusUnavailable",
    "QueryProgress",
    "RangeSeries",
    "Sample",
    "Series",
    "Tenant",
    "Vector",
    "query_progress",
    "scalar",
    "sent_query",
]
