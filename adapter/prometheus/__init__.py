"""Prometheus as the adapter sees it: instant queries for values, series for discovery.

Instant queries and series requests go over one pooled aiohttp session for each server, with the same options: headers,
credentials whose files are read again when they change. `servers` holds a client for each server that rules name, and
`budget` limits what the responses of all of them take in memory.

Whatever Prometheus does becomes one of these. Their messages are for logs: they may hold what Prometheus said, but
never its address; what a client is told is decided where the request is known.

    PrometheusError
      PrometheusUnavailable   no answer, or one that says "not now" or "not you": refused, reset, 5xx, 401, 403, 429
        PrometheusBusy          not sent, because too many queries of the same namespace wait already
      PrometheusTimeout       no answer within the request's time, or Prometheus gave up within it
      PrometheusBadAnswer     what answered is no Prometheus: not JSON, wrong types, absurdly long
      PrometheusQueryError    Prometheus refuses the query, or cannot execute it: the rule is wrong
        PrometheusResultError   the query works, and its result is neither a vector nor a scalar
    PrometheusConfigError     the options cannot be used; the message says which
"""

from __future__ import annotations

from adapter.prometheus.answers import Sample, Scalar, Vector
from adapter.prometheus.budget import MemoryBudget
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.errors import (
    PrometheusBadAnswer,
    PrometheusBusy,
    PrometheusConfigError,
    PrometheusError,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusTimeout,
    PrometheusUnavailable,
)
from adapter.prometheus.options import DEFAULT_DESTINATION, DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.prometheus.series import Series
from adapter.prometheus.servers import PrometheusServers

__all__ = [
    "DEFAULT_DESTINATION",
    "DEFAULT_SERVER",
    "Destination",
    "MemoryBudget",
    "PrometheusBadAnswer",
    "PrometheusBusy",
    "PrometheusClient",
    "PrometheusConfigError",
    "PrometheusError",
    "PrometheusOptions",
    "PrometheusQueryError",
    "PrometheusResultError",
    "PrometheusServers",
    "PrometheusTimeout",
    "PrometheusUnavailable",
    "Sample",
    "Scalar",
    "Series",
    "Vector",
]
