"""Counters of the adapter's own metrics, as the pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import Counter, Histogram
from yarl import URL

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.prometheus import PrometheusOptions

_QUERY = "/api/v1/query"
_SERIES = "/api/v1/series"


@dataclass(slots=True)
class RuleFigures:
    """The counters of a rule since the process started, or since the rule got its key.

    Attributes:
        merged: requests that the result of a coalesced query served.
        alone: requests that sent a query of their own though there is a coalesced one.
        coalesced_queries: coalesced queries that were sent.
        failed_coalesced_queries: those of them that failed.
        query_errors: queries that failed.
        relist_errors: lists of the series that failed.
    """

    merged: int = 0
    alone: int = 0
    coalesced_queries: int = 0
    failed_coalesced_queries: int = 0
    query_errors: int = 0
    relist_errors: int = 0

    @property
    def requests(self) -> int:
        """All requests that a coalesced query can serve."""
        return self.merged + self.alone


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """A Prometheus server: its name and URL, and the requests that were sent, with their mean duration in seconds."""

    name: str
    url: str
    queries: int
    query_seconds: float | None
    lists: int
    list_seconds: float | None


def rule_figures(telemetry: RuleTelemetry) -> dict[str, RuleFigures]:
    """Return the counters of all rules, by their keys."""
    figures: dict[str, RuleFigures] = {}
    for labels, value in _totals(telemetry.requests):
        one = figures.setdefault(labels["rule"], RuleFigures())
        if labels["query"] == "merged":
            one.merged = value
        else:
            one.alone = value
    for labels, value in _totals(telemetry.coalesced_queries):
        one = figures.setdefault(labels["rule"], RuleFigures())
        one.coalesced_queries += value
        if labels["outcome"] == "failure":
            one.failed_coalesced_queries = value
    for labels, value in _totals(telemetry.query_errors):
        figures.setdefault(labels["rule"], RuleFigures()).query_errors = value
    for labels, value in _totals(telemetry.relist_errors):
        figures.setdefault(labels["rule"], RuleFigures()).relist_errors = value
    return figures


def server_figures(telemetry: RuleTelemetry, servers: Iterable[PrometheusOptions]) -> tuple[ServerFigures, ...]:
    """Return the figures of some servers. A URL is without the password that may be in it."""
    found = _durations(telemetry.latency)
    return tuple(
        ServerFigures(
            server.name,
            str(URL(server.url).with_user(None)),
            *found.get((server.name, _QUERY), (0, None)),
            *found.get((server.name, _SERIES), (0, None)),
        )
        for server in servers
    )


def _totals(counter: Counter) -> Iterator[tuple[dict[str, str], int]]:
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                yield sample.labels, int(sample.value)


def _durations(histogram: Histogram) -> dict[tuple[str, str], tuple[int, float | None]]:
    """Return count and mean in seconds by server and path."""
    counts: dict[tuple[str, str], float] = {}
    sums: dict[tuple[str, str], float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            into = counts if sample.name.endswith("_count") else sums if sample.name.endswith("_sum") else None
            if into is not None:
                into[sample.labels["server"], sample.labels["path"]] = sample.value
    return {key: (int(count), sums[key] / count if count else None) for key, count in counts.items()}
