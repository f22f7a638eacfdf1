"""Rules whose metric has one value, with labels that are not those of series."""

from __future__ import annotations

import math

import pytest

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomMetricInfo, CustomSource, external_query_source
from adapter.catalog.listings import Listings
from adapter.catalog.metric_index import MetricIndex
from adapter.commands.builtin_resources import FixedResources
from adapter.planning.metric_queries import ExternalQuery, ObjectsQuery
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import Sample, Vector, scalar
from adapter.rules import QueryRule, RulesFile
from adapter.rules.objects import ObjectName, RuleObject
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import GroupResource
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import NOW, CannedPrometheus, vector

RULE = QueryRule(metric="rps", query="sum(rps)", value_labels=(("type", "prometheus"),), key="hpa", external=True)


def queries(result: Vector) -> RuleQueries:
    """Return queries that all have this result."""
    return RuleQueries(CannedPrometheus(result=result), telemetry=RuleTelemetry())


async def external(result: Vector, selector: str) -> Vector | None:
    """Return the external metric's samples."""
    query = ExternalQuery(external_query_source(RULE), "shop", LabelSelector.parse(selector))
    return await queries(result).execute(query, math.inf)


@pytest.mark.parametrize(
    "result", [scalar(NOW, 7.0), vector(({"app": "web"}, 7)), vector(({"app": "a"}, 7), ({"app": "b"}, 8))]
)
async def test_first_value_has_the_labels_of_the_rule(result: Vector) -> None:
    only = Vector((Sample({"type": "prometheus"}, NOW, 7.0),))
    for selector in ("", "type=prometheus", "type in (prometheus, zmon)", "other!=x"):
        assert await external(result, selector) == only
    for selector in ("type=zmon", "app=web", "app", "!type"):
        assert await external(result, selector) == Vector(())


async def test_empty_result_has_no_value() -> None:
    assert await external(Vector(()), "type=prometheus") == Vector(())


async def test_value_of_an_object_is_found_by_its_name() -> None:
    rule = QueryRule(
        metric="rps",
        query="sum(rps)",
        key="hpa",
        resource_label="<object>",
        namespace_label="<namespace>",
        value_labels=(("<namespace>", "shop"), ("<object>", "dummy")),
    )
    info = CustomMetricInfo(GroupResource("", "pods"), "rps", namespaced=True)
    source = CustomSource(info, rule, "", rule.resource_label, rule.namespace_label)
    for namespace, found in (("shop", ["dummy"]), ("other", [])):
        query = ObjectsQuery(source, namespace, ["dummy"], False, LabelSelector())
        samples = await queries(scalar(NOW, 7.0)).objects(query, math.inf)
        assert samples is not None
        assert list(samples) == found


def catalog(**objects: tuple[str, dict[str, str] | None]) -> MetricIndex:
    """Return a catalog of objects in the namespace shop: when each was created, and the labels of its value."""
    made = MetricIndex()
    for name, (created, labels) in objects.items():
        value_labels = None if labels is None else tuple(labels.items())
        rule = QueryRule(metric="rps", query=name, key=name, namespace="shop", external=True, value_labels=value_labels)
        one = RuleObject(name=ObjectName("HPA", "shop", name), created=created, rules=(rule,))
        made.put(one, [external_query_source(rule)])
    return made


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ({"old": ("1", {"a": "1"}), "young": ("2", {"a": "1"})}, "old"),
        ({"young": ("2", {"a": "1"}), "old": ("1", {"a": "1"})}, "old"),
        ({"other": ("1", {"a": "2"}), "young": ("2", {"a": "1"})}, "young"),
        ({"more": ("1", {"a": "1", "b": "2"}), "exact": ("2", {"a": "1"})}, "exact"),
        ({"more": ("1", {"a": "1", "b": "2"}), "other": ("2", {})}, "more"),
        ({"one": ("1", {"a": "2"}), "two": ("2", {"a": "3"})}, "one"),
        ({"rule": ("1", None), "young": ("2", {"a": "1"})}, "rule"),
        ({"rule": ("2", None), "old": ("1", {"a": "1"})}, "old"),
        ({"rule": ("2", None), "old": ("1", {"a": "2"})}, "rule"),
    ],
)
def test_request_gets_the_oldest_metric_that_its_selector_selects(
    objects: dict[str, tuple[str, dict[str, str] | None]], found: str
) -> None:
    listings = Listings(CannedPrometheus(), FixedResources([]), max_age=60)
    found_by = Catalog(RulesFile(), listings, FixedResources([]), objects=catalog(**objects))
    source = found_by.find_external("rps", namespace="shop", selector=LabelSelector.parse("a=1"))
    assert source is not None
    assert source.rule.key == found


def test_metrics_with_other_labels_are_no_conflict() -> None:
    made = catalog(a=("1", {"a": "1"}), b=("2", {"a": "2"}), c=("3", {"a": "2"}), rule=("4", None))
    winners = {}
    for name in "a", "b", "c", "rule":
        [source] = made.sources(ObjectName("HPA", "shop", name))
        winner = made.winner(source)
        assert winner is not None
        winners[name] = winner.name
    assert winners == {"a": "a", "b": "b", "c": "b", "rule": "a"}
