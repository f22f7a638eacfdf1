"""Metrics of API clients, with client-go's names."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kube.api.client import KubeClient


class ClientMetrics(Collector):
    """`rest_client_request_retries_total` of all clients of a process."""

    def __init__(self, clients: Iterable[KubeClient]) -> None:
        self._clients = tuple(clients)

    def collect(self) -> Iterable[Metric]:
        """Return the counters; clients of the same host are added up."""
        family = CounterMetricFamily(
            "rest_client_request_retries",
            "Number of request retries, partitioned by status code, verb, and host.",
            labels=["code", "verb", "host"],
        )
        totals: dict[tuple[str, str, str], int] = {}
        for client in self._clients:
            for (verb, code), count in list(client.retries.counts.items()):
                labels = (code, verb, client.host)
                totals[labels] = totals.get(labels, 0) + count
        for labels, total in sorted(totals.items()):
            family.add_metric(labels, total)
        return [family]
