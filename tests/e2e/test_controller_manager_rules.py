"""kube-controller-manager scales on metrics whose rules are objects: annotations of the HPA, and MetricRules.

Requests pass the aggregation layer of kube-apiserver. Each test has an application in its own namespace.
"""

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kube.api.status import StatusError
from playground.install import Object, apply
from tests.docs.example_cluster import has_result
from tests.e2e.controllers import needs_controller_manager
from tests.e2e.rule_objects_stage import EXTERNAL, Stage, hpa, stage
from tests.eventually import eventually
from tests.objects import deployment, namespace
from tests.replay.builders import external_metric

pytestmark = [
    *needs_controller_manager,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("controller_manager_rules"),
]
HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with stage(tmp_path_factory.mktemp("stage"), "metric-rules", "hpa-annotations") as running:
        yield running


def metric_rule(namespace: str, name: str, **spec: Any) -> Object:
    """Return a MetricRule of type External."""
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "milliscale.io/v1",
        "kind": "MetricRule",
        "metadata": metadata,
        "spec": {"type": "External", "metric": name, **spec},
    }


async def test_query_in_an_annotation_scales(running: Stage) -> None:
    queue = 'jobs{namespace="annotated"}'
    running.gauges.values[queue] = 25
    query = {"metric-config.external.waiting.prometheus/query": f"sum({queue})"}
    source = external_metric("waiting", {"type": "prometheus"}, averageValue="10")
    scaler = hpa("annotated", "web", source, annotations=query)
    await apply(running.client, [namespace("annotated"), deployment("web", namespace="annotated", replicas=1), scaler])
    await running.scales("annotated", "web", 3)
    running.gauges.values[queue] = 61
    await running.scales("annotated", "web", 7)
    running.gauges.values[queue] = 1
    await running.scales("annotated", "web", 1)

    # The annotation's query changes, and then the annotation is removed.
    path = f"{HPAS.format('annotated')}/web"
    [key] = query
    await running.client.patch(path, {"metadata": {"annotations": {key: "vector(50)"}}})
    await running.scales("annotated", "web", 5)
    await running.client.patch(path, {"metadata": {"annotations": {key: None}}})

    async def gone() -> bool:
        try:
            await running.client.get(f"{EXTERNAL}/namespaces/annotated/waiting")
        except StatusError as error:
            return error.code == 404
        return False

    await eventually(gone)


async def test_hpas_with_queries_of_one_name_get_their_own_values(running: Stage) -> None:
    await apply(running.client, [namespace("legacy")])
    for name, value in (("web", 20), ("worker", 40)):
        running.gauges.values[f'load{{namespace="legacy",app="{name}"}}'] = value
        query = f'sum(load{{app="{name}"}})'
        annotations = {f"metric-config.external.prometheus-query.prometheus/{name}-load": query}
        source = external_metric("prometheus-query", {"query-name": f"{name}-load"}, averageValue="10")
        scaler = hpa("legacy", name, source, annotations=annotations)
        await apply(running.client, [deployment(name, namespace="legacy", replicas=1), scaler])
    await running.scales("legacy", "web", 2)
    await running.scales("legacy", "worker", 4)


async def test_object_metric_per_replica_scales_as_an_average(running: Stage) -> None:
    await apply(running.client, [namespace("objects")])
    for name, value, api_version, kind in (("web", 30, "networking.k8s.io/v1", "Ingress"), ("worker", 58, "v1", "Pod")):
        running.gauges.values[f'load{{namespace="objects",app="{name}"}}'] = value
        annotations = {
            "metric-config.object.load.prometheus/query": f'sum(load{{namespace="objects",app="{name}"}})',
            "metric-config.object.load.prometheus/per-replica": "true",
        }
        source = {
            "metric": {"name": "load"},
            "describedObject": {"apiVersion": api_version, "kind": kind, "name": "dummy"},
            "target": {"type": "Value", "value": "10"},
        }
        scaler = hpa("objects", name, {"type": "Object", "object": source}, annotations=annotations)
        await apply(running.client, [deployment(name, namespace="objects", replicas=1), scaler])
    await running.scales("objects", "web", 3)
    await running.scales("objects", "worker", 6)
    running.gauges.values['load{namespace="objects",app="worker"}'] = 20
    await running.scales("objects", "worker", 2)


async def test_queries_read_nothing_of_other_namespaces(running: Stage) -> None:
    running.gauges.values['secret{namespace="victim"}'] = 7
    await eventually(lambda: has_result(running.prometheus_url, "secret"))
    queries = {"read": 'sum(secret) or sum(secret{namespace="victim"})', "constant": "vector(1)"}
    annotations = {f"metric-config.external.{name}.prometheus/query": query for name, query in queries.items()}
    sources = (external_metric(name, averageValue="1") for name in queries)
    scaler = hpa("thief", "web", *sources, annotations=annotations)
    rules = [metric_rule("thief", f"{name}-rule", query=query) for name, query in queries.items()]
    await apply(running.client, [namespace("thief"), scaler, *rules])
    for suffix in ("", "-rule"):
        for name, values in (("constant", ["1"]), ("read", [])):

            async def served() -> bool:
                try:
                    found = await running.client.get(f"{EXTERNAL}/namespaces/thief/{name}{suffix}")  # noqa: B023
                except StatusError as error:
                    raise AssertionError(str(error)) from error
                assert [item["value"] for item in found["items"]] == values  # noqa: B023
                return True

            await eventually(served)


async def test_metric_rule_scales(running: Stage) -> None:
    queue = 'queue{namespace="ruled"}'
    running.gauges.values[queue] = 44
    rule = metric_rule("ruled", "queue-length", query=f"sum({queue})")
    scaler = hpa("ruled", "web", external_metric("queue-length", averageValue="20"))
    await apply(running.client, [namespace("ruled"), deployment("web", namespace="ruled", replicas=1), rule, scaler])
    await running.scales("ruled", "web", 3)
    running.gauges.values[queue] = 100
    await running.scales("ruled", "web", 5)
    running.gauges.values[queue] = 0
    await running.scales("ruled", "web", 1)

    async def is_ready() -> bool:
        found = await running.client.get("/apis/milliscale.io/v1/namespaces/ruled/metricrules/queue-length")
        conditions = found.get("status", {}).get("conditions", ())
        assert [(each["type"], each["status"]) for each in conditions] == [("Ready", "True")], found
        return True

    await eventually(is_ready)


async def test_schedule_scales(running: Stage) -> None:
    """A date begins, and then its end is set: both are seconds ahead, however slow the test is."""

    def campaign(*, start: datetime.datetime, end: datetime.datetime) -> Object:
        window = {"from": start.isoformat(timespec="seconds"), "until": end.isoformat(timespec="seconds"), "value": 4}
        return metric_rule("scheduled", "campaign", schedule={"timezone": "UTC", "default": 1, "dates": [window]})

    seconds, hour = datetime.timedelta(seconds=4), datetime.timedelta(hours=1)
    start = datetime.datetime.now(datetime.UTC) + seconds
    scaler = hpa("scheduled", "web", external_metric("campaign", averageValue="1"))
    target = deployment("web", namespace="scheduled", replicas=1)
    await apply(running.client, [namespace("scheduled"), target, campaign(start=start, end=start + hour), scaler])
    await running.scales("scheduled", "web", 4)
    end = datetime.datetime.now(datetime.UTC) + seconds
    await apply(running.client, [campaign(start=start, end=end)])
    await running.scales("scheduled", "web", 1)
