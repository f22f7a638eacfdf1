"""Queries in annotations of HPAs, through the served adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.rules.objects import Tenancy
from tests.adapter.rule_objects_env import CUSTOM, EXTERNAL, Cluster, rule_objects_cluster
from tests.eventually import eventually
from tests.objects import hpa
from tests.replay.builders import external_metric

HPAS = "/apis/{}/namespaces/{}/horizontalpodautoscalers"
KUBERNETES, OWN = "autoscaling/v2", "milliscale.io/v1"
QUERY = "metric-config.external.{}.prometheus/{}"
OPTIONS = RuleObjectOptions(metric_rules=True, hpa_annotations=True, tenancy=Tenancy(label="namespace"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    rules = "externalRules: [{name: of_the_file, query: file}]"
    async with rule_objects_cluster(tmp_path, rules=rules, options=OPTIONS) as cluster:
        yield cluster


async def create_hpa(
    cluster: Cluster,
    name: str,
    *metrics: Mapping[str, Any],
    annotations: Mapping[str, str],
    api: str = KUBERNETES,
) -> None:
    """Create an HPA."""
    cluster.server.create(hpa(name, *metrics, target=name, namespace="shop", api=api, annotations=annotations))


def external(name: str, **labels: str) -> dict[str, Any]:
    """Return an external metric of an HPA."""
    selector = {key.replace("_", "-"): value for key, value in labels.items()}
    return external_metric(name, selector, value="1")


async def has_value(cluster: Cluster, path: str, *expected: str) -> None:
    """Wait until a metric has these values; none: until it does not exist."""

    async def check() -> bool:
        reply = await cluster.adapter.request_as_master(path)
        if not expected:
            assert reply.status == 404, reply.body
            return True
        assert reply.status == 200, reply.body
        assert [item["value"] for item in reply.json["items"]] == [*expected]
        return True

    await eventually(check, every=0.02)


def path_of(metric: str, selector: str, *, namespace: str = "shop") -> str:
    """Return the path of an external metric's request."""
    return f"{EXTERNAL}/namespaces/{namespace}/{metric}?labelSelector={quote(selector)}"


@pytest.mark.parametrize("api", [KUBERNETES, OWN])
async def test_query_is_served_in_the_namespace_of_its_hpa_until_it_is_deleted(cluster: Cluster, api: str) -> None:
    cluster.prometheus.results['sum(rps{namespace="shop"})'] = [({}, "42")]
    annotations = {QUERY.format("rps", "query"): "sum(rps)"}
    await create_hpa(cluster, "web", external("rps", type="prometheus"), annotations=annotations, api=api)
    await has_value(cluster, path_of("rps", "type=prometheus"), "42")
    await has_value(cluster, path_of("rps", "type=prometheus", namespace="bank"))
    assert "rps" in await cluster.listed()
    await cluster.admin.delete(f"{HPAS.format(api, 'shop')}/web")
    await has_value(cluster, path_of("rps", "type=prometheus"))


async def test_each_hpa_gets_its_own_query_of_one_name(cluster: Cluster) -> None:
    for name, value in (("up", "1"), ("down", "2")):
        query = f'sum({name}{{namespace="shop"}})'
        cluster.prometheus.results[query] = [({}, value)]
        annotations = {QUERY.format("prometheus-query", f"q-{name}"): f"sum({name})"}
        metric = external("prometheus-query", query_name=f"q-{name}")
        await create_hpa(cluster, name, metric, annotations=annotations)
    await has_value(cluster, path_of("prometheus-query", "query-name=q-up"), "1")
    await has_value(cluster, path_of("prometheus-query", "query-name=q-down"), "2")


async def test_object_metrics_of_one_name_are_found_by_their_objects(cluster: Cluster) -> None:
    for name, value in (("a", "1"), ("b", "2")):
        cluster.prometheus.results[f'sum({name}{{namespace="shop"}})'] = [({}, value)]
        described = {"apiVersion": "v1", "kind": "Pod", "name": f"dummy-{name}"}
        source = {"metric": {"name": "rps"}, "describedObject": described, "target": {"type": "Value", "value": "1"}}
        annotations = {"metric-config.object.rps.prometheus/query": f"sum({name})"}
        await create_hpa(cluster, name, {"type": "Object", "object": source}, annotations=annotations)
    await has_value(cluster, f"{CUSTOM}/namespaces/shop/pods/dummy-a/rps", "1")
    await has_value(cluster, f"{CUSTOM}/namespaces/shop/pods/dummy-b/rps", "2")
    await has_value(cluster, f"{CUSTOM}/namespaces/shop/pods/dummy-c/rps")
    await has_value(cluster, f"{CUSTOM}/namespaces/bank/pods/dummy-a/rps")
    assert "pods/rps" in await cluster.listed(CUSTOM)
