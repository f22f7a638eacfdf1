"""The metrics of rules in objects: precedence, and what discovery lists."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource, Source
from adapter.catalog.metric_index import MetricIndex
from adapter.rules import QueryRule
from adapter.rules.objects import ObjectName, RuleObject
from kube.api.mapping import GroupResource
from kube.values.selectors import EVERYTHING

PODS = GroupResource("", "pods")


def rule_object(name: str, *, namespace: str = "shop", created: str = "2026-11-20T08:37:41Z") -> RuleObject:
    kind = "MetricRule" if namespace else "ClusterMetricRule"
    return RuleObject(name=ObjectName(kind, namespace, name), created=created)


def external(one: RuleObject, metric: str = "queue") -> ExternalSource:
    namespace = one.name.namespace
    rule = QueryRule(metric=metric, query="up", key=str(one.name), external=True, namespace=namespace)
    return ExternalSource(metric, rule, "", "")


def of_pods(one: RuleObject, metric: str = "rate") -> CustomSource:
    rule = QueryRule(metric=metric, query="up", key=str(one.name), namespace=one.name.namespace)
    return CustomSource(CustomMetricInfo(PODS, metric, True), rule, "", "pod", "")


def find(catalog: MetricIndex, namespace: str, metric: str = "queue") -> Source | None:
    return catalog.find(namespace, (None, metric), "", EVERYTHING)


def maker(catalog: MetricIndex, namespace: str) -> str:
    """Return the key of the rule that makes the metric `queue` in a namespace."""
    found = find(catalog, namespace)
    return "" if found is None else found.rule.key


OLD, NEW = rule_object("z", created="2026-01-01T00:00:00Z"), rule_object("a", created="2026-01-02T00:00:00Z")
OLD_CLUSTER = rule_object("c", namespace="", created="2025-12-31T00:00:00Z")
NEW_CLUSTER = rule_object("c", namespace="", created="2026-01-03T00:00:00Z")
UNKNOWN_AGE = rule_object("a", created="")


@pytest.mark.parametrize(
    ("objects", "in_shop", "elsewhere"),
    [
        ((OLD, NEW), "MetricRule shop/z", ""),
        ((OLD, NEW_CLUSTER), "MetricRule shop/z", "ClusterMetricRule c"),
        ((OLD, NEW, OLD_CLUSTER), "ClusterMetricRule c", "ClusterMetricRule c"),
        ((rule_object("a"), rule_object("b")), "MetricRule shop/a", ""),
        ((OLD, UNKNOWN_AGE), "MetricRule shop/z", ""),
    ],
)
def test_oldest_object_of_a_namespace_wins_in_any_order(
    objects: tuple[RuleObject, ...], in_shop: str, elsewhere: str
) -> None:
    for ordered in permutations(objects):
        catalog = MetricIndex()
        for one in ordered:
            catalog.put(one, [external(one)])
        assert (maker(catalog, "shop"), maker(catalog, "bank")) == (in_shop, elsewhere)
        winner = catalog.winner(external(OLD))
        assert str(winner) == in_shop


def test_later_rule_of_one_object_wins() -> None:
    catalog = MetricIndex()
    first, second = external(OLD), external(OLD)
    catalog.put(OLD, [first, second])
    assert find(catalog, "shop") is second


def test_conflicting_objects_are_those_that_make_the_metric_for_the_same_namespace() -> None:
    catalog, other = MetricIndex(), rule_object("o", namespace="bank")
    for one in OLD, NEW, NEW_CLUSTER, other:
        catalog.put(one, [external(one)])
    assert catalog.conflicting(OLD.name) == {OLD.name, NEW.name, NEW_CLUSTER.name}
    assert catalog.conflicting(NEW_CLUSTER.name) == {OLD.name, NEW.name, NEW_CLUSTER.name, other.name}


async def test_discovery_lists_each_metric_once_and_keeps_its_tuples_until_they_change() -> None:
    catalog = MetricIndex()
    catalog.put(OLD, [external(OLD, "b"), of_pods(OLD)])
    catalog.put(NEW, [external(NEW, "a"), external(NEW, "b"), of_pods(NEW)])
    await catalog.publish()
    assert catalog.external == ("a", "b")
    assert [str(info) for info in catalog.custom] == ["pods/rate"]
    assert catalog.custom_resources == {"pods"}
    before = (catalog.external, catalog.custom)
    catalog.remove(OLD.name)
    await catalog.publish()
    assert catalog.external is before[0]
    assert catalog.custom is before[1]
    catalog.remove(NEW.name)
    await catalog.publish()
    assert not any([catalog.external, catalog.custom, catalog.custom_resources])


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["", "shop", "bank"]), st.integers(0, 3), st.sets(st.sampled_from("xy"))
    ),
    max_size=12,
)


@given(CHANGES)
async def test_catalog_equals_one_that_is_made_of_the_last_versions_of_all_objects(
    changes: list[tuple[str, str, int, set[str]]],
) -> None:
    catalog, last = MetricIndex(), dict[ObjectName, tuple[RuleObject, set[str]]]()
    for name, namespace, age, metrics in changes:
        one = rule_object(name, namespace=namespace, created=f"2026-01-0{age + 1}T00:00:00Z")
        catalog.put(one, [external(one, metric) for metric in sorted(metrics)])
        last[one.name] = (one, metrics)
    await catalog.publish()
    for namespace in ("shop", "bank", "club"):
        for metric in "xy":
            candidates = [
                (one.created, one.name)
                for one, metrics in last.values()
                if metric in metrics and one.name.namespace in (namespace, "")
            ]
            found = find(catalog, namespace, metric)
            assert (None if found is None else found.rule.key) == (str(min(candidates)[1]) if candidates else None)
    assert catalog.external == tuple(sorted(set[str]().union(*(metrics for _, metrics in last.values()))))
