"""A small cluster for the adapter's data path.

It has an API server that knows some resources, and a Prometheus with canned results. The mapper, the
client and the lists of objects are the real ones, over HTTP.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.objects import ListedObjects
from adapter.metrics.requests import CustomMetricRequest, ExternalMetricRequest
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Sample, Series, Vector
from adapter.rule_objects.controller import RuleObjects
from adapter.rules import Rule, RulesFile, load_rules
from adapter.rules.objects import Tenancy
from adapter.telemetry import RuleTelemetry
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.values.selectors import EVERYTHING, LabelSelector
from tests.deadlines import after
from tests.kube.scripted import ScriptedServer, connected, respond, scripted_server

DATA = Path(__file__).parent.parent / "data"
RULES = DATA / "rules"
NOW = 1_700_000_000.0


@dataclass
class CannedPrometheus:
    """Returns canned results, and records its queries.

    `found` has the series of each selector (others find nothing), `result` what every query gives; an error in the
    place of either is raised.
    """

    found: dict[str, tuple[Series, ...] | PrometheusError] = field(default_factory=dict)
    result: Vector | PrometheusError = field(default_factory=lambda: Vector(()))
    listed: list[tuple[str, float, float]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    destinations: list[Destination] = field(default_factory=list)

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        self.destinations.append(destination)
        self.listed.append((selector, start, end))
        found = self.found.get(selector, ())
        if isinstance(found, PrometheusError):
            raise found
        return found

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        self.destinations.append(destination)
        self.queries.append(query)
        self.deadlines.append(deadline)
        if isinstance(self.result, PrometheusError):
            raise self.result
        return self.result


@dataclass
class MetricsEnv:
    """Everything between a routed request and Prometheus."""

    api: ScriptedServer
    client: KubeClient
    mapper: RestMapper
    prometheus: CannedPrometheus
    listings: Listings
    rule_objects: RuleObjects
    catalog: Catalog
    registry: CollectorRegistry
    telemetry: RuleTelemetry
    custom: CustomMetrics
    external: ExternalMetrics


@contextlib.asynccontextmanager
async def metrics_env(folder: Path, rules: RulesFile, prometheus: CannedPrometheus) -> AsyncIterator[MetricsEnv]:
    """The data path for some rules; the test triggers the first list."""
    async with scripted_server() as api, connected(api, folder) as client:
        api.handlers.update(RESOURCES)
        mapper = RestMapper(client)
        registry = CollectorRegistry()
        telemetry = RuleTelemetry(registry)
        listings = Listings(prometheus, mapper, max_age=120.0, relist_interval=60.0, clock=lambda: NOW)
        rule_objects = RuleObjects((), client, listings, mapper, tenancy=Tenancy())
        catalog = Catalog(rules, listings, mapper, objects=rule_objects.catalog, telemetry=telemetry)
        queries = RuleQueries(prometheus, telemetry=telemetry)
        yield MetricsEnv(
            api=api,
            client=client,
            mapper=mapper,
            prometheus=prometheus,
            listings=listings,
            rule_objects=rule_objects,
            catalog=catalog,
            registry=registry,
            telemetry=telemetry,
            custom=CustomMetrics(catalog, queries, ListedObjects(client), mapper, clock=lambda: NOW),
            external=ExternalMetrics(catalog, queries, clock=lambda: NOW),
        )


def custom_request(
    *,
    metric: str,
    name: str = "*",
    resource: str = "pods",
    group: str = "",
    namespace: str = "shop",
    selector: LabelSelector = EVERYTHING,
    metric_selector: LabelSelector = EVERYTHING,
    seconds: float = 10.0,
) -> CustomMetricRequest:
    """A request for pods of the namespace shop, if not for others, that is due in some seconds."""
    return CustomMetricRequest(
        resource=resource,
        group=group,
        namespace=namespace,
        name=name,
        metric=metric,
        selector=selector,
        metric_selector=metric_selector,
        deadline=after(seconds),
    )


def external_request(
    *, metric: str, namespace: str = "shop", selector: LabelSelector = EVERYTHING, seconds: float = 10.0
) -> ExternalMetricRequest:
    """A request for an external metric that is due in some seconds."""
    return ExternalMetricRequest(namespace=namespace, metric=metric, selector=selector, deadline=after(seconds))


def packets() -> tuple[RulesFile, CannedPrometheus]:
    """The rules of tests/data/rules/packets.yaml, and the series that their selectors find."""
    rules = load_rules(RULES / "packets.yaml")
    selectors = [rule.series_query for rule in rules.all_rules if isinstance(rule, Rule)]
    found = [
        (series("http_packets_total", "namespace", "pod", "service", "port", "instance", "job"),),
        (
            series("conn_open", "namespace", "pod", "verb", "instance", "job"),
            series("edge_value", "namespace", "pod", "instance", "job"),
            series("ns:conn:sum", "namespace", "pod", "instance", "job"),
        ),
        (series("conn_raw", "namespace", "pod", "verb", "instance", "job"),),
        (series("nolabel", "namespace", "pod", "instance", "job"),),
        (series("dep_lag", "namespace", "deployment", "instance", "job"),),
        (series("node_load", "node", "instance", "job"),),
        (series("queue_depth", "namespace", "queue", "tier", "instance", "job"),),
        (series("global_backlog", "region", "instance", "job"),),
    ]
    return rules, CannedPrometheus(found=dict(zip(selectors, found, strict=True)))


def series_rule(rules: RulesFile) -> Rule:
    """The first of the rules for custom metrics, which has a seriesQuery."""
    rule = rules.custom[0]
    assert isinstance(rule, Rule)
    return rule


def series(name: str, *labels: str) -> Series:
    """Series of a name, with these labels."""
    return Series(name, frozenset(labels))


def vector(*samples: tuple[dict[str, str], float]) -> Vector:
    """A result of samples taken at NOW."""
    return Vector(tuple(Sample(labels, NOW, value) for labels, value in samples))


def objects(*names: str, status: int = 200) -> Any:
    """Return an API server's list of objects, or a refusal."""
    if status != 200:
        return respond({"kind": "Status", "code": status, "reason": "Forbidden", "message": "no"}, status=status)
    return respond({"kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": name}} for name in names]})


def _resource(name: str, kind: str, *, namespaced: bool = True) -> dict[str, Any]:
    return {"name": name, "kind": kind, "namespaced": namespaced, "singularName": kind.lower(), "verbs": ["list"]}


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


RESOURCES = {
    "/apis": respond({"kind": "APIGroupList", "groups": [_group("apps"), _group("batch"), _group("example.com")]}),
    "/api/v1": respond(
        {
            "resources": [
                _resource("pods", "Pod"),
                _resource("services", "Service"),
                _resource("namespaces", "Namespace", namespaced=False),
                _resource("nodes", "Node", namespaced=False),
            ]
        }
    ),
    "/apis/apps/v1": respond({"resources": [_resource("deployments", "Deployment")]}),
    "/apis/batch/v1": respond({"resources": [_resource("jobs", "Job")]}),
    "/apis/example.com/v1": respond({"resources": [_resource("tenants", "Tenant", namespaced=False)]}),
}
