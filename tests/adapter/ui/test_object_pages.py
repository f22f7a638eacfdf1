"""The pages of the objects with rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter.catalog.listings import Listings
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.watches import CLUSTER_METRIC_RULES, CONFIG_MAPS, METRIC_RULES
from adapter.rules.objects import Tenancy
from adapter.ui.formatting import rule_url
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.api.status import StatusError
from playground.apiserver.server import PlaygroundApiServer
from tests.adapter.metrics_env import CannedPrometheus, vector
from tests.adapter.ui.env import PagesEnv, element, pages_env, text_of
from tests.eventually import eventually

QUEUE = {"type": "External", "metric": "queue_length", "query": 'sum(queue{a="<b>"})'}
RULES = "externalRules: [{name: taken, query: sum(x)}]"
PAGE = "/object?kind=MetricRule&namespace=shop&name=queue"


def metric_rule(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "milliscale.io/v1", "kind": "MetricRule", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def object_pages(folder: Path, *bodies: dict[str, Any]) -> AsyncIterator[PagesEnv]:
    """The pages of an adapter that has read these objects of the namespace shop."""
    prometheus = CannedPrometheus(result=vector(({}, 42.0)))
    async with PlaygroundApiServer(folder) as server, await KubeClient.connect(server.kubeconfig()) as client:
        await client.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        for body in bodies:
            kind = "metricrules" if body["kind"] == "MetricRule" else "configmaps"
            group = "/apis/milliscale.io/v1" if body["kind"] == "MetricRule" else "/api/v1"
            await client.post(f"{group}/namespaces/shop/{kind}", body)
        objects = RuleObjects(
            (METRIC_RULES, CLUSTER_METRIC_RULES, CONFIG_MAPS),
            client,
            Listings(prometheus, RestMapper(client), max_age=120.0),
            RestMapper(client),
            tenancy=Tenancy(),
        )

        async def all_read() -> bool:
            return len(objects.objects()) == len(bodies)

        running = asyncio.create_task(objects.run())
        try:
            await eventually(all_read, every=0.01)
            async with pages_env(folder, RULES, prometheus, rule_objects=objects) as env:
                objects.use_file({}, env.active.catalog)
                yield env
        finally:
            running.cancel()


async def test_objects_are_listed_with_their_states_and_metrics(tmp_path: Path) -> None:
    async with object_pages(
        tmp_path,
        metric_rule("queue", QUEUE),
        metric_rule("broken", {**QUEUE, "prometheus": "east"}),
        metric_rule("taken", {**QUEUE, "metric": "taken"}),
    ) as env:
        text = await env.text("/objects")
        problems = await env.text("/objects?show=problems")
        found = await env.text("/objects?q=queue_LENGTH")
        broken = await env.text(PAGE.replace("queue", "broken"))
    assert "queue MetricRule shop served queue_length" in text
    assert "broken MetricRule shop Invalid spec.prometheus: there is no server 'east'" in text
    assert "taken MetricRule shop Conflict taken is made by externalRules[0] of the rules file" in text
    assert "2 of 3 objects" in problems
    assert "1 of 3 objects" in found
    assert "Invalid spec.prometheus: there is no server 'east'" in broken


async def test_without_objects_the_list_names_the_flags_and_none_is_found(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus()) as env:
        text = await env.text("/objects")
        with pytest.raises(StatusError) as error:
            await env.get(PAGE)
    assert error.value.code == 404
    assert "--metric-rules, --rules-config-maps and --hpa-annotations are off" in text
    assert "No object fits." in text


async def test_long_lists_are_shown_in_pages(tmp_path: Path) -> None:
    rules = [metric_rule(f"rule-{number:03}", {**QUEUE, "metric": f"m{number}"}) for number in range(101)]
    async with object_pages(tmp_path, *rules) as env:
        first, last = await env.text("/objects"), await env.text("/objects?page=99")
    assert "rule-099 MetricRule" in first
    assert "rule-100 MetricRule" not in first
    assert "rule-100 MetricRule" in last
    assert "Page 2 of 2" in last


async def test_page_of_an_object_has_the_check_of_its_rules_one_at_a_time(tmp_path: Path) -> None:
    text = "externalRules: [{name: a, query: sum(a)}, {name: b, query: sum(b)}]"
    metadata = {"name": "rules", "labels": {"milliscale.io/rules": "true"}}
    config_map = {"kind": "ConfigMap", "metadata": metadata, "data": {"rules.yaml": text}}
    async with object_pages(tmp_path, metric_rule("queue", QUEUE), config_map) as env:
        page = await env.get(PAGE)
        path = "/object?kind=ConfigMap&namespace=shop&name=rules"
        first, second = await env.text(path), await env.text(f"{path}&rule=1")
        env.prometheus.result = vector()
        env.monotonic += 60
        later = await env.text(PAGE)
    assert "State served" in text_of(element(page, "facts"))
    assert "42" in text_of(element(page, "examples"))
    assert 'sum(queue{a="<b>"})' in text_of(page)
    assert "<b>" not in page
    assert "queue_length has no value: the query finds nothing now; there are no series of queue [no-value]" in later
    assert ("sum(a)" in first, "sum(b)" in first, "sum(b)" in second) == (True, False, True)


async def test_events_have_what_has_changed(tmp_path: Path) -> None:
    async with object_pages(tmp_path, metric_rule("queue", QUEUE)) as env:
        events = await env.events(PAGE.replace("/object", "/object/events"))
        first = await anext(events)
        env.prometheus.result = vector(({}, 7.0))
        env.monotonic += 60
        second = await anext(events)
        listed = await anext(await env.events("/objects/events"))
    assert all(f'id="{name}"' in first.data for name in ("facts", "findings", "examples"))
    assert 'id="facts"' not in second.data
    assert "7" in text_of(second.data)
    assert 'id="objects"' in listed.data


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("rules[2]", "/rules/rules%5B2%5D"),
        ("MetricRule shop/my.queue", "/object?kind=MetricRule&namespace=shop&name=my.queue"),
        ("ClusterMetricRule queue", "/object?kind=ClusterMetricRule&namespace=&name=queue"),
        ("ConfigMap shop/rules rules.yaml rules[0]", "/object?kind=ConfigMap&namespace=shop&name=rules"),
    ],
)
def test_rules_have_the_url_of_their_page(key: str, url: str) -> None:
    assert rule_url(key) == url
