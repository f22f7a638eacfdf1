"""The metrics that a rule makes of series."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.catalog.inventory import CustomSource, custom_uses, external_sources, label_meanings
from adapter.prometheus import Series
from adapter.rules import Rule, parse_rules
from kube.api.client import KubeUnreachable
from kube.api.mapping import RestMapper
from tests.adapter.metrics_env import RESOURCES, series, series_rule
from tests.kube.scripted import connected, scripted_server


@pytest.fixture
async def mapper(tmp_path: Path) -> AsyncIterator[RestMapper]:
    async with scripted_server() as api, connected(api, tmp_path) as client:
        api.handlers.update(RESOURCES)
        yield RestMapper(client)


def rule(resources: str, name: str = "{}") -> Rule:
    text = f"rules: [{{seriesQuery: a, metricsQuery: <<.Series>>, resources: {resources}, name: {name}}}]"
    return series_rule(parse_rules(text, source="rules.yaml"))


BY_NAME = '{template: "<<.Resource>>"}'


async def custom_sources(rule: Rule, series: list[Series], mapper: RestMapper) -> list[CustomSource]:
    labels = frozenset().union(*(one.labels for one in series))
    meanings = await label_meanings(rule.resources, labels, mapper)
    return [source for use in custom_uses(rule, series, meanings) for source in use.sources]


async def found(rule: Rule, series: list[Series], mapper: RestMapper) -> dict[str, tuple[str, str, bool]]:
    sources = await custom_sources(rule, series, mapper)
    return {
        str(source.info): (source.resource_label, source.namespace_label, source.info.namespaced) for source in sources
    }


async def test_every_label_that_names_a_resource_makes_a_metric(mapper: RestMapper) -> None:
    assert await found(rule(BY_NAME), [series("up", "namespace", "pod", "job", "instance", "le")], mapper) == {
        "namespaces/up": ("namespace", "namespace", False),
        "pods/up": ("pod", "namespace", True),
        "jobs.batch/up": ("job", "namespace", True),
    }


async def test_overrides_come_before_the_template(mapper: RestMapper) -> None:
    naming = '{template: "<<.Resource>>", overrides: {ns: {resource: namespace}, pod_name: {resource: pods}}}'
    both = [series("up", "pod", "pod_name", "namespace", "ns")]
    assert await found(rule(naming), both, mapper) == {
        "namespaces/up": ("ns", "ns", False),
        "pods/up": ("pod_name", "ns", True),
    }
    one = [series("up", "pod", "ns")]
    assert (await found(rule(naming), one, mapper))["pods/up"] == ("pod", "ns", True)


async def test_label_may_name_a_resource_of_a_group(mapper: RestMapper) -> None:
    naming = '{template: "kube_<<.Group>>_<<.Resource>>", overrides: {d: {group: apps, resource: deployment}}}'
    assert await found(rule(naming), [series("up", "d", "kube_example_com_tenant", "kube__namespace")], mapper) == {
        "deployments.apps/up": ("d", "kube__namespace", True),
        "tenants.example.com/up": ("kube_example_com_tenant", "kube__namespace", True),
        "namespaces/up": ("kube__namespace", "kube__namespace", False),
    }


async def test_many_labels_that_name_no_resource_do_not_hold_the_event_loop(
    mapper: RestMapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.aio.tasks._BUSY_SECONDS", -1.0)  # it yields after each label
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await label_meanings(rule(BY_NAME).resources, ["nothing"], mapper)  # reads discovery
    task = asyncio.create_task(other())
    labels = [f"nothing{number}" for number in range(150)]
    found = await label_meanings(rule(BY_NAME).resources, labels, mapper)
    task.cancel()
    assert [one.resource for one in found.by_label.values()] == [None] * 150
    assert turns >= 150


async def test_nodes_are_cluster_scoped(mapper: RestMapper) -> None:
    assert await found(rule(BY_NAME), [series("load", "node", "instance")], mapper) == {
        "nodes/load": ("node", "namespace", False)
    }


async def test_override_for_a_missing_resource_makes_no_metric(mapper: RestMapper) -> None:
    naming = "{overrides: {w: {resource: widget}, pod: {resource: pod}}}"
    assert await found(rule(naming), [series("up", "w", "pod")], mapper) == {"pods/up": ("pod", "", True)}


async def test_series_are_filtered_and_renamed(mapper: RestMapper) -> None:
    metrics = await found(
        rule(BY_NAME, "{matches: '^(.*)_total$'}"),
        [series("a_total", "pod"), series("b", "pod"), series("c-d_total", "pod")],
        mapper,
    )
    assert set(metrics) == {"pods/a"}  # no query can be written for c-d_total


async def test_external_metrics_know_their_namespace_label(mapper: RestMapper) -> None:
    for naming, label in (
        ("{overrides: {zone: {resource: node}, ns: {resource: namespaces}}}", "ns"),
        (BY_NAME, "namespace"),
        ("{overrides: {ns: {resource: namespace}}, namespaced: false}", ""),
        ("{}", ""),
    ):
        parsed = rule(naming)
        meanings = await label_meanings(parsed.resources, (), mapper) if parsed.resources.namespaced else None
        [source] = external_sources(parsed, [series("q", "x")], meanings)
        assert (source.metric, source.series, source.namespace_label) == ("q", "q", label)


async def test_unreachable_api_server_is_an_error(tmp_path: Path) -> None:
    async with scripted_server() as api:
        pass
    async with connected(api, tmp_path) as client:
        with pytest.raises(KubeUnreachable):
            await custom_sources(rule(BY_NAME), [series("up", "pod")], RestMapper(client))
