"""The adapter's settings: limits, timeouts and periods without a flag of their own, see kube.process.settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kube.api.client import ClientSettings
from kube.security.authentication import ReviewSettings
from kube.serving.options import ConnectionLimits
from kube.web.options import PageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """Requests to each Prometheus."""

    query_seconds: float = 20.0
    """Limit of a query on servers that have no `timeout` in the rules file. Shorter than that of clients, which wait
    for 30 s, so that they get the error."""
    list_seconds: float = 60.0
    """Limit of a list of series. Lists take longer than queries, and no client waits for them."""
    lists: int = 4
    """Lists at a time. Their connections are not those of --prometheus-max-queries, so that neither waits for the
    other."""
    waiting: int = 512
    """Queries of each namespace that may wait for a connection: more than the maximum of requests in flight, most of
    which need one query."""
    url_bytes: int = 12 * 2**10
    """Longer queries are sent with POST. Half of what the largest defaults of proxies accept."""
    response_bytes: int = 64 * 2**20
    """Limit of a response to a query. The memory for all responses is that of --prometheus-response-memory-mb."""
    names: int = 50_000
    """Names of metrics in a list. Each takes a kilobyte or two in the catalog and in discovery, and scraped pods choose
    the names, so a rule that matches any must not take all memory."""
    list_bytes: int = 256 * 2**20
    """Limit of a list of series. Only metric names and label names are stored, while the response arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSettings:
    """Requests to the other metrics adapters of `forwardExternal`."""

    requests: int = 8
    """Requests in flight to each. It has its own work to do, and results are cached."""
    waiting: int = 256
    """Requests of each namespace that may wait for one of those."""
    response_bytes: int = 16 * 2**20
    """Limit of a response, as of the API server's."""
    cache_bytes: int = 25_000_000
    """Memory for cached values of all other adapters together, about 50,000."""
    names: int = 50_000
    """Metrics that one may list. Each is a line in the discovery of every client of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSettings:
    """Objects of the cluster that requests name or select."""

    kinds: int = 50
    """Kinds that are watched, each of which takes memory; objects of further ones are listed for each request."""
    idle_seconds: float = 1800.0
    """Time after the last request for a kind until its watch ends. HPAs request every 15 s, so none does any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesSettings:
    """The rules file."""

    poll_seconds: float = 5.0
    """Time between two looks at the file. A ConfigMap's volume changes about once a minute."""
    start_seconds: float = 30.0
    """How long the first lists of the process may take; then it is ready (readyz) without them."""
    reload_seconds: float = 5.0
    """How long the first lists of a changed file may take before it becomes active without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleObjectSettings:
    """MetricRules and other objects with rules."""

    namespace_bytes: int = 2**20
    """Bytes of JSON stored for the objects of one namespace. The decoded rules are at most 20 times as large."""
    total_bytes: int = 8 * 2**20
    """Bytes of JSON stored for the objects of all namespaces together. Each namespace is guaranteed 32 KiB."""
    start_seconds: float = 30.0
    """How long readyz waits after the start for an API server that cannot be reached."""
    lists: int = 8
    """Lists of series of such rules at a time, one of each namespace, so that slow ones do not delay those of other
    namespaces."""
    check_seconds: float = 300.0
    """Time between two checks of an object that has not changed."""
    unsettled_seconds: float = 30.0
    """The same for an object whose next check probably has another result, such as one without series yet."""
    checks_per_second: float = 5.0
    """Rate of those checks, each of which sends queries to Prometheus."""
    requests_per_second: float = 40.0
    """Rate of requests for statuses and events; each write is preceded by a read."""
    burst: int = 80
    """Requests for statuses and events that may be sent at once: two seconds of that rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """Forecasts of metrics whose rules have `forecast`."""

    total: int = 200
    """Forecasts of all namespaces together; each is of a metric for one object or selector that is requested. One takes
    98 KiB for a fortnight of history; with a longer one it counts twice."""
    of_namespace: int = 50
    """Forecasts of one namespace, so that one with many selectors leaves room for the others."""
    read_seconds: float = 3600.0
    """Time between two reads of the new part of a history."""
    idle_seconds: float = 3600.0
    """Time after the last request until a forecast ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Memory of caches that grow with requests; the oldest entries are evicted."""

    results_bytes: int = 100 * 2**20
    """For results of queries. Namespaces share a quarter of it."""
    requests_bytes: int = 48 * 2**20
    """For parsed request lines, some 11,000 usual ones; in bytes, since clients choose how long they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `serve`."""

    api_server: ClientSettings = field(default_factory=ClientSettings)
    prometheus: PrometheusSettings = field(default_factory=PrometheusSettings)
    forward: ForwardSettings = field(default_factory=ForwardSettings)
    objects: ObjectSettings = field(default_factory=ObjectSettings)
    rules: RulesSettings = field(default_factory=RulesSettings)
    rule_objects: RuleObjectSettings = field(default_factory=RuleObjectSettings)
    forecasts: ForecastSettings = field(default_factory=ForecastSettings)
    caches: CacheSettings = field(default_factory=CacheSettings)
    reviews: ReviewSettings = field(default_factory=ReviewSettings)
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    pages: PageSettings = field(default_factory=PageSettings)


DEFAULTS: Final = Settings()
