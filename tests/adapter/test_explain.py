"""`explain`: why a metric exists or is missing, with canned series."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.prometheus import Vector
from kube.values.selectors import LabelSelector
from tests.adapter.diagnosis_env import (
    ALL_FOUND,
    POD,
    PODS,
    Found,
    env,
    explained,
)
from tests.adapter.metrics_env import objects, series, vector


async def test_custom_metric_by_name_and_by_selector(tmp_path: Path) -> None:
    async with env(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 2.0))
        named = await explained(opened, "pods/hits_per_second", namespace="shop", name="web-0")
        assert opened.prometheus.queries[:1] == ['sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)']
        opened.api.handlers["/api/v1/namespaces/shop/pods"] = objects("web-0")
        selector, port = LabelSelector.parse("app=web"), LabelSelector.parse("port=80")
        selected = await explained(
            opened, "pod/hits_per_second", namespace="shop", selector=selector, metric_selector=port
        )
    assert (named.rule, named.series, named.has_value) == ("rules[0]", "hits_total", True)
    assert selected.target == "pods/hits_per_second"
    assert selected.example is not None
    assert 'port="80"' in selected.example.queries[0]


async def test_external_metric_without_namespace_uses_one_that_has_series(tmp_path: Path) -> None:
    async with env(tmp_path, ALL_FOUND) as opened:
        opened.prometheus.result = vector(({"queue": "mails", "ns": "shop"}, 3.0))
        explanation = await explained(opened, "external/queue_depth")
    assert explanation.example is not None
    assert explanation.example.queries == ('max(queue_depth{ns="shop"}) by (queue)',)
    assert [(one.of, one.value) for one in explanation.example.values] == [("ns=shop,queue=mails", "3")]


async def test_rules_that_lose_an_overlap_are_named(tmp_path: Path) -> None:
    found = {**ALL_FOUND, "second": (series("hits_per_second", "namespace", "pod"),)}
    async with env(tmp_path, found) as opened:
        explanation = await explained(opened, "pods/hits_per_second")
    assert (explanation.rule, explanation.hidden) == ("rules[1]", ("rules[0] (of hits_total)",))


@pytest.mark.parametrize(
    ("found", "target", "reason"),
    [
        pytest.param(
            {"first": (series("hits_total", "namespace", "pod_name"),)},
            "pods/hits_per_second",
            "series hits_total is found by rules[0], but no label maps to pods: those that map to resources are"
            " `namespace` (namespaces), the others `pod_name`; add an override for the label with the object's name",
            id="no label",
        ),
        pytest.param(
            {"first": (series("secret_hits_total", "pod"),)},
            "pods/secret_hits_per_second",
            "series secret_hits_total is found by rules[0] and left out by its seriesFilters[0].isNot",
            id="left out",
        ),
        pytest.param(
            {},
            "pods/hits_total",
            "series hits_total is found by rules[0] and called hits_per_second in the API",
            id="another name",
        ),
        pytest.param(
            {"second": ()},
            "pods/errors",
            'rules[1] would make it, but finds no series with a sample in the last 2m0s: errors{job="second"}',
            id="no series",
        ),
        pytest.param({}, "unicorns/hits_per_second", "there is no resource unicorns", id="no resource"),
        pytest.param({}, "pods/nothing", "no rule makes a metric called nothing", id="nothing like it"),
    ],
)
async def test_reasons_of_a_missing_metric(tmp_path: Path, found: Found, target: str, reason: str) -> None:
    async with env(tmp_path, {**ALL_FOUND, **found}) as opened:
        explanation = await explained(opened, target)
    assert (explanation.rule, explanation.has_value) == ("", False)
    assert explanation.reasons == (reason,)


async def test_suggestions_and_series_that_no_rule_finds(tmp_path: Path) -> None:
    async with env(tmp_path, ALL_FOUND) as opened:
        assert "pods/hits_per_second" in (await explained(opened, "pods/hit_per_second")).suggestions
        assert (await explained(opened, "services/errors")).suggestions[:2] == ("pods/errors", "namespaces/errors")
        assert (await explained(opened, "external/queue_dept")).suggestions == ("external/queue_depth",)
        opened.prometheus.result = vector(({"__name__": "sales_total"}, 1.0))
        explanation = await explained(opened, "pods/sales_per_second")
    assert explanation.reasons == ("Prometheus has series sales_total, but no seriesQuery finds it",)


@pytest.mark.parametrize(
    ("result", "reasons"),
    [
        (Vector(()), ("the query finds nothing now", "there are no series of hits_total")),
        (vector(({"job": "x"}, 1.0)), ("the query's result has no value for the object: it has `job`",)),
    ],
)
async def test_reasons_of_a_missing_value(tmp_path: Path, result: Vector, reasons: tuple[str, ...]) -> None:
    async with env(tmp_path, PODS) as opened:
        opened.prometheus.result = result
        explanation = await explained(opened, "pods/hits_per_second", namespace="shop", name="web-0")
    assert explanation.reasons == reasons
