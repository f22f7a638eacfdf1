"""Ten thousand metrics delay the event loop neither in lists nor in discovery, and nothing is built twice."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from adapter.catalog import metric_index, rule_states
from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomMetricInfo
from adapter.catalog.listings import Listings
from adapter.content.encoding import Representation
from adapter.prometheus import Series
from adapter.rules import parse_rules
from adapter.serving.discovery import Discovery
from kube.api.mapping import GroupResource
from tests.adapter.metrics_env import RESOURCES, CannedPrometheus, metrics_env, series
from tests.adapter.serving import CannedNames, served_adapter
from tests.kube.scripted import LoopIterations, respond

COUNT = 5_000
TWO = """
rules:
- {seriesQuery: many, resources: {template: <<.Resource>>}, metricsQuery: sum(<<.Series>>)}
- {seriesQuery: few, resources: {template: <<.Resource>>}, metricsQuery: sum(<<.Series>>)}
externalRules:
- {seriesQuery: many, resources: {namespaced: false}, metricsQuery: sum(<<.Series>>)}
"""


def many() -> tuple[Series, ...]:
    return tuple(series(f"metric_{number}", "namespace", "pod", "job", "le", "code") for number in range(COUNT))


def catalog_of(env: Any, prometheus: CannedPrometheus) -> Catalog:
    rules = parse_rules(TWO, source="rules.yaml")
    return Catalog(rules, Listings(prometheus, env.mapper, max_age=120.0), env.mapper)


async def test_long_lists_are_processed_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[int]] = {}

    def noted(module: ModuleType, name: str) -> None:
        work = getattr(module, name)

        def work_and_note(*arguments: Any, **keywords: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return work(*arguments, **keywords)

        monkeypatch.setattr(module, name, work_and_note)

    names = ((rule_states, "_labels_of"), (rule_states, "_of_series"), (metric_index, "_put_together"))
    for module, name in names:
        noted(module, name)
    prometheus = CannedPrometheus(found={"many": many(), "few": ()})
    async with metrics_env(tmp_path, parse_rules(TWO, source="x"), prometheus) as env:
        catalog = catalog_of(env, prometheus)
        await env.mapper.resource_for("pods")
        iterations = LoopIterations()
        async with iterations.counted():
            await catalog.relist()
        assert len(catalog.snapshot.custom) == 3 * COUNT
        for _, name in names:
            assert threads[name] - {threading.get_ident()}, name
        assert iterations.count > 20


async def test_only_changed_parts_are_rebuilt(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={"many": many(), "few": (series("one", "pod"),)})
    async with metrics_env(tmp_path, parse_rules(TWO, source="x"), prometheus) as env:
        catalog = catalog_of(env, prometheus)
        await catalog.relist()
        first = catalog.snapshot
        prometheus.found = {"many": many(), "few": (series("one", "pod"),)}
        await catalog.relist()
        assert catalog.snapshot is first, "the same series make the same snapshot"
        prometheus.found["few"] = (series("two", "pod"),)
        await catalog.relist()
        second = catalog.snapshot
        assert [ours is theirs for ours, theirs in zip(first.parts, second.parts, strict=True)] == [True, False, True]
        assert catalog.find_custom(GroupResource("", "pods"), "two") is not None


async def test_new_resource_makes_metrics_of_unchanged_series(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={"few": (series("one", "namespace", "queue"),)})
    async with metrics_env(tmp_path, parse_rules(TWO, source="x"), prometheus) as env:
        catalog = catalog_of(env, prometheus)
        await catalog.relist()
        assert [str(info) for info in catalog.snapshot.custom] == ["namespaces/one"]
        queue = {"name": "queues", "kind": "Queue", "namespaced": True, "singularName": "queue", "verbs": ["list"]}
        env.api.handlers |= RESOURCES | {"/apis/example.com/v1": respond({"resources": [queue]})}
        env.mapper._groups.clear()
        await catalog.relist()
        assert [str(info) for info in catalog.snapshot.custom] == ["namespaces/one", "queues.example.com/one"]


def large_names() -> CannedNames:
    pods = GroupResource("", "pods")
    infos = tuple(CustomMetricInfo(pods, f"metric_{number}", namespaced=True) for number in range(COUNT))
    return CannedNames(custom_metrics=infos, external_metrics=tuple(f"queue_{number}" for number in range(COUNT)))


@pytest.mark.parametrize("path", ["/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"])
async def test_document_is_encoded_once_while_metrics_are_unchanged(path: str) -> None:
    names = large_names()
    discovery = Discovery(cast("Any", names), custom=True, external=True, port=1)
    _, _, group, version = path.split("/")
    iterations = LoopIterations()
    async with iterations.counted():
        documents = await asyncio.gather(*(discovery.resources(group, version, Representation()) for _ in range(10)))
    assert all(document is documents[0] for document in documents)
    assert iterations.count > 5, "the loop goes on meanwhile"
    assert documents[0].gzip is not None
    assert gzip.decompress(documents[0].gzip) == documents[0].body
    assert len(json.loads(documents[0].body)["resources"]) == COUNT
    assert "queue_7" in discovery.external_names
    names.external_metrics = ("queue_depth",)
    after = await discovery.resources("external.metrics.k8s.io", "v1beta1", Representation())
    assert [one["name"] for one in json.loads(after.body)["resources"]] == ["queue_depth"]
    assert "queue_7" not in discovery.external_names


async def test_aggregated_discovery_is_cached_compressed_with_its_etag(tmp_path: Path) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    async with served_adapter(tmp_path) as adapter:
        large = large_names()
        adapter.names.custom_metrics, adapter.names.external_metrics = large.custom_metrics, large.external_metrics
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        first, second = [await adapter.request_as_master("/apis", headers=headers) for _ in range(2)]
        assert first.headers["Content-Encoding"] == "gzip"
        assert (first.body, first.headers["ETag"]) == (second.body, second.headers["ETag"])
        plain = await adapter.request_as_master("/apis", headers={"Accept": accept})
        assert gzip.decompress(first.body) == plain.body
        tag = f'"{hashlib.sha256(plain.body).hexdigest().upper()}"'
        assert first.headers["ETag"] == plain.headers["ETag"] == tag
        again = await adapter.request_as_master("/apis", headers={**headers, "If-None-Match": tag})
        assert (again.status, again.body) == (304, b"")


async def test_counters_of_metrics_that_are_gone_are_dropped(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter:

        async def counted() -> set[str]:
            text = (await adapter.request_as_master("/metrics")).body.decode()
            lines = [
                line for line in text.splitlines() if line.startswith("apiserver_request") and 'group="ext' in line
            ]
            return {line.partition('resource="')[2].partition('"')[0] for line in lines}

        adapter.names.external_metrics = ("queue_depth", "other")
        for name in ("queue_depth", "other"):
            assert (await adapter.request_as_master(f"/apis/external.metrics.k8s.io/v1beta1/namespaces/a/{name}")).json
        assert await counted() == {"queue_depth", "other"}
        adapter.names.external_metrics = ("other",)
        assert await counted() == {"other"}
