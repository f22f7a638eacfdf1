"""Rules and sources for the tests of coalesced queries, and a real Prometheus at one moment."""

from __future__ import annotations

import math

import aiohttp

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource
from adapter.prometheus import DEFAULT_DESTINATION, Destination, Vector
from adapter.prometheus.results import decode
from adapter.rules import Rule, parse_rules
from kube.api.mapping import GroupResource
from tests.adapter.metrics_env import series_rule

SUM = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)"
RAW = "<<.Series>>{<<.LabelMatchers>>}"
PODS = GroupResource("", "pods")


def rule(query: str, merge: str = "auto", *, namespaced: bool = True, more: str = "") -> Rule:
    """A rule; `more` are further keys of it."""
    text = f"""
prometheusServers: {{tenant: {{url: 'http://tenant.example'}}}}
rules:
- seriesQuery: 'packets_total'
  resources:
    namespaced: {str(namespaced).lower()}
    overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}
  metricsQuery: '{query.replace("'", "''")}'
  merge: {merge}
"""
    return series_rule(parse_rules(text + more, source="rules.yaml"))


def source(query: str, merge: str = "auto", *, more: str = "") -> CustomSource:
    """A metric of pods."""
    info = CustomMetricInfo(PODS, "packets_total", namespaced=True)
    return CustomSource(info, rule(query, merge, more=more), "packets_total", "pod", "namespace")


def external(query: str, merge: str = "auto", *, namespaced: bool = True, more: str = "") -> ExternalSource:
    """An external metric."""
    made_by = rule(query, merge, namespaced=namespaced, more=more)
    return ExternalSource("packets_total", made_by, "packets_total", "namespace" if namespaced else "")


class AtOneMoment:
    """A real Prometheus that evaluates all queries at one time, so that results can be compared."""

    def __init__(self, http: aiohttp.ClientSession, url: str, moment: float) -> None:
        self._http, self._url, self._moment = http, url, moment
        self.requests = 0

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """The result of a query."""
        self.requests += 1
        parameters = {"query": query, "time": f"{self._moment:.3f}"}
        async with self._http.post(f"{self._url}/api/v1/query", data=parameters) as response:
            return decode(await response.read())
